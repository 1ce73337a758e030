/* fp8, mxfp4, nvfp4, eetq, hqq, gptq, awq: planes and decoded values have the bits of the libraries
 * that write these files; the builds for each instruction set agree; names in files; refusals. */
#include "quant_weights.h"

#include <jansson.h>

#include "../../plugins/quant/shared/small_float.h"
#include "lathe/kit/testing.h"
#include "support/build_folder.h"

typedef struct subject {
    const lathe_plugin *plugin;
    const lathe_quant_v1 *quant;
    void *self;
} subject;

/* The head of every instance (plugins/quant/shared/quant_codec.h). */
typedef struct instance_head {
    const lathe_host *host;
    int32_t build;
} instance_head;

static subject open_format(const char *name, const char *settings)
{
    char path[4096];
    subject s = {NULL, NULL, NULL};
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", lathe_test_build(), name);
    s.plugin = lathe_test_open(path);
    s.quant = s.plugin->table;
    cr_assert_eq(lathe_test_create(s.plugin, settings, &s.self), LATHE_OK, "%s: %s", name,
                 lathe_test_message);
    return s;
}

/* ---- golden cases: tests/golden/quant_formats.py ---- */

/* Reads the reference's bytes of a plane. */
static void read_plane(FILE *file, const char *name, int32_t k, void *data, int64_t bytes)
{
    long long n;
    cr_assert_eq(fscanf(file, " plane %lld ", &n), 1);
    cr_assert_eq(n, bytes, "%s: plane %d has %lld bytes in the reference, %lld here", name, (int)k,
                 n, (long long)bytes);
    for (int64_t i = 0; i < bytes; i++) {
        unsigned byte = 256;
        cr_assert_eq(fscanf(file, "%2x", &byte), 1);
        ((uint8_t *)data)[i] = (uint8_t)byte;
    }
}

/* Decodes the reference's planes to each dtype that it decodes to. */
static void check_decoded(FILE *file, const char *name, const subject *s, int64_t rows,
                          int64_t cols, const planes *p)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    float *out = malloc((size_t)(rows * cols) * sizeof *out);
    for (int k = 0; k < 3; k++) {
        char word[32], want[32], got[32];
        cr_assert_eq(fscanf(file, " %31s %31s", word, want), 2);
        cr_assert_str_eq(word, names[k]);
        if (strcmp(want, "-") == 0)
            continue;
        cr_assert_eq(
            s->quant->decode(s->self, rows, cols, planes_in(p), out, dtypes[k], NULL, NULL),
            LATHE_OK);
        (void)snprintf(got, sizeof got, "%016llx",
                       (unsigned long long)fnv1a(out, rows * cols * lathe_dtype_bytes(dtypes[k])));
        cr_expect_str_eq(got, want, "%s [%d, %d]: %s differs", name, (int)rows, (int)cols, word);
    }
    free(out);
}

/* Encodes the same weight: to the reference's planes, or with an error that is no more than 1.01
 * times as large. */
static void check_encoded(FILE *file, const char *name, const subject *s, const float *w,
                          int64_t rows, int64_t cols, const planes *want)
{
    const int has_own_rounding = strcmp(name, "hqq") == 0; /* its sums have another order here */
    planes p = planes_of(s->quant, s->self, rows, cols);
    double mse, error = 0;
    float *back = malloc((size_t)(rows * cols) * sizeof *back);
    cr_assert_eq(fscanf(file, " mse %lf", &mse), 1);
    cr_assert_eq(s->quant->encode(s->self, rows, cols, w, p.data), LATHE_OK, "%s: %s", name,
                 lathe_test_message);
    for (int32_t k = 0; k < p.n && !has_own_rounding; k++)
        for (int64_t i = 0; i < lathe_desc_bytes(&p.info[k].desc); i++)
            cr_assert_eq(((uint8_t *)p.data[k])[i], ((uint8_t *)want->data[k])[i],
                         "%s [%d, %d]: %s[%d]: %02x, want %02x", name, (int)rows, (int)cols,
                         p.info[k].name, (int)i, ((uint8_t *)p.data[k])[i],
                         ((uint8_t *)want->data[k])[i]);
    cr_assert_eq(s->quant->decode(s->self, rows, cols, planes_in(&p), back, LATHE_F32, NULL, NULL),
                 LATHE_OK);
    for (int64_t i = 0; i < rows * cols; i++)
        error += ((double)back[i] - (double)w[i]) * ((double)back[i] - (double)w[i]);
    error /= (double)(rows * cols);
    cr_expect(error <= 1.01 * mse + 1e-12, "%s [%d, %d]: mean squared error %g, reference %g", name,
              (int)rows, (int)cols, error, mse);
    planes_free(&p);
    free(back);
}

