/* EMBED_BWD: dW[tokens[n]] += dy[n], where the rows of one token are added in the order of n. dy
 * c[N,C], dW f32[V,C]. Rows with a token outside the vocabulary are skipped.
 *
 * A stable radix sort puts the positions 0 .. N-1 in the order of their tokens, 9 bits per pass
 * from the lowest. In each pass, a warp counts the digits of TILE tokens; one block computes prefix
 * sums of the counts over tiles and digits; a warp moves its TILE positions to their places, in
 * order. Then each block takes the run of positions of one token and a slice of the columns, and
 * adds the rows in registers, with 8 loads in flight. Only integers are added across threads, so
 * the result is the same every time, and each sum has the same order as on the CPU.
 *
 * Cost: linear in N. The sort moves about 40 bytes per token and pass (two passes up to V = 262143)
 * in three small kernels per pass. The sums read dy once and write only the rows of dW that have
 * tokens. If dW is overwritten, its V*C*4 bytes are cleared first, which takes most of the time for
 * large vocabularies.
 */
#include "base/launch.cuh"

#define DIGIT_BITS 9
#define DIGITS (1 << DIGIT_BITS)
#define TILE 512 /* tokens per warp */
#define AHEAD 8  /* rows whose loads are in flight together */
#define MOST_BLOCKS ((int64_t)1 << 20)

/* Positions and their tokens; order NULL means 0, 1, 2, ... */
struct places {
    const int32_t *token, *order;
    int64_t n;
    int32_t vocabulary; /* number that tokens outside the vocabulary are sorted as */

    __device__ __forceinline__ int32_t at(int64_t i) const
    {
        const int32_t t = token[i];
        return t < 0 || t > vocabulary ? vocabulary : t;
    }

    __device__ __forceinline__ int32_t place(int64_t i) const
    {
        return order == nullptr ? (int32_t)i : order[i];
    }
};

static __device__ __forceinline__ int digit_of(int32_t token, int shift)
{
    return (int)((uint32_t)token >> shift & (DIGITS - 1));
}

/* Computes counts[tile, digit]. A block of one warp counts one tile. */
static __global__ void __launch_bounds__(CUDA_WARP)
    count_digits(places p, int shift, int32_t *counts)
{
    __shared__ int32_t count[DIGITS];
    const int64_t first = (int64_t)blockIdx.x * TILE;
    for (int d = (int)threadIdx.x; d < DIGITS; d += CUDA_WARP)
        count[d] = 0;
    __syncwarp();
    for (int64_t i = first + threadIdx.x; i < first + TILE && i < p.n; i += CUDA_WARP)
        atomicAdd(&count[digit_of(p.at(i), shift)], 1);
    __syncwarp();
    for (int d = (int)threadIdx.x; d < DIGITS; d += CUDA_WARP)
        counts[(int64_t)blockIdx.x * DIGITS + d] = count[d];
}

/* Turns counts[tile, digit] into the place of the tile's first position with that digit. One
 * block. */
static __global__ void __launch_bounds__(DIGITS) add_counts(int32_t *counts, int64_t tiles)
{
    __shared__ int32_t before[DIGITS];
    const int d = (int)threadIdx.x;
    int32_t total = 0;
    CUDA_UNROLL(8)
    for (int64_t t = 0; t < tiles; t++)
        total += counts[t * DIGITS + d];
    before[d] = total;
    __syncthreads();
    for (int step = 1; step < DIGITS; step *= 2) { /* prefix sums over the digits up to d */
        const int32_t lower = d >= step ? before[d - step] : 0;
        __syncthreads();
        before[d] += lower;
        __syncthreads();
    }
    int32_t next = before[d] - total;
    for (int64_t t = 0; t < tiles; t++) {
        const int32_t here = counts[t * DIGITS + d];
        counts[t * DIGITS + d] = next;
        next += here;
    }
}

/* Moves a tile's positions to their places; a block of one warp, 32 positions at a time. Positions
 * with the same digit get their ranks by lane, and the first of these lanes advances the digit's
 * place. */
static __global__ void __launch_bounds__(CUDA_WARP)
    sort_tile(places p, int shift, const int32_t *counts, int32_t *token, int32_t *order)
{
    __shared__ int32_t next[DIGITS];
    const int64_t first = (int64_t)blockIdx.x * TILE;
    const unsigned below = (1u << threadIdx.x) - 1u;
    for (int d = (int)threadIdx.x; d < DIGITS; d += CUDA_WARP)
        next[d] = counts[(int64_t)blockIdx.x * DIGITS + d];
    __syncwarp();
    for (int64_t start = first; start < first + TILE && start < p.n; start += CUDA_WARP) {
        const int64_t i = start + threadIdx.x;
        const int is_there = i < p.n;
        const int32_t t = is_there ? p.at(i) : 0;
        const int digit = is_there ? digit_of(t, shift) : DIGITS; /* DIGITS: past the end */
        const unsigned same = __match_any_sync(0xffffffffu, digit);
        if (is_there) {
            const int64_t to = next[digit] + __popc(same & below);
            token[to] = t;
            order[to] = p.place(i);
        }
        __syncwarp();
        if (is_there && (same & below) == 0)
            next[digit] += __popc(same);
        __syncwarp();
    }
}

