/* Products of activations in 8 bits with a weight of quant/int8: the formula of lathe_activations
 * (lathe/packed.h), the bits on every build, and bitsandbytes' numbers. */
#include "kernels/op_harness.h"
#include "lathe/kit/testing.h"
#include "plug/host_table.h"
#include "quant_weights.h"

enum { MAX_WEIGHTS = 3, MAX_ROWS = 70 };
static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

typedef struct weight {
    const lathe_plugin *plugin;
    lathe_packed_weight packed;
    int64_t rows, cols;
    planes p;
    const void *in[LATHE_MAX_PLANES];
} weight;

static weight weight_of(const char *settings, uint32_t seed, int64_t rows, int64_t cols)
{
    char path[4096];
    weight x = {.rows = rows, .cols = cols};
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/int8.so", lathe_test_build());
    x.plugin = lathe_test_open(path);
    cr_assert_eq(lathe_test_create(x.plugin, settings, &x.packed.self), LATHE_OK, "%s",
                 lathe_test_message);
    x.packed.table = x.plugin->table;
    x.p = planes_of(x.packed.table, x.packed.self, rows, cols);
    float *w = golden_weights(seed, rows * cols);
    cr_assert_eq(x.packed.table->encode(x.packed.self, rows, cols, w, x.p.data), LATHE_OK, "%s",
                 lathe_test_message);
    free(w);
    for (int32_t i = 0; i < x.p.n; i++)
        x.in[i] = x.p.data[i];
    return x;
}

static void weight_free(weight *x)
{
    planes_free(&x->p);
    x->plugin->destroy(x->packed.self);
}

/* ---- the product ---- */

typedef struct product {
    int32_t op, dtype, n; /* n: weights */
    int64_t m;
    const weight *weights[MAX_WEIGHTS];
    const void *x; /* [m, cols] of dtype */
    int32_t has_bias, has_z;
} product;

static void *memory(int64_t bytes)
{
    return aligned_alloc(64, (size_t)((bytes + 64 + 63) / 64 * 64));
}

/* Runs the product; out[i] is new memory, the last one z. */
static void run(const op_build *b, const product *p, void **out)
{
    lathe_desc in[LATHE_OP_MAX_IN], outs[LATHE_OP_MAX_OUT];
    lathe_packed_weight weights[LATHE_OP_MAX_IN] = {{NULL, NULL}};
    const void *pointers[LATHE_OP_MAX_IN] = {p->x};
    void *biases[MAX_WEIGHTS] = {NULL};
    const lathe_op_attrs attrs = {.invariant = 0};
    const int is_joined = p->op == LATHE_OP_LINEARS;
    for (int i = 0; i < LATHE_OP_MAX_IN; i++)
        in[i] = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    for (int i = 0; i < LATHE_OP_MAX_OUT; i++)
        outs[i] = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    in[0] = lathe_desc_2d(p->dtype, p->m, p->weights[0]->cols);
    for (int32_t i = 0; i < p->n; i++) {
        const weight *w = p->weights[i];
        const int32_t k = 1 + 2 * i;
        in[k] = lathe_desc_2d(LATHE_PLANES, w->rows, w->cols);
        weights[k] = w->packed;
        pointers[k] = (const void *)w->in;
        outs[i] = lathe_desc_2d(p->dtype, p->m, w->rows);
        out[i] = memory(p->m * w->rows * 4);
        memset(out[i], HARNESS_BYTE, (size_t)(p->m * w->rows * 4));
        if (p->has_bias) {
            in[k + 1] = lathe_desc_1d(LATHE_F32, w->rows);
            pointers[k + 1] = biases[i] = golden_weights(21, w->rows);
        }
    }
    if (p->has_z) {
        outs[1] = outs[0];
        out[1] = memory(p->m * p->weights[0]->rows * 4);
    }
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = p->op,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = outs,
                                          .n_in = is_joined ? 7 : 3,
                                          .n_out = is_joined ? 3 : 1 + p->has_z,
                                          .may_overwrite = 1,
                                          .n_threads = lathe_host_get()->n_threads(),
                                          .weights = weights};
    lathe_kernel *k = NULL;
    int64_t bytes = 0;
    cr_assert_eq(b->device->kernel_create(b->self, &problem, &k, &bytes), LATHE_OK, "op %d",
                 (int)p->op);
    char *const scratch = memory(bytes);
    memset(scratch, HARNESS_BYTE, (size_t)bytes + HARNESS_FENCE);
    const lathe_kernel_args args = {
        .size = sizeof args, .in = pointers, .out = out, .scratch = scratch};
    cr_assert_eq(b->device->kernel_run(b->self, k, &args), LATHE_OK);
    for (int i = 0; i < HARNESS_FENCE; i++)
        cr_assert_eq((uint8_t)scratch[bytes + i], HARNESS_BYTE, "op %d writes past its scratch",
                     (int)p->op);
    b->device->kernel_destroy(b->self, k);
    free(scratch);
    for (int i = 0; i < MAX_WEIGHTS; i++)
        free(biases[i]);
}

