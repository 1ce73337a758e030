/* Checks a device that says it quantizes the inputs of products with packed weights: it computes
 * lathe_activations (lathe/packed.h), row by row. The weight is in a format of this file: signed
 * bytes, with one scale for each row. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "check/device/device_checks.h"
#include "check/device/device_session.h"
#include "exec/store/memory_kind.h"
#include "lathe/op.h"
#include "lathe/quant.h"

enum { ROWS = 3, OUTPUTS = 37, COLS = 200, ROOM = 64 };
#define MAX_SCRATCH ((int64_t)1 << 30)
#define THRESHOLD 3.0f

/* ---- the format ---- */

static lathe_status decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           void *w, int32_t dtype, void *scratch, void *stream)
{
    const int8_t *codes = planes[0];
    (void)self, (void)scratch, (void)stream;
    for (int64_t i = 0; i < rows * cols; i++)
        lathe_quant_store(w, dtype, i, (float)codes[i] * ((const float *)planes[1])[i / cols]);
    return LATHE_OK;
}

static void decode_part(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *p, void *out, int32_t dtype)
{
    (void)self, (void)rows;
    for (int64_t i = 0; i < p->runs * p->rows; i++)
        for (int64_t c = 0; c < p->cols; c++) {
            const int64_t row = p->row + i / p->rows * p->distance + i % p->rows;
            const int8_t code = ((const int8_t *)planes[0])[row * cols + p->col + c];
            lathe_quant_store(out, dtype, i * p->stride + c,
                              (float)code * ((const float *)planes[1])[row]);
        }
}

static int32_t codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                     lathe_weight_codes *out)
{
    (void)self, (void)rows, (void)planes;
    *out = (lathe_weight_codes){
        .order = LATHE_CODES_BYTES, .bits = 8, .values = LATHE_VALUES_I8, .group = cols};
    return 1;
}

static void part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *p, float *scales, float *offsets)
{
    (void)self, (void)rows, (void)cols, (void)offsets;
    for (int64_t i = 0; i < p->rows; i++)
        scales[i * p->stride] = ((const float *)planes[1])[p->row + i];
}

static int32_t activations(void *self, int64_t rows, int64_t cols, lathe_activations *out)
{
    (void)self, (void)rows, (void)cols;
    *out = (lathe_activations){LATHE_I8, THRESHOLD};
    return 1;
}

static const lathe_quant_v1 format = {.size = sizeof format,
                                      .revision = LATHE_QUANT_REVISION,
                                      .decode = decode,
                                      .decode_part = decode_part,
                                      .codes = codes,
                                      .part_scales = part_scales,
                                      .activations = activations};

/* ---- the product ---- */

typedef struct product {
    float *x;      /* [ROWS][COLS] */
    int8_t *codes; /* [OUTPUTS][COLS] */
    float *scales; /* [OUTPUTS] */
    float *y;      /* [ROWS][OUTPUTS] */
    const void *planes[LATHE_MAX_PLANES];
} product;

/* Row 0 has no outliers, row 1 has some, and row 2 a NaN. */
static void fill(lathe__subject *s, product *p)
{
    const float *noise = lathe__random(s, (ROWS + OUTPUTS) * COLS, 47, 1.0);
    p->x = lathe__memory(s, ROWS * COLS * 4);
    p->codes = lathe__memory(s, OUTPUTS * COLS);
    p->scales = lathe__memory(s, OUTPUTS * 4);
    p->y = lathe__memory(s, ROWS * OUTPUTS * 4);
    for (int i = 0; i < ROWS * COLS; i++)
        p->x[i] = noise[i] * (i / COLS == 1 && i % 23 == 5 ? 20.0f : 1.0f);
    p->x[2 * COLS + 9] = NAN;
    for (int i = 0; i < OUTPUTS * COLS; i++)
        p->codes[i] = (int8_t)(int)rintf(fmodf(300.0f * noise[ROWS * COLS + i], 128.0f));
    for (int i = 0; i < OUTPUTS; i++)
        p->scales[i] = 0.001f * (float)(1 + i % 7);
    p->planes[0] = p->codes;
    p->planes[1] = p->scales;
}

/* Output o of row r in doubles; *out_all: the sum of the magnitudes. */
static double want_of(const product *p, int r, int o, double *out_all)
{
    const float *x = p->x + r * COLS;
    const int8_t *q = p->codes + o * COLS;
    float largest = 0.0f;
    double exact = 0.0, apart = 0.0;
    *out_all = 0.0;
    for (int i = 0; i < COLS; i++)
        if (!(fabsf(x[i]) >= THRESHOLD))
            largest = fmaxf(largest, fabsf(x[i]));
    for (int i = 0; i < COLS; i++) {
        const int is_outlier = fabsf(x[i]) >= THRESHOLD;
        exact += is_outlier ? 0.0 : (double)(rintf(x[i] * (127.0f / largest)) * (float)q[i]);
        apart += is_outlier ? (double)x[i] * q[i] : 0.0;
        *out_all += fabs((double)x[i] * q[i]) * (double)p->scales[o];
    }
    return (double)p->scales[o] * ((double)largest / 127.0 * exact + apart);
}

