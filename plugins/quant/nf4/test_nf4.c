/* nf4: the bits of bitsandbytes' reference; a block by hand; short ends; both codecs; files;
 * refusals. */
#include "quant_weights.h"

#include <jansson.h>

#include "mock_graph.h"
#include "mock_plugin.h"

static const lathe_plugin *plugin;
static const lathe_quant_v1 *quant;

static void open_plugin(void)
{
    plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    quant = plugin->table;
}

TestSuite(nf4, .init = open_plugin);

/* Selects the codec: a member of the instance, after host and nested (nf4.h). */
typedef struct instance_head {
    const lathe_host *host;
    int nested, build; /* NF4_PORTABLE, ... */
} instance_head;

static void *instance(int nested)
{
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "double_quant")->i = nested;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
    return self;
}

/* Reads "name hex" of n floats, compares them with x, and replaces x by them, so that the following
 * decoding uses bitsandbytes' own numbers. The mean of the scales is summed in f64 here, but in f32
 * and another order by torch: the means, and the deviations from them, differ by a few ulp of the
 * mean. */
static void expect_near(FILE *file, const char *name, float *x, int64_t n, double tolerance)
{
    char word[32];
    if (x == NULL) {
        expect_hex(file, name, NULL, 0);
        return;
    }
    cr_assert_eq(fscanf(file, "%31s ", word), 1);
    cr_assert_str_eq(word, name);
    for (int64_t i = 0; i < n; i++) {
        unsigned byte[4];
        cr_assert_eq(fscanf(file, "%2x%2x%2x%2x", &byte[0], &byte[1], &byte[2], &byte[3]), 4);
        const uint32_t bits = byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24;
        float want;
        memcpy(&want, &bits, sizeof want);
        cr_expect_float_eq((double)x[i], (double)want, tolerance, "%s[%d]: %.9g, want %.9g", name,
                           (int)i, (double)x[i], (double)want);
        x[i] = want;
    }
}

static void check_case(FILE *file)
{
    unsigned seed;
    long rows, cols;
    int nested;
    cr_assert_eq(fscanf(file, "%u %ld %ld %d ", &seed, &rows, &cols, &nested), 4);
    const int64_t n = rows * cols;
    void *self = instance(nested);
    float *w = golden_weights(seed, n), *back = malloc((size_t)n * sizeof *back);
    planes p = planes_of(quant, self, rows, cols);
    cr_assert_eq(p.n, nested ? 6 : 3);
    cr_assert_eq(quant->encode(self, rows, cols, w, p.data), LATHE_OK);
    expect_hex(file, "bytes", p.data[0], (n + 1) / 2);
    expect_hex(file, "absmax", p.data[1], lathe_desc_bytes(&p.info[1].desc));
    const double near = nested ? 8 * 0x1p-24 * (double)*(float *)p.data[5] : 0;
    expect_near(file, "nested_absmax", nested ? p.data[3] : NULL,
                nested ? p.info[3].desc.dims[0] : 0, near);
    expect_near(file, "offset", nested ? p.data[5] : NULL, 1, near);
    expect_hex(file, "map", p.data[2], 16 * 4);
    expect_hex(file, "nested_map", nested ? p.data[4] : NULL, 256 * 4);
    cr_assert_eq(quant->decode(self, rows, cols, planes_in(&p), back, LATHE_F32, NULL, NULL),
                 LATHE_OK);
    expect_fnv(file, "f32", back, n * 4);
    cr_assert_eq(quant->decode(self, rows, cols, planes_in(&p), back, LATHE_BF16, NULL, NULL),
                 LATHE_OK);
    expect_fnv(file, "bf16", back, n * 2);
    planes_free(&p);
    free(w);
    free(back);
    plugin->destroy(self);
}

Test(nf4, planes_and_decoded_values_are_bitsandbytes_bits)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/quant.txt", "r");
    char word[32];
    int cases = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1 && strcmp(word, "nf4") == 0; cases++)
        check_case(file);
    cr_expect_eq(cases, 8);
    (void)fclose(file);
}

