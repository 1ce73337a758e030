/* SAMPLE: draws a token from each of some rows of logits; lathe/op.h has the definition.
 *
 * A block processes a row. It reads the row once to find the largest score and once to fill the
 * bins; top-k, top-p and the draw then read it once each, unless many tokens are nearly alike
 * (sample_row.cuh), and min-p once. The rest of two distributions, for a drafted token that is not
 * accepted, is read twice. Only tokens and their log-probabilities leave the device.
 */
#include <float.h>

#include "head/head_softmax.cuh"
#include "head/sample_row.cuh"
#include "lathe/op.h"

/* A small vocabulary waits for fewer threads. */
#define FEW_TOKENS 2048
#define FEW_THREADS 64

struct sample_job {
    const float *logits, *draft;
    const double *sums;
    const int64_t *rows;
    const double *how;
    const int32_t *seen;
    int32_t *token;
    float *logp;
    int64_t v, n_logits, n_draft;
    float unit;
    uint64_t stays; /* stream of the number that decides on a drafted token */
};

/* The tokens of a distribution: those up to `last` in the order of likelihood whose weight is at
 * least `least`, and the mass of all of them. */
struct sample_kept {
    sample_place last;
    sample_mass least, mass;
};

static __device__ double uniform(const int64_t *row, uint64_t stream)
{
    const lathe_u32x4 w = lathe_rng_block((uint64_t)row[LATHE_SAMPLE_SEED],
                                          (uint64_t)row[LATHE_SAMPLE_POSITION], stream, 0);
    return lathe_uniform_f64(w.v[0], w.v[1]);
}

/* The whole number at a share of a mass, below the mass. */
static __device__ sample_mass level_of(double share, sample_mass mass)
{
    const sample_mass level = (sample_mass)(share * (double)mass);
    return level < mass ? level : mass - 1;
}

/* Finds the largest and the least score. Returns whether all logits are finite. */
static __device__ int measure(sample_scores *s)
{
    float most = -INFINITY, minus_least = -INFINITY;
    int bad = 0;
    for (int64_t i = threadIdx.x; i < s->v; i += blockDim.x) {
        const float score = sample_score(*s, i);
        most = score > most ? score : most;
        minus_least = -score > minus_least ? -score : minus_least;
        bad |= !(fabsf(s->x[i]) <= FLT_MAX);
    }
    s->most = cuda_block_max(most);
    s->least = -cuda_block_max(minus_least);
    return cuda_block_max(bad) == 0;
}

/* The first token with the largest score. */
static __device__ int32_t first_largest(const sample_scores &s)
{
    int32_t first = INT32_MAX;
    for (int64_t i = threadIdx.x; i < s.v && first == INT32_MAX; i += blockDim.x)
        if (sample_score(s, i) == s.most)
            first = (int32_t)i;
    return -cuda_block_max(-first);
}

static __device__ int is_kept(const sample_kept &kept, float score, int32_t id, sample_mass weight)
{
    return (score > kept.last.score || (score == kept.last.score && id <= kept.last.id)) &&
           weight >= kept.least;
}

/* The tokens that top-k, top-p and min-p leave. */
static __device__ sample_kept cut(const sample_scores &s, const int64_t *row, const double *how,
                                  sample_room *room)
{
    const int64_t top_k = row[LATHE_SAMPLE_TOP_K];
    const double top_p = how[LATHE_SAMPLE_TOP_P], min_p = how[LATHE_SAMPLE_MIN_P];
    sample_kept kept = {{-INFINITY, INT32_MAX, 0, 0}, 0, 0};
    sample_fill(s, &room->whole, s.least, s.most);
    for (int i = 0; i < SAMPLE_BINS; i++)
        kept.mass += room->whole.mass[i];
    if (top_k > 0 && top_k < s.v) {
        kept.last = sample_find(s, 1, (sample_mass)(top_k - 1), room);
        kept.mass = kept.last.mass + sample_weight(s, kept.last.score);
    }
    if (top_p < 1.0) {
        const double enough = ceil(top_p * (double)kept.mass);
        const sample_mass level = enough >= 1.0 && enough < (double)kept.mass
                                      ? (sample_mass)enough - 1
                                  : enough < 1.0 ? 0
                                                 : kept.mass - 1;
        kept.last = sample_find(s, 0, level, room);
        kept.mass = kept.last.mass + sample_weight(s, kept.last.score);
    }
    if (min_p > 0.0) {
        sample_mass sum = 0;
        kept.least = (sample_mass)(min_p * (double)s.unit);
        for (int64_t i = threadIdx.x; i < s.v; i += blockDim.x) {
            const float score = sample_score(s, i);
            const sample_mass weight = sample_weight(s, score);
            sum += is_kept(kept, score, (int32_t)i, weight) ? weight : 0;
        }
        kept.mass = cuda_block_sum(sum);
    }
    return kept;
}

static __device__ double share_of(const sample_scores &s, const sample_kept &kept, int64_t i)
{
    const float score = sample_score(s, i);
    const sample_mass weight = sample_weight(s, score);
    return is_kept(kept, score, (int32_t)i, weight) ? (double)weight / (double)kept.mass : 0.0;
}

/* The probability that p has more than q, as a whole number of units. */
static __device__ sample_mass rest_of(const sample_scores &s, const sample_kept &p,
                                      const sample_scores &t, const sample_kept &q, int64_t i)
{
    const double rest = share_of(s, p, i) - share_of(t, q, i);
    return rest > 0.0 ? (sample_mass)(rest * (double)s.unit) : 0;
}

