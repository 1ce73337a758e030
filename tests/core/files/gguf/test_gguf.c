/* The reader of GGUF files and the codecs of their blocks, on files of gguf-py and on damaged ones.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "files/gguf/gguf_codec.h"
#include "files/gguf/gguf_file.h"
#include "files/gguf/gguf_writer.h"
#include "files/safetensors/safetensors.h"
#include "lathe/dtype.h"

#define DATA LATHE_TEST_DATA "/golden/data/gguf/"

static lathe_gguf *open_file(const char *path)
{
    lathe_gguf *file = NULL;
    cr_assert_eq(lathe_gguf_open(path, &file), LATHE_OK, "%s", lathe_error_message());
    return file;
}

/* ---- the container ---- */

static int64_t int_of(const lathe_gguf *file, const char *key)
{
    int64_t out = 0;
    cr_assert_eq(lathe_gguf_int(file, key, INT64_MIN, INT64_MAX, 7, &out), LATHE_OK, "%s",
                 lathe_error_message());
    return out;
}

Test(gguf_file, reads_every_type_of_value)
{
    lathe_gguf *file = open_file(DATA "values.gguf");
    cr_expect_eq(int_of(file, "t.u8"), 200);
    cr_expect_eq(int_of(file, "t.i8"), -3);
    cr_expect_eq(int_of(file, "t.u16"), 60000);
    cr_expect_eq(int_of(file, "t.i16"), -300);
    cr_expect_eq(int_of(file, "t.u32"), 4000000000);
    cr_expect_eq(int_of(file, "t.i32"), -70000);
    cr_expect_eq(int_of(file, "t.u64"), (int64_t)1 << 40);
    cr_expect_eq(int_of(file, "t.i64"), -((int64_t)1 << 40));
    cr_expect_eq(int_of(file, "t.none"), 7);
    double x = 0.0;
    cr_assert_eq(lathe_gguf_float(file, "t.f32", 0.0, &x), LATHE_OK);
    cr_expect_eq(x, (double)0.1f);
    cr_assert_eq(lathe_gguf_float(file, "t.f64", 0.0, &x), LATHE_OK);
    cr_expect_eq(x, 0.1);
    int32_t flag = 0;
    cr_assert_eq(lathe_gguf_bool(file, "t.bool", 0, &flag), LATHE_OK);
    cr_expect_eq(flag, 1);
    const char *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_gguf_text(file, "t.text", &text, &n), LATHE_OK);
    cr_expect(n == 6 && memcmp(text, "h\303\251llo", 6) == 0);
    const lathe_gguf_entry *array = NULL;
    cr_assert_eq(lathe_gguf_array(file, "t.texts", LATHE_GGUF_TEXT, &array), LATHE_OK);
    const uint8_t *at = array->data;
    static const char *const want[] = {"a", "", "\342\226\201the"};
    for (int i = 0; i < 3; i++) {
        text = lathe_gguf_next_text(&at, &n);
        cr_expect(n == (int64_t)strlen(want[i]) && memcmp(text, want[i], (size_t)n) == 0);
    }
    cr_assert_eq(lathe_gguf_array(file, "t.ints", LATHE_GGUF_I32, &array), LATHE_OK);
    cr_expect(array->n == 3 && lathe_gguf_int_at(array, 1) == -2);
    cr_assert_eq(lathe_gguf_array(file, "t.floats", LATHE_GGUF_FLOAT, &array), LATHE_OK);
    cr_expect(array->n == 2 && lathe_gguf_float_at(array, 1) == -1.5f);
    lathe_gguf_close(file);
}

