/* gptq and awq against the methods as torch computes them (tests/golden/calibrated.py). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/kit/testing.h"
#include "lathe/quant.h"
#include "quant_weights.h"
#include "support/build_folder.h"

typedef struct golden {
    int32_t rows, cols, group;
    float *w, *products, *magnitudes, *scales;
    double errors[5]; /* nearest codes; gptq with act_order none, full, group; awq's scales */
    int32_t *codes;
} golden;

static void *take(FILE *f, size_t n, size_t size)
{
    void *const p = malloc(n * size);
    cr_assert_eq(fread(p, size, n, f), n);
    return p;
}

static golden read_golden(void)
{
    golden g;
    FILE *f = fopen(LATHE_TEST_DATA "/golden/data/calibrated.bin", "rb");
    cr_assert_not_null(f);
    cr_assert_eq(fread(&g.rows, sizeof g.rows, 3, f), 3);
    const size_t rows = (size_t)g.rows, cols = (size_t)g.cols;
    g.w = take(f, rows * cols, sizeof *g.w);
    g.products = take(f, cols * cols, sizeof *g.products);
    g.magnitudes = take(f, cols, sizeof *g.magnitudes);
    cr_assert_eq(fread(g.errors, sizeof *g.errors, 5, f), 5);
    g.codes = take(f, rows * cols, sizeof *g.codes);
    g.scales = take(f, cols, sizeof *g.scales);
    (void)fclose(f);
    return g;
}

static void free_golden(golden *g)
{
    free(g->w);
    free(g->products);
    free(g->magnitudes);
    free(g->codes);
    free(g->scales);
}

static lathe_quant_inputs inputs_of(const golden *g)
{
    return (lathe_quant_inputs){.size = (uint32_t)sizeof(lathe_quant_inputs),
                                .n = 1024,
                                .products = g->products,
                                .magnitudes = g->magnitudes};
}

/* tr(D H D^T) / O for D = decoded / s - W; s NULL: 1. */
static double error_of(const golden *g, const float *decoded, const float *s)
{
    double sum = 0.0;
    double *d = malloc((size_t)g->cols * sizeof *d);
    for (int32_t r = 0; r < g->rows; r++) {
        for (int32_t i = 0; i < g->cols; i++)
            d[i] = (double)decoded[r * g->cols + i] / (s != NULL ? (double)s[i] : 1.0) -
                   (double)g->w[r * g->cols + i];
        for (int32_t i = 0; i < g->cols; i++)
            for (int32_t k = 0; k < g->cols; k++)
                sum += d[i] * (double)g->products[i * g->cols + k] * d[k];
    }
    free(d);
    return sum / g->rows;
}

