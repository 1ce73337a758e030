/* SWIGLU and its derivative, element by element.
 *
 *   y = gate * s * up,  s = sigmoid(gate)
 *   dup = dy * gate * s,  dgate = dy * up * s * (1 + gate * (1 - s))
 */
#include "base/cpu.h"
#include "base/vecmath.h"

typedef struct swiglu_job {
    const lathe_kernel *k;
    const lathe_kernel_args *a;
} swiglu_job;

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const swiglu_job *job = arg;
    const int32_t dtype = job->k->in[0].dtype;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *gate = tile_in(b0, job->a->in[0], dtype, i, n);
        const float *up = tile_in(b1, job->a->in[1], dtype, i, n);
        float *y = tile_out(b2, job->a->out[0], dtype, 0, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            y[j] = gate[j] * cpu_sigmoid(gate[j]) * up[j];
        if (y == b2)
            tile_done(b2, job->a->out[0], dtype, 0, i, n);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const swiglu_job *job = arg;
    const lathe_kernel_args *a = job->a;
    const int32_t dtype = job->k->in[0].dtype;
    const int add_gate = (a->accumulate & 1u) != 0, add_up = (a->accumulate & 2u) != 0;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE], b3[CPU_TILE], b4[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *dy = tile_in(b0, a->in[0], dtype, i, n);
        const float *gate = tile_in(b1, a->in[1], dtype, i, n);
        const float *up = tile_in(b2, a->in[2], dtype, i, n);
        float *dgate = tile_out(b3, a->out[0], dtype, add_gate, i);
        float *dup = tile_out(b4, a->out[1], dtype, add_up, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float g = gate[j], s = cpu_sigmoid(g), d = dy[j], u = up[j];
            dgate[j] = d * u * s * (1.0f + g * (1.0f - s));
            dup[j] = d * g * s;
        }
        if (dgate == b3)
            tile_done(b3, a->out[0], dtype, add_gate, i, n);
        if (dup == b4)
            tile_done(b4, a->out[1], dtype, add_up, i, n);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    swiglu_job job = {k, a};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, forward_range, &job);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    swiglu_job job = {k, a};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, backward_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SWIGLU) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(SWIGLU_BWD) = {NULL, run_bwd, NULL, 3};
