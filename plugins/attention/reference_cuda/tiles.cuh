/* Tiles of 64 queries by 64 keys: the keys that a query sees, products of tiles, launches.
 *
 * A block has 256 threads, 16 by 16; thread (x, y) computes the elements (y + 16 i, x + 16 j) of a
 * tile. Head dims pass through shared memory 32 at a time, as f32. Every sum has a fixed order.
 *
 * The few lines about elements and launches repeat kernels/cuda/base/launch.cuh: a plugin sees only
 * the public headers and its own folder, and one plugin is not enough reason to publish them.
 */
#ifndef LATHE_REFERENCE_CUDA_TILES_CUH
#define LATHE_REFERENCE_CUDA_TILES_CUH

#include "reference_cuda.h"

#ifdef LATHE_CUDA_EMULATED
#include "emulator.h" /* tests/emulator runs the kernels as host code, thread by thread */
#define UNROLL
#define UNROLL_2
#else
#include <cuda_runtime.h>
#define UNROLL _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#endif

constexpr int TILE = REFERENCE_TILE, CHUNK = 32, THREADS = 256, SIDE = 16;
/* elements of a thread in each direction */
constexpr int OWN = TILE / SIDE, OWN_DIMS = CHUNK / SIDE;
constexpr int WEIGHTS_WIDTH =
    TILE + 4; /* 4: the four threads that share a row have no bank conflicts */

/* ---- launching ---- */

static inline lathe_status queued(const lathe_host *host, cudaError_t error, const char *kernel)
{
    return error == cudaSuccess ? LATHE_OK
                                : lathe_fail(host, LATHE_E_DEVICE, "attention %s: %s", kernel,
                                             cudaGetErrorString(error));
}

/* Calls kernel<<<blocks, THREADS>>>(args...) on the stream of `a`. */
template <typename... P, typename... A>
static lathe_status launch(const lathe_host *host, const lathe_attention_args &a, const char *name,
                           int64_t blocks, void (*kernel)(P...), A... args)
{
    const cudaStream_t stream = a.stream == nullptr ? cudaStreamPerThread : (cudaStream_t)a.stream;
    if (blocks == 0)
        return LATHE_OK;
#ifdef LATHE_CUDA_EMULATED
    return queued(
        host, emulator::launch(name, blocks, THREADS, stream, [=] { kernel(P(args)...); }), name);
#else
    kernel<<<dim3((unsigned)blocks), dim3(THREADS), 0, stream>>>(P(args)...);
    return queued(host, cudaGetLastError(), name);
#endif
}

/* ---- elements: the dtype is a run-time argument, so that one kernel serves all ---- */

