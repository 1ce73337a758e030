/* The safetensors reader on files of the Python package and on damaged ones. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"
#include "files/safetensors/convert.h"
#include "files/safetensors/safetensors.h"

#define IO_DATA LATHE_TEST_DATA "/golden/data/io/"
#define MODELS LATHE_TEST_DATA "/golden/data/models/"

/* A file image: u64 length, header text, `data_bytes` bytes that count up. */
static uint8_t *image(const char *header, int64_t data_bytes, int64_t *out_bytes)
{
    const size_t length = strlen(header);
    uint8_t *bytes = calloc(1, 8 + length + (size_t)data_bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (int64_t i = 0; i < data_bytes; i++)
        bytes[8 + length + (size_t)i] = (uint8_t)i;
    *out_bytes = 8 + (int64_t)length + data_bytes;
    return bytes;
}

static lathe_status parse(const char *header, int64_t data_bytes)
{
    int64_t n = 0;
    uint8_t *bytes = image(header, data_bytes, &n);
    lathe_safetensors *set = NULL;
    const lathe_status status = lathe_safetensors_parse("made.safetensors", bytes, n, &set);
    cr_assert((set != NULL) == (status == LATHE_OK));
    lathe_safetensors_close(set);
    free(bytes);
    return status;
}

#define GOOD "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

Test(safetensors, reads_every_dtype_written_by_the_python_package)
{
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(IO_DATA "mixed.safetensors", &set), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_eq(lathe_safetensors_count(set), 15);
    cr_assert_str_eq(lathe_safetensors_metadata(set, "origin"), "safetensors 0.8.0");
    cr_assert_null(lathe_safetensors_metadata(set, "none"));
    static const char *const floats[] = {"a.f64", "b.f32", "c.bf16", "d.f16"};
    for (int k = 0; k < 4; k++) {
        const lathe_st_tensor *t = lathe_safetensors_find(set, floats[k]);
        cr_assert_not_null(t);
        cr_assert(t->desc.rank == 2 && t->desc.dims[0] == 3 && t->desc.dims[1] == 4);
        float got[12], turned[12];
        cr_assert_eq(lathe_convert(got, LATHE_F32, t->data, t->desc.dtype, 12), LATHE_OK);
        cr_assert_eq(lathe_convert_transposed(turned, LATHE_F32, t->data, t->desc.dtype, 3, 4),
                     LATHE_OK);
        for (int i = 0; i < 12; i++) {
            cr_assert_eq(got[i], (float)(i - 3) / 4, "%s[%d]", floats[k], i);
            cr_assert_eq(turned[(i % 4) * 3 + i / 4], got[i]);
        }
    }
    static const struct {
        const char *name;
        int32_t dtype;
    } integers[] = {
        {"e.i64", LATHE_I64}, {"f.i32", LATHE_I32}, {"g.i16", LATHE_I16}, {"h.i8", LATHE_I8}};
    for (int k = 0; k < 4; k++) {
        const lathe_st_tensor *t = lathe_safetensors_find(set, integers[k].name);
        cr_assert_eq(t->desc.dtype, integers[k].dtype);
        for (int i = 0; i < 12; i++) {
            const int64_t size = lathe_dtype_bytes(integers[k].dtype), want = i - 3;
            cr_assert_eq(memcmp((const char *)t->data + i * size, &want, (size_t)size), 0);
        }
    }
    cr_assert_eq(lathe_safetensors_find(set, "i.u8")->desc.dtype, LATHE_U8);
    cr_assert_eq(lathe_safetensors_find(set, "j.bool")->desc.dtype, LATHE_BOOL);
    cr_assert_eq(lathe_safetensors_find(set, "k.e4m3")->desc.dtype, LATHE_F8_E4M3);
    cr_assert_eq(lathe_safetensors_find(set, "l.e5m2")->desc.dtype, LATHE_F8_E5M2);
    cr_assert_eq(lathe_safetensors_find(set, "m.scalar")->desc.rank, 0);
    cr_assert_eq(lathe_desc_count(&lathe_safetensors_find(set, "n.empty")->desc), 0);
    cr_assert_not_null(lathe_safetensors_find(set, "\303\251 \"quoted\""));
    cr_assert_null(lathe_safetensors_find(set, "z"));
    lathe_safetensors_close(set);
}

Test(safetensors, reads_a_sharded_folder_like_a_single_file)
{
    lathe_safetensors *one = NULL, *many = NULL;
    cr_assert_eq(lathe_safetensors_open(MODELS "llama_tied", &one), LATHE_OK);
    cr_assert_eq(lathe_safetensors_open(MODELS "llama_sharded", &many), LATHE_OK);
    cr_assert_eq(lathe_safetensors_count(one), lathe_safetensors_count(many));
    for (int64_t i = 0; i < lathe_safetensors_count(one); i++) {
        const lathe_st_tensor *a = lathe_safetensors_at(one, i), *b = lathe_safetensors_at(many, i);
        cr_assert_str_eq(a->name, b->name);
        cr_assert_eq(memcmp(&a->desc, &b->desc, sizeof a->desc), 0);
        cr_assert_eq(memcmp(a->data, b->data, (size_t)lathe_desc_bytes(&a->desc)), 0);
    }
    lathe_safetensors_close(one);
    lathe_safetensors_close(many);
}

Test(safetensors, takes_leading_and_trailing_white_space)
{
    cr_assert_eq(parse(GOOD "}", 4), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(parse("  \n" GOOD "}   ", 4), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(parse("{}", 0), LATHE_OK);
    cr_assert_eq(parse("{\"__metadata__\":{\"format\":\"pt\"}}", 0), LATHE_OK);
}

Test(safetensors, refuses_damaged_headers)
{
    static const struct {
        const char *header;
        int64_t data_bytes;
        const char *names; /* what the message must mention */
    } bad[] = {
        {GOOD "}", 3, "truncated"},
        {GOOD "}", 5, "after the last tensor"},
        {GOOD ",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "a"},
        {GOOD ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}", 9, "gap"},
        {GOOD ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "overlap"},
        {GOOD ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", 6, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "need 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "not a count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "not a count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "is at bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "is at bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "F31"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,2,2],\"data_offsets\":[0,4]}}", 4,
         "5 dimensions"},
        {"{\"a\":5}", 0, "not an object"},
        {"{\"__metadata__\":{\"format\":1}}", 0, "format"},
        {"{\"__metadata__\":7}", 0, "__metadata__"},
        {"[]", 0, "not a JSON object"},
        {"{", 0, "made.safetensors"},
        {"", 0, "made.safetensors"},
        {"{} x", 0, "made.safetensors"},
        {"{\"a\xff\":1}", 0, "made.safetensors"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const lathe_status status = parse(bad[i].header, bad[i].data_bytes);
        cr_expect(status == LATHE_E_CORRUPT || status == LATHE_E_UNSUPPORTED, "%s: %d",
                  bad[i].header, status);
        cr_expect_not_null(strstr(lathe_error_message(), bad[i].names), "%s: %s", bad[i].header,
                           lathe_error_message());
        cr_expect_not_null(strstr(lathe_error_message(), "made.safetensors"), "%s",
                           lathe_error_message());
    }
}

Test(safetensors, refuses_every_truncation_and_bad_lengths)
{
    int64_t n = 0;
    uint8_t *bytes = image(GOOD "}", 4, &n);
    lathe_safetensors *set = NULL;
    for (int64_t cut = 0; cut < n; cut++)
        cr_expect_eq(lathe_safetensors_parse("cut", bytes, cut, &set), LATHE_E_CORRUPT, "%lld",
                     (long long)cut);
    cr_assert_eq(lathe_safetensors_parse("whole", bytes, n, &set), LATHE_OK);
    lathe_safetensors_close(set);
    memset(bytes, 0xff, 8);
    cr_assert_eq(lathe_safetensors_parse("huge", bytes, n, &set), LATHE_E_CORRUPT);
    memset(bytes, 0, 8);
    bytes[3] = 0x10; /* 268 MB: above the limit */
    cr_assert_eq(lathe_safetensors_parse("long", bytes, n, &set), LATHE_E_CORRUPT);
    free(bytes);
}

Test(safetensors, survives_flipped_header_bytes)
{
    int64_t n = 0;
    uint8_t *bytes = image(GOOD "}", 4, &n);
    for (int64_t i = 0; i < (n - 4) * 8; i++) {
        lathe_safetensors *set = NULL;
        bytes[i / 8] ^= (uint8_t)(1 << (i % 8));
        (void)lathe_safetensors_parse("flipped", bytes, n, &set);
        if (set != NULL) /* the file is still valid: its only tensor is inside the data */
            cr_expect_eq(lathe_desc_bytes(&lathe_safetensors_at(set, 0)->desc), 4);
        lathe_safetensors_close(set);
        bytes[i / 8] ^= (uint8_t)(1 << (i % 8));
    }
    free(bytes);
}

Test(safetensors, names_what_is_missing)
{
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open(LATHE_TEST_DATA "/golden", &set), LATHE_E_NOT_FOUND);
    cr_assert_not_null(strstr(lathe_error_message(), "model.safetensors"));
    cr_assert_neq(lathe_safetensors_open(IO_DATA "absent.safetensors", &set), LATHE_OK);
    cr_assert_not_null(strstr(lathe_error_message(), "absent.safetensors"));
    cr_assert_null(set);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!lathe_map_fault(info->si_addr))
        (void)signal(number, SIG_DFL);
}

Test(safetensors, a_file_cut_while_its_tensors_are_read_is_an_error_that_names_it)
{
    char path[] = "/tmp/lathe-cut-XXXXXX";
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    lathe_safetensors *set = NULL;
    int64_t bytes = 0, sum = 0;
    action.sa_sigaction = on_fault;
    cr_assert_eq(sigaction(SIGBUS, &action, NULL), 0);
    const int fd = mkstemp(path);
    uint8_t *whole = image("{\"a\":{\"dtype\":\"U8\",\"shape\":[100000],"
                           "\"data_offsets\":[0,100000]}}",
                           100000, &bytes);
    cr_assert_eq(write(fd, whole, (size_t)bytes), bytes);
    cr_assert_eq(lathe_safetensors_open(path, &set), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_safetensors_check(set), LATHE_OK);
    cr_assert_eq(ftruncate(fd, 5000), 0);
    const lathe_st_tensor *t = lathe_safetensors_find(set, "a");
    for (int64_t i = 0; i < 100000; i++)
        sum += ((const uint8_t *)t->data)[i];
    cr_expect_gt(sum, 0);
    cr_expect_eq(lathe_safetensors_check(set), LATHE_E_IO);
    cr_expect_not_null(strstr(lathe_error_message(), path), "%s", lathe_error_message());
    lathe_safetensors_close(set);
    (void)close(fd);
    (void)unlink(path);
    free(whole);
}
