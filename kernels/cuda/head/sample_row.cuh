/* Selection in a row of the vocabulary without sorting it: the token at which a running count or a
 * running sum of probabilities, from the likeliest token on, passes a level.
 *
 * Weights exp((s - max) / temperature) are whole numbers, multiples of 1 / unit. So their sums have
 * no rounding errors and no order, and threads may add them with atomics. Tokens are counted in
 * bins of equal widths of scores; the bin in which the level is passed is narrowed until its tokens
 * fit a list, in which each token counts those before it. A bin of equal scores is walked in the
 * order of tokens.
 *
 * A block of SAMPLE_THREADS processes a row; all its threads call these functions.
 */
#ifndef LATHE_CUDA_SAMPLE_ROW_CUH
#define LATHE_CUDA_SAMPLE_ROW_CUH

#include "base/launch.cuh"

#define SAMPLE_THREADS 512
#define SAMPLE_BINS 512
#define SAMPLE_LIST 512 /* tokens */

/** A sum of weights. */
typedef unsigned long long sample_mass;

/** A row of logits, penalized. */
struct sample_scores {
    const float *x;
    const int32_t *seen; /* bits of the tokens that are penalized; NULL: none */
    int64_t v;
    float penalty;
    float most, least;    /* of the scores */
    float inverse;        /* 1 / temperature */
    float unit;           /* weight of the likeliest token, a power of two */
    sample_mass all_mass; /* of all tokens, once the bins were filled */
};

struct sample_bins {
    sample_mass mass[SAMPLE_BINS];
    unsigned count[SAMPLE_BINS];
};

/** A token in the order of likelihood, and the tokens before it. */
struct sample_place {
    float score;
    int32_t id;
    int64_t count;
    sample_mass mass;
};

/** Shared memory of a block. */
struct sample_room {
    sample_bins whole, part; /* of the whole row; of a narrower range */
    float score[SAMPLE_LIST];
    int32_t id[SAMPLE_LIST];
    sample_mass weight[SAMPLE_LIST];
    unsigned n_list;
    int32_t bin;
    sample_place found;
    int flags[SAMPLE_THREADS];
};

static __device__ __forceinline__ float sample_score(const sample_scores &s, int64_t i)
{
    const float x = s.x[i];
    if (s.seen == nullptr || !((uint32_t)s.seen[i / 32] >> (i % 32) & 1u))
        return x;
    return x < 0.0f ? x * s.penalty : x / s.penalty;
}

static __device__ __forceinline__ sample_mass sample_weight(const sample_scores &s, float score)
{
    const float d = score == s.most ? 0.0f : (score - s.most) * s.inverse;
    return (sample_mass)(expf(d) * s.unit);
}

/* The bin of a score in [low, high], which are in different bins if they differ. Higher scores have
 * lower bins. */
static __device__ __forceinline__ int sample_bin(float score, float low, float high)
{
    if (score == high)
        return 0;
    if (score == low)
        return SAMPLE_BINS - 1;
    /* halves, because the difference of two finite numbers may not be finite */
    const float at =
        (0.5f * high - 0.5f * score) * ((float)SAMPLE_BINS / (0.5f * high - 0.5f * low));
    return at < (float)(SAMPLE_BINS - 1) ? (int)at : SAMPLE_BINS - 1;
}

static __device__ void sample_fill(const sample_scores &s, sample_bins *bins, float low, float high)
{
    __syncthreads(); /* all threads have read the bins */
    for (int i = (int)threadIdx.x; i < SAMPLE_BINS; i += (int)blockDim.x) {
        bins->mass[i] = 0;
        bins->count[i] = 0;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < s.v; i += blockDim.x) {
        const float score = sample_score(s, i);
        if (score < low || score > high)
            continue;
        const int bin = sample_bin(score, low, high);
        const sample_mass weight = sample_weight(s, score);
        atomicAdd(&bins->count[bin], 1u);
        if (weight > 0)
            atomicAdd(&bins->mass[bin], weight);
    }
    __syncthreads();
}

/* Finds the bin in which the level is passed, or else the last that is not empty. room->found has
 * what is before it, and is advanced past the bins before it. */
static __device__ void sample_cross(const sample_bins *bins, int by_count, sample_mass level,
                                    sample_room *room)
{
    if (threadIdx.x == 0) {
        sample_place before = room->found, next = room->found;
        int bin = 0;
        for (int i = 0; i < SAMPLE_BINS; i++) {
            if (bins->count[i] == 0)
                continue;
            bin = i;
            before = next;
            next.count += bins->count[i];
            next.mass += bins->mass[i];
            if ((by_count ? (sample_mass)next.count : next.mass) > level)
                break;
        }
        room->bin = bin;
        room->found = before;
        room->n_list = 0;
    }
    __syncthreads();
}

