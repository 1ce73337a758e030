/* Attention backward. With P = exp(s - lse), dP = dO v^T, delta = rowsum(dO * o), and dS = P (dP -
 * delta) times the slope of the soft cap and the scale:
 *
 *   dv = P^T dO,   dk = dS^T q,   dq = dS k
 *
 * Three kernels compute delta; dk and dv (a block for 64 keys of one key head, which processes the
 * queries of its query heads in order); and dq (a block for 64 queries). No result is summed by two
 * blocks. Bound by f32 arithmetic outside the tensor cores; P is computed twice.
 */
#include "tiles.cuh"

constexpr int WARP = 32, ROWS_PER_BLOCK = THREADS / WARP;

/* Computes delta [B,H,Tq], one warp per element. */
static __global__ void __launch_bounds__(THREADS)
    make_delta(const lathe_attention_problem p, const lathe_attention_args a, float *delta)
{
    const int64_t n = p.batch * p.n_heads * p.t_q;
    const int64_t at = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
    if (at >= n) /* the same for a whole warp */
        return;
    const int64_t i = at % p.t_q, h = at / p.t_q % p.n_heads, b = at / p.t_q / p.n_heads;
    const int dim = reference_value_dim(p);
    const int64_t row = (b * p.t_q + i) * p.o_stride + h * dim;
    float sum = 0.0f;
    for (int d = threadIdx.x % WARP; d < dim; d += WARP)
        sum += get(a.d_o, row + d, p.dtype) * get(a.o, row + d, p.dtype);
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % WARP == 0)
        delta[at] = sum;
}

/* Values of a tile's queries: lse and delta. */
struct saved {
    float lse[TILE], delta[TILE];
};

/* The tensors of a tile of queries by a tile of keys. */
struct tiles {
    rows q, d_o, k, v;
    float slope; /* of the query head; 0 without slopes */
};

static __device__ tiles tiles_at(const lathe_attention_problem &p, const lathe_attention_args &a,
                                 int64_t b, int64_t h, int64_t q0, int64_t k0)
{
    const int64_t hk = h / (p.n_heads / p.n_kv_heads);
    const int dim = p.head_dim, value_dim = reference_value_dim(p);
    return {rows_at(p, a.q, p.q_stride, p.t_q, b, q0, h, dim),
            rows_at(p, a.d_o, p.o_stride, p.t_q, b, q0, h, value_dim),
            rows_at(p, a.k, p.k_stride, p.t_k, b, k0, hk, dim),
            rows_at(p, a.v, p.v_stride, p.t_k, b, k0, hk, value_dim), slope_of(a, h)};
}

/* Calls look(), and loads lse and delta of the queries from q0 on. */
static __device__ void look_back(const lathe_attention_problem &p, const lathe_attention_args &a,
                                 const float *delta, int64_t b, int64_t h, int64_t q0, sight *seen,
                                 saved *kept, int64_t *out_first, int64_t *out_last)
{
    __syncthreads(); /* all threads have read the last tile */
    if (threadIdx.x < TILE && q0 + threadIdx.x < p.t_q) {
        const int64_t at = (b * p.n_heads + h) * p.t_q + q0 + threadIdx.x;
        kept->lse[threadIdx.x] = a.lse[at];
        kept->delta[threadIdx.x] = delta[at];
    }
    look(p, a, b, q0, seen, out_first, out_last);
}

/* Computes this thread's elements of P and dS, zero where a query does not see a key. */
static __device__ void make_p_ds(const lathe_attention_problem &p, const tiles &t, int64_t k0,
                                 const sight *seen, const saved *kept, chunk left, chunk right,
                                 float (&prob)[OWN][OWN], float (&ds)[OWN][OWN])
{
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    dot_tiles(prob, t.q, t.k, p.head_dim, left, right);
    dot_tiles(ds, t.d_o, t.v, reference_value_dim(p), left, right);
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++)
    {
        const int r = y + SIDE * i;
        const int64_t key = k0 + x + SIDE * j;
        const int is_seen = key >= seen->lo[r] && key < seen->hi[r];
        const float s = score_of(p, prob[i][j]);
        const float slope = p.softcap > 0.0f ? 1.0f - (s / p.softcap) * (s / p.softcap) : 1.0f;
        prob[i][j] = is_seen ? expf(s + bias_of(*seen, t.slope, key, r) - kept->lse[r]) : 0.0f;
        ds[i][j] = is_seen ? prob[i][j] * (ds[i][j] - kept->delta[r]) * slope * p.scale : 0.0f;
    }
}

static __device__ void write_weights(weights w, const float (&from)[OWN][OWN])
{
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < OWN; j++)
        w[y + SIDE * i][x + SIDE * j] = from[i][j];
}

/* The tiles of queries [*out_begin, *out_end) that may see keys [k0, k0 + TILE), by causality and
 * window. */