Test(gguf_file, values_of_another_type_are_refused_by_key)
{
    lathe_gguf *file = open_file(DATA "values.gguf");
    const lathe_gguf_entry *array;
    const char *text;
    int64_t n;
    double x;
    int32_t flag;
    cr_expect_eq(lathe_gguf_int(file, "t.f32", 0, 9, 0, &n), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "the key t.f32 is of type f32; expected a"),
                       "%s", lathe_error_message());
    cr_expect_eq(lathe_gguf_int(file, "t.u8", 0, 9, 0, &n), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "the key t.u8 is 200; expected 0 to 9"));
    cr_expect_eq(lathe_gguf_float(file, "t.u8", 0.0, &x), LATHE_E_CONFIG);
    cr_expect_eq(lathe_gguf_bool(file, "t.u8", 0, &flag), LATHE_E_CONFIG);
    cr_expect_eq(lathe_gguf_text(file, "t.texts", &text, &n), LATHE_E_CONFIG);
    cr_expect_eq(lathe_gguf_array(file, "t.text", LATHE_GGUF_TEXT, &array), LATHE_E_CONFIG);
    cr_expect_eq(lathe_gguf_array(file, "t.ints", LATHE_GGUF_TEXT, &array), LATHE_E_CONFIG);
    lathe_gguf_close(file);
}

Test(gguf_file, tensors_have_their_dimensions_in_lathes_order)
{
    lathe_gguf *file = open_file(DATA "values.gguf");
    cr_assert_eq(lathe_gguf_count(file), 3);
    const lathe_gguf_tensor *t = lathe_gguf_find(file, "three");
    cr_assert_not_null(t);
    cr_expect(t->rank == 3 && t->dims[0] == 2 && t->dims[1] == 3 && t->dims[2] == 4);
    cr_expect(t->rows == 6 && t->cols == 4 && t->bytes == 96);
    float x[24];
    lathe_gguf_decode(t->type, t->data, 24, x);
    for (int i = 0; i < 24; i++)
        cr_expect_eq(x[i], (float)i);
    t = lathe_gguf_find(file, "two");
    lathe_gguf_decode(t->type, t->data, 6, x);
    cr_expect(t->type->type == LATHE_GGUF_F16 && x[5] == 5.0f);
    cr_expect_null(lathe_gguf_find(file, "four"));
    cr_expect_eq(lathe_gguf_check(file), LATHE_OK);
    lathe_gguf_close(file);
}

/* ---- damaged files ---- */

static uint8_t image[4096];
static int64_t length;

static void put(const void *data, size_t n)
{
    memcpy(image + length, data, n);
    length += (int64_t)n;
}

static void put_u32(uint32_t x)
{
    put(&x, 4);
}

static void put_u64(uint64_t x)
{
    put(&x, 8);
}

static void put_text(const char *text)
{
    put_u64(strlen(text));
    put(text, strlen(text));
}

static void put_head(uint64_t tensors, uint64_t keys)
{
    length = 0;
    put("GGUF", 4);
    put_u32(3);
    put_u64(tensors);
    put_u64(keys);
}

/* A tensor of 2 x 32 values. */
static void put_tensor(const char *name, uint32_t type, uint64_t offset)
{
    put_text(name);
    put_u32(2);
    put_u64(32);
    put_u64(2);
    put_u32(type);
    put_u64(offset);
}

static void put_data(int64_t n)
{
    while (length % 32 != 0)
        image[length++] = 0;
    memset(image + length, 0, (size_t)n);
    length += n;
}

static void refused(lathe_status code, const char *message)
{
    lathe_gguf *file = NULL;
    cr_expect_eq(lathe_gguf_parse("m.gguf", image, length, &file), code, "%s: %s", message,
                 lathe_error_message());
    cr_expect_null(file);
    cr_expect_not_null(strstr(lathe_error_message(), message), "no '%s' in %s", message,
                       lathe_error_message());
    cr_expect_eq(strncmp(lathe_error_message(), "m.gguf: ", 8), 0, "%s", lathe_error_message());
}

