/* Log-probabilities of the tokens that a row picks, over whole rows of logits, and the gradient in
 * place of the logits.
 *
 *   s = l/T, or cap * tanh(l / cap) / T     P: the tokens that the row picks; R: the others
 *   y[j] = s[id j] - lse, lse over P and R, or over P alone       y[K] = log sum over R - lse
 *   ds[v] = sum of dy[j] with id j = v - (sum of dy) p[v] + (v in R: dy[K] p[v] / sum of p over R)
 *
 * A block processes a row. It marks the row's ids in a byte per token, and reads the row three
 * times: for the maximum, the sums of exp over P and over R, and the gradient. Sums over threads
 * are added in f64. The gradient compares the ids with each other, which is meant for a K of at
 * most about a thousand.
 */
#ifndef LATHE_CUDA_HEAD_PICK_CUH
#define LATHE_CUDA_HEAD_PICK_CUH

#include <float.h>

#include "head/head_softmax.cuh"

/** The rows of a chunk; pointers are at its first row. */
struct pick_rows {
    int64_t v, stride, k, columns; /* elements from one row of logits to the next; columns of y */
    float cap, scale;              /* scale: 1/T */
    const int32_t *ids;            /* [rows, k] */
    const float *dy;               /* [rows, columns]; NULL: no gradient */
    float *y;                      /* [rows, columns] */
    uint8_t *marks;                /* [rows, stride] scratch: 1 where a token is picked */
    int32_t accumulate;            /* y is added to */
};

/* Result of looking at a row's ids. */
enum { PICK_NONE = 0, PICK_SOME = 1, PICK_BAD = 2 };

static __device__ __forceinline__ int32_t pick_look(const pick_rows &a, const int32_t *ids)
{
    int32_t seen = PICK_NONE;
    for (int64_t j = threadIdx.x; j < a.k; j += blockDim.x) {
        const int32_t here = ids[j] < -1 || ids[j] >= a.v ? PICK_BAD : ids[j] >= 0 ? PICK_SOME : 0;
        seen = here > seen ? here : seen;
    }
    return cuda_block_max(seen);
}

/* The sum of dy over all places of one token among the ids. *out_is_first is 1 only at the first of
 * these places, so that the sum is added once. */
static __device__ __forceinline__ float pick_gradient(const pick_rows &a, const int32_t *ids,
                                                      const float *dy, int64_t j, int *out_is_first)
{
    float sum = 0.0f;
    *out_is_first = 1;
    for (int64_t i = 0; i < a.k; i++) {
        if (ids[i] != ids[j])
            continue;
        *out_is_first = *out_is_first && i >= j;
        sum += dy[i];
    }
    return sum;
}

/* d s / d l of a logit whose capped value is given, without the factor 1/T. */
static __device__ __forceinline__ float pick_slope(float capped, float cap)
{
    return cap > 0.0f ? 1.0f - (capped / cap) * (capped / cap) : 1.0f;
}

/* Turns a row's logits into their gradient. p_rest: the probability of the tokens that are not
 * picked, 0 if it is too low to have a gradient. */