static void free_all(void **out)
{
    for (int i = 0; i < LATHE_OP_MAX_OUT; i++) {
        free(out[i]);
        out[i] = NULL;
    }
}

/* ---- inputs ---- */

enum { PLAIN, SPRINKLED, ALL_OUTLIERS, ZEROS, TINY, NOT_A_NUMBER, INFINITE, N_KINDS };

/* The kind of numbers in row r. */
static int kind_of(int64_t r)
{
    return r % 9 < N_KINDS ? (int)(r % 9) : SPRINKLED;
}

static double x_at(int64_t r, int64_t i)
{
    const double noise = op_noise(3, r * 4096 + i);
    switch (kind_of(r)) {
    case SPRINKLED:
        return i % 37 == r % 5 ? 6.0 + 40.0 * fabs(noise) : 4.0 * noise;
    case ALL_OUTLIERS:
        return noise < 0 ? -6.0 + noise : 6.0 + noise;
    case ZEROS:
        return 0.0;
    case TINY:
        return 1e-40 * noise;
    case NOT_A_NUMBER:
        return i == 3 % (1 + r % 4) ? (double)NAN : noise;
    case INFINITE:
        return i == 0 ? (r % 2 ? (double)INFINITY : (double)-INFINITY) : noise;
    default:
        return noise;
    }
}

static void *x_of(int32_t dtype, int64_t first, int64_t m, int64_t cols)
{
    char *const x = memory(m * cols * 4);
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < cols; i++)
            op_store(x, dtype, r * cols + i, x_at(first + r, i));
    return x;
}

/* ---- the formula ---- */

/* The output o of a row, from the formula in doubles; *out_all: the sum of the magnitudes. */
static double want_of(const weight *w, const float *row, float threshold, int64_t o, double bias,
                      double *out_all)
{
    const int8_t *q = (const int8_t *)w->p.data[0] + o * w->cols;
    const double scale = (double)((const float *)w->p.data[1])[o] / 127.0;
    float max = 0.0f;
    double outliers = 0.0, codes = 0.0, all = 0.0;
    for (int64_t i = 0; i < w->cols; i++) {
        if (!isfinite(row[i]))
            return (double)NAN;
        if (threshold > 0.0f && fabsf(row[i]) >= threshold) {
            outliers += (double)row[i] * q[i];
            all += fabs((double)row[i] * q[i]);
        } else {
            max = fmaxf(max, fabsf(row[i]));
        }
    }
    const float factor = 127.0f / max;
    for (int64_t i = 0; i < w->cols && isfinite(factor); i++)
        if (threshold <= 0.0f || fabsf(row[i]) < threshold)
            codes += (double)rintf(row[i] * factor) * q[i];
    *out_all = fabs(scale) * (all + fabs((double)max / 127.0 * codes)) + fabs(bias);
    return scale * ((double)max / 127.0 * codes + outliers) + bias;
}

