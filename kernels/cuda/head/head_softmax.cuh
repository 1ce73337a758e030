/* The softmax of the vocabulary head, over whole rows of logits: statistics, gradient in place,
 * draws.
 *
 *   s = l, or cap * tanh(l / cap)       lse = max s + log(sum of exp(s - max s))
 *   logp = s[target] - lse
 *   dl = dlogp * (onehot(target) - exp(s - lse)) * (1 - (s/cap)^2)
 *   draw: the first v for which the sum of exp(s - max s) up to v exceeds u * the whole sum
 *
 * A block processes a row. Rows begin at multiples of 16 bytes and are read in packs; columns from
 * v on are padding. Statistics take one pass, in which each thread keeps its maximum and a sum that
 * it rescales. The gradient takes a second pass, which reads from the cache. The threads' sums are
 * added in f64. Bound by memory.
 */
#ifndef LATHE_CUDA_HEAD_SOFTMAX_CUH
#define LATHE_CUDA_HEAD_SOFTMAX_CUH

#include "base/launch.cuh"
#include "lathe/rng.h"

/** The rows of a chunk; pointers are at its first row. */
struct head_rows {
    int64_t v, stride; /* columns; elements from one row to the next */
    float cap;         /* 0: no cap */
    const int32_t *targets;
    const float *dlogp;      /* NULL: no gradient */
    float *logp, *top_logp;  /* top_logp and top: for HEAD_EVAL */
    int32_t *top, *sampled;  /* sampled: for HEAD_SAMPLE */
    const int64_t *rng;      /* for HEAD_SAMPLE: [LATHE_RNG_COUNTER] */
    uint64_t rng_stream;     /* for HEAD_SAMPLE */
    int64_t first, n;        /* number of the chunk's first row; rows of all chunks */
    int32_t accumulate_logp; /* logp is added to */
};

template <typename T> static __device__ __forceinline__ float head_logit(T x, float cap)
{
    const float l = cuda_float(x);
    return cap > 0.0f ? cap * tanhf(l / cap) : l;
}

/* The pack of columns from i on; columns beyond the row are not read unless they are PADDED. */
template <typename T, int PADDED>
static __device__ __forceinline__ cuda_pack<T, cuda_lanes<T>> head_pack(const T *row, int64_t i,
                                                                        int64_t v)
{
    constexpr int lanes = cuda_lanes<T>;
    cuda_pack<T, lanes> pack;
    if constexpr (PADDED)
        pack = cuda_load<lanes>(row + i);
    else
        for (int j = 0; j < lanes; j++)
            pack.v[j] = i + j < v ? row[i + j] : cuda_as<T>::from(0.0f);
    return pack;
}

/* State of a thread after reading its part of a row. */
struct head_seen {
    float max, sum; /* largest s; sum of exp(s - max) */
    float top;      /* largest l, and its first column */
    int32_t top_id;
};

template <typename T, int FIND_TOP, int PADDED = 1>
static __device__ __forceinline__ head_seen head_observe(const T *row, int64_t v, float cap)
{
    constexpr int lanes = cuda_lanes<T>;
    head_seen seen = {-INFINITY, 0.0f, -INFINITY, -1};
    for (int64_t i = (int64_t)threadIdx.x * lanes; i < v; i += (int64_t)blockDim.x * lanes) {
        const auto pack = head_pack<T, PADDED>(row, i, v);
        float s[lanes], max = seen.max;
        for (int j = 0; j < lanes; j++) {
            s[j] = i + j < v ? head_logit(pack.v[j], cap) : -INFINITY;
            max = s[j] > max ? s[j] : max;
            if (FIND_TOP && i + j < v && cuda_float(pack.v[j]) > seen.top) {
                seen.top = cuda_float(pack.v[j]);
                seen.top_id = (int32_t)(i + j);
            }
        }
        if (max > seen.max)
            seen.sum *= expf(seen.max - max);
        seen.max = max;
        for (int j = 0; j < lanes; j++)
            seen.sum += expf(s[j] - (max > -INFINITY ? max : 0.0f));
    }
    return seen;
}

/* Returns lse of the row, in double, valid on thread 0. *out_max: the largest s, on every
 * thread. */