/* The least and the largest score of the bin. */
static __device__ void sample_narrow(const sample_scores &s, int bin, float *io_low, float *io_high)
{
    float high = -INFINITY, minus_low = -INFINITY;
    for (int64_t i = threadIdx.x; i < s.v; i += blockDim.x) {
        const float score = sample_score(s, i);
        if (score < *io_low || score > *io_high || sample_bin(score, *io_low, *io_high) != bin)
            continue;
        high = score > high ? score : high;
        minus_low = -score > minus_low ? -score : minus_low;
    }
    *io_high = cuda_block_max(high);
    *io_low = -cuda_block_max(minus_low);
}

/* Lists the tokens of a bin, and finds the one that passes the level. */
static __device__ void sample_resolve(const sample_scores &s, float low, float high, int by_count,
                                      sample_mass level, sample_room *room)
{
    const int bin = room->bin;
    const sample_place before = room->found;
    for (int64_t i = threadIdx.x; i < s.v; i += blockDim.x) {
        const float score = sample_score(s, i);
        if (score < low || score > high || sample_bin(score, low, high) != bin)
            continue;
        const unsigned at = atomicAdd(&room->n_list, 1u);
        room->score[at] = score;
        room->id[at] = (int32_t)i;
        room->weight[at] = sample_weight(s, score);
    }
    __syncthreads();
    const int n = (int)room->n_list;
    for (int e = (int)threadIdx.x; e < n; e += (int)blockDim.x) {
        sample_place at = {room->score[e], room->id[e], before.count, before.mass};
        for (int j = 0; j < n; j++)
            if (room->score[j] > at.score || (room->score[j] == at.score && room->id[j] < at.id)) {
                at.count++;
                at.mass += room->weight[j];
            }
        const sample_mass from = by_count ? (sample_mass)at.count : at.mass;
        const sample_mass upto = from + (by_count ? 1 : room->weight[e]);
        const int is_last = at.count + 1 == before.count + n && upto <= level;
        if ((from <= level && level < upto) || is_last)
            room->found = at; /* one token of all */
    }
    __syncthreads();
}

/* Finds the token in a bin of equal scores: each passes the same part of the level. */
static __device__ void sample_resolve_equal(const sample_scores &s, float score, int by_count,
                                            sample_mass level, sample_room *room)
{
    const sample_place before = room->found;
    const sample_mass weight = sample_weight(s, score);
    const sample_mass each = by_count ? 1 : weight > 0 ? weight : 1;
    const sample_mass from = by_count ? (sample_mass)before.count : before.mass;
    const int64_t wanted = (int64_t)((level - from) / each);
    int64_t n = 0;
    for (int64_t tile = 0; tile < s.v && n <= wanted; tile += blockDim.x) {
        const int64_t i = tile + threadIdx.x;
        const int is_equal = i < s.v && sample_score(s, i) == score;
        const int64_t here = cuda_block_sum(is_equal);
        if (here > 0 && n + here > wanted) {
            room->flags[threadIdx.x] = is_equal;
            __syncthreads();
            for (int k = 0; threadIdx.x == 0 && k < (int)blockDim.x; k++)
                if (room->flags[k] && n++ == wanted)
                    room->found = {score, (int32_t)(tile + k), before.count + wanted,
                                   before.mass + (sample_mass)wanted * weight};
            break;
        }
        n += here;
    }
    __syncthreads();
}

/** The token at which the number of tokens (by_count), or their mass, passes `level`, which is
 *  below that of all tokens. room->whole was filled for the whole row. */
static __device__ sample_place sample_find(const sample_scores &s, int by_count, sample_mass level,
                                           sample_room *room)
{
    float low = s.least, high = s.most;
    const sample_bins *bins = &room->whole;
    __syncthreads(); /* all threads have read room->found */
    if (threadIdx.x == 0)
        room->found = {high, 0, 0, 0};
    __syncthreads();
    for (;;) {
        sample_cross(bins, by_count, level, room);
        const int bin = room->bin;
        if (bins->count[bin] <= SAMPLE_LIST) {
            sample_resolve(s, low, high, by_count, level, room);
            break;
        }
        sample_narrow(s, bin, &low, &high);
        if (low == high) {
            sample_resolve_equal(s, low, by_count, level, room);
            break;
        }
        sample_fill(s, &room->part, low, high);
        bins = &room->part;
    }
    return room->found;
}

#endif
