/* The divergence of the softmax of a model's logits from that of another's, over whole rows, and
 * its gradient in place of the first model's logits.
 *
 *   s = l/T, or cap * tanh(l / cap) / T     p = softmax(s)     q = softmax of the other's s
 *   beta 0   KL(q || p)                     ds = p - q
 *   else     m = beta q + (1-beta) p, or q for beta 1
 *            beta KL(q || m) + (1-beta) KL(p || m), or KL(p || q)
 *            ds = (1-beta, or 1) p (log p - log m - KL(p || m))
 *
 * A block processes a row and reads both rows four times: for the maxima, the sums of exp, the
 * divergence and the gradient. Sums over threads are added in f64.
 */
#ifndef LATHE_CUDA_HEAD_DIVERGENCE_CUH
#define LATHE_CUDA_HEAD_DIVERGENCE_CUH

#include "head/head_softmax.cuh"

/** The rows of a chunk; pointers are at its first row. */
struct divergence_rows {
    int64_t v; /* columns that both models have; further ones get no gradient */
    int64_t own_v, stride,
        other_stride; /* own_v: the first model's; elements from a row to the next */
    float cap, other_cap, scale, beta; /* scale: 1/T */
    const int32_t *targets;
    const float *dy; /* NULL: no gradient */
    float *out;
    int32_t accumulate; /* out is added to */
};

/* log p, log q and log m of a column. */
struct divergence_logs {
    float p, q, m;
};

static __device__ __forceinline__ divergence_logs divergence_at(float s, float t, float lse,
                                                                float other_lse, float beta)
{
    divergence_logs out = {s - lse, t - other_lse, 0.0f};
    if (beta <= 0.0f || beta >= 1.0f) {
        out.m = beta <= 0.0f ? out.p : out.q;
        return out;
    }
    const float a = out.p + log1pf(-beta), b = out.q + logf(beta);
    const float high = fmaxf(a, b), low = fminf(a, b);
    out.m = high > -INFINITY ? high + log1pf(expf(low - high)) : high;
    return out;
}

/* exp(a) (a - b); 0 where exp(a) is 0. */
static __device__ __forceinline__ float divergence_term(float a, float b)
{
    const float e = expf(a);
    return e > 0.0f ? e * (a - b) : 0.0f;
}

/* Log of the sum of exp(s) of a row, on every thread. */
template <typename T>
static __device__ __forceinline__ float divergence_lse(const T *row, int64_t v, float cap,
                                                       float scale)
{
    float most = -INFINITY, sum = 0.0f;
    for (int64_t i = threadIdx.x; i < v; i += blockDim.x)
        most = fmaxf(most, scale * head_logit(row[i], cap));
    most = cuda_block_max(most);
    const float shift = most > -INFINITY ? most : 0.0f;
    for (int64_t i = threadIdx.x; i < v; i += blockDim.x)
        sum += expf(scale * head_logit(row[i], cap) - shift);
    return (float)((double)shift + log(cuda_block_sum((double)sum)));
}

template <typename T, typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    head_divergence(T *logits, const U *others, divergence_rows a)
{
    const int64_t r = blockIdx.x;
    const int32_t target = a.targets[r];
    T *row = logits + r * a.stride;
    const U *other = others + r * a.other_stride;
    if (target < 0 || target >= a.own_v) {
        if (threadIdx.x == 0)
            cuda_put(&a.out[r], a.accumulate, target == -1 ? 0.0f : NAN);
        for (int64_t i = threadIdx.x; a.dy != nullptr && i < a.stride; i += blockDim.x)
            row[i] = cuda_as<T>::from(0.0f);
        return;
    }
    const float lse = divergence_lse(row, a.v, a.cap, a.scale);
    const float other_lse = divergence_lse(other, a.v, a.other_cap, a.scale);
    float part_p = 0.0f, part_q = 0.0f;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x) {
        const divergence_logs l =
            divergence_at(a.scale * head_logit(row[i], a.cap),
                          a.scale * head_logit(other[i], a.other_cap), lse, other_lse, a.beta);
        part_p += a.beta > 0.0f ? divergence_term(l.p, l.m) : 0.0f;
        part_q += a.beta < 1.0f ? divergence_term(l.q, l.m) : 0.0f;
    }
    const double of_p = cuda_block_sum((double)part_p), of_q = cuda_block_sum((double)part_q);
    const double beta = (double)a.beta;
    if (threadIdx.x == 0)
        cuda_put(&a.out[r], a.accumulate,
                 (float)(beta <= 0.0   ? of_q
                         : beta >= 1.0 ? of_p
                                       : beta * of_q + (1.0 - beta) * of_p));
    if (a.dy == nullptr)
        return;
    const float share = a.beta <= 0.0f || a.beta >= 1.0f ? 1.0f : 1.0f - a.beta;
    const float factor = a.dy[r] * a.scale * share;
    for (int64_t i = threadIdx.x; i < a.stride; i += blockDim.x) {
        if (i >= a.v) { /* tokens of the first model alone, and padding of the row */
            row[i] = cuda_as<T>::from(0.0f);
            continue;
        }
        const float capped = head_logit(row[i], a.cap);
        const float slope = a.cap > 0.0f ? 1.0f - (capped / a.cap) * (capped / a.cap) : 1.0f;
        const divergence_logs l = divergence_at(
            a.scale * capped, a.scale * head_logit(other[i], a.other_cap), lse, other_lse, a.beta);
        const float p = expf(l.p);
        const float g = a.beta <= 0.0f ? p - expf(l.q)
                        : p > 0.0f     ? p * (l.p - l.m - (float)of_p)
                                       : 0.0f;
        row[i] = cuda_as<T>::from(factor * g * slope);
    }
}

#endif