template <typename T, int HAS_REST>
static __device__ __forceinline__ void head_pick_gradient(const pick_rows &a, int64_t r, T *row,
                                                          const uint8_t *marks, float lse,
                                                          float p_rest)
{
    const int32_t *ids = a.ids + r * a.k;
    const float *dy = a.dy + r * a.columns;
    float part = 0.0f;
    for (int64_t j = threadIdx.x; j < a.k; j += blockDim.x)
        part += ids[j] >= 0 ? dy[j] : 0.0f;
    const float dy_rest = HAS_REST && p_rest > 0.0f ? dy[a.k] : 0.0f;
    const float all = (float)(cuda_block_sum((double)part) + (double)dy_rest);
    /* of a token that is not picked: p times this, unless that is beyond f32 */
    const float other =
        a.scale * (HAS_REST ? (p_rest > 0.0f ? dy_rest / p_rest : 0.0f) - all : 0.0f);
    const int is_small = fabsf(other) <= FLT_MAX;
    const float rest = is_small ? 0.0f : logf(p_rest);
    for (int64_t i = threadIdx.x; i < a.stride; i += blockDim.x) {
        if (i < a.v && marks[i])
            continue;
        const float capped = i < a.v ? head_logit(row[i], a.cap) : 0.0f;
        const float p = i < a.v && HAS_REST ? expf(a.scale * capped - lse) : 0.0f;
        float g = is_small || i >= a.v ? 0.0f : dy_rest * expf(a.scale * capped - lse - rest);
        g = is_small ? other * p : a.scale * (g - all * p);
        row[i] = cuda_as<T>::from(g * pick_slope(capped, a.cap));
    }
    for (int64_t j = threadIdx.x; j < a.k; j += blockDim.x) {
        int is_first = 0;
        const float own = ids[j] < 0 ? 0.0f : pick_gradient(a, ids, dy, j, &is_first);
        if (!is_first)
            continue;
        const float capped = head_logit(row[ids[j]], a.cap);
        const float p = expf(a.scale * capped - lse);
        row[ids[j]] = cuda_as<T>::from(a.scale * (own - all * p) * pick_slope(capped, a.cap));
    }
}

template <typename T, int HAS_REST>
static __global__ void __launch_bounds__(CUDA_THREADS) head_pick(T *logits, pick_rows a)
{
    const int64_t r = blockIdx.x;
    T *row = logits + r * a.stride;
    uint8_t *marks = a.marks + r * a.stride;
    const int32_t *ids = a.ids + r * a.k;
    float *y = a.y + r * a.columns;
    const int32_t seen = pick_look(a, ids);
    if (seen != PICK_SOME) {
        for (int64_t j = threadIdx.x; j < a.columns; j += blockDim.x)
            cuda_put(&y[j], a.accumulate, seen == PICK_NONE ? 0.0f : NAN);
        for (int64_t i = threadIdx.x; a.dy != nullptr && i < a.stride; i += blockDim.x)
            row[i] = cuda_as<T>::from(0.0f);
        return;
    }
    for (int64_t i = threadIdx.x; i < a.stride; i += blockDim.x)
        marks[i] = 0;
    __syncthreads();
    for (int64_t j = 0; j < a.k; j++) /* a token has one thread, however often it is picked */
        if (ids[j] >= 0 && (unsigned)ids[j] % blockDim.x == threadIdx.x)
            marks[ids[j]] = 1;
    __syncthreads();
    float most = -INFINITY, picked = 0.0f, rest = 0.0f;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x)
        if (HAS_REST || marks[i])
            most = fmaxf(most, a.scale * head_logit(row[i], a.cap));
    most = cuda_block_max(most);
    const float shift = most > -INFINITY ? most : 0.0f;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x) {
        if (!HAS_REST && !marks[i])
            continue;
        const float e = expf(a.scale * head_logit(row[i], a.cap) - shift);
        picked += marks[i] ? e : 0.0f;
        rest += marks[i] ? 0.0f : e;
    }
    const double of_rest = cuda_block_sum((double)rest);
    const double sum = cuda_block_sum((double)picked) + of_rest;
    const double lse = (double)shift + log(sum);
    const int is_low = of_rest < sum * (double)FLT_MIN; /* false if the sums are NaN */
    const float y_rest = is_low ? logf(FLT_MIN) : (float)log(of_rest / sum);
    for (int64_t j = threadIdx.x; j < a.k; j += blockDim.x)
        cuda_put(&y[j], a.accumulate,
                 ids[j] < 0 ? 0.0f
                            : (float)((double)(a.scale * head_logit(row[ids[j]], a.cap)) - lse));
    if (HAS_REST && threadIdx.x == 0)
        cuda_put(&y[a.k], a.accumulate, y_rest);
    if (a.dy != nullptr)
        head_pick_gradient<T, HAS_REST>(a, r, row, marks, (float)lse, is_low ? 0.0f : expf(y_rest));
}

#endif