Test(gguf_file, a_header_that_is_wrong_is_refused)
{
    length = 0;
    refused(LATHE_E_CORRUPT, "is no GGUF file: it is empty");
    put("GGML....", 8);
    refused(LATHE_E_CORRUPT, "it does not begin with \"GGUF\"");
    put_head(0, 0);
    image[4] = 1;
    refused(LATHE_E_UNSUPPORTED, "GGUF of version 1; expected 2 or 3");
    memcpy(image + 4, "\0\0\0\3", 4);
    refused(LATHE_E_UNSUPPORTED, "big-endian");
    put_head(0, 0);
    length -= 3;
    refused(LATHE_E_CORRUPT, "the file ends at byte 21, inside the header");
    put_head(1000000000, 0);
    refused(LATHE_E_CORRUPT, "says that it has 1000000000 tensors, more than its 24 bytes");
    put_head(0, UINT64_MAX);
    refused(LATHE_E_CORRUPT, "says that it has 18446744073709551615 keys");
}

Test(gguf_file, keys_that_are_wrong_are_refused_by_name_or_place)
{
    put_head(0, 1);
    put_u64(1 << 30);
    put("abcdefghijkl", 12);
    refused(LATHE_E_CORRUPT, "at byte 24, in the keys: a text of 1073741824 bytes, but only 12");
    put_head(0, 1);
    put_u64(3);
    put("a\0bxxxxxxxxx", 12);
    refused(LATHE_E_CORRUPT, "a text with a NUL in it");
    put_head(0, 1);
    put_text("\377ab");
    put("xxxxxxxxx", 9);
    refused(LATHE_E_CORRUPT, "a text that is not UTF-8");
    put_head(0, 1);
    put_text("k");
    put_u32(13);
    put_u64(0);
    refused(LATHE_E_CORRUPT, "key k has a value of type 13");
    put_head(0, 1);
    put_text("k");
    put_u32(LATHE_GGUF_ARRAY);
    put_u32(LATHE_GGUF_ARRAY);
    put_u64(0);
    refused(LATHE_E_CORRUPT, "key k has a value of type 9; expected 0 to 12, arrays not nested");
    put_head(0, 1);
    put_text("k");
    put_u32(LATHE_GGUF_ARRAY);
    put_u32(LATHE_GGUF_I32);
    put_u64(UINT64_MAX / 4);
    refused(LATHE_E_CORRUPT, "inside k: it was cut short, or a count in it is wrong");
    put_head(0, 1);
    put_text("k");
    put_u32(LATHE_GGUF_BOOL);
    put("\2", 1);
    refused(LATHE_E_CORRUPT, "key k: a bool is 2");
    put_head(0, 2);
    for (int i = 0; i < 2; i++) {
        put_text("same");
        put_u32(LATHE_GGUF_U32);
        put_u32(1);
    }
    refused(LATHE_E_CORRUPT, "the key same is there twice");
    put_head(0, 1);
    put_text("general.alignment");
    put_u32(LATHE_GGUF_U32);
    put_u32(24);
    refused(LATHE_E_CORRUPT, "general.alignment is 24; expected a power of two");
    put_head(0, 1);
    put_text("split.count");
    put_u32(LATHE_GGUF_U16);
    put("\3\0", 2);
    refused(LATHE_E_UNSUPPORTED, "is one of 3 parts of a model; join them first");
}

