/* AdamW in 8 bits: the update of an element, for the CPU loop and the GPU kernel, and that
 * kernel. */
#ifndef LATHE_ADAMW_8BIT_H
#define LATHE_ADAMW_8BIT_H

#include "lathe/kit/adamw_family.h"
#include "lathe/kit/dynamic_map.h"

#define BLOCK 256

/* The last two are NULL for a tensor below min_8bit_size, whose moments are f32. */
enum { SLOT_M, SLOT_V, SLOT_M_ABSMAX, SLOT_V_ABSMAX };

/* The larger of two magnitudes as bits, which have the order of the magnitudes, NaN above all. */
LATHE_HD static inline int32_t larger(int32_t max, float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    return bits > max ? bits : max;
}

#ifdef __CUDACC__

#define WARP 32
#define EACH (BLOCK / WARP) /* elements of a block that one thread of a warp has */

/* Fills the map; all threads of the block must call it. */
static __device__ inline void map_fill(lathe_dynamic_book *to, int is_signed)
{
    const int k = (int)threadIdx.x;
    to->value[k] = lathe_dynamic_value(k, is_signed);
    __syncthreads();
    to->edge[k] = k < 255 ? (to->value[k] + to->value[k + 1]) / 2.0f : FLT_MAX;
    __syncthreads();
    if (k == 0)
        lathe_dynamic_lines_init(&to->lines, is_signed, to->edge[is_signed ? 127 : 0]);
    __syncthreads();
}

/* The largest of a warp; all its threads must call it. */
static __device__ inline int32_t warp_largest(int32_t max)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
        const int32_t other = __shfl_xor_sync(0xffffffffu, max, lanes);
        max = other > max ? other : max;
    }
    return max;
}

/* A moment of the elements of a block: lane k of the warp has the elements k, k + WARP, ... */
static __device__ inline void moment_load(const lathe_dynamic_book *b, const void *codes,
                                          const float *absmax, int64_t at, int64_t end, int lane,
                                          float *out)
{
    const float max = absmax == NULL ? 0.0f : absmax[at / BLOCK];
    LATHE__UNROLL for (int j = 0; j < EACH; j++)
    {
        const int64_t i = at + lane + WARP * j;
        out[j] = i >= end         ? 0.0f
                 : absmax == NULL ? ((const float *)codes)[i]
                                  : b->value[((const uint8_t *)codes)[i]] * max;
    }
}

/* Stores a moment that moment_load() loaded: for a moment in 8 bits the scale, from the largest
 * magnitude, and the codes. All threads of the warp must call it, after all have loaded. */
static __device__ inline void moment_store(const lathe_dynamic_book *b, void *codes, float *absmax,
                                           int64_t at, int64_t end, int lane, const float *x)
{
    int32_t max_bits = 0;
    float max;
    if (absmax == NULL) {
        LATHE__UNROLL for (int j = 0; j < EACH; j++) if (at + lane + WARP * j < end)(
            (float *)codes)[at + lane + WARP * j] = x[j];
        return;
    }
    LATHE__UNROLL for (int j = 0; j < EACH; j++) if (at + lane + WARP * j < end) max_bits =
        larger(max_bits, x[j]);
    max_bits = warp_largest(max_bits);
    __syncwarp(); /* all have read the old scale */
    memcpy(&max, &max_bits, sizeof max);
    if (lane == 0)
        absmax[at / BLOCK] = max;
    const float divisor = max > 0.0f ? max : 1.0f;
    const int is_plain = max >= 0x1p-64f && max <= FLT_MAX; /* its inverse is exact enough */
    const float factor = 1.0f / divisor;
    LATHE__UNROLL for (int j = 0; j < EACH; j++)
    {
        const float y = is_plain ? x[j] * factor : x[j] / divisor;
        int32_t doubt, k = lathe_dynamic_near(&b->lines, y, &doubt) & 0xff;
        if (doubt)
            k = lathe_dynamic_settle(b, x[j] / divisor, k);
        if (at + lane + WARP * j < end)
            ((uint8_t *)codes)[at + lane + WARP * j] = (uint8_t)k;
    }
}

/* Like the elementwise kernel of the kit, but a warp processes one block of 256 elements at a time.
 */
LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, lathe_elementwise_args)
{
    __shared__ lathe_dynamic_book first, second;
    const float grad_scale = a.scalars[LATHE_SCALAR_GRAD_SCALE];
    const int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP);
    map_fill(&first, 1);
    map_fill(&second, 0);
    for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a, chunk);
        const lathe_optimizer_tensor *const x = c.x;
        const lathe_adamw_numbers u = lathe_adamw_numbers_of(
            a.scalars, a.scalars[LATHE_SCALAR_LR] * (float)x->lr_mult, (float)x->weight_decay_mult);
        float *const m_absmax = (float *)x->slots[SLOT_M_ABSMAX];
        float *const v_absmax = (float *)x->slots[SLOT_V_ABSMAX];
        double change = 0.0, size = 0.0;
        for (int64_t at = c.begin + BLOCK * warp; at < c.end;
             at += LATHE_ELEMENTWISE_THREADS * EACH) {
            float was[EACH], grad[EACH], m[EACH], v[EACH];
            LATHE__UNROLL for (int j = 0; j < EACH; j++)
            {
                const int64_t i = at + lane + WARP * j;
                was[j] = i < c.end ? x->param[i] : 0.0f;
                grad[j] = i < c.end ? x->grad[i] : 0.0f;
            }
            moment_load(&first, x->slots[SLOT_M], m_absmax, at, c.end, lane, m);
            moment_load(&second, x->slots[SLOT_V], v_absmax, at, c.end, lane, v);
            LATHE__UNROLL for (int j = 0; j < EACH; j++)
            {
                const int64_t i = at + lane + WARP * j;
                if (i >= c.end)
                    continue;
                const float now = lathe_adamw_move(&u, was[j], grad[j] * grad_scale, m + j, v + j);
                x->param[i] = now;
                lathe_elementwise_done(x, i, was[j], now, &change, &size);
            }
            moment_store(&first, x->slots[SLOT_M], m_absmax, at, c.end, lane, m);
            moment_store(&second, x->slots[SLOT_V], v_absmax, at, c.end, lane, v);
        }
        lathe_elementwise_sums(&a, chunk, change, size);
    }
}

#endif

#endif