Test(nf4, a_block_by_hand)
{
    /* absmax 4. x/4 = 1, -1, 0, 0.0625 (above (0+0.0796)/2: code 8), -0.04 (above the midpoint
     * -0.0455: code 7), 0.5625 (nearest 0.5626: 13), and a midpoint itself, which goes down. */
    void *self = instance(0);
    planes p = planes_of(quant, self, 1, 64);
    const float *map = p.data[2];
    float w[64] = {4, -4, 0, 0.25f, -0.16f, 2.25f}, back[64];
    cr_assert_eq(quant->encode(self, 1, 64, w, p.data), LATHE_OK);
    w[6] = 4 * ((map[14] + map[15]) / 2);
    w[7] = nextafterf(w[6], 4);
    cr_assert_eq(quant->encode(self, 1, 64, w, p.data), LATHE_OK);
    const uint8_t want[5] = {0xf0, 0x78, 0x7d, 0xef, 0x77};
    for (int i = 0; i < 5; i++)
        cr_expect_eq(((uint8_t *)p.data[0])[i], want[i], "byte %d: %02x", i,
                     ((uint8_t *)p.data[0])[i]);
    cr_expect_eq(*(float *)p.data[1], 4.0f);
    cr_assert_eq(quant->decode(self, 1, 64, planes_in(&p), back, LATHE_F32, NULL, NULL), LATHE_OK);
    cr_expect_eq(back[0], 4.0f);
    cr_expect_eq(back[1], -4.0f);
    cr_expect_eq(back[3], 4 * 0.07958029955625534f);
    cr_expect_eq(back[63], 0.0f);
    planes_free(&p);
    plugin->destroy(self);
}

/* The error of a value is at most half the widest gap of the map (0.304, at -1) times its block's
 * scale; the 8-bit scale is off by at most half the dynamic map's widest gap (0.0141) of the
 * largest deviation. */
Test(nf4, decoded_values_are_near_for_all_kinds_of_ends)
{
    for (int nested = 0; nested <= 1; nested++)
        for (int64_t n = 1; n <= 200; n += n < 6 ? 1 : 13) {
            void *self = instance(nested);
            planes p = planes_of(quant, self, 1, n);
            float *w = golden_weights(9, n), back[200];
            cr_assert_eq(quant->encode(self, 1, n, w, p.data), LATHE_OK);
            cr_assert_eq(quant->decode(self, 1, n, planes_in(&p), back, LATHE_F32, NULL, NULL),
                         LATHE_OK);
            float all = 0;
            for (int64_t i = 0; i < n; i++)
                all = fmaxf(all, fabsf(w[i]));
            for (int64_t i = 0; i < n; i++) {
                float top = 0;
                for (int64_t k = i / 64 * 64; k < n && k < i / 64 * 64 + 64; k++)
                    top = fmaxf(top, fabsf(w[k]));
                const float bound = 0.1521f * top + (nested ? 0.0071f * 1.2f * all : 0);
                cr_assert(fabsf(w[i] - back[i]) <= bound, "n %d, element %d: %g as %g", (int)n,
                          (int)i, (double)w[i], (double)back[i]);
            }
            planes_free(&p);
            free(w);
            plugin->destroy(self);
        }
}

Test(nf4, codecs_for_each_instruction_set_give_the_same_bits)
{
    void *self = instance(1);
    instance_head *head = self;
    const int best = head->build;
    if (best == 0) {
        plugin->destroy(self);
        cr_skip_test("the machine has no AVX2");
    }
    const int64_t rows = 67, cols = 131;
    float *w = golden_weights(10, rows * cols);
    float *back[2] = {malloc((size_t)(rows * cols) * 4), malloc((size_t)(rows * cols) * 4)};
    planes p[2] = {planes_of(quant, self, rows, cols), planes_of(quant, self, rows, cols)};
    for (int pass = 0; pass < 2; pass++) {
        head->build = pass * best;
        cr_assert_eq(quant->encode(self, rows, cols, w, p[pass].data), LATHE_OK);
    }
    for (int i = 0; i < p[0].n; i++)
        cr_expect_eq(
            memcmp(p[0].data[i], p[1].data[i], (size_t)lathe_desc_bytes(&p[0].info[i].desc)), 0,
            "%s", p[0].info[i].name);
    for (int32_t k = 0; k < 3 * best; k++) {
        const int32_t dtype = LATHE_F32 + k % 3;
        for (int pass = 0; pass < 2; pass++) {
            head->build = pass * (1 + k / 3);
            cr_assert_eq(
                quant->decode(self, rows, cols, planes_in(&p[0]), back[pass], dtype, NULL, NULL),
                LATHE_OK);
        }
        cr_expect_eq(memcmp(back[0], back[1], (size_t)(rows * cols * lathe_dtype_bytes(dtype))), 0,
                     "%s, build %d", lathe_dtype_name(dtype), 1 + k / 3);
    }
    for (int i = 0; i < 2; i++) {
        planes_free(&p[i]);
        free(back[i]);
    }
    free(w);
    plugin->destroy(self);
}