static void expect_formula(const op_build *b, const product *p, float threshold, int32_t i,
                           const void *y)
{
    const weight *w = p->weights[i];
    float *const bias = golden_weights(21, w->rows), *const row = malloc((size_t)w->cols * 4);
    const double unit = p->dtype == LATHE_F32 ? 0x1p-23 : p->dtype == LATHE_BF16 ? 0x1p-8 : 0x1p-11;
    for (int64_t r = 0; r < p->m; r++) {
        for (int64_t c = 0; c < w->cols; c++)
            row[c] = (float)op_load(p->x, p->dtype, r * w->cols + c);
        for (int64_t o = 0; o < w->rows; o++) {
            double all = 0.0;
            const double want =
                want_of(w, row, threshold, o, p->has_bias ? (double)bias[o] : 0.0, &all);
            const double got = op_load(y, p->dtype, r * w->rows + o);
            if (isnan(want)) {
                cr_assert(isnan(got), "%s: row %d with %g is %g", b->plugin->name, (int)r,
                          x_at(r, 0), got);
                continue;
            }
            const double max = unit * fabs(want) + slack_of(w->cols) * all + 0x1p-24 * 0x1p-14;
            cr_assert(fabs(got - want) <= max, "%s: dtype %d, %d rows, [%d,%d]: %.9g, want %.9g",
                      b->plugin->name, (int)p->dtype, (int)p->m, (int)r, (int)o, got, want);
        }
    }
    free(bias);
    free(row);
}

/* ---- tests ---- */

static int64_t bytes_of(const product *p, int32_t i)
{
    return p->m * p->weights[i]->rows * lathe_dtype_bytes(p->dtype);
}

/* The result of the first build, with two workers, is that of every build, number of workers and
 * batch. first: the row that is the first of x. */
static void expect_bits(op_build *builds, int n, product *p, int64_t first, void *const *want)
{
    for (int i = 0; i < n; i++)
        for (int threads = 1; threads <= 3; threads++) {
            void *out[LATHE_OP_MAX_OUT] = {NULL};
            lathe_parallel_init(threads);
            run(&builds[i], p, out);
            cr_assert_eq(memcmp(out[0], want[0], (size_t)bytes_of(p, 0)), 0,
                         "%s, %d workers, %d rows, dtype %d", builds[i].plugin->name, threads,
                         (int)p->m, (int)p->dtype);
            free_all(out);
        }
    product alone = *p;
    alone.m = 1;
    const int64_t width = p->weights[0]->rows * lathe_dtype_bytes(p->dtype);
    for (int64_t r = 0; r < p->m; r++) {
        void *out[LATHE_OP_MAX_OUT] = {NULL}, *const x =
                                                  x_of(p->dtype, first + r, 1, p->weights[0]->cols);
        alone.x = x;
        run(&builds[r % n], &alone, out);
        cr_assert_eq(memcmp(out[0], (const char *)want[0] + r * width, (size_t)width), 0,
                     "row %d of %d has other bits alone", (int)r, (int)p->m);
        free_all(out);
        free(x);
    }
}

static int open_builds(op_build *builds)
{
    int n = 0;
    for (int i = 0; i < N_ISAS; i++)
        n += op_open(op_isas[i], &builds[n]);
    cr_assert(n > 0);
    return n;
}

static void close_builds(op_build *builds, int n)
{
    for (int i = 0; i < n; i++)
        op_close(&builds[i]);
}

static void check_shape(op_build *builds, int n, const weight *w, float threshold)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 13, MAX_ROWS};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 8; i++) {
            void *out[LATHE_OP_MAX_OUT] = {NULL}, *const x = x_of(dtypes[d], i, rows[i], w->cols);
            product p = {.op = LATHE_OP_LINEAR,
                         .dtype = dtypes[d],
                         .n = 1,
                         .m = rows[i],
                         .weights = {w},
                         .x = x,
                         .has_bias = i % 2};
            lathe_parallel_init(2);
            run(&builds[n - 1], &p, out);
            expect_formula(&builds[n - 1], &p, threshold, 0, out[0]);
            expect_bits(builds, n, &p, i, out);
            free_all(out);
            free(x);
        }
}