static lathe_status expect_product(const product *p)
{
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUTPUTS; o++) {
            double all;
            const double want = want_of(p, r, o, &all), got = (double)p->y[r * OUTPUTS + o];
            if (r == 2 ? !isnan(got) : !(fabs(got - want) <= 1e-5 * all))
                return lathe_error(LATHE_E_NUMERIC,
                                   "a product with quantized inputs gives %g in row %d, column %d, "
                                   "expected %g",
                                   got, r, o, r == 2 ? (double)NAN : want);
        }
    return LATHE_OK;
}

/* Runs y = x W^T with the planes in memory of the device, which the host can access. */
static lathe_status run(lathe__session *d, product *p, void *const memory[4])
{
    const lathe_desc in[3] = {lathe_desc_2d(LATHE_F32, ROWS, COLS),
                              lathe_desc_2d(LATHE_PLANES, OUTPUTS, COLS),
                              {LATHE_ABSENT, 0, {1, 1, 1, 1}}};
    const lathe_desc out = lathe_desc_2d(LATHE_F32, ROWS, OUTPUTS);
    const lathe_packed_weight weights[3] = {{NULL, NULL}, {&format, p}, {NULL, NULL}};
    const lathe_op_attrs attrs = {.invariant = 0};
    const lathe_kernel_problem problem = {.size = sizeof problem,
                                          .op = LATHE_OP_LINEAR,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &out,
                                          .n_in = 3,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = LATHE_FLAG_DETERMINISTIC,
                                          .n_threads = lathe_parallel_threads(),
                                          .weights = weights};
    const void *const planes[LATHE_MAX_PLANES] = {memory[1], memory[2]};
    const void *const inputs[3] = {memory[0], (const void *)planes, NULL};
    lathe_kernel *kernel = NULL;
    int64_t bytes = 0;
    LATHE_TRY(d->table->kernel_create(d->instance.self, &problem, &kernel, &bytes));
    if (bytes < 0 || bytes > MAX_SCRATCH) {
        d->table->kernel_destroy(d->instance.self, kernel);
        return lathe_error(LATHE_E_PLUGIN, "a product wants %lld bytes of scratch",
                           (long long)bytes);
    }
    const lathe_kernel_args args = {.size = sizeof args,
                                    .in = inputs,
                                    .out = (void *const[]){memory[3]},
                                    .scratch = lathe__memory(d->s, bytes + ROOM)};
    lathe_status status = d->table->kernel_run(d->instance.self, kernel, &args);
    if (status == LATHE_OK)
        status = lathe__session_get(d, memory[3], ROWS * OUTPUTS * 4, p->y);
    d->table->kernel_destroy(d->instance.self, kernel);
    return status == LATHE_OK ? expect_product(p) : status;
}

static lathe_status check_session(lathe__session *d)
{
    product p;
    void *memory[4] = {NULL};
    if (d->info.activations == 0)
        return lathe__skip(d->s, "no activations");
    if (d->info.activations != 1u << LATHE_I8)
        return lathe_error(LATHE_E_PLUGIN, "info: activations 0x%x, expected 0x%x (i8)",
                           d->info.activations, 1u << LATHE_I8);
    if (!d->info.packed_weights || !lathe_memory_kind_of(&d->info)->runs_host_code)
        return lathe_error(LATHE_E_PLUGIN, "info: activations without packed_weights");
    fill(d->s, &p);
    lathe_status status = lathe__session_put(d, p.x, ROWS * COLS * 4, &memory[0]);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__session_put(d, p.codes, OUTPUTS * COLS, &memory[1])) != LATHE_OK)
        goto out;
    if ((status = lathe__session_put(d, p.scales, OUTPUTS * 4, &memory[2])) != LATHE_OK)
        goto out;
    if ((status = lathe__session_put(d, NULL, ROWS * OUTPUTS * 4, &memory[3])) != LATHE_OK)
        goto out;
    status = run(d, &p, memory);
out:
    for (int i = 0; i < 4; i++)
        d->table->free(d->instance.self, memory[i]);
    return status;
}

lathe_status lathe__quantizes_activations(lathe__subject *s)
{
    lathe__session d;
    LATHE_TRY(lathe__session_init(&d, s));
    const lathe_status status = check_session(&d);
    lathe_instance_fini(&d.instance);
    return status;
}
