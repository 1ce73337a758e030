/* XIELU and its derivative.
 *
 *   y = P x^2 + beta x  for x > 0, else  N (expm1(min(x, eps)) - x) + beta x
 *   P = softplus(alpha_p), N = beta + softplus(alpha_n)
 *
 * The derivative sums what alpha_p and alpha_n get over pieces of a fixed size, in f64, and adds
 * the pieces in order.
 */
#include <math.h>

#include "base/cpu.h"
#include "base/vecmath.h"

#define PIECE 4096 /* elements */

typedef struct xielu_job {
    const void *x, *dy;
    void *out;    /* y or dx */
    double *sums; /* [pieces][2]; NULL: not wanted */
    int64_t n;
    float p, n_factor, beta, eps;
    int32_t dtype, accumulate;
} xielu_job;

/* e^x - 1 for x <= 88, without cancellation near 0: exp(r) - 1 of the reduced r, scaled. */
CPU_INLINE float expm1_of(float x)
{
    float c = x > -87.0f ? x : -87.0f;
    const float shifted = __builtin_fmaf(c, 1.44269504f, 0x1.8p23f);
    const float k = shifted - 0x1.8p23f;
    float r = __builtin_fmaf(k, -0.693359375f, c);
    r = __builtin_fmaf(k, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = __builtin_fmaf(p, r, 1.3981999507e-3f);
    p = __builtin_fmaf(p, r, 8.3334519073e-3f);
    p = __builtin_fmaf(p, r, 4.1665795894e-2f);
    p = __builtin_fmaf(p, r, 1.6666665459e-1f);
    p = __builtin_fmaf(p, r, 5.0000001201e-1f);
    p = __builtin_fmaf(p, r * r, r);
    const float s = cpu_from_bits((127u << 23) + (cpu_to_bits(shifted) << 23));
    return __builtin_fmaf(s, p, s - 1.0f);
}

CPU_INLINE void forward_elements(const xielu_job *j, int64_t begin, int64_t end, int32_t dtype)
{
    const float p = j->p, n = j->n_factor, beta = j->beta, eps = j->eps;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float x = ld(j->x, i, dtype), low = x < eps ? x : eps;
        const float bent = n * (expm1_of(low) - x), square = p * x * x;
        st(j->out, i, dtype, 0, (x > 0.0f ? square : bent) + beta * x);
    }
}

CPU_INLINE void backward_elements(const xielu_job *j, int64_t begin, int64_t end, double *sums,
                                  int32_t dtype)
{
    const float p = j->p, n = j->n_factor, beta = j->beta, eps = j->eps;
    double of_p = 0.0, of_n = 0.0;
    for (int64_t from = begin; from < end; from += 16) {
        float to_p[16], to_n[16];
        const int64_t count = end - from < 16 ? end - from : 16;
#pragma GCC ivdep
        for (int64_t k = 0; k < count; k++) {
            const int64_t i = from + k;
            const float x = ld(j->x, i, dtype), dy = ld(j->dy, i, dtype);
            const float low = x < eps ? x : eps, grown = expm1_of(low);
            const float bend = (x < eps ? grown + 1.0f : 0.0f) - 1.0f;
            const float slope = x > 0.0f ? 2.0f * p * x : n * bend;
            to_p[k] = x > 0.0f ? dy * x * x : 0.0f;
            to_n[k] = x > 0.0f ? 0.0f : dy * (grown - x);
            st(j->out, i, dtype, j->accumulate, dy * (slope + beta));
        }
        for (int64_t k = 0; k < count; k++) {
            of_p += (double)to_p[k];
            of_n += (double)to_n[k];
        }
    }
    sums[0] = of_p;
    sums[1] = of_n;
}

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const xielu_job *j = arg;
    (void)worker;
    CPU_BY_DTYPE(j->dtype, forward_elements, j, begin, end);
}

/* begin, end: pieces */
static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const xielu_job *j = arg;
    double unused[2];
    (void)worker;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t from = piece * PIECE, to = from + PIECE < j->n ? from + PIECE : j->n;
        double *sums = j->sums != NULL ? j->sums + 2 * piece : unused;
        CPU_BY_DTYPE(j->dtype, backward_elements, j, from, to, sums);
    }
}

static double softplus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* first: number of the input alpha_p */
static xielu_job job_of(const lathe_kernel *k, const lathe_kernel_args *a, int32_t first)
{
    const double beta = (double)*(const float *)a->in[first + 2];
    const xielu_job job = {.x = a->in[first - 1],
                           .out = a->out[0],
                           .n = lathe_desc_count(&k->in[first - 1]),
                           .p = (float)softplus((double)*(const float *)a->in[first]),
                           .n_factor =
                               (float)(beta + softplus((double)*(const float *)a->in[first + 1])),
                           .beta = (float)beta,
                           .eps = *(const float *)a->in[first + 3],
                           .dtype = k->in[first - 1].dtype,
                           .accumulate = (a->accumulate & 1u) != 0};
    return job;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    xielu_job job = job_of(k, a, 1);
    k->host->parallel_for(job.n, PIECE, forward_range, &job);
    return LATHE_OK;
}

static int64_t pieces_of(int64_t n)
{
    return (n + PIECE - 1) / PIECE;
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    if (kernel_has_out(k, 1) || kernel_has_out(k, 2))
        *out_scratch += pieces_of(lathe_desc_count(&k->in[1])) * 2 * (int64_t)sizeof(double);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    xielu_job job = job_of(k, a, 2);
    const int64_t pieces = pieces_of(job.n);
    job.dy = a->in[0];
    if (kernel_has_out(k, 1) || kernel_has_out(k, 2))
        job.sums = a->scratch;
    k->host->parallel_for(pieces, 1, backward_range, &job);
    for (int32_t out = 1; out < 3; out++) {
        double sum = 0.0;
        if (!kernel_has_out(k, out))
            continue;
        for (int64_t i = 0; i < pieces; i++)
            sum += job.sums[2 * i + out - 1];
        const double alpha = (double)*(const float *)a->in[1 + out];
        st(a->out[out], 0, LATHE_F32, (a->accumulate >> out & 1u) != 0,
           (float)(sum / (1.0 + exp(-alpha))));
    }
    return LATHE_OK;
}

const kernel_op CPU_OP(XIELU) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(XIELU_BWD) = {prepare_bwd, run_bwd, NULL, 7};
