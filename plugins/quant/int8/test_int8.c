/* int8: the bits of bitsandbytes' reference; a row by hand; zero rows; file names; refusals. */
#include "quant_weights.h"

#include <jansson.h>

#include "lathe/kit/testing.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static const lathe_plugin *plugin;
static const lathe_quant_v1 *quant;
static void *self;

static void open_plugin(void)
{
    plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    quant = plugin->table;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK, "%s", lathe_test_message);
}

static void close_plugin(void)
{
    plugin->destroy(self);
}

TestSuite(int8, .init = open_plugin, .fini = close_plugin);

/* The head of every instance (plugins/quant/shared/quant_codec.h). */
typedef struct instance_head {
    const lathe_host *host;
    int32_t build; /* 0: portable */
} instance_head;

static void check_case(FILE *file)
{
    unsigned seed;
    long rows, cols;
    cr_assert_eq(fscanf(file, "%u %ld %ld ", &seed, &rows, &cols), 3);
    const int64_t n = rows * cols;
    float *w = golden_weights(seed, n), *back = malloc((size_t)n * sizeof *back);
    planes p = planes_of(quant, self, rows, cols);
    cr_assert_eq(quant->encode(self, rows, cols, w, p.data), LATHE_OK);
    expect_hex(file, "codes", p.data[0], n);
    expect_hex(file, "scb", p.data[1], rows * 4);
    cr_assert_eq(quant->decode(self, rows, cols, planes_in(&p), back, LATHE_F32, NULL, NULL),
                 LATHE_OK);
    expect_fnv(file, "f32", back, n * 4);
    cr_assert_eq(quant->decode(self, rows, cols, planes_in(&p), back, LATHE_BF16, NULL, NULL),
                 LATHE_OK);
    expect_fnv(file, "bf16", back, n * 2);
    planes_free(&p);
    free(w);
    free(back);
}

Test(int8, codes_and_decoded_values_are_bitsandbytes_bits)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/quant.txt", "r");
    char line[65536];
    int cases = 0;
    cr_assert_not_null(file);
    long at = 0;
    while (fgets(line, sizeof line, file) != NULL && strncmp(line, "int8 ", 5) != 0)
        at = ftell(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    for (; fscanf(file, "%31s", line) == 1; cases++) {
        cr_assert_str_eq(line, "int8");
        check_case(file);
    }
    cr_expect_eq(cases, 3);
    (void)fclose(file);
}

Test(int8, rows_by_hand)
{
    /* row 0: scale 127, codes are the values, halves to even; row 1: zeros; row 2: below the range
     * of 127/absmax */
    const float w[12] = {-127, 2.5f, 3.5f, -0.5f, 0, 0, 0, 0, 1e-38f, 0, -1e-38f, 0};
    float back[12];
    planes p = planes_of(quant, self, 3, 4);
    cr_assert_eq(quant->encode(self, 3, 4, w, p.data), LATHE_OK);
    const int8_t want[12] = {-127, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    cr_expect_eq(memcmp(p.data[0], want, sizeof want), 0);
    cr_expect_eq(((float *)p.data[1])[0], 127.0f);
    cr_expect_eq(((float *)p.data[1])[1], 0.0f);
    cr_assert_eq(quant->decode(self, 3, 4, planes_in(&p), back, LATHE_F32, NULL, NULL), LATHE_OK);
    cr_expect_float_eq((double)back[0], -127.0, 127 * 0x1p-23);
    for (int i = 4; i < 12; i++)
        cr_expect_eq(back[i], 0.0f);
    planes_free(&p);
}

Test(int8, builds_for_each_instruction_set_give_the_same_bits)
{
    instance_head *head = self;
    const int32_t best = head->build;
    const int64_t rows = 5, cols = 133;
    float *w = golden_weights(10, rows * cols), back[2][5 * 133];
    planes p[2] = {planes_of(quant, self, rows, cols), planes_of(quant, self, rows, cols)};
    for (int32_t k = 0; k < 3 * best; k++) {
        const int32_t dtype = LATHE_F32 + k % 3, build = 1 + k / 3;
        for (int pass = 0; pass < 2; pass++) {
            head->build = pass ? build : 0;
            cr_assert_eq(quant->encode(self, rows, cols, w, p[pass].data), LATHE_OK);
            cr_assert_eq(
                quant->decode(self, rows, cols, planes_in(&p[pass]), back[pass], dtype, NULL, NULL),
                LATHE_OK);
        }
        cr_expect_eq(memcmp(back[0], back[1], (size_t)(rows * cols * lathe_dtype_bytes(dtype))), 0);
    }
    for (int i = 0; i < 2; i++)
        cr_expect_eq(
            memcmp(p[0].data[i], p[1].data[i], (size_t)lathe_desc_bytes(&p[0].info[i].desc)), 0);
    planes_free(&p[0]);
    planes_free(&p[1]);
    free(w);
}

Test(int8, files_name_what_bitsandbytes_reads)
{
    planes p = planes_of(quant, self, 2, 3);
    char text[1024], format = 7;
    cr_expect_eq(p.n, 2);
    cr_expect_str_eq(p.info[0].file_suffix, "");
    cr_expect_str_eq(p.info[1].file_suffix, "../SCB");
    cr_expect_eq(quant->weight_meta(self, 2, 3, planes_in(&p), &format, 1), 1);
    cr_expect_str_eq(quant->meta_suffix, "../weight_format");
    cr_expect_eq(format, 0);
    cr_expect_eq(quant->read_meta(self, 2, 3, &format, 1, p.data), LATHE_OK);
    format = 2;
    cr_expect_eq(quant->read_meta(self, 2, 3, &format, 1, p.data), LATHE_E_UNSUPPORTED);
    cr_assert(quant->config_json(self, text, sizeof text) < (int64_t)sizeof text);
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json);
    cr_expect(json_is_true(json_object_get(json, "load_in_8bit")));
    json_decref(json);
    planes_free(&p);
}

