/* Attention forward: o = softmax(mask(softcap(scale q k^T))) v and lse. The softmax runs over tiles
 * of keys with a running maximum m and sum l per query (arXiv:2205.14135, algorithm 1):
 *
 *   m' = max(m, max_j s_j)
 *   l' = l e^(m - m') + sum_j e^(s_j - m')
 *   o' = o e^(m - m') + sum_j e^(s_j - m') v_j
 *
 * A block computes 64 queries of one head. Tiles of keys begin at multiples of 64, so the sums of a
 * query have one order, whatever the other queries of its block see and whether its keys are in
 * blocks: a token has the same bits in a prompt and alone. Bound by f32 arithmetic outside the
 * tensor cores.
 */
#include "tiles.cuh"

constexpr int PER_ROW = THREADS / TILE; /* threads per row of weights */

/* Fills key_at with the numbers of the keys from k0 to `last` of batch row b, among all tokens of k
 * and v, if they are in blocks. Every thread must call it. */
static __device__ void find_keys(const lathe_attention_problem &p, const lathe_attention_args &a,
                                 int64_t b, int64_t k0, int64_t last, int64_t *key_at)
{
    if (p.block_tokens < 1)
        return;
    __syncthreads(); /* all threads have read the last tile */
    const int64_t key = k0 + threadIdx.x;
    if (threadIdx.x < TILE && key < last)
        key_at[threadIdx.x] =
            a.kv_len[b * p.kv_stride + 1 + key / p.block_tokens] * p.block_tokens +
            key % p.block_tokens;
    __syncthreads();
}

/* The keys or values of head h that a tile from key k0 on sees: those before key `last`. key_at:
 * from find_keys. */
static __device__ rows keys_at(const lathe_attention_problem &p, const void *tensor, int64_t stride,
                               int64_t b, int64_t k0, int64_t last, int64_t h, int dim,
                               const int64_t *key_at)
{
    rows keys = rows_at(p, tensor, stride, p.t_k, b, k0, h, dim);
    if (last - k0 < keys.n_rows)
        keys.n_rows = last - k0;
    if (p.block_tokens > 0) {
        keys.first = h * dim;
        keys.at = key_at;
    }
    return keys;
}

struct running {
    float most[TILE], sum[TILE], shrink[TILE]; /* m, l and e^(m - m') */
};

static __device__ __forceinline__ float larger(float x, float y)
{
    return x > y ? x : y;
}