static __device__ __forceinline__ double head_lse(head_seen seen, float *out_max)
{
    const float max = cuda_block_max(seen.max);
    const float share = seen.max > -INFINITY && seen.max < max ? expf(seen.max - max) : 1.0f;
    const double sum = cuda_block_sum((double)seen.sum * (double)share);
    *out_max = max;
    return threadIdx.x == 0 ? (double)max + log(sum) : 0.0;
}

/* The first column that has the row's largest logit; -1: no logit is above -inf. */
static __device__ __forceinline__ int32_t head_top(head_seen seen)
{
    const float top = cuda_block_max(seen.top);
    const int32_t id =
        cuda_block_max(seen.top_id >= 0 && seen.top == top ? -seen.top_id - 1 : INT32_MIN);
    return id == INT32_MIN ? -1 : -(id + 1);
}

/* Writes the gradient of a row. With target -1 every element is 0. */
template <typename T>
static __device__ __forceinline__ void head_gradient(T *row, int64_t v, float cap, int64_t target,
                                                     float lse, float dlogp)
{
    constexpr int lanes = cuda_lanes<T>;
    for (int64_t i = (int64_t)threadIdx.x * lanes; i < v; i += (int64_t)blockDim.x * lanes) {
        auto pack = *(const cuda_pack<T, lanes> *)(row + i);
        for (int j = 0; j < lanes; j++) {
            const float s = head_logit(pack.v[j], cap);
            const float slope = cap > 0.0f ? 1.0f - (s / cap) * (s / cap) : 1.0f;
            const float p = expf(s - lse), g = i + j == target ? 1.0f - p : -p;
            pack.v[j] = cuda_as<T>::from(target < 0 || i + j >= v ? 0.0f : dlogp * g * slope);
        }
        *(cuda_pack<T, lanes> *)(row + i) = pack;
    }
}

/* A row that is skipped (logp 0), or whose target is outside the vocabulary (logp NaN). */
static __device__ __forceinline__ void head_no_target(const head_rows &a, int64_t r, int32_t target)
{
    if (threadIdx.x != 0)
        return;
    const float logp = target == -1 ? 0.0f : NAN;
    cuda_put(&a.logp[r], a.accumulate_logp, logp);
    if (a.top != nullptr) {
        a.top_logp[r] = logp;
        a.top[r] = -1;
    }
}

template <typename T, int FIND_TOP>
static __global__ void __launch_bounds__(CUDA_THREADS) head_logprob(T *logits, head_rows a)
{
    __shared__ float shared_lse;
    const int64_t r = blockIdx.x;
    const int32_t target = a.targets[r];
    const float dlogp = a.dlogp == nullptr ? 0.0f : a.dlogp[r];
    T *row = logits + r * a.stride;
    if (target < 0 || target >= a.v) {
        head_no_target(a, r, target);
        if (a.dlogp != nullptr)
            head_gradient(row, a.v, 0.0f, -1, 0.0f, 0.0f);
        return;
    }
    const head_seen seen = head_observe<T, FIND_TOP>(row, a.v, a.cap);
    const int32_t top = FIND_TOP ? head_top(seen) : -1;
    float max;
    const double lse = head_lse(seen, &max);
    if (threadIdx.x == 0) {
        shared_lse = (float)lse;
        cuda_put(&a.logp[r], a.accumulate_logp,
                 (float)((double)head_logit(row[target], a.cap) - lse));
        if (FIND_TOP) {
            a.top_logp[r] = (float)((double)max - lse);
            a.top[r] = top;
        }
    }
    __syncthreads(); /* all threads have read the target's logit */
    if (a.dlogp != nullptr)
        head_gradient(row, a.v, a.cap, dlogp == 0.0f ? -1 : target, shared_lse, dlogp);
}

/* ---- draws: a row in tiles, a tile in runs of columns, one per thread ---- */

#define HEAD_TILES 512 /* maximum */

/* Columns of a thread's run, a whole number of packs. */
template <typename T> static __device__ __forceinline__ int64_t head_run_columns(int64_t v)
{
    constexpr int64_t least = cuda_lanes<T>, all = (int64_t)HEAD_TILES * CUDA_THREADS * least;
    return (v + all - 1) / all * least;
}

