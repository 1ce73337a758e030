/* The entropy of the softmax of the vocabulary head, over whole rows of logits, and its gradient in
 * place.
 *
 *   s = l, or cap * tanh(l / cap)     p = exp(s - max s) / sum
 *   H = log(sum) - sum of p (s - max s)
 *   dl = -dH * p * (log p + H) * (1 - (s/cap)^2)
 *
 * A block processes a row and reads it three times, the last two from the cache: for its maximum,
 * its sums and its gradient.
 */
#ifndef LATHE_CUDA_HEAD_ENTROPY_CUH
#define LATHE_CUDA_HEAD_ENTROPY_CUH

#include "head/head_softmax.cuh"

/* e * s for e = exp(s); 0 if s is -inf. */
static __device__ __forceinline__ float head_weighted(float s)
{
    const float e = expf(s);
    return e > 0.0f ? e * s : 0.0f;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) head_entropy(T *logits, head_rows a)
{
    const int64_t r = blockIdx.x;
    const int32_t target = a.targets[r];
    const float dh = a.dlogp == nullptr ? 0.0f : a.dlogp[r];
    T *row = logits + r * a.stride;
    if (target < 0 || target >= a.v) {
        head_no_target(a, r, target);
        if (a.dlogp != nullptr)
            head_gradient(row, a.v, 0.0f, -1, 0.0f, 0.0f);
        return;
    }
    float most = -INFINITY, sum = 0.0f, spread = 0.0f;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x)
        most = fmaxf(most, head_logit(row[i], a.cap));
    most = cuda_block_max(most);
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x) {
        const float s = head_logit(row[i], a.cap) - most;
        sum += expf(s);
        spread += head_weighted(s);
    }
    const double all = cuda_block_sum((double)sum), weighted = cuda_block_sum((double)spread);
    const float log_sum = (float)log(all), h = (float)(log(all) - weighted / all);
    if (threadIdx.x == 0)
        cuda_put(&a.logp[r], a.accumulate_logp, h);
    for (int64_t i = threadIdx.x; a.dlogp != nullptr && i < a.stride; i += blockDim.x) {
        const float s = i < a.v ? head_logit(row[i], a.cap) : 0.0f, logp = s - most - log_sum;
        const float slope = a.cap > 0.0f ? 1.0f - (s / a.cap) * (s / a.cap) : 1.0f;
        const float p = expf(logp);
        row[i] = cuda_as<T>::from(i < a.v && p > 0.0f ? -dh * p * (logp + h) * slope : 0.0f);
    }
}

#endif
