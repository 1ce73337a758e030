/* The elementwise ops: one loop over tiles of floats, one small function per op.
 *
 *   ADD SUB MUL  z = x + y, x - y, x * y      SCALE     y = alpha*x + beta
 *   SCALE_BY     y = x * s[start]             LINCOMB   z = alpha*x + beta*y
 *   LOGSIGMOID   y = log sigmoid(x)           SIGMOID   y = sigmoid(x)
 *   CAST         y = x as another dtype       COPY      y = x, any dtype
 */
#include <math.h>

#include "cpu.h"
#include "product.h"
#include "vecmath.h"

typedef struct tile_args {
    const float *x, *y; /* y: second input, or NULL */
    float *z;
    float alpha, beta;
} tile_args;

typedef void (*tile_fn)(const tile_args *t, int64_t n);

typedef struct elementwise_job {
    tile_fn fn;
    const void *x, *y;
    void *z;
    int32_t x_dtype, y_dtype, z_dtype, accumulate;
    float alpha, beta;
} elementwise_job;

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const elementwise_job *job = arg;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        float *z = tile_out(b2, job->z, job->z_dtype, job->accumulate, i);
        const tile_args t = {tile_in(b0, job->x, job->x_dtype, i, n),
                             job->y == NULL ? NULL : tile_in(b1, job->y, job->y_dtype, i, n), z,
                             job->alpha, job->beta};
        job->fn(&t, n);
        if (z == b2)
            tile_done(b2, job->z, job->z_dtype, job->accumulate, i, n);
    }
}

#define TILE_FN(name, expression)                                                                  \
    static void name(const tile_args *t, int64_t n)                                                \
    {                                                                                              \
        const float *x = t->x, *y = t->y;                                                          \
        float *z = t->z;                                                                           \
        const float alpha = t->alpha, beta = t->beta;                                              \
        (void)y, (void)alpha, (void)beta;                                                          \
        _Pragma("GCC ivdep") for (int64_t j = 0; j < n; j++) z[j] = (expression);                  \
    }

TILE_FN(tile_add, x[j] + y[j])
TILE_FN(tile_sub, x[j] - y[j])
TILE_FN(tile_mul, x[j] * y[j])
TILE_FN(tile_scale, alpha *x[j] + beta)
TILE_FN(tile_lincomb, alpha *x[j] + beta * y[j])
TILE_FN(tile_sigmoid, cpu_sigmoid(x[j]))
/* min(x, 0) - log(1 + exp(-|x|)); only ever over a few numbers per sequence */
TILE_FN(tile_logsigmoid, (x[j] < 0.0f ? x[j] : 0.0f) - log1pf(expf(-fabsf(x[j]))))

static lathe_status run_tiles(lathe_kernel *k, const lathe_kernel_args *a, tile_fn fn, int binary,
                              double alpha, double beta)
{
    elementwise_job job = {fn,
                           a->in[0],
                           binary ? a->in[1] : NULL,
                           a->out[0],
                           k->in[0].dtype,
                           binary ? k->in[1].dtype : 0,
                           k->out[0].dtype,
                           (a->accumulate & 1u) != 0,
                           (float)alpha,
                           (float)beta};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, range, &job);
    return LATHE_OK;
}

static lathe_status run_add(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_add, 1, 0, 0);
}

static lathe_status run_sub(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_sub, 1, 0, 0);
}

static lathe_status run_mul(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_mul, 1, 0, 0);
}

static lathe_status run_scale(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_scale, 0, k->attrs.alpha, k->attrs.beta);
}

static lathe_status run_scale_by(lathe_kernel *k, const lathe_kernel_args *a)
{
    const float s = ((const float *)a->in[1])[k->attrs.start];
    return run_tiles(k, a, tile_scale, 0, (double)s, 0.0);
}

static lathe_status run_lincomb(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_lincomb, 1, k->attrs.alpha, k->attrs.beta);
}

static lathe_status run_sigmoid(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_sigmoid, 0, 0, 0);
}

static lathe_status run_logsigmoid(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_tiles(k, a, tile_logsigmoid, 0, 0, 0);
}

static lathe_status run_cast(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int32_t from = k->in[0].dtype, to = k->out[0].dtype;
    cpu_convert(k->host, a->out[0], to, a->in[0], from, n, (a->accumulate & 1u) != 0);
    return LATHE_OK;
}

static lathe_status run_copy(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int32_t dtype = k->in[0].dtype;
    if (a->accumulate & 1u)
        cpu_convert(k->host, a->out[0], dtype, a->in[0], dtype, lathe_desc_count(&k->in[0]), 1);
    else if (a->out[0] != a->in[0])
        return cpu_memory_copy(k->device, NULL, a->out[0], a->in[0], lathe_desc_bytes(&k->in[0]),
                               LATHE_COPY_ON_DEVICE);
    return LATHE_OK;
}

const kernel_op CPU_OP(ADD) = {NULL, run_add, NULL, 1};
const kernel_op CPU_OP(SUB) = {NULL, run_sub, NULL, 1};
const kernel_op CPU_OP(MUL) = {NULL, run_mul, NULL, 1};
const kernel_op CPU_OP(SCALE) = {NULL, run_scale, NULL, 1};
const kernel_op CPU_OP(SCALE_BY) = {NULL, run_scale_by, NULL, 1};
const kernel_op CPU_OP(LINCOMB) = {NULL, run_lincomb, NULL, 1};
const kernel_op CPU_OP(CAST) = {NULL, run_cast, NULL, 1};
const kernel_op CPU_OP(COPY) = {NULL, run_copy, NULL, 1};
const kernel_op CPU_OP(SIGMOID) = {NULL, run_sigmoid, NULL, 1};
const kernel_op CPU_OP(LOGSIGMOID) = {NULL, run_logsigmoid, NULL, 1};