static __device__ __forceinline__ float get(const void *base, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return ((const float *)base)[i];
    const uint16_t bits = ((const uint16_t *)base)[i];
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

static __device__ __forceinline__ void put(void *base, int64_t i, int32_t dtype, float x)
{
    if (dtype == LATHE_F32)
        ((float *)base)[i] = x;
    else
        ((uint16_t *)base)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
}

/* Runs the statement with CHUNKS, the number of chunks that hold the head dims. */
#define BY_DIMS(dim, CHUNKS, ...)                                                                  \
    do {                                                                                           \
        if ((dim) <= 4 * CHUNK) {                                                                  \
            constexpr int CHUNKS = 4;                                                              \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int CHUNKS = 8;                                                              \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* ---- masks and scores ---- */

/* The keys [lo, hi) that each query of a tile sees; empty for queries beyond the last one. at: the
 * query's index among the keys. */
struct sight {
    int32_t lo[TILE], hi[TILE], at[TILE];
};

/* Elements of kv_len from one row's length to the next one's. */
static __device__ __forceinline__ int64_t lengths_apart(const lathe_attention_problem &p)
{
    return p.block_tokens > 0 ? p.kv_stride : 1;
}

/* Fills `seen` for the queries from q0 on, and *out_first, *out_last with the range of keys that
 * any of them sees. Lengths of cached rows outside 0 .. t_k are clamped. Every thread must call
 * it. */
static __device__ void look(const lathe_attention_problem &p, const lathe_attention_args &a,
                            int64_t b, int64_t q0, sight *seen, int64_t *out_first,
                            int64_t *out_last)
{
    __syncthreads(); /* all threads have read the last tile */
    if (threadIdx.x < TILE) {
        const int64_t i = q0 + threadIdx.x;
        int64_t len = a.kv_len != nullptr ? a.kv_len[b * lengths_apart(p)] : p.t_k, lo = 0;
        len = len < 0 ? 0 : len > p.t_k ? p.t_k : len;
        const int64_t at = i + len - p.t_q;
        int64_t hi = p.causal && at + 1 < len ? at + 1 : len;
        if (p.window > 0 && at - p.window + 1 > lo)
            lo = at - p.window + 1;
        if (a.doc_start != nullptr && i < p.t_q && a.doc_start[b * p.t_q + i] > lo)
            lo = a.doc_start[b * p.t_q + i];
        if (a.key_end != nullptr && i < p.t_q && a.key_end[b * p.t_q + i] < hi)
            hi = a.key_end[b * p.t_q + i];
        if (i >= p.t_q || hi <= lo)
            lo = hi = 0;
        seen->lo[threadIdx.x] = (int32_t)lo;
        seen->hi[threadIdx.x] = (int32_t)hi;
        seen->at[threadIdx.x] = (int32_t)at;
    }
    __syncthreads();
    int32_t first = INT32_MAX, last = 0;
    for (int r = 0; r < TILE; r++)
        if (seen->hi[r] > seen->lo[r]) {
            first = seen->lo[r] < first ? seen->lo[r] : first;
            last = seen->hi[r] > last ? seen->hi[r] : last;
        }
    *out_first = first;
    *out_last = last;
}

static __device__ __forceinline__ float score_of(const lathe_attention_problem &p, float dot)
{
    const float s = p.scale * dot;
    return p.softcap > 0.0f ? p.softcap * tanhf(s / p.softcap) : s;
}

/* The bias of `key` for row r of a tile. slope: of the head, 0 without. */
static __device__ __forceinline__ float bias_of(const sight &seen, float slope, int64_t key, int r)
{
    return slope * (float)(key - seen.at[r]);
}

static __device__ __forceinline__ float slope_of(const lathe_attention_args &a, int64_t h)
{
    return a.slopes != nullptr ? a.slopes[h] : 0.0f;
}

/* ---- products of tiles ---- */

/* Rows of one head, [n_rows, dim]: from element `first` of the tensor, `stride` elements apart. at:
 * the rows are those of numbers at[0] and on instead, e.g. keys in blocks; NULL: one after another.
 */
struct rows {
    const void *base;
    int64_t first, stride, n_rows;
    int32_t dtype;
    const int64_t *at;
};

/* The rows of head h, of size `dim`, from row `first` of batch row b on, at most a tile of them. */
static __device__ rows rows_at(const lathe_attention_problem &p, const void *tensor, int64_t stride,
                               int64_t t, int64_t b, int64_t first, int64_t h, int dim)
{
    const int64_t n = t - first < TILE ? t - first : TILE;
    return {tensor, (b * t + first) * stride + h * dim, stride, n, p.dtype, nullptr};
}

/* 64 rows of 32 dims; the 33rd column avoids bank conflicts. */
typedef float chunk[TILE][CHUNK + 1];
typedef float weights[TILE][WEIGHTS_WIDTH];

/* Loads dims [CHUNK c, CHUNK (c + 1)) of the rows, with zeros beyond the last row or dim. */
static __device__ void load(chunk to, const rows &from, int c, int dim)
{
    UNROLL_2 for (int i = threadIdx.x; i < TILE * CHUNK; i += THREADS)
    {
        const int r = i / CHUNK, d = c * CHUNK + i % CHUNK;
        to[r][i % CHUNK] = 0.0f;
        if (r < from.n_rows && d < dim) {
            const int64_t row = from.at != nullptr ? from.at[r] : r;
            to[r][i % CHUNK] = get(from.base, from.first + row * from.stride + d, from.dtype);
        }
    }
}

/* s[i][j] = sum over dims of a[y + 16 i] * b[x + 16 j]. */
static __device__ void dot_tiles(float (&s)[OWN][OWN], const rows &a, const rows &b, int dim,
                                 chunk left, chunk right)
{
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) s[i][j] = 0.0f;
    for (int c = 0; c * CHUNK < dim; c++) {
        __syncthreads();
        load(left, a, c, dim);
        load(right, b, c, dim);
        __syncthreads();
        UNROLL_2 for (int d = 0; d < CHUNK; d++)
        {
            float u[OWN], v[OWN];
            UNROLL for (int i = 0; i < OWN; i++)
            {
                u[i] = left[y + SIDE * i][d];
                v[i] = right[x + SIDE * i][d];
            }
            UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++) s[i][j] +=
                u[i] * v[j];
        }
    }
}

/* out[c][i][j] += sum over k of w[r][k] * b[k][d], with r = y + 16 i and d = 32 c + x + 16 j; with
 * TURNED, w[k][r]. Includes a barrier, so it sees what threads wrote to w before the call. */
template <int TURNED, int CHUNKS>
static __device__ void add_product(float (&out)[CHUNKS][OWN][OWN_DIMS], weights w, const rows &b,
                                   int dim, chunk right)
{
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    UNROLL for (int c = 0; c < CHUNKS; c++)
    {
        if (c * CHUNK >= dim)
            break;
        __syncthreads();
        load(right, b, c, dim);
        __syncthreads();
        UNROLL_2 for (int k = 0; k < TILE; k++)
        {
            float u[OWN], v[OWN_DIMS];
            UNROLL for (int i = 0; i < OWN; i++) u[i] =
                TURNED ? w[k][y + SIDE * i] : w[y + SIDE * i][k];
            UNROLL for (int j = 0; j < OWN_DIMS; j++) v[j] = right[k][x + SIDE * j];
            UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN_DIMS; j++)
                out[c][i][j] += u[i] * v[j];
        }
    }
}

/* Stores the result of add_product to the rows of a gradient or of o, or adds it. */
template <int CHUNKS>
static __device__ void store(const float (&from)[CHUNKS][OWN][OWN_DIMS], const rows &to, int dim,
                             int accumulate)
{
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    UNROLL for (int c = 0; c < CHUNKS; c++) UNROLL for (int i = 0; i < OWN; i++)
        UNROLL for (int j = 0; j < OWN_DIMS; j++)
    {
        const int64_t r = y + SIDE * i;
        const int d = c * CHUNK + x + SIDE * j;
        if (r >= to.n_rows || d >= dim)
            continue;
        const int64_t at = to.first + r * to.stride + d;
        const float before = accumulate ? get(to.base, at, to.dtype) : 0.0f;
        put((void *)to.base, at, to.dtype, before + from[c][i][j]);
    }
}

#endif