static const lathe_quant_v1 *open_format(const char *name, const char *settings, void **self)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", lathe_test_build(), name);
    const lathe_plugin *plugin = lathe_test_open(path);
    cr_assert_eq(lathe_test_create(plugin, settings, self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

/* Encodes w, with the golden's inputs or none, and decodes it; the caller frees both. */
static float *pass(const golden *g, const lathe_quant_v1 *quant, void *self, const float *w,
                   int calibrated, planes *p)
{
    const lathe_quant_inputs inputs = inputs_of(g);
    float *out = malloc(sizeof *out * (size_t)(g->rows * g->cols));
    *p = planes_of(quant, self, g->rows, g->cols);
    cr_assert_eq(calibrated ? quant->encode_calibrated(self, g->rows, g->cols, w, &inputs, p->data)
                            : quant->encode(self, g->rows, g->cols, w, p->data),
                 LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(quant->decode(self, g->rows, g->cols, planes_in(p), out, LATHE_F32, NULL, NULL),
                 LATHE_OK);
    return out;
}

/* The code of an output's input in gptq's 4-bit words. */
static int32_t code_at(const golden *g, const planes *p, int32_t row, int32_t col)
{
    const uint32_t word = ((const uint32_t *)p->data[0])[col / 8 * g->rows + row];
    return (int32_t)(word >> 4 * (col % 8) & 15u);
}

#define SETTINGS "bits=4 group_size=32 symmetric=false checkpoint_format=gptq_v2 damping=0.05"

/* Sums in another order move a weight that lies between two codes; the errors of the inputs after
 * it follow, and a range may take another f16 scale. */
Test(calibrated_golden, gptq_chooses_the_codes_of_torch)
{
    golden g = read_golden();
    void *self = NULL;
    planes p;
    int32_t different = 0;
    const lathe_quant_v1 *quant = open_format("gptq", SETTINGS " act_order=none", &self);
    float *decoded = pass(&g, quant, self, g.w, 1, &p);
    for (int32_t r = 0; r < g.rows; r++)
        for (int32_t i = 0; i < g.cols; i++)
            different += code_at(&g, &p, r, i) != g.codes[r * g.cols + i];
    const double error = error_of(&g, decoded, NULL);
    cr_expect(different <= g.rows * g.cols / 100, "%d codes differ", different);
    cr_expect(error <= 1.01 * g.errors[1], "%.6g; torch %.6g", error, g.errors[1]);
    planes_free(&p);
    free(decoded);
    free_golden(&g);
}

/* Checks the error with an order of the inputs against that of torch. */
static void check_order(const char *settings, int of_error)
{
    golden g = read_golden();
    void *self = NULL;
    planes p;
    const lathe_quant_v1 *quant = open_format("gptq", settings, &self);
    float *decoded = pass(&g, quant, self, g.w, 1, &p);
    const double error = error_of(&g, decoded, NULL);
    cr_expect(error <= 1.01 * g.errors[of_error], "%s: %.6g; torch %.6g", settings, error,
              g.errors[of_error]);
    planes_free(&p);
    free(decoded);
    free_golden(&g);
}

Test(calibrated_golden, gptq_in_another_order_loses_no_more_than_torch)
{
    check_order(SETTINGS " act_order=full", 2);
    check_order(SETTINGS " act_order=group", 3);
    check_order(SETTINGS, 3); /* the default */
}

/* The candidates of the paper are among ours, so the error may only be less. */
Test(calibrated_golden, scales_of_awq_lose_no_more_than_those_of_torch)
{
    golden g = read_golden();
    void *self = NULL;
    planes p;
    const lathe_quant_v1 *quant = open_format("awq", "group_size=32", &self);
    const lathe_quant_inputs inputs = inputs_of(&g);
    const int64_t rows = g.rows;
    const float *const weights = g.w;
    float *scales = malloc((size_t)g.cols * sizeof *scales);
    float *scaled = malloc((size_t)(g.rows * g.cols) * sizeof *scaled);
    int32_t *from = malloc((size_t)g.cols * sizeof *from);
    for (int32_t i = 0; i < g.cols; i++)
        from[i] = i;
    const lathe_quant_layers layers = {.size = (uint32_t)sizeof layers,
                                       .n = 1,
                                       .cols = g.cols,
                                       .rows = &rows,
                                       .weights = &weights,
                                       .inputs = &inputs,
                                       .from = from,
                                       .n_places = g.cols};
    cr_assert_eq(quant->scale_inputs(self, &layers, scales), LATHE_OK);
    for (int32_t k = 0; k < g.rows * g.cols; k++)
        scaled[k] = g.w[k] * scales[k % g.cols];
    float *decoded = pass(&g, quant, self, scaled, 0, &p);
    const double error = error_of(&g, decoded, scales);
    cr_expect(error <= 1.01 * g.errors[4], "%.6g; torch %.6g", error, g.errors[4]);
    cr_expect(error <= 0.2 * g.errors[0], "%.6g; nearest codes %.6g", error, g.errors[0]);
    planes_free(&p);
    free(decoded);
    free(from);
    free(scaled);
    free(scales);
    free_golden(&g);
}