/* Turns scores into e^(s - m') and updates the row's m and l. Every thread must call it. */
static __device__ void soften(weights w, running *run)
{
    const int row = threadIdx.x / PER_ROW, part = threadIdx.x % PER_ROW;
    const float before = run->most[row];
    float most = before, sum = 0.0f;
    for (int c = part; c < TILE; c += PER_ROW)
        most = larger(w[row][c], most);
    for (int lanes = 1; lanes < PER_ROW; lanes *= 2)
        most = larger(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    for (int c = part; c < TILE; c += PER_ROW) {
        w[row][c] = most == -INFINITY ? 0.0f : expf(w[row][c] - most);
        sum += w[row][c];
    }
    for (int lanes = 1; lanes < PER_ROW; lanes *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    __syncwarp(); /* run->most was read; shuffles do not order memory accesses */
    if (part == 0) {
        const float shrink = most == -INFINITY ? 1.0f : expf(before - most);
        run->shrink[row] = shrink;
        run->sum[row] = run->sum[row] * shrink + sum;
        run->most[row] = most;
    }
}

/* Adds the score of the sink, which has no value, to m and l; `shrink` is then the factor on o.
 * Every thread must call it. */
static __device__ void add_sink(float sink, running *run)
{
    __syncthreads(); /* run->shrink was read for the last tile */
    if (threadIdx.x < TILE) {
        const float before = run->most[threadIdx.x], most = larger(before, sink);
        const float shrink = before == -INFINITY ? 0.0f : expf(before - most);
        run->shrink[threadIdx.x] = shrink;
        run->sum[threadIdx.x] = run->sum[threadIdx.x] * shrink + expf(sink - most);
        run->most[threadIdx.x] = most;
    }
    __syncthreads();
}

template <int CHUNKS>
static __global__ void __launch_bounds__(THREADS, 1)
    forward(const lathe_attention_problem p, const lathe_attention_args a)
{
    __shared__ chunk left, right;
    __shared__ weights w;
    __shared__ sight seen;
    __shared__ running run;
    __shared__ int64_t key_at[TILE];
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const int dim = p.head_dim, value_dim = reference_value_dim(p);
    const int64_t tiles = reference_tiles(p.t_q), head = blockIdx.x / tiles;
    const int64_t b = head / p.n_heads, h = head % p.n_heads, q0 = blockIdx.x % tiles * TILE;
    const int64_t hk = h / (p.n_heads / p.n_kv_heads);
    const rows q = rows_at(p, a.q, p.q_stride, p.t_q, b, q0, h, dim);
    const float slope = slope_of(a, h);
    float o[CHUNKS][OWN][OWN_DIMS] = {};
    int64_t first, last;
    if (threadIdx.x < TILE) {
        run.most[threadIdx.x] = -INFINITY;
        run.sum[threadIdx.x] = 0.0f;
    }
    look(p, a, b, q0, &seen, &first, &last);
    for (int64_t k0 = first / TILE * TILE; k0 < last; k0 += TILE) {
        float s[OWN][OWN];
        find_keys(p, a, b, k0, last, key_at);
        dot_tiles(s, q, keys_at(p, a.k, p.k_stride, b, k0, last, hk, dim, key_at), dim, left,
                  right);
        UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++)
        {
            const int r = y + SIDE * i, c = x + SIDE * j;
            const int is_seen = k0 + c >= seen.lo[r] && k0 + c < seen.hi[r];
            w[r][c] = is_seen ? score_of(p, s[i][j]) + bias_of(seen, slope, k0 + c, r) : -INFINITY;
        }
        __syncthreads();
        soften(w, &run);
        __syncthreads();
        UNROLL for (int c = 0; c < CHUNKS; c++) UNROLL for (int i = 0; i < OWN; i++)
            UNROLL for (int j = 0; j < OWN_DIMS; j++) o[c][i][j] *= run.shrink[y + SIDE * i];
        add_product<0>(o, w, keys_at(p, a.v, p.v_stride, b, k0, last, hk, value_dim, key_at),
                       value_dim, right);
    }
    if (a.sinks != nullptr)
        add_sink(a.sinks[h], &run);
    UNROLL for (int c = 0; c < CHUNKS; c++) UNROLL for (int i = 0; i < OWN; i++)
        UNROLL for (int j = 0; j < OWN_DIMS; j++)
    {
        const float sum = run.sum[y + SIDE * i];
        const float shrink = a.sinks != nullptr ? run.shrink[y + SIDE * i] : 1.0f;
        o[c][i][j] = sum == 0.0f ? 0.0f : o[c][i][j] * shrink / sum;
    }
    store(o, rows_at(p, a.o, p.o_stride, p.t_q, b, q0, h, value_dim), value_dim, 0);
    if (threadIdx.x < q.n_rows)
        a.lse[(b * p.n_heads + h) * p.t_q + q0 + threadIdx.x] =
            run.most[threadIdx.x] + logf(run.sum[threadIdx.x]); /* -inf if no key is seen */
}

lathe_status reference_cuda_run_forward(const lathe_host *host, const lathe_attention_problem *p,
                                        const lathe_attention_args *a)
{
    const int64_t blocks = p->batch * p->n_heads * reference_tiles(p->t_q);
    BY_DIMS(reference_value_dim(*p), CHUNKS,
            return launch(host, *a, "forward", blocks, forward<CHUNKS>, *p, *a));
}
