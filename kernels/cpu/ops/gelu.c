/* GELU_TANH and its derivative, element by element.
 *
 *   u = sqrt(2/pi) * (x + 0.044715 x^3),  y = x * h,  h = sigmoid(2u) = (1 + tanh u) / 2
 *   dx = dy * (h + 2 x h (1 - h) u'),  u' = sqrt(2/pi) * (1 + 3 * 0.044715 x^2)
 *   with e = exp(-2|u|):  h (1 - h) = e / (1 + e)^2, which does not cancel where h is near 1
 */
#include "ops/gelu.h"

#include "base/vecmath.h"

#define ROOT_2_PI 0.7978845608028654f
#define CUBE 0.044715f

typedef struct gelu_job {
    const void *dy, *x;
    void *out;
    int32_t dtype;
    int accumulate;
} gelu_job;

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gelu_job *job = arg;
    const int32_t dtype = job->dtype;
    float b0[CPU_TILE], b1[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *x = tile_in(b0, job->x, dtype, i, n);
        float *y = tile_out(b1, job->out, dtype, 0, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float v = x[j], u = ROOT_2_PI * (v + CUBE * v * v * v);
            const float y_near = v / (1.0f + cpu_exp_clamped(-2.0f * u));
            y[j] = u < -43.5f ? v * 0.0f : y_near; /* h is below 1e-37 */
        }
        if (y == b1)
            tile_done(b1, job->out, dtype, 0, i, n);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gelu_job *job = arg;
    const int32_t dtype = job->dtype;
    const int add = job->accumulate;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *dy = tile_in(b0, job->dy, dtype, i, n);
        const float *x = tile_in(b1, job->x, dtype, i, n);
        float *dx = tile_out(b2, job->out, dtype, add, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float v = x[j], u = ROOT_2_PI * (v + CUBE * v * v * v);
            const float e = cpu_exp_clamped(-2.0f * __builtin_fabsf(u)), near = 1.0f / (1.0f + e);
            const float h = u < 0.0f ? e * near : near;
            const float du = ROOT_2_PI * (1.0f + 3.0f * CUBE * v * v);
            dx[j] = dy[j] * (h + 2.0f * v * (e * near * near) * du);
        }
        if (dx == b2)
            tile_done(b2, job->out, dtype, add, i, n);
    }
}

void cpu_gelu(const lathe_host *host, const void *x, void *y, int32_t dtype, int64_t n)
{
    gelu_job job = {NULL, x, y, dtype, 0};
    host->parallel_for(n, CPU_GRAIN, forward_range, &job);
}

void cpu_gelu_bwd(const lathe_host *host, const void *dy, const void *x, void *dx, int32_t dtype,
                  int64_t n, int accumulate)
{
    gelu_job job = {dy, x, dx, dtype, accumulate};
    host->parallel_for(n, CPU_GRAIN, backward_range, &job);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    cpu_gelu(k->host, a->in[0], a->out[0], k->in[0].dtype, lathe_desc_count(&k->in[0]));
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    cpu_gelu_bwd(k->host, a->in[0], a->in[1], a->out[0], k->in[0].dtype,
                 lathe_desc_count(&k->in[0]), (a->accumulate & 1u) != 0);
    return LATHE_OK;
}

const kernel_op CPU_OP(GELU_TANH) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(GELU_TANH_BWD) = {NULL, run_bwd, NULL, 1};