/* Draws from max(0, p - q), in the order of tokens; `other` if nothing is left. */
static __device__ int32_t draw_rest(const sample_scores &s, const sample_kept &p,
                                    const sample_scores &t, const sample_kept &q, double u,
                                    int32_t other, sample_room *room)
{
    sample_mass all = 0, before = 0;
    for (int64_t i = threadIdx.x; i < s.v; i += blockDim.x)
        all += rest_of(s, p, t, q, i);
    all = cuda_block_sum(all);
    if (all == 0)
        return other;
    const sample_mass level = level_of(u, all);
    if (threadIdx.x == 0)
        room->found.id = other;
    for (int64_t tile = 0; tile < s.v; tile += blockDim.x) {
        const int64_t i = tile + threadIdx.x;
        const sample_mass mine = i < s.v ? rest_of(s, p, t, q, i) : 0;
        const sample_mass here = cuda_block_sum(mine);
        if (before + here > level) {
            room->weight[threadIdx.x] = mine;
            __syncthreads();
            for (int k = 0; threadIdx.x == 0 && before <= level; k++) {
                before += room->weight[k];
                room->found.id = (int32_t)(tile + k);
            }
            break;
        }
        before += here;
    }
    __syncthreads();
    return room->found.id;
}

/* Decides on a drafted token. *io_token: the drafted one, then the result; -1: a logit of the draft
 * is not finite. */
static __device__ void verify(const sample_job &job, const sample_scores &s, const sample_kept &p,
                              const int64_t *row, const double *how, sample_room *room,
                              int32_t *io_token)
{
    sample_scores t = s;
    t.x = job.draft + row[LATHE_SAMPLE_DRAFT_ROW] * job.v;
    if (!measure(&t)) {
        *io_token = -1;
        return;
    }
    const sample_kept q = cut(t, row, how, room);
    const double stays = uniform(row, job.stays);
    if (stays * share_of(t, q, *io_token) < share_of(s, p, *io_token))
        return;
    *io_token =
        draw_rest(s, p, t, q, uniform(row, (uint64_t)row[LATHE_SAMPLE_STREAM]), *io_token, room);
}

static __device__ int32_t token_of(const sample_job &job, sample_scores *s, const int64_t *row,
                                   const double *how, sample_room *room)
{
    const double temperature = how[LATHE_SAMPLE_TEMPERATURE];
    int32_t token = (int32_t)row[LATHE_SAMPLE_DRAFTED];
    if (!(temperature > 0.0))
        return first_largest(*s);
    s->inverse = (float)(1.0 / temperature);
    const sample_kept kept = cut(*s, row, how, room);
    if (token >= 0 && token < job.v && job.draft != nullptr) {
        verify(job, *s, kept, row, how, room, &token);
        return token;
    }
    const double u = uniform(row, (uint64_t)row[LATHE_SAMPLE_STREAM]);
    return sample_find(*s, 0, level_of(u, kept.mass), room).id;
}

/* log softmax(x)[token]. */
static __device__ float logprob_of(const float *x, int64_t v, const double *sum, int32_t token)
{
    float max;
    if (sum != nullptr)
        return (float)((double)x[token] - *sum);
    const head_seen seen = head_observe<float, 0, 0>(x, v, 0.0f);
    const double lse = head_lse(seen, &max); /* valid on thread 0 */
    return (float)((double)x[token] - lse);
}

static __global__ void __launch_bounds__(SAMPLE_THREADS, 1) sample(sample_job job)
{
    __shared__ sample_room room;
    const int64_t n = blockIdx.x, words = (job.v + 31) / 32;
    const int64_t *row = job.rows + n * LATHE_SAMPLE_COLUMNS;
    const double *how = job.how + n * LATHE_SAMPLE_SETTINGS;
    const int64_t at = row[LATHE_SAMPLE_ROW];
    const double penalty = how[LATHE_SAMPLE_PENALTY];
    int32_t token = -1;
    float logp = 0.0f;
    if (at >= 0 && at < job.n_logits) {
        sample_scores s = {};
        s.x = job.logits + at * job.v;
        s.v = job.v;
        s.unit = job.unit;
        if (job.seen != nullptr && penalty > 0.0 && penalty != 1.0) {
            s.seen = job.seen + n * words;
            s.penalty = (float)penalty;
        }
        if (measure(&s))
            token = token_of(job, &s, row, how, &room);
        logp = token < 0
                   ? cuda_nan()
                   : logprob_of(s.x, s.v, job.sums != nullptr ? job.sums + at : nullptr, token);
    }
    if (threadIdx.x == 0) {
        job.token[n] = token;
        job.logp[n] = logp;
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    sample_job job = {};
    int bits = 0;
    job.logits = (const float *)a->in[0];
    job.draft = kernel_has_in(k, 1) ? (const float *)a->in[1] : nullptr;
    job.sums = kernel_has_in(k, 2) ? (const double *)a->in[2] : nullptr;
    job.rows = (const int64_t *)a->in[3];
    job.how = (const double *)a->in[4];
    job.seen = kernel_has_in(k, 5) ? (const int32_t *)a->in[5] : nullptr;
    job.token = (int32_t *)a->out[0];
    job.logp = (float *)a->out[1];
    job.n_logits = k->in[0].dims[0];
    job.v = k->in[0].dims[1];
    job.stays = k->attrs.rng_stream;
    while (((int64_t)1 << bits) < job.v)
        bits++;
    job.unit = (float)((int64_t)1 << (62 - bits < 45 ? 62 - bits : 45)); /* sums fit 63 bits */
    /* the sums have no rounding errors, so the number of threads changes no draw */
    const int threads = job.v > FEW_TOKENS ? SAMPLE_THREADS : FEW_THREADS;
    return cuda_run(k, a, k->in[3].dims[0], threads, sample, job);
}

const kernel_op CUDA_OP(SAMPLE) = {nullptr, run, nullptr, 0};
