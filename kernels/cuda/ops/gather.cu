/* EMBED and KV_APPEND: copy rows from and to positions given by indices.
 *
 *   EMBED      y[n] = W[tokens[n]]                     tokens i32[N], W c[V,C], y c[N,C]
 *   KV_APPEND  copies x c[B*Tq,W] to rows kv_len[b]-Tq .. kv_len[b]-1 of cache[b], cache c[B,P,W],
 *              or, with kv_len i32[B,1+n], of the row's blocks of P rows
 *
 * A token outside the vocabulary gives a row of NaN. If kv_len[b] is outside Tq .. P (n P in
 * blocks), the first Tq rows of the sequence become NaN. A row whose block is not in the cache is
 * not written.
 *
 * Bound by memory: each element is read and written once, in packs of 16 bytes if the rows are
 * aligned.
 */
#include "base/cuda_memory.h"
#include "base/launch.cuh"

/* Source and destination of a row, in rows; from < 0: the row becomes NaN; to < 0: it is left out.
 */
struct embed_rows {
    const int32_t *tokens;
    int64_t vocabulary;

    __device__ __forceinline__ void locate(int64_t row, int64_t *from, int64_t *to) const
    {
        const int64_t token = tokens[row];
        *from = token < vocabulary ? token : -1;
        *to = row;
    }
};

struct append_rows {
    const int32_t *kv_len;
    int64_t tq, p;
    int64_t stride, blocks; /* elements from one length to the next; blocks: 0: not in blocks */

    __device__ __forceinline__ void locate(int64_t row, int64_t *from, int64_t *to) const
    {
        const int64_t b = row / tq, t = row - b * tq, len = kv_len[b * stride];
        const int fits = len >= tq && len <= (blocks > 0 ? (stride - 1) * p : p);
        const int64_t at = (fits ? len - tq : 0) + t;
        *from = fits ? row : -1;
        *to = b * p + at;
        if (blocks > 0) {
            const int64_t block = kv_len[b * stride + 1 + at / p];
            *to = block >= 0 && block < blocks ? block * p + at % p : -1;
        }
    }
};

/* Copies rows of c elements, N elements at a time. */
template <int N, typename R, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    copy_rows(R places, const T *x, T *y, int64_t rows, int64_t c)
{
    const int64_t per_row = c / N;
    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < rows * per_row;
         u += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = u / per_row, i = (u - row * per_row) * N;
        int64_t from, to;
        places.locate(row, &from, &to);
        if (to < 0)
            continue;
        cuda_pack<T, N> v;
        if (from >= 0)
            v = cuda_load<N>(x + from * c + i);
        else
            for (int j = 0; j < N; j++)
                v.v[j] = cuda_as<T>::from(cuda_nan());
        cuda_store(y + to * c + i, v);
    }
}

template <typename R>
static lathe_status copy(const lathe_kernel *k, const lathe_kernel_args *a, R places, const void *x,
                         int64_t rows, int64_t c)
{
    const int32_t dtype = k->out[0].dtype;
    const int packs = cuda_aligned(c, dtype, x, a->out[0]);
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(dtype, T, {
        constexpr int lanes = cuda_lanes<T>;
        if (packs)
            return cuda_run(k, a, cuda_blocks(cuda_of(k), rows * (c / lanes)), CUDA_THREADS,
                            copy_rows<lanes, R, T>, places, (const T *)x, (T *)a->out[0], rows, c);
        return cuda_run(k, a, cuda_blocks(cuda_of(k), rows * c), CUDA_THREADS, copy_rows<1, R, T>,
                        places, (const T *)x, (T *)a->out[0], rows, c);
    });
}

static lathe_status run_embed(lathe_kernel *k, const lathe_kernel_args *a)
{
    const embed_rows places = {(const int32_t *)a->in[0], k->in[1].dims[0]};
    return copy(k, a, places, a->in[1], lathe_desc_count(&k->in[0]), k->in[1].dims[1]);
}

static lathe_status run_append(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *cache = &k->in[0];
    const int in_blocks = k->in[2].rank == 2;
    const int64_t b = in_blocks ? k->in[2].dims[0] : cache->dims[0], w = cache->dims[2];
    const int64_t tq = lathe_desc_count(&k->in[1]) / (b * w);
    const append_rows places = {(const int32_t *)a->in[2], tq, cache->dims[1],
                                in_blocks ? k->in[2].dims[1] : 1, in_blocks ? cache->dims[0] : 0};
    if (a->out[0] != a->in[0])
        LATHE_TRY(cuda_memory_copy(k->device, a->stream, a->out[0], a->in[0],
                                   lathe_desc_bytes(cache), LATHE_COPY_ON_DEVICE));
    return copy(k, a, places, a->in[1], b * tq, w);
}

const kernel_op CUDA_OP(EMBED) = {nullptr, run_embed, nullptr, 0};
const kernel_op CUDA_OP(KV_APPEND) = {nullptr, run_append, nullptr, 0};