Test(int8_product, is_the_formula_with_the_same_bits_everywhere)
{
    static const int64_t shapes[][2] = {{331, 64}, {5, 100}, {64, 576}, {67, 1091}, {130, 31}};
    op_build builds[N_ISAS] = {{0}};
    const int n = open_builds(builds);
    for (int i = 0; i < 5; i++) {
        weight split = weight_of("activations=int8", 10, shapes[i][0], shapes[i][1]);
        weight whole =
            weight_of("activations=int8 outlier_threshold=0", 10, shapes[i][0], shapes[i][1]);
        check_shape(builds, n, &split, 6.0f);
        check_shape(builds, n, &whole, 0.0f);
        weight_free(&split);
        weight_free(&whole);
    }
    close_builds(builds, n);
}

/* Products of one input have the bits of each alone; some have another threshold, some do not
 * quantize. */
Test(int8_product, linears_and_gelu_have_the_bits_of_linear)
{
    static const int64_t rows[] = {1, 3, 8, 40};
    op_build builds[N_ISAS] = {{0}};
    const int n = open_builds(builds);
    weight w[MAX_WEIGHTS] = {weight_of("activations=int8", 10, 77, 576),
                             weight_of("activations=int8 outlier_threshold=2.5", 11, 200, 576),
                             weight_of("", 12, 64, 576)};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 4 * n; i++) {
            const op_build *b = &builds[i % n];
            void *const x = x_of(dtypes[d], 0, rows[i / n], 576);
            product p = {.op = LATHE_OP_LINEARS,
                         .dtype = dtypes[d],
                         .n = 3,
                         .m = rows[i / n],
                         .weights = {&w[0], &w[1], &w[2]},
                         .x = x,
                         .has_bias = i % 2};
            void *joined[LATHE_OP_MAX_OUT] = {NULL};
            lathe_parallel_init(1 + i % 3);
            run(b, &p, joined);
            p.op = LATHE_OP_LINEAR;
            p.n = 1;
            for (int k = 0; k < MAX_WEIGHTS; k++) {
                void *alone[LATHE_OP_MAX_OUT] = {NULL};
                p.weights[0] = &w[k];
                run(b, &p, alone);
                cr_assert_eq(memcmp(alone[0], joined[k], (size_t)bytes_of(&p, 0)), 0,
                             "%s: dtype %d, %d rows, product %d", b->plugin->name, (int)dtypes[d],
                             (int)p.m, k);
                if (k == 0) {
                    void *gelu[LATHE_OP_MAX_OUT] = {NULL};
                    product g = p;
                    g.op = LATHE_OP_LINEAR_GELU;
                    g.has_z = 1;
                    run(b, &g, gelu);
                    cr_assert_eq(memcmp(alone[0], gelu[1], (size_t)bytes_of(&p, 0)), 0);
                    free_all(gelu);
                }
                free_all(alone);
            }
            free_all(joined);
            free(x);
        }
    for (int i = 0; i < MAX_WEIGHTS; i++)
        weight_free(&w[i]);
    close_builds(builds, n);
}