/* Sum of exp(s - shift) over columns from .. from + n - 1. */
template <typename T>
static __device__ __forceinline__ double head_weigh(const T *row, int64_t v, float cap, float shift,
                                                    int64_t from, int64_t n)
{
    constexpr int lanes = cuda_lanes<T>;
    double sum = 0.0;
    for (int64_t i = from; i < from + n && i < v; i += lanes) {
        const auto pack = *(const cuda_pack<T, lanes> *)(row + i);
        for (int j = 0; j < lanes; j++)
            sum += i + j < v ? (double)expf(head_logit(pack.v[j], cap) - shift) : 0.0;
    }
    return sum;
}

/* The first part at which the running sum exceeds `level`. If rounding errors make every part
 * smaller, the last part that is not 0; -1 if all are 0. *io_before: in, the sum before the
 * first part; out, before the chosen one. */
static __device__ __forceinline__ int64_t head_choose(const double *parts, int64_t n, double level,
                                                      double *io_before)
{
    double upto = *io_before;
    int64_t chosen = -1;
    for (int64_t i = 0; i < n && (chosen < 0 || upto <= level); i++) {
        if (!(parts[i] > 0.0))
            continue;
        chosen = i;
        *io_before = upto;
        upto += parts[i];
    }
    return chosen;
}

template <typename T>
static __device__ __forceinline__ int32_t head_search(const T *row, int64_t v, float cap,
                                                      float shift, int64_t from, int64_t n,
                                                      double level, double sum)
{
    int64_t column = from;
    for (int64_t i = from; i < from + n && i < v && sum <= level; i++) {
        const float e = expf(head_logit(row[i], cap) - shift);
        column = e > 0.0f ? i : column;
        sum += (double)e;
    }
    return (int32_t)column;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) head_draw(const T *logits, head_rows a)
{
    __shared__ double parts[HEAD_TILES]; /* of the tiles, then of the runs in the chosen tile */
    __shared__ double shared_level, shared_before;
    __shared__ int64_t shared_tile;
    const int64_t r = blockIdx.x;
    const T *row = logits + r * a.stride;
    if (a.targets[r] < 0 || a.targets[r] >= a.v) {
        if (threadIdx.x == 0)
            a.sampled[r] = -1;
        return;
    }
    const float max = cuda_block_max(head_observe<T, 0>(row, a.v, a.cap).max);
    const float shift = max > -INFINITY ? max : 0.0f;
    const int64_t run = head_run_columns<T>(a.v), tile = run * blockDim.x;
    const int64_t n_tiles = (a.v + tile - 1) / tile, mine = threadIdx.x * run;
    for (int64_t t = 0; t < n_tiles; t++) {
        const double sum = cuda_block_sum(head_weigh(row, a.v, a.cap, shift, t * tile + mine, run));
        if (threadIdx.x == 0)
            parts[t] = sum;
    }
    if (threadIdx.x == 0) {
        const int64_t index = lathe_rng_index(a.rng, a.n, a.first + r);
        const lathe_u32x4 word =
            lathe_rng_block((uint64_t)a.rng[0], (uint64_t)a.rng[1], a.rng_stream, (uint64_t)index);
        double total = 0.0, before = 0.0;
        for (int64_t t = 0; t < n_tiles; t++)
            total += parts[t];
        shared_level = lathe_uniform_f64(word.v[0], word.v[1]) * total;
        shared_tile = total > 0.0 && total < INFINITY
                          ? head_choose(parts, n_tiles, shared_level, &before)
                          : -1;
        shared_before = before;
    }
    __syncthreads();
    const int64_t first = shared_tile * tile;
    if (shared_tile >= 0)
        parts[threadIdx.x] = head_weigh(row, a.v, a.cap, shift, first + mine, run);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    double before = shared_before;
    const int64_t chosen =
        shared_tile < 0 ? -1 : head_choose(parts, blockDim.x, shared_level, &before);
    a.sampled[r] = chosen < 0 ? -1
                              : head_search(row, a.v, a.cap, shift, first + chosen * run, run,
                                            shared_level, before);
}

#endif