Test(nf4, files_name_what_bitsandbytes_reads)
{
    static const char *const suffixes[] = {"", ".absmax", ".quant_map", ".nested_absmax",
                                           ".nested_quant_map"};
    void *self = instance(1);
    planes p = planes_of(quant, self, 4, 32), other = planes_of(quant, self, 4, 32);
    float *w = golden_weights(3, 128);
    char text[1024];
    cr_assert_eq(quant->encode(self, 4, 32, w, p.data), LATHE_OK);
    for (int i = 0; i < 5; i++)
        cr_expect_str_eq(p.info[i].file_suffix, suffixes[i]);
    cr_expect_null(p.info[5].file_suffix);
    const int64_t n = quant->weight_meta(self, 4, 32, planes_in(&p), text, sizeof text);
    cr_expect_str_eq(quant->meta_suffix, ".quant_state.bitsandbytes__nf4");
    cr_expect_eq(quant->weight_meta(self, 4, 32, planes_in(&p), NULL, 0), n);
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json);
    cr_expect_eq((float)json_real_value(json_object_get(json, "nested_offset")),
                 *(float *)p.data[5]);
    cr_expect_eq(json_integer_value(json_array_get(json_object_get(json, "shape"), 1)), 32);
    json_decref(json);
    cr_assert_eq(quant->read_meta(self, 4, 32, text, n, other.data), LATHE_OK, "%s",
                 mock_host_error());
    cr_expect_eq(*(float *)other.data[5], *(float *)p.data[5]);
    cr_expect_eq(quant->read_meta(self, 4, 33, text, n, other.data), LATHE_E_SHAPE);
    void *plain = instance(0);
    cr_expect_eq(quant->read_meta(plain, 4, 32, text, n, other.data), LATHE_E_UNSUPPORTED);
    cr_expect(strstr(mock_host_error(), "set double_quant = true") != NULL);
    cr_expect_eq(quant->read_meta(self, 4, 32, "{}", 2, other.data), LATHE_E_UNSUPPORTED);
    cr_expect_eq(quant->read_meta(self, 4, 32, "", 0, other.data), LATHE_E_PARSE);
    cr_assert(quant->config_json(self, text, sizeof text) < (int64_t)sizeof text);
    json = json_loads(text, 0, NULL);
    cr_assert_not_null(json);
    cr_expect_str_eq(json_string_value(json_object_get(json, "bnb_4bit_quant_type")), "nf4");
    cr_expect(json_is_true(json_object_get(json, "bnb_4bit_use_double_quant")));
    json_decref(json);
    planes_free(&p);
    planes_free(&other);
    free(w);
    plugin->destroy(plain);
    plugin->destroy(self);
}

Test(nf4, refuses_what_it_cannot_hold)
{
    for (int nested = 0; nested <= 1; nested++) {
        void *self = instance(nested);
        planes p = planes_of(quant, self, 2, 64);
        float w[128] = {0};
        w[127] = INFINITY;
        cr_expect_eq(quant->encode(self, 2, 64, w, p.data), LATHE_E_NUMERIC);
        w[127] = NAN;
        cr_expect_eq(quant->encode(self, 2, 64, w, p.data), LATHE_E_NUMERIC);
        cr_expect_eq(quant->accepts(self, 0, 4), LATHE_E_SHAPE);
        cr_expect_eq(quant->accepts(self, INT64_MAX / 4, 4), LATHE_E_SHAPE);
        cr_expect_eq(quant->decode(self, 2, 64, planes_in(&p), w, LATHE_F64, NULL, NULL),
                     LATHE_E_DTYPE);
        planes_free(&p);
        plugin->destroy(self);
    }
    plugin->destroy(NULL);
}
