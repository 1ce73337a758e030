/* Elementwise arithmetic (element_loops.h).
 *
 *   ADD SUB      z = x + y, x - y             SCALE     y = alpha*x + beta
 *   MUL DIV      z = x * y, x / y
 *   SCALE_BY     y = x * s[start]             LINCOMB   z = alpha*x + beta*y
 *   LOGSIGMOID   y = log sigmoid(x)           SIGMOID   y = sigmoid(x)
 *   CAST         y = x as another dtype       COPY      y = x, any dtype
 */
#include <math.h>

#include "base/cast.h"
#include "base/memory.h"
#include "base/vecmath.h"
#include "ops/element_loops.h"

CPU_TILE_FN(tile_add, x[j] + y[j])
CPU_TILE_FN(tile_sub, x[j] - y[j])
CPU_TILE_FN(tile_mul, x[j] * y[j])
CPU_TILE_FN(tile_div, x[j] / y[j])
CPU_TILE_FN(tile_scale, alpha *x[j] + beta)
CPU_TILE_FN(tile_lincomb, alpha *x[j] + beta * y[j])
CPU_TILE_FN(tile_sigmoid, cpu_sigmoid(x[j]))
/* min(x, 0) - log(1 + exp(-|x|)). Speed does not matter: it runs over a few numbers per
 * sequence. */
CPU_TILE_FN(tile_logsigmoid, (x[j] < 0.0f ? x[j] : 0.0f) - log1pf(expf(-fabsf(x[j]))))

CPU_TILE_OP(ADD, tile_add, 1)
CPU_TILE_OP(SUB, tile_sub, 1)
CPU_TILE_OP(MUL, tile_mul, 1)
CPU_TILE_OP(DIV, tile_div, 1)
CPU_TILE_OP(SIGMOID, tile_sigmoid, 0)
CPU_TILE_OP(LOGSIGMOID, tile_logsigmoid, 0)

static lathe_status run_scale(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cpu_run_tiles(k, a, tile_scale, 0, k->attrs.alpha, k->attrs.beta);
}

static lathe_status run_scale_by(lathe_kernel *k, const lathe_kernel_args *a)
{
    const float s = ((const float *)a->in[1])[k->attrs.start];
    return cpu_run_tiles(k, a, tile_scale, 0, (double)s, 0.0);
}

static lathe_status run_lincomb(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cpu_run_tiles(k, a, tile_lincomb, 1, k->attrs.alpha, k->attrs.beta);
}

static lathe_status run_cast(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int32_t from = k->in[0].dtype, to = k->out[0].dtype;
    cpu_cast(k->host, a->out[0], to, a->in[0], from, n, (a->accumulate & 1u) != 0);
    return LATHE_OK;
}

static lathe_status run_copy(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int32_t dtype = k->in[0].dtype;
    if (a->accumulate & 1u)
        cpu_cast(k->host, a->out[0], dtype, a->in[0], dtype, lathe_desc_count(&k->in[0]), 1);
    else if (a->out[0] != a->in[0])
        return cpu_memory_copy(k->device, NULL, a->out[0], a->in[0], lathe_desc_bytes(&k->in[0]),
                               LATHE_COPY_ON_DEVICE);
    return LATHE_OK;
}

const kernel_op CPU_OP(SCALE) = {NULL, run_scale, NULL, 1};
const kernel_op CPU_OP(SCALE_BY) = {NULL, run_scale_by, NULL, 1};
const kernel_op CPU_OP(LINCOMB) = {NULL, run_lincomb, NULL, 1};
const kernel_op CPU_OP(CAST) = {NULL, run_cast, NULL, 1};
const kernel_op CPU_OP(COPY) = {NULL, run_copy, NULL, 1};