static void check_case(FILE *file, const char *name)
{
    unsigned seed;
    long rows, cols;
    char settings[128];
    int n_planes;
    cr_assert_eq(fscanf(file, "%u %ld %ld %127s %d", &seed, &rows, &cols, settings, &n_planes), 5);
    for (char *c = settings; *c != '\0'; c++)
        *c = *c == ',' ? ' ' : *c;
    subject s = open_format(name, strcmp(settings, "-") == 0 ? "" : settings);
    cr_assert_eq(s.quant->accepts(s.self, rows, cols), LATHE_OK);
    float *w = golden_weights(seed, rows * cols);
    planes want = planes_of(s.quant, s.self, rows, cols);
    cr_assert_eq(want.n, n_planes);
    for (int32_t k = 0; k < want.n; k++)
        read_plane(file, name, k, want.data[k], lathe_desc_bytes(&want.info[k].desc));
    check_decoded(file, name, &s, rows, cols, &want);
    check_encoded(file, name, &s, w, rows, cols, &want);
    planes_free(&want);
    free(w);
    s.plugin->destroy(s.self);
}

Test(quant_formats, planes_and_decoded_values_are_those_of_the_reference)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/quant_formats.txt", "r");
    char line[256], name[32];
    int cases = 0;
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(line, sizeof line, file)); /* versions */
    for (; fscanf(file, " case %31s", name) == 1; cases++)
        check_case(file, name);
    cr_expect(feof(file));
    cr_expect_geq(cases, 30);
    (void)fclose(file);
}

/* ---- every format and its settings ---- */

typedef struct format {
    const char *name, *settings;
    int64_t rows, cols; /* more than one span of a row, and a short last one where that may be */
    const char *method, *suffixes[4];
} format;