/* If a run of positions of one token begins at s, a block adds its rows, for a slice of the
 * columns. */
template <int N, typename T>
static __device__ __forceinline__ void add_run(const places &p, int64_t s, int64_t column,
                                               const T *dy, float *dw, int64_t c, int accumulate)
{
    const int32_t token = p.token[s];
    if (token >= p.vocabulary || (s > 0 && p.token[s - 1] == token) || column >= c)
        return;
    float *out = dw + token * c + column;
    auto sum = accumulate ? cuda_load<N>((const float *)out) : cuda_pack<float, N>{};
    for (int64_t e = s; e < p.n && p.token[e] == token; e += AHEAD) {
        cuda_pack<T, N> row[AHEAD];
        CUDA_UNROLLED
        for (int r = 0; r < AHEAD; r++)
            if (e + r < p.n && p.token[e + r] == token)
                row[r] = cuda_load<N>(dy + p.place(e + r) * c + column);
        CUDA_UNROLLED
        for (int r = 0; r < AHEAD; r++)
            if (e + r < p.n && p.token[e + r] == token)
                for (int j = 0; j < N; j++)
                    sum.v[j] += cuda_float(row[r].v[j]);
    }
    cuda_store(out, sum);
}

template <int N, typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_rows(places p, const T *dy, float *dw, int64_t c, int64_t slices, int accumulate)
{
    for (int64_t b = blockIdx.x; b < p.n * slices; b += gridDim.x)
        add_run<N>(p, b / slices, (b % slices * blockDim.x + threadIdx.x) * N, dy, dw, c,
                   accumulate);
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* Scratch: two buffers each for tokens and positions, then the counts. */
static lathe_status prepare(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t n = lathe_desc_count(&k->in[1]);
    if (n > INT32_MAX || k->out[0].dims[0] >= INT32_MAX)
        return kernel_bad_shape(k, "more than 2^31 - 1 tokens or rows of dW");
    *out_scratch = (4 * n + tiles_of(n) * DIGITS) * (int64_t)sizeof(int32_t);
    return LATHE_OK;
}

/* Sorts the positions by token into *out. */
static lathe_status sort(const lathe_kernel *k, const lathe_kernel_args *a, places *out)
{
    const int64_t n = out->n, tiles = tiles_of(n);
    int32_t *buffer = (int32_t *)a->scratch, *counts = buffer + 4 * n;
    for (int shift = 0, pass = 0; shift == 0 || (int64_t)out->vocabulary >> shift > 0;
         shift += DIGIT_BITS, pass++) {
        int32_t *token = buffer + (pass & 1) * 2 * n, *order = token + n;
        LATHE_TRY(cuda_run(k, a, tiles, CUDA_WARP, count_digits, *out, shift, counts));
        LATHE_TRY(cuda_run(k, a, 1, DIGITS, add_counts, counts, tiles));
        LATHE_TRY(cuda_run(k, a, tiles, CUDA_WARP, sort_tile, *out, shift, (const int32_t *)counts,
                           token, order));
        out->token = token;
        out->order = order;
    }
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[1]), c = k->out[0].dims[1];
    const int add = (a->accumulate & 1u) != 0;
    const int packs = c % 4 == 0 && ((uintptr_t)a->in[0] | (uintptr_t)a->out[0]) % 16 == 0;
    const int64_t across = packs ? c / 4 : c; /* threads that a row needs */
    const int64_t width = (across + CUDA_WARP - 1) / CUDA_WARP * CUDA_WARP;
    const int threads = (int)(width < CUDA_THREADS ? width : CUDA_THREADS);
    const int64_t slices = (across + threads - 1) / threads;
    const int64_t blocks = n * slices < MOST_BLOCKS ? n * slices : MOST_BLOCKS;
    places p = {(const int32_t *)a->in[1], nullptr, n, (int32_t)k->out[0].dims[0]};
    if (!add && lathe_desc_bytes(&k->out[0]) > 0)
        LATHE_TRY(cuda_status(k->host,
                              cudaMemsetAsync(a->out[0], 0, (size_t)lathe_desc_bytes(&k->out[0]),
                                              cuda_stream(a->stream)),
                              kernel_op_name(k)));
    if (n == 0)
        return LATHE_OK;
    LATHE_TRY(sort(k, a, &p));
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const T *dy = (const T *)a->in[0];
        float *dw = (float *)a->out[0];
        return packs ? cuda_run(k, a, blocks, threads, add_rows<4, T>, p, dy, dw, c, slices, add)
                     : cuda_run(k, a, blocks, threads, add_rows<1, T>, p, dy, dw, c, slices, add);
    });
}

const kernel_op CUDA_OP(EMBED_BWD) = {prepare, run, nullptr, 1};