Test(gguf_file, tensors_that_lie_about_size_or_place_are_refused_by_name)
{
    put_head(1, 0);
    put_tensor("a", LATHE_GGUF_F32, 0);
    put_data(256);
    lathe_gguf *good = NULL;
    cr_assert_eq(lathe_gguf_parse("m.gguf", image, length, &good), LATHE_OK, "%s",
                 lathe_error_message());
    lathe_gguf_close(good);
    length--;
    refused(LATHE_E_CORRUPT, "tensor a takes 256 bytes from byte 0 of the data, but the data have "
                             "255: the file was cut short");
    put_head(1, 0);
    put_tensor("a", LATHE_GGUF_F32, 8);
    put_data(512);
    refused(LATHE_E_CORRUPT, "tensor a begins at byte 8 of the data, which is no multiple of");
    put_head(1, 0);
    put_tensor("a", LATHE_GGUF_F32, (uint64_t)1 << 62);
    put_data(512);
    refused(LATHE_E_CORRUPT, "tensor a takes 256 bytes from byte 4611686018427387904");
    put_head(2, 0);
    put_tensor("a", LATHE_GGUF_F32, 0);
    put_tensor("b", LATHE_GGUF_F32, 224);
    put_data(512);
    refused(LATHE_E_CORRUPT, "tensors a and b overlap");
    put_head(2, 0);
    put_tensor("a", LATHE_GGUF_F32, 0);
    put_tensor("a", LATHE_GGUF_F32, 256);
    put_data(512);
    refused(LATHE_E_CORRUPT, "the tensor a is there twice");
    put_head(1, 0);
    put_tensor("a", 16, 0);
    put_data(512);
    refused(LATHE_E_UNSUPPORTED, "tensor a has type IQ2_XXS, which Lathe does not read");
    put_head(1, 0);
    put_tensor("a", 4, 0);
    put_data(512);
    refused(LATHE_E_CORRUPT, "tensor a has type 4, which GGUF does not have");
    put_head(1, 0);
    put_tensor("a", LATHE_GGUF_Q6_K, 0);
    put_data(512);
    refused(LATHE_E_CORRUPT, "rows of 32 elements, which is no multiple of the block of Q6_K, 256");
    put_head(1, 0);
    put_text("a");
    put_u32(5);
    put_data(64);
    refused(LATHE_E_CORRUPT, "tensor a has 5 dimensions; expected 1 to 4");
    put_head(1, 0);
    put_text("a");
    put_u32(2);
    put_u64(1);
    put_u64(0);
    put_data(64);
    refused(LATHE_E_CORRUPT, "tensor a has a dimension of 0");
    put_head(1, 0);
    put_text("a");
    put_u32(2);
    put_u64((uint64_t)1 << 40);
    put_u64((uint64_t)1 << 40);
    put_data(64);
    refused(LATHE_E_CORRUPT, "product must be below 2^63");
}

Test(gguf_file, cut_anywhere_is_refused)
{
    char *data = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_file_read(DATA "values.gguf", 0, &data, &n), LATHE_OK);
    for (int64_t cut = 0; cut < n - 32; cut++) {
        uint8_t *exact = malloc((size_t)cut + 1);
        memcpy(exact, data, (size_t)cut);
        lathe_gguf *file = NULL;
        const lathe_status status = lathe_gguf_parse("m.gguf", exact, cut, &file);
        cr_assert_eq(status, LATHE_E_CORRUPT, "cut at %lld: %s", (long long)cut,
                     lathe_error_message());
        free(exact);
    }
    free(data);
}

/* ---- the codecs ---- */

static const float *floats_of(const lathe_safetensors *set, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert_not_null(t, "%s", name);
    static float copy[1024];
    memcpy(copy, t->data, sizeof copy);
    return copy;
}

/* Compares the blocks of a file with the values that gguf-py decodes. */
static void compare_decoded(const char *gguf, const char *values, const char *const *names,
                            size_t n_names)
{
    lathe_gguf *file = open_file(gguf);
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(values, &set), LATHE_OK);
    for (size_t k = 0; k < n_names; k++) {
        char name[32];
        float got[1024], all[1024];
        (void)snprintf(name, sizeof name, "decode.%s", names[k]);
        const lathe_gguf_tensor *t = lathe_gguf_find(file, name);
        cr_assert_not_null(t, "%s", name);
        cr_expect_str_eq(t->type->name, names[k]);
        lathe_gguf_decode(t->type, t->data, 1024, got);
        lathe_gguf_decode_all(t->type, t->data, 1024, all);
        cr_expect_eq(memcmp(got, floats_of(set, name), sizeof got), 0, "%s", name);
        cr_expect_eq(memcmp(got, all, sizeof got), 0, "%s", name);
    }
    lathe_safetensors_close(set);
    lathe_gguf_close(file);
}