static __device__ void queries_of(const lathe_attention_problem &p, int64_t k0, int64_t *out_begin,
                                  int64_t *out_end)
{
    const int64_t shift = p.t_k - p.t_q; /* from a query's index to its index among the keys */
    int64_t begin = p.causal ? k0 - shift : 0, end = p.t_q;
    if (p.window > 0 && k0 + TILE - 1 + p.window - shift < end)
        end = k0 + TILE - 1 + p.window - shift;
    *out_begin = begin > 0 ? begin / TILE : 0;
    *out_end = end > 0 ? reference_tiles(end) : 0;
}

template <int CHUNKS>
static __global__ void __launch_bounds__(THREADS)
    make_dk_dv(const lathe_attention_problem p, const lathe_attention_args a, const float *delta)
{
    __shared__ chunk left, right;
    __shared__ weights w;
    __shared__ sight seen;
    __shared__ saved kept;
    const int64_t n_tiles = reference_tiles(p.t_k), head = blockIdx.x / n_tiles;
    const int64_t b = head / p.n_kv_heads, hk = head % p.n_kv_heads;
    const int64_t k0 = blockIdx.x % n_tiles * TILE, group = p.n_heads / p.n_kv_heads;
    const int dim = p.head_dim, value_dim = reference_value_dim(p);
    float dk[CHUNKS][OWN][OWN_DIMS] = {}, dv[CHUNKS][OWN][OWN_DIMS] = {};
    int64_t begin, end;
    queries_of(p, k0, &begin, &end);
    for (int64_t h = hk * group; h < (hk + 1) * group; h++)
        for (int64_t q0 = begin * TILE; q0 < end * TILE; q0 += TILE) {
            float prob[OWN][OWN], ds[OWN][OWN];
            int64_t first, last;
            look_back(p, a, delta, b, h, q0, &seen, &kept, &first, &last);
            if (first >= k0 + TILE || last <= k0)
                continue;
            const tiles t = tiles_at(p, a, b, h, q0, k0);
            make_p_ds(p, t, k0, &seen, &kept, left, right, prob, ds);
            write_weights(w, prob);
            add_product<1>(dv, w, t.d_o, value_dim, right);
            __syncthreads();
            write_weights(w, ds);
            add_product<1>(dk, w, t.q, dim, right);
        }
    if (a.dk != nullptr)
        store(dk, rows_at(p, a.dk, p.dk_stride, p.t_k, b, k0, hk, dim), dim,
              (a.accumulate & 2u) != 0);
    if (a.dv != nullptr)
        store(dv, rows_at(p, a.dv, p.dv_stride, p.t_k, b, k0, hk, value_dim), value_dim,
              (a.accumulate & 4u) != 0);
}

template <int CHUNKS>
static __global__ void __launch_bounds__(THREADS)
    make_dq(const lathe_attention_problem p, const lathe_attention_args a, const float *delta)
{
    __shared__ chunk left, right;
    __shared__ weights w;
    __shared__ sight seen;
    __shared__ saved kept;
    const int64_t n_tiles = reference_tiles(p.t_q), head = blockIdx.x / n_tiles;
    const int64_t b = head / p.n_heads, h = head % p.n_heads;
    const int64_t q0 = blockIdx.x % n_tiles * TILE;
    const int dim = p.head_dim;
    float dq[CHUNKS][OWN][OWN_DIMS] = {};
    int64_t first, last;
    look_back(p, a, delta, b, h, q0, &seen, &kept, &first, &last);
    for (int64_t k0 = first; k0 < last; k0 += TILE) {
        float prob[OWN][OWN], ds[OWN][OWN];
        const tiles t = tiles_at(p, a, b, h, q0, k0);
        make_p_ds(p, t, k0, &seen, &kept, left, right, prob, ds);
        write_weights(w, ds);
        add_product<0>(dq, w, t.k, dim, right);
    }
    store(dq, rows_at(p, a.dq, p.dq_stride, p.t_q, b, q0, h, dim), dim, (a.accumulate & 1u) != 0);
}

lathe_status reference_cuda_run_backward(const lathe_host *host, const lathe_attention_problem *p,
                                         const lathe_attention_args *a, float *delta)
{
    const int64_t n = p->batch * p->n_heads * p->t_q;
    const int64_t q_blocks = p->batch * p->n_heads * reference_tiles(p->t_q);
    const int64_t k_blocks = p->batch * p->n_kv_heads * reference_tiles(p->t_k);
    const int32_t value_dim = reference_value_dim(*p);
    BY_DIMS(p->head_dim > value_dim ? p->head_dim : value_dim, CHUNKS, {
        LATHE_TRY(launch(host, *a, "delta", (n + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, make_delta,
                         *p, *a, delta));
        if (a->dk != nullptr || a->dv != nullptr)
            LATHE_TRY(launch(host, *a, "dk and dv", k_blocks, make_dk_dv<CHUNKS>, *p, *a, delta));
        if (a->dq != nullptr)
            LATHE_TRY(launch(host, *a, "dq", q_blocks, make_dq<CHUNKS>, *p, *a, delta));
        return LATHE_OK;
    });
}