/* An instance with these settings; its configuration as JSON. */
static json_t *config_of(const char *settings)
{
    void *other = NULL;
    char text[1024];
    cr_assert_eq(lathe_test_create(plugin, settings, &other), LATHE_OK, "%s", lathe_test_message);
    cr_assert(quant->config_json(other, text, sizeof text) < (int64_t)sizeof text);
    plugin->destroy(other);
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json, "%s", text);
    return json;
}

Test(int8, writes_its_threshold_as_bitsandbytes_reads_it)
{
    static const struct {
        const char *settings;
        double want;
    } cases[] = {{"", 6.0},
                 {"activations=int8", 6.0},
                 {"activations=int8 outlier_threshold=4.5", 4.5},
                 {"activations=int8 outlier_threshold=0", 0.0}};
    for (int i = 0; i < 4; i++) {
        json_t *json = config_of(cases[i].settings);
        const json_t *threshold = json_object_get(json, "llm_int8_threshold");
        cr_expect(json_is_real(threshold), "%s", cases[i].settings);
        cr_expect_eq(json_real_value(threshold), cases[i].want, "%s", cases[i].settings);
        json_decref(json);
    }
}

Test(int8, says_how_inputs_are_quantized)
{
    void *other = NULL;
    lathe_activations a = {0};
    cr_expect_eq(quant->activations(self, 64, 64, &a), 0);
    cr_assert_eq(lathe_test_create(plugin, "activations=int8 outlier_threshold=3", &other),
                 LATHE_OK);
    cr_expect_eq(quant->activations(other, 64, 64, &a), 1);
    cr_expect_eq(a.dtype, LATHE_I8);
    cr_expect_eq(a.threshold, 3.0f);
    cr_expect_eq(quant->accepts(self, 1, LATHE_ACTIVATION_COLS + 1), LATHE_OK);
    cr_expect_eq(quant->accepts(other, 1, LATHE_ACTIVATION_COLS), LATHE_OK);
    cr_expect_eq(quant->accepts(other, 1, LATHE_ACTIVATION_COLS + 1), LATHE_E_SHAPE);
    plugin->destroy(other);
    cr_expect_eq(lathe_test_create(plugin, "outlier_threshold=3", &other), LATHE_E_CONFIG);
    cr_expect_eq(lathe_test_create(plugin, "outlier_threshold=6", &other), LATHE_OK);
    plugin->destroy(other);
}

Test(int8, refuses_what_it_cannot_hold)
{
    planes p = planes_of(quant, self, 1, 3);
    float w[3] = {0, NAN, 1};
    cr_expect_eq(quant->encode(self, 1, 3, w, p.data), LATHE_E_NUMERIC);
    cr_expect_eq(quant->accepts(self, 3, 0), LATHE_E_SHAPE);
    cr_expect_eq(quant->decode(self, 1, 3, planes_in(&p), w, LATHE_F64, NULL, NULL), LATHE_E_DTYPE);
    planes_free(&p);
    plugin->destroy(NULL);
}