Test(gguf_codec, decoded_values_are_those_of_gguf_py_bit_for_bit)
{
    static const char *const names[] = {"F16",  "BF16", "Q4_0", "Q4_1", "Q5_0",
                                        "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
    compare_decoded(DATA "codecs.gguf", DATA "codecs.safetensors", names,
                    sizeof names / sizeof names[0]);
}

Test(gguf_codec, types_that_are_only_read_have_the_values_of_gguf_py)
{
    static const char *const names[] = {"Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    compare_decoded(DATA "codecs_read.gguf", DATA "codecs_read.safetensors", names,
                    sizeof names / sizeof names[0]);
}

Test(gguf_codec, encoded_blocks_are_those_of_gguf_py_byte_for_byte)
{
    static const char *const names[] = {"F16", "BF16", "Q4_0", "Q5_0", "Q8_0"};
    lathe_gguf *file = open_file(DATA "codecs.gguf");
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(DATA "codecs.safetensors", &set), LATHE_OK);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char name[32];
        uint8_t got[4096];
        (void)snprintf(name, sizeof name, "encode.%s", names[k]);
        const lathe_gguf_tensor *t = lathe_gguf_find(file, name);
        cr_assert_not_null(t, "%s", name);
        cr_assert_eq(lathe_gguf_encode(t->type, floats_of(set, "x"), 1024, got), LATHE_OK);
        cr_expect_eq(memcmp(got, t->data, (size_t)t->bytes), 0, "%s", name);
    }
    lathe_safetensors_close(set);
    lathe_gguf_close(file);
}

static double squared_error(const lathe_gguf_type *type, const void *blocks, const float *x)
{
    float y[1024];
    double sum = 0.0;
    lathe_gguf_decode(type, blocks, 1024, y);
    for (int i = 0; i < 1024; i++)
        sum += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
    return sum;
}

Test(gguf_codec, the_error_of_k_blocks_is_not_above_that_of_llama_cpp)
{
    static const char *const names[] = {"Q4_K", "Q6_K"};
    lathe_gguf *file = open_file(DATA "codecs.gguf");
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(DATA "codecs.safetensors", &set), LATHE_OK);
    for (int k = 0; k < 2; k++) {
        char name[32];
        uint8_t got[4096];
        (void)snprintf(name, sizeof name, "llama.%s", names[k]);
        const lathe_gguf_tensor *t = lathe_gguf_find(file, name);
        cr_assert_not_null(t, "%s", name);
        const float *x = floats_of(set, "x");
        cr_assert_eq(lathe_gguf_encode(t->type, x, 1024, got), LATHE_OK);
        const double ours = squared_error(t->type, got, x);
        const double theirs = squared_error(t->type, t->data, x);
        cr_expect_leq(ours, 1.01 * theirs, "%s: %g, llama.cpp %g", names[k], ours, theirs);
    }
    lathe_safetensors_close(set);
    lathe_gguf_close(file);
}

Test(gguf_codec, encoding_what_was_decoded_gives_the_same_values)
{
    static const int32_t types[] = {LATHE_GGUF_F32,  LATHE_GGUF_F16,  LATHE_GGUF_BF16,
                                    LATHE_GGUF_Q8_0, LATHE_GGUF_Q4_0, LATHE_GGUF_Q5_0};
    float x[256], y[256], again[256];
    uint8_t blocks[1024];
    for (int i = 0; i < 256; i++)
        x[i] = sinf((float)i * 0.7f) * (float)(1 + i % 5);
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        const lathe_gguf_type *type = lathe_gguf_type_of(types[k]);
        cr_assert_eq(lathe_gguf_encode(type, x, 256, blocks), LATHE_OK);
        lathe_gguf_decode(type, blocks, 256, y);
        cr_assert_eq(lathe_gguf_encode(type, y, 256, blocks), LATHE_OK);
        lathe_gguf_decode(type, blocks, 256, again);
        for (int i = 0; i < 256; i++) /* a scale is rounded to F16 once more */
            cr_expect(fabsf(again[i] - y[i]) <= 0.002f * fabsf(y[i]), "%s %d: %g %g", type->name, i,
                      (double)y[i], (double)again[i]);
    }
}