/* dX is that of a weight whose inputs are not quantized. */
Test(int8_product, derivatives_do_not_quantize)
{
    op_build builds[N_ISAS] = {{0}};
    const int n = open_builds(builds);
    weight w[2] = {weight_of("activations=int8", 10, 64, 96), weight_of("", 10, 64, 96)};
    void *const dy = x_of(LATHE_F32, 0, 2, 64);
    for (int i = 0; i < n; i++) {
        float *dx[2];
        for (int k = 0; k < 2; k++) {
            const lathe_desc in[2] = {lathe_desc_2d(LATHE_F32, 2, 64),
                                      lathe_desc_2d(LATHE_PLANES, 64, 96)};
            const lathe_desc out = lathe_desc_2d(LATHE_F32, 2, 96);
            const lathe_packed_weight weights[2] = {{NULL, NULL}, w[k].packed};
            const lathe_op_attrs attrs = {.invariant = 0};
            const lathe_kernel_problem problem = {.size = sizeof problem,
                                                  .op = LATHE_OP_LINEAR_DX,
                                                  .attrs = &attrs,
                                                  .in = in,
                                                  .out = &out,
                                                  .n_in = 2,
                                                  .n_out = 1,
                                                  .may_overwrite = 1,
                                                  .n_threads = 1,
                                                  .weights = weights};
            const void *pointers[2] = {dy, w[k].in};
            lathe_kernel *kernel = NULL;
            int64_t bytes = 0;
            lathe_parallel_init(1);
            cr_assert_eq(builds[i].device->kernel_create(builds[i].self, &problem, &kernel, &bytes),
                         LATHE_OK);
            void *const scratch = memory(bytes);
            dx[k] = memory(2 * 96 * 4);
            void *outs[1] = {dx[k]};
            const lathe_kernel_args args = {
                .size = sizeof args, .in = pointers, .out = outs, .scratch = scratch};
            cr_assert_eq(builds[i].device->kernel_run(builds[i].self, kernel, &args), LATHE_OK);
            builds[i].device->kernel_destroy(builds[i].self, kernel);
            free(scratch);
        }
        cr_expect_eq(memcmp(dx[0], dx[1], sizeof(float) * 2 * 96), 0);
        free(dx[0]);
        free(dx[1]);
    }
    free(dy);
    weight_free(&w[0]);
    weight_free(&w[1]);
    close_builds(builds, n);
}

/* ---- bitsandbytes ---- */

/* A case of tests/golden/int8_products.py: x are weights of its formula times a power of two,
 * rounded to f16. bitsandbytes multiplies sums with 6.200124e-05, which is 1.8e-5 of it more than
 * 1/127^2. */
static void check_golden(FILE *file, op_build *builds, int n)
{
    unsigned seed;
    int m, rows, cols, power;
    float threshold;
    char settings[64];
    cr_assert_eq(fscanf(file, "%u %d %d %d %d %f", &seed, &m, &rows, &cols, &power, &threshold), 6);
    (void)snprintf(settings, sizeof settings, "activations=int8 outlier_threshold=%g",
                   (double)threshold);
    weight w = weight_of(settings, seed, rows, cols);
    float *const x = golden_weights(seed + 1, (int64_t)m * cols);
    for (int64_t i = 0; i < (int64_t)m * cols; i++)
        x[i] = lathe_f16_to_f32(lathe_f32_to_f16(ldexpf(x[i], power)));
    float *const want = malloc((size_t)(m * rows) * sizeof *want);
    double largest = 0.0;
    for (int i = 0; i < m * rows; i++) {
        cr_assert_eq(fscanf(file, "%f", &want[i]), 1);
        largest = fmax(largest, fabs((double)want[i]));
    }
    for (int i = 0; i < n; i++) {
        void *out[LATHE_OP_MAX_OUT] = {NULL};
        const product p = {
            .op = LATHE_OP_LINEAR, .dtype = LATHE_F32, .n = 1, .m = m, .weights = {&w}, .x = x};
        run(&builds[i], &p, out);
        for (int j = 0; j < m * rows; j++) {
            const double got = (double)((const float *)out[0])[j];
            cr_assert(fabs(got - (double)want[j]) <= 2e-5 * fabs((double)want[j]) + 2e-6 * largest,
                      "%s: threshold %g, [%d]: %.9g, bitsandbytes has %.9g", builds[i].plugin->name,
                      (double)threshold, j, got, (double)want[j]);
        }
        free_all(out);
    }
    free(want);
    free(x);
    weight_free(&w);
}

Test(int8_product, is_that_of_bitsandbytes)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/int8_products.txt", "r");
    op_build builds[N_ISAS] = {{0}};
    char word[32];
    int cases = 0;
    cr_assert_not_null(file);
    const int n = open_builds(builds);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        check_golden(file, builds, n);
    }
    cr_expect_eq(cases, 6);
    (void)fclose(file);
    close_builds(builds, n);
}
