/* gptq and awq, calibrated: the error of the output is smaller than without data; what files may
 * hold. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/kit/testing.h"
#include "lathe/quant.h"
#include "quant_weights.h"
#include "support/build_folder.h"

enum { ROWS = 32, COLS = 256, SAMPLES = 700 };

typedef struct subject {
    const lathe_plugin *plugin;
    const lathe_quant_v1 *quant;
    void *self;
} subject;

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

/* Numbers in [-1, 1) from a linear congruence. */
static float next_number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static float *random_weight(void)
{
    uint32_t seed = 5;
    float *w = malloc(sizeof(float) * ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++)
        w[i] = next_number(&seed) * 0.1f;
    return w;
}

/* Products of inputs that depend on each other and have very different sizes. */
static lathe_quant_inputs correlated_inputs(void)
{
    static float products[COLS * COLS];
    float x[COLS];
    uint32_t seed = 9;
    memset(products, 0, sizeof products);
    for (int n = 0; n < SAMPLES; n++) {
        float carried = 0.0f;
        for (int i = 0; i < COLS; i++) {
            carried = 0.9f * carried + next_number(&seed);
            x[i] = carried * (i % 37 == 3 ? 8.0f : 1.0f);
        }
        for (int i = 0; i < COLS; i++)
            for (int k = 0; k < COLS; k++)
                products[i * COLS + k] += x[i] * x[k] / SAMPLES;
    }
    return (lathe_quant_inputs){
        .size = (uint32_t)sizeof(lathe_quant_inputs), .n = SAMPLES, .products = products};
}

/* The mean square of the outputs' error: sum over outputs of d^T H d. */
static double output_error(const float *w, const float *decoded, const float *products)
{
    double sum = 0.0;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < COLS; i++) {
            const double d = (double)decoded[r * COLS + i] - (double)w[r * COLS + i];
            for (int k = 0; k < COLS; k++)
                sum += d * (double)products[i * COLS + k] *
                       ((double)decoded[r * COLS + k] - (double)w[r * COLS + k]);
        }
    return sum;
}

static double error_of(const subject *s, const float *w, const lathe_quant_inputs *inputs,
                       int calibrated)
{
    planes p = planes_of(s->quant, s->self, ROWS, COLS);
    float *decoded = malloc(sizeof(float) * ROWS * COLS);
    cr_assert_eq(calibrated ? s->quant->encode_calibrated(s->self, ROWS, COLS, w, inputs, p.data)
                            : s->quant->encode(s->self, ROWS, COLS, w, p.data),
                 LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(
        s->quant->decode(s->self, ROWS, COLS, planes_in(&p), decoded, LATHE_F32, NULL, NULL),
        LATHE_OK);
    const double error = output_error(w, decoded, inputs->products);
    planes_free(&p);
    free(decoded);
    return error;
}

/* Measured: 0.16 to 0.25 for gptq, 0.61 for awq. */
Test(calibrated_formats, data_lower_the_error_of_the_output)
{
    static const struct {
        const char *name, *settings;
        double max; /* of the error without data */
    } cases[] = {
        {"gptq", "bits=4 group_size=64", 0.5},
        {"gptq", "bits=4 group_size=64 act_order=none", 0.5},
        {"gptq", "bits=4 group_size=64 act_order=full", 0.5},
        {"gptq", "bits=4 group_size=96", 0.5}, /* the last group is shorter */
        {"gptq", "bits=3 group_size=-1 symmetric=false", 0.5},
        {"gptq", "bits=2 group_size=32 checkpoint_format=gptq_v2", 0.5},
        {"awq", "group_size=64", 0.8},
    };
    float *w = random_weight();
    const lathe_quant_inputs inputs = correlated_inputs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const subject s = open_format(cases[i].name, cases[i].settings);
        const double plain = error_of(&s, w, &inputs, 0), with = error_of(&s, w, &inputs, 1);
        cr_expect(with <= cases[i].max * plain, "%s %s: %g with data, %g without", cases[i].name,
                  cases[i].settings, with, plain);
        s.plugin->destroy(s.self);
    }
    free(w);
}

/* Inputs that say nothing of each other change no code: the products are a multiple of 1. */
Test(calibrated_formats, independent_inputs_give_the_nearest_codes)
{
    static float products[COLS * COLS];
    float *w = random_weight();
    const subject s = open_format("gptq", "group_size=64");
    planes p[2] = {planes_of(s.quant, s.self, ROWS, COLS), planes_of(s.quant, s.self, ROWS, COLS)};
    for (int i = 0; i < COLS; i++)
        products[i * COLS + i] = 0.25f;
    const lathe_quant_inputs inputs = {
        .size = (uint32_t)sizeof inputs, .n = 1, .products = products};
    cr_assert_eq(s.quant->encode(s.self, ROWS, COLS, w, p[0].data), LATHE_OK);
    cr_assert_eq(s.quant->encode_calibrated(s.self, ROWS, COLS, w, &inputs, p[1].data), LATHE_OK);
    for (int32_t k = 0; k < p[0].n; k++)
        cr_expect_eq(
            memcmp(p[0].data[k], p[1].data[k], (size_t)lathe_desc_bytes(&p[0].info[k].desc)), 0,
            "%s", p[0].info[k].name);
    planes_free(&p[0]);
    planes_free(&p[1]);
    free(w);
    s.plugin->destroy(s.self);
}

Test(calibrated_formats, a_group_that_does_not_exist_is_refused)
{
    const subject s = open_format("gptq", "group_size=64");
    planes p = planes_of(s.quant, s.self, ROWS, COLS);
    float *w = random_weight();
    cr_assert_eq(s.quant->encode(s.self, ROWS, COLS, w, p.data), LATHE_OK);
    cr_expect_eq(s.quant->check_planes(s.self, ROWS, COLS, planes_in(&p)), LATHE_OK);
    ((int32_t *)p.data[3])[7] = 4;
    cr_expect_eq(s.quant->check_planes(s.self, ROWS, COLS, planes_in(&p)), LATHE_E_CORRUPT);
    cr_expect(strstr(lathe_test_message,
                     "gptq: g_idx[7] is 4; expected 0 to 3, for 256 inputs in groups of 64"),
              "%s", lathe_test_message);
    ((int32_t *)p.data[3])[7] = -1;
    cr_expect_eq(s.quant->check_planes(s.self, ROWS, COLS, planes_in(&p)), LATHE_E_CORRUPT);
    planes_free(&p);
    free(w);
    s.plugin->destroy(s.self);
}
