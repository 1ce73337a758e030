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
LATHE_HD static inline int32_t larger(int32_t most, float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffff;
    return bits > most ? bits : most;
}

#ifdef __CUDACC__

/* The values of a map and the midpoints between them. */
typedef struct map {
    float value[BLOCK], edge[BLOCK];
} map;

/* Fills the map; all threads of the block must call it. */
static __device__ inline void map_fill(map *to, int is_signed)
{
    const int k = (int)threadIdx.x;
    to->value[k] = lathe_dynamic_value(k, is_signed);
    __syncthreads();
    to->edge[k] = k < 255 ? (to->value[k] + to->value[k + 1]) / 2.0f : FLT_MAX;
    __syncthreads();
}

/* The code of the value nearest to y, the lower one of two equally near; for NaN, the code of 0. */
static __device__ inline uint8_t map_code(const map *m, float y, int zero)
{
    int low = 0, high = 255; /* the answer is in [low, high] */
    if (y != y)
        return (uint8_t)zero;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (y > m->edge[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

/* The largest m and v of the block, as bits, on all threads; all must call it. */
static __device__ inline void block_largest(int32_t *io_m, int32_t *io_v)
{
    __shared__ int32_t m[BLOCK], v[BLOCK];
    const unsigned i = threadIdx.x;
    m[i] = *io_m;
    v[i] = *io_v;
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (i < half) {
            m[i] = m[i + half] > m[i] ? m[i + half] : m[i];
            v[i] = v[i + half] > v[i] ? v[i + half] : v[i];
        }
    }
    __syncthreads();
    *io_m = m[0];
    *io_v = v[0];
    __syncthreads();
}

/* Stores the scale and the code of thread i's element, for a moment whose largest magnitude has
 * these bits. */
static __device__ inline void moment_store(const map *b, int zero, float x, int is_there,
                                           int32_t most_bits, uint8_t *codes, float *absmax,
                                           int64_t i)
{
    float most;
    memcpy(&most, &most_bits, sizeof most);
    if (threadIdx.x == 0)
        absmax[i / BLOCK] = most; /* thread 0 has the block's first element */
    if (is_there)
        codes[i] = map_code(b, x / (most > 0.0f ? most : 1.0f), zero);
}

/* As the elementwise kernel, but a block of threads processes one block of 256 elements at a
 * time. */
LATHE_CUDA_KERNEL(lathe_elementwise_step, LATHE_ELEMENTWISE_THREADS, lathe_elementwise_args)
{
    __shared__ map first, second;
    const float grad_scale = a.scalars[LATHE_SCALAR_GRAD_SCALE];
    map_fill(&first, 1);
    map_fill(&second, 0);
    for (int64_t chunk = blockIdx.x; chunk < a.n_chunks; chunk += gridDim.x) {
        const lathe_elementwise_chunk c = lathe_elementwise_chunk_of(&a, chunk);
        const lathe_optimizer_tensor *const x = c.x;
        const lathe_adamw_numbers u = lathe_adamw_numbers_of(
            a.scalars, a.scalars[LATHE_SCALAR_LR] * (float)x->lr_mult, (float)x->weight_decay_mult);
        const int is_small = x->slots[SLOT_M_ABSMAX] == NULL;
        float *const m_absmax = (float *)x->slots[SLOT_M_ABSMAX];
        float *const v_absmax = (float *)x->slots[SLOT_V_ABSMAX];
        double change = 0.0, size = 0.0;
        for (int64_t at = c.begin; at < c.end; at += BLOCK) {
            const int64_t i = at + threadIdx.x;
            const int is_there = i < c.end;
            float m = 0.0f, v = 0.0f;
            if (is_there && is_small) {
                m = ((const float *)x->slots[SLOT_M])[i];
                v = ((const float *)x->slots[SLOT_V])[i];
            } else if (is_there) {
                m = first.value[((const uint8_t *)x->slots[SLOT_M])[i]] * m_absmax[i / BLOCK];
                v = second.value[((const uint8_t *)x->slots[SLOT_V])[i]] * v_absmax[i / BLOCK];
            }
            if (is_there) {
                const float was = x->param[i];
                const float now = lathe_adamw_move(&u, was, x->grad[i] * grad_scale, &m, &v);
                x->param[i] = now;
                lathe_elementwise_done(x, i, was, now, &change, &size);
            }
            if (!is_small) {
                int32_t m_most = is_there ? larger(0, m) : 0, v_most = is_there ? larger(0, v) : 0;
                /* after this call all threads have read the old scales */
                block_largest(&m_most, &v_most);
                moment_store(&first, 127, m, is_there, m_most, (uint8_t *)x->slots[SLOT_M],
                             m_absmax, i);
                moment_store(&second, 0, v, is_there, v_most, (uint8_t *)x->slots[SLOT_V], v_absmax,
                             i);
            } else if (is_there) {
                ((float *)x->slots[SLOT_M])[i] = m;
                ((float *)x->slots[SLOT_V])[i] = v;
            }
        }
        lathe_elementwise_sums(&a, chunk, change, size);
    }
}

#endif

#endif
