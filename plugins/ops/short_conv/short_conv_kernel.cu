/* The convolution on GPUs. Each thread computes one element of y or dx, with the sums of the host's
 * code in their order; a block sums one tap of one channel over all tokens, as a fixed tree. */
#include "lathe/dtype.h"
#include "lathe/kit/code_image.h"
#include "short_conv.h"

static __device__ float load(const void *from, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

static __device__ void store(void *to, int32_t dtype, int64_t i, float x, int adds)
{
    const float sum = adds ? load(to, dtype, i) + x : x;
    if (dtype == LATHE_F32)
        ((float *)to)[i] = sum;
    else
        ((uint16_t *)to)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(sum) : lathe_f32_to_f16(sum);
}

/* Number of tokens that token i of all sees, itself included. */
static __device__ int64_t reach(const short_conv_args *a, int64_t i)
{
    const int64_t first = a->doc_start != NULL ? a->doc_start[i] : 0;
    const int64_t seen = i % a->tokens + 1 - first;
    return seen < a->taps ? seen : a->taps;
}

static __device__ float z_of(const short_conv_args *a, int64_t i, int64_t c)
{
    float z = a->bias != NULL ? ((const float *)a->bias)[c] : 0.0f;
    const int64_t n = reach(a, i);
    for (int64_t j = 0; j < n; j++)
        z += load(a->w, a->dtype, c * a->taps + a->taps - 1 - j) *
             load(a->x, a->dtype, (i - j) * a->n_channels + c);
    return z;
}

static __device__ float dz_of(const short_conv_args *a, int64_t i, int64_t c)
{
    const float dy = load(a->dy, a->dtype, i * a->n_channels + c);
    if (!a->is_silu)
        return dy;
    const float z = z_of(a, i, c), p = 1.0f / (1.0f + expf(-z));
    return dy * (p * (1.0f + z * (1.0f - p)));
}

LATHE_CUDA_KERNEL(short_conv_forward, SHORT_CONV_THREADS, short_conv_args)
{
    const int64_t at = (int64_t)blockIdx.x * SHORT_CONV_THREADS + threadIdx.x;
    if (at >= a.n_rows * a.tokens * a.n_channels)
        return;
    const float z = z_of(&a, at / a.n_channels, at % a.n_channels);
    store(a.out[0], a.dtype, at, a.is_silu ? z / (1.0f + expf(-z)) : z, a.accumulate & 1u);
}

LATHE_CUDA_KERNEL(short_conv_backward_x, SHORT_CONV_THREADS, short_conv_args)
{
    const int64_t at = (int64_t)blockIdx.x * SHORT_CONV_THREADS + threadIdx.x;
    if (at >= a.n_rows * a.tokens * a.n_channels)
        return;
    const int64_t i = at / a.n_channels, c = at % a.n_channels, left = a.tokens - i % a.tokens;
    float dx = 0.0f;
    for (int64_t j = 0; j < a.taps && j < left; j++)
        if (reach(&a, i + j) > j)
            dx += load(a.w, a.dtype, c * a.taps + a.taps - 1 - j) * dz_of(&a, i + j, c);
    store(a.out[0], a.dtype, at, dx, a.accumulate & 1u);
}

/* Block c * (taps + 1) + j: tap j of channel c, the tap of the token itself first; after them the
 * bias. */
LATHE_CUDA_KERNEL(short_conv_backward_w, SHORT_CONV_THREADS, short_conv_args)
{
    const int64_t c = blockIdx.x / (a.taps + 1), j = blockIdx.x % (a.taps + 1);
    const int is_bias = j == a.taps;
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < a.n_rows * a.tokens; i += SHORT_CONV_THREADS) {
        if (!is_bias && reach(&a, i) <= j)
            continue;
        const double x = is_bias ? 1.0 : (double)load(a.x, a.dtype, (i - j) * a.n_channels + c);
        sum += (double)dz_of(&a, i, c) * x;
    }
    sum = lathe_cuda_block_sum<SHORT_CONV_THREADS>(sum);
    if (threadIdx.x != 0)
        return;
    if (is_bias && a.out[2] != NULL)
        store(a.out[2], LATHE_F32, c, (float)sum, a.accumulate >> 2 & 1u);
    if (!is_bias && a.out[1] != NULL)
        store(a.out[1], a.out_dtype[1], c * a.taps + a.taps - 1 - j, (float)sum,
              a.accumulate >> 1 & 1u);
}

/* Rows that continue sequences. A thread has one channel, and takes the rows in their order: a
 * later row may continue what an earlier one has left. */
LATHE_CUDA_KERNEL(short_conv_continue, SHORT_CONV_THREADS, short_conv_args)
{
    enum { MAX_TAPS = 16 };
    const int64_t c = (int64_t)blockIdx.x * SHORT_CONV_THREADS + threadIdx.x;
    const int64_t before = a.taps - 1, kept = before > 0 ? before : 1;
    if (c >= a.n_channels)
        return;
    for (int64_t b = 0; b < a.n_rows; b++) {
        /* last[j]: the token j before the newest. All indices are known to the compiler, so that
         * the values stay in registers. */
        float last[MAX_TAPS];
        const int64_t slot = a.slots[b], newest = (slot * kept + before - 1) * a.n_channels + c;
#pragma unroll
        for (int j = 0; j < MAX_TAPS; j++)
            last[j] =
                slot >= 0 && j < before ? load(a.out[1], a.dtype, newest - j * a.n_channels) : 0.0f;
        for (int64_t t = 0; t < a.tokens; t++) {
            const int64_t at = (b * a.tokens + t) * a.n_channels + c;
            float z = a.bias != NULL ? ((const float *)a.bias)[c] : 0.0f;
#pragma unroll
            for (int j = MAX_TAPS - 1; j > 0; j--)
                last[j] = last[j - 1];
            last[0] = load(a.x, a.dtype, at);
#pragma unroll
            for (int j = 0; j < MAX_TAPS; j++)
                if (j < a.taps)
                    z += load(a.w, a.dtype, c * a.taps + before - j) * last[j];
            store(a.out[0], a.dtype, at, a.is_silu ? z / (1.0f + expf(-z)) : z, a.accumulate & 1u);
        }
#pragma unroll
        for (int j = 0; j < MAX_TAPS; j++)
            if (slot >= 0 && j < before)
                store(a.out[1], a.dtype, newest - j * a.n_channels, last[j], 0);
    }
}