static const format formats[] = {
    {"fp8", "scaling=block", 131, 700, "fp8", {"", "_scale_inv"}},
    {"fp8", "scaling=row", 7, 700, "compressed-tensors", {"", "_scale"}},
    {"fp8", "scaling=tensor", 7, 700, "compressed-tensors", {"", "_scale"}},
    {"mxfp4", "scale_rounding=nearest", 7, 704, "compressed-tensors", {"_packed", "_scale"}},
    {"mxfp4", "scale_rounding=floor", 7, 704, "compressed-tensors", {"_packed", "_scale"}},
    {"nvfp4",
     "layout=compressed-tensors",
     7,
     688,
     "compressed-tensors",
     {"_packed", "_scale", "_global_scale"}},
    {"nvfp4", "layout=modelopt", 7, 688, "modelopt", {"", "_scale", "_scale_2"}},
    {"eetq", "", 6, 704, "eetq", {"", "_scales"}},
    {"hqq", "bits=1", 8, 704, "hqq", {"../W_q", "../scale", "../zero"}},
    {"hqq", "bits=2 compute_dtype=bfloat16", 8, 704, "hqq", {"../W_q", "../scale", "../zero"}},
    {"hqq", "bits=3 compute_dtype=float32", 7, 704, "hqq", {"../W_q", "../scale", "../zero"}},
    {"hqq", "bits=4 group_size=8", 8, 704, "hqq", {"../W_q", "../scale", "../zero"}},
    {"hqq", "bits=8 group_size=1408", 8, 704, "hqq", {"../W_q", "../scale", "../zero"}},
    {"gptq", "bits=2", 16, 704, "gptq", {"../qweight", "../qzeros", "../scales", "../g_idx"}},
    {"gptq",
     "bits=3 symmetric=false group_size=96",
     32,
     704,
     "gptq",
     {"../qweight", "../qzeros", "../scales", "../g_idx"}},
    {"gptq",
     "bits=8 checkpoint_format=gptq_v2",
     4,
     704,
     "gptq",
     {"../qweight", "../qzeros", "../scales", "../g_idx"}},
    {"awq", "group_size=64", 8, 704, "awq", {"../qweight", "../qzeros", "../scales"}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static void builds_agree(const format *f)
{
    subject s = open_format(f->name, f->settings);
    instance_head *head = s.self;
    const int32_t best = head->build;
    const int64_t n = f->rows * f->cols;
    float *w = golden_weights(10, n), *back[2] = {malloc((size_t)n * 4), malloc((size_t)n * 4)};
    planes p[2] = {planes_of(s.quant, s.self, f->rows, f->cols),
                   planes_of(s.quant, s.self, f->rows, f->cols)};
    for (int32_t build = 0; build <= best; build++) {
        const int k = build > 0;
        head->build = build;
        cr_assert_eq(s.quant->encode(s.self, f->rows, f->cols, w, p[k].data), LATHE_OK);
        for (int32_t i = 0; k > 0 && i < p[0].n; i++)
            cr_expect_eq(
                memcmp(p[0].data[i], p[1].data[i], (size_t)lathe_desc_bytes(&p[0].info[i].desc)), 0,
                "%s %s: build %d: %s", f->name, f->settings, (int)build, p[0].info[i].name);
        for (int32_t dtype = LATHE_F32; dtype <= LATHE_F16; dtype++) {
            head->build = 0;
            cr_assert_eq(s.quant->decode(s.self, f->rows, f->cols, planes_in(&p[0]), back[0], dtype,
                                         NULL, NULL),
                         LATHE_OK);
            head->build = build;
            cr_assert_eq(s.quant->decode(s.self, f->rows, f->cols, planes_in(&p[0]), back[1], dtype,
                                         NULL, NULL),
                         LATHE_OK);
            cr_expect_eq(memcmp(back[0], back[1], (size_t)(n * lathe_dtype_bytes(dtype))), 0,
                         "%s %s: build %d: %s", f->name, f->settings, (int)build,
                         lathe_dtype_name(dtype));
        }
    }
    for (int k = 0; k < 2; k++) {
        planes_free(&p[k]);
        free(back[k]);
    }
    free(w);
    s.plugin->destroy(s.self);
}

Test(quant_formats, builds_for_each_instruction_set_give_the_same_bits)
{
    for (int k = 0; k < N_FORMATS; k++)
        builds_agree(&formats[k]);
}

Test(quant_formats, files_name_what_the_libraries_read)
{
    for (int k = 0; k < N_FORMATS; k++) {
        const format *f = &formats[k];
        subject s = open_format(f->name, f->settings);
        planes p = planes_of(s.quant, s.self, f->rows, f->cols);
        char text[2048];
        for (int32_t i = 0; i < p.n; i++)
            cr_expect_str_eq(p.info[i].file_suffix, f->suffixes[i], "%s", f->name);
        cr_assert_lt(s.quant->config_json(s.self, text, sizeof text), (int64_t)sizeof text);
        json_t *json = json_loads(text, 0, NULL);
        cr_assert_not_null(json, "%s: %s", f->name, text);
        cr_expect_str_eq(json_string_value(json_object_get(json, "quant_method")), f->method);
        json_decref(json);
        planes_free(&p);
        s.plugin->destroy(s.self);
    }
}

Test(quant_formats, values_that_are_not_finite_are_refused)
{
    for (int k = 0; k < N_FORMATS; k++) {
        const format *f = &formats[k];
        subject s = open_format(f->name, f->settings);
        const int64_t n = f->rows * f->cols;
        planes p = planes_of(s.quant, s.self, f->rows, f->cols);
        float *w = golden_weights(3, n);
        w[n - 1] = INFINITY;
        cr_expect_eq(s.quant->encode(s.self, f->rows, f->cols, w, p.data), LATHE_E_NUMERIC, "%s",
                     f->name);
        w[n - 1] = NAN;
        cr_expect_eq(s.quant->encode(s.self, f->rows, f->cols, w, p.data), LATHE_E_NUMERIC, "%s",
                     f->name);
        cr_expect(strstr(lathe_test_message, "not finite") != NULL, "%s", lathe_test_message);
        planes_free(&p);
        free(w);
        s.plugin->destroy(s.self);
    }
}

Test(quant_formats, weights_without_whole_groups_are_refused)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
        const char *message;
    } bad[] = {
        {"mxfp4", 4, 48, "mxfp4: a weight of [4, 48]; the columns must be a multiple of 32"},
        {"nvfp4", 4, 40, "nvfp4: a weight of [4, 40]; the columns must be a multiple of 16"},
        {"eetq", 4, 96, "eetq: a weight of [4, 96]; the columns must be a multiple of 64"},
        {"eetq", 3, 64, "eetq: a weight of [3, 64]; the rows must be even"},
        {"hqq", 1, 64,
         "hqq: a weight of [1, 64]; with 4 bits and groups of 64 its size must be a multiple of "
         "128"},
        {"fp8", INT64_MAX / 4, 4, "fp8: a weight of ["},
        {"gptq", 12, 64, "gptq: a weight of [12, 64]; with 4 bits both must be multiples of 8"},
        {"awq", 8, 64,
         "awq: a weight of [8, 64]; the columns must be a multiple of quant.group_size, which is "
         "128 (64 divides both"},
        {"awq", 4, 128, "awq: a weight of [4, 128]; the rows must be a multiple of 8"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        subject s = open_format(bad[k].name, "");
        cr_expect_eq(s.quant->accepts(s.self, bad[k].rows, bad[k].cols), LATHE_E_SHAPE);
        cr_expect(strstr(lathe_test_message, bad[k].message) != NULL, "%s", lathe_test_message);
        s.plugin->destroy(s.self);
    }
}

Test(hqq, settings_that_no_file_has_are_refused)
{
    static const char *const bad[][2] = {
        {"bits=5", "bits = 5; expected 1, 2, 3, 4 or 8"},
        {"group_size=20", "group_size = 20; expected a multiple of 8"},
    };
    subject s = open_format("hqq", "");
    for (int k = 0; k < 2; k++) {
        void *self;
        cr_expect_eq(lathe_test_create(s.plugin, bad[k][0], &self), LATHE_E_CONFIG);
        cr_expect(strstr(lathe_test_message, bad[k][1]) != NULL, "%s", lathe_test_message);
    }
    s.plugin->destroy(s.self);
}

Test(hqq, scales_too_large_for_the_compute_dtype_are_refused)
{
    float w[128] = {[5] = 3e7f};
    subject s = open_format("hqq", ""), wide = open_format("hqq", "compute_dtype=float32");
    planes p = planes_of(wide.quant, wide.self, 2, 64);
    cr_expect_eq(s.quant->encode(s.self, 2, 64, w, p.data), LATHE_E_NUMERIC);
    cr_expect(strstr(lathe_test_message, "set compute_dtype = \"float32\"") != NULL, "%s",
              lathe_test_message);
    cr_expect_eq(wide.quant->encode(wide.self, 2, 64, w, p.data), LATHE_OK);
    planes_free(&p);
    s.plugin->destroy(s.self);
    wide.plugin->destroy(wide.self);
}

/* Files may hold codes and scales that encoding never writes. */
Test(quant_formats, codes_that_are_nan_decode_to_nan_in_every_build)
{
    subject s = open_format("fp8", "scaling=row");
    instance_head *head = s.self;
    const int32_t best = head->build;
    planes p = planes_of(s.quant, s.self, 3, 75);
    uint16_t out[2][3 * 75];
    memset(p.data[0], 0x40, 3 * 75);
    for (int k = 0; k < 3; k++) {
        ((uint8_t *)p.data[0])[k * 75 + 70 * (k > 0)] = k == 1 ? 0xff : 0x7f;
        ((float *)p.data[1])[k] = k == 2 ? INFINITY : 0.5f;
    }
    for (int32_t dtype = LATHE_BF16; dtype <= LATHE_F16; dtype++)
        for (int32_t build = 0; build <= best; build++) {
            head->build = build;
            cr_assert_eq(
                s.quant->decode(s.self, 3, 75, planes_in(&p), out[build > 0], dtype, NULL, NULL),
                LATHE_OK);
            cr_expect_eq(memcmp(out[0], out[build > 0], sizeof out[0]), 0, "build %d, %s",
                         (int)build, lathe_dtype_name(dtype));
            cr_expect(isnan(dtype == LATHE_F16 ? lathe_f16_to_f32(out[0][0])
                                               : lathe_bf16_to_f32(out[0][0])));
        }
    planes_free(&p);
    s.plugin->destroy(s.self);
}

/* ---- small floats ---- */

Test(small_float, codes_are_those_of_their_formats)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int code = 0; code < 256; code++) {
        const float want = lathe_e4m3_to_f32((uint8_t)code), got = small_e4m3((uint8_t)code);
        cr_expect((isnan(want) && isnan(got)) || memcmp(&want, &got, sizeof got) == 0, "%d", code);
        const float power = small_e8m0((uint8_t)code);
        cr_expect(code == 255 ? isnan(power) != 0 : (double)power == ldexp(1.0, code - 127), "%d",
                  code);
    }
    for (uint32_t code = 0; code < 16; code++) {
        const float value = small_e2m1(code);
        cr_expect_eq(fabsf(value), e2m1[code & 7]);
        cr_expect_eq(signbit(value) != 0, code >= 8);
        cr_expect_eq(small_to_e2m1(value), code == 8 ? 0 : code);
    }
    for (uint32_t code = 0; code < 7; code++) { /* halfway: the even one of the two */
        const float middle = (e2m1[code] + e2m1[code + 1]) / 2.0f;
        cr_expect_eq(small_to_e2m1(middle), code + code % 2);
        cr_expect_eq(small_to_e2m1(nextafterf(middle, 9.0f)), code + 1);
        cr_expect_eq(small_to_e2m1(nextafterf(-middle, 9.0f)), code | 8u);
    }
    cr_expect_eq(small_to_e2m1(1e9f), 7);
}

/* A scale rounded down by the MX specification stays below that of compressed-tensors. */
Test(mxfp4, scales_of_large_mantissas_are_rounded_up_only_by_nearest)
{
    float w[32] = {1.75f};
    for (int k = 0; k < 2; k++) {
        subject s = open_format("mxfp4", k ? "scale_rounding=floor" : "scale_rounding=nearest");
        planes p = planes_of(s.quant, s.self, 1, 32);
        cr_assert_eq(s.quant->encode(s.self, 1, 32, w, p.data), LATHE_OK);
        cr_expect_eq(((uint8_t *)p.data[1])[0], k ? 125 : 126);
        planes_free(&p);
        s.plugin->destroy(s.self);
    }
}