Test(gguf_codec, values_that_a_type_cannot_hold_are_refused)
{
    float x[256] = {0};
    uint8_t blocks[1024];
    x[200] = NAN;
    cr_expect_eq(lathe_gguf_encode(lathe_gguf_type_of(LATHE_GGUF_Q4_K), x, 256, blocks),
                 LATHE_E_NUMERIC);
    cr_expect_str_eq(lathe_error_message(), "value 200 is not finite");
    x[200] = 70000.0f;
    cr_expect_eq(lathe_gguf_encode(lathe_gguf_type_of(LATHE_GGUF_F16), x, 256, blocks),
                 LATHE_E_NUMERIC);
    cr_expect_str_eq(lathe_error_message(), "a value near element 200 is 70000, too large for F16: "
                                            "use bf16 or f32");
    cr_expect_eq(lathe_gguf_encode(lathe_gguf_type_of(LATHE_GGUF_BF16), x, 256, blocks), LATHE_OK);
    cr_expect_eq(lathe_gguf_encode(lathe_gguf_type_of(LATHE_GGUF_Q5_1), x, 256, blocks),
                 LATHE_E_UNSUPPORTED);
}

/* ---- the writer ---- */

Test(gguf_writer, what_is_written_is_read_back)
{
    char path[] = "/tmp/lathe_gguf_XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    lathe_gguf_writer *w = NULL;
    cr_assert_eq(lathe_gguf_writer_create(path, &w), LATHE_OK);
    lathe_gguf_put_u32(w, "a.n", 4000000000);
    lathe_gguf_put_float(w, "a.x", 0.5);
    lathe_gguf_put_bool(w, "a.flag", 1);
    lathe_gguf_put_text(w, "a.text", "abc", 3);
    lathe_buffer texts = LATHE_BUFFER_INIT;
    lathe_gguf_append_text(&texts, "one", 3);
    lathe_gguf_append_text(&texts, "", 0);
    lathe_gguf_put_array(w, "a.texts", LATHE_GGUF_TEXT, 2, &texts);
    lathe_buffer_fini(&texts);
    const lathe_gguf_type *f32 = lathe_gguf_type_of(LATHE_GGUF_F32);
    cr_assert_eq(lathe_gguf_writer_add(w, "v", f32, 0, 3), LATHE_OK);
    cr_assert_eq(lathe_gguf_writer_add(w, "m", f32, 2, 4), LATHE_OK);
    cr_assert_eq(lathe_gguf_writer_begin(w), LATHE_OK, "%s", lathe_error_message());
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    cr_assert_eq(lathe_gguf_writer_write(w, x, 12), LATHE_OK);
    cr_assert_eq(lathe_gguf_writer_write(w, x, 16), LATHE_OK);
    cr_expect_eq(lathe_gguf_writer_finish(w), LATHE_E_STATE);
    cr_assert_eq(lathe_gguf_writer_write(w, x + 4, 16), LATHE_OK);
    cr_expect_eq(lathe_gguf_writer_write(w, x, 4), LATHE_E_STATE);
    cr_assert_eq(lathe_gguf_writer_finish(w), LATHE_OK, "%s", lathe_error_message());
    lathe_gguf_writer_destroy(w);
    lathe_gguf *file = open_file(path);
    cr_expect_eq(int_of(file, "a.n"), 4000000000);
    const lathe_gguf_tensor *m = lathe_gguf_find(file, "m");
    cr_assert_not_null(m);
    cr_expect(m->rank == 2 && m->dims[0] == 2 && m->dims[1] == 4);
    cr_expect_eq(memcmp(m->data, x, sizeof x), 0);
    lathe_gguf_close(file);
    (void)unlink(path);
}
