/* The end of a round: exchanges the changes of the weights, and steps. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/trace.h"
#include "exec/store/store_io.h"
#include "files/safetensors/convert.h"
#include "lathe/dtype.h"
#include "parallel/islands/islands_internal.h"

enum { GRAIN = 16384 };

/* ---- weights as one sequence ---- */

/* Copies elements [begin, begin + n) of this rank's place between the masters and a buffer. */
static void copy_masters(const lathe_islands *x, int64_t begin, int64_t n, float *buffer,
                         int32_t to_masters)
{
    const lathe_store *store = x->store;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const int64_t from = x->row_at[i] > begin ? x->row_at[i] : begin;
        const int64_t end = x->row_at[i + 1] < begin + n ? x->row_at[i + 1] : begin + n;
        if (end <= from)
            continue;
        const lathe_extent *held = store->rows[i].held;
        const int64_t first = lathe__islands_row(x, i, x->layout->shard_no).begin;
        float *master = lathe_store_master(store, i) + (first - held[LATHE_OF_PARAMETER].begin) +
                        (from - x->row_at[i]);
        float *at = buffer + (from - begin);
        if (to_masters)
            lathe_parallel_copy(master, at, (end - from) * (int64_t)sizeof *at);
        else
            lathe_parallel_copy(at, master, (end - from) * (int64_t)sizeof *at);
    }
}

void lathe_islands_begin(lathe_islands *x)
{
    if (x == NULL || x->has_begun)
        return;
    copy_masters(x, x->part.begin, x->part.n, x->state[LATHE_OUTER_START], 0);
    x->has_begun = 1;
}

/* ---- elementwise ---- */

typedef struct stepping {
    float *start, *momentum, *error; /* of a piece */
    float *d;                        /* in: change, or mean change */
    const float *other;              /* what was decoded */
    float lr, mu, scale;
} stepping;

/* d = start - d + error */
static void change(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const stepping *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->d[i] = s->start[i] - s->d[i] + (s->error ? s->error[i] : 0.0f);
}

/* error = d - decoded */
static void keep_loss(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const stepping *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->error[i] = s->d[i] - s->other[i];
}

/* error += scale * (d - decoded) */
static void add_loss(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const stepping *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->error[i] += s->scale * (s->d[i] - s->other[i]);
}

/* d += scale * other; or d = scale * other */
static void add_scaled(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const stepping *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->d[i] += s->scale * s->other[i];
}

static void nesterov(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const stepping *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float v = s->mu * s->momentum[i] + s->d[i];
        s->momentum[i] = v;
        s->start[i] -= s->lr * (s->d[i] + s->mu * v);
    }
}

static int all_finite(const float *x, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * 0.0f; /* 0, or NaN */
    return sum == 0.0f;
}

/* ---- a piece ---- */

/* Offset of a shard among the encoded shards of a piece. */
static int64_t encoded_at(const lathe_islands *x, int64_t n, int32_t shard)
{
    int64_t at = 0;
    for (int32_t k = 0; k < shard; k++)
        at += lathe_delta_bytes(x->set.dtype, lathe__islands_shard(x, n, k).n);
    return at;
}

typedef struct work {
    const lathe__piece *piece;
    float *d, *decoded;
    char *send, *receive;
    stepping s;
} work;

/* Encodes the change of a piece; with error feedback, keeps what is lost of it. */
static void encode(const lathe_islands *x, const work *w)
{
    for (int32_t k = 0; k < x->layout->n_islands; k++) {
        const lathe_extent shard = lathe__islands_shard(x, w->piece->n, k);
        char *to = w->send + encoded_at(x, w->piece->n, k);
        lathe_delta_encode(x->set.dtype, w->d + shard.begin, shard.n, to);
        if (w->s.error == NULL)
            continue;
        stepping s = {
            .d = w->d + shard.begin, .error = w->s.error + shard.begin, .other = w->decoded};
        lathe_delta_decode(x->set.dtype, to, shard.n, w->decoded);
        lathe_parallel_for(shard.n, GRAIN, keep_loss, &s);
    }
}

/* Averages this island's shard, in the order of islands, and encodes the mean. */
static void average(const lathe_islands *x, const work *w)
{
    const lathe_extent shard = lathe__islands_shard(x, w->piece->n, x->layout->island_no);
    const int32_t n = x->layout->n_islands;
    const int64_t bytes = lathe_delta_bytes(x->set.dtype, shard.n);
    char *to = w->send + encoded_at(x, w->piece->n, x->layout->island_no);
    stepping s = {.d = w->d + shard.begin, .other = w->decoded, .scale = 1.0f};
    memset(s.d, 0, (size_t)shard.n * sizeof *s.d);
    for (int32_t k = 0; k < n; k++) {
        lathe_delta_decode(x->set.dtype, w->receive + k * bytes, shard.n, w->decoded);
        lathe_parallel_for(shard.n, GRAIN, add_scaled, &s);
    }
    for (int64_t i = 0; i < shard.n; i++)
        s.d[i] /= (float)n;
    lathe_delta_encode(x->set.dtype, s.d, shard.n, to);
    if (w->s.error == NULL)
        return;
    s.error = w->s.error + shard.begin;
    s.scale = (float)n;
    lathe_delta_decode(x->set.dtype, to, shard.n, w->decoded);
    lathe_parallel_for(shard.n, GRAIN, add_loss, &s);
}

/* Replaces the change of a piece by the mean of all islands' changes. */
static lathe_status exchange(lathe_islands *x, const work *w)
{
    lathe_ranks *others = x->layout->others;
    int64_t before = 0, after = 0, received = 0;
    const lathe_exchange_args scatter = {.in = w->send, .out = w->receive};
    const lathe_exchange_args gather = {
        .in = w->send + encoded_at(x, w->piece->n, x->layout->island_no), .out = w->send};
    encode(x, w);
    LATHE_TRY(others->table->traffic(others->group, &before, &received));
    LATHE_TRY(lathe_ranks_run(others, w->piece->scatter, &scatter, 0));
    average(x, w);
    LATHE_TRY(lathe_ranks_run(others, w->piece->gather, &gather, 0));
    LATHE_TRY(others->table->traffic(others->group, &after, &received));
    x->across_bytes += after - before;
    for (int32_t k = 0; k < x->layout->n_islands; k++) {
        const lathe_extent shard = lathe__islands_shard(x, w->piece->n, k);
        lathe_delta_decode(x->set.dtype, w->send + encoded_at(x, w->piece->n, k), shard.n,
                           w->d + shard.begin);
    }
    return LATHE_OK;
}

static lathe_status step_piece(lathe_islands *x, int32_t k)
{
    const lathe__piece *p = &x->pieces[k];
    work w = {.piece = p, .d = (float *)(void *)x->buffers};
    w.decoded = w.d + x->piece;
    w.send = x->buffers + 4 * (x->piece + x->decoded);
    w.receive = w.send + x->send_bytes;
    w.s = (stepping){.start = x->state[LATHE_OUTER_START] + p->at,
                     .momentum = x->state[LATHE_OUTER_MOMENTUM] + p->at,
                     .error =
                         x->state[LATHE_OUTER_ERROR] ? x->state[LATHE_OUTER_ERROR] + p->at : NULL,
                     .d = w.d,
                     .lr = (float)x->set.lr,
                     .mu = (float)x->set.momentum};
    copy_masters(x, x->part.begin + p->at, p->n, w.d, 0);
    lathe_parallel_for(p->n, GRAIN, change, &w.s);
    if (x->layout->others)
        LATHE_TRY(exchange(x, &w));
    if (!all_finite(w.d, p->n))
        return lathe_error(
            LATHE_E_NUMERIC, "the change of the weights in this round of DiLoCo is not finite%s",
            x->set.dtype == LATHE_DELTA_FP16 ? "; fp16 holds numbers up to 65504: choose another "
                                               "parallel.diloco_pseudo_gradient_dtype"
                                             : "");
    lathe_parallel_for(p->n, GRAIN, nesterov, &w.s);
    return LATHE_OK;
}

/* ---- the weights of the island ---- */

/* Gives all ranks of the island that hold the same elements the new weights of all parts. */
static lathe_status share(lathe_islands *x)
{
    const lathe_rank_layout *l = x->layout;
    float *all = (float *)(void *)x->buffers;
    copy_masters(x, x->part.begin, x->part.n, x->state[LATHE_OUTER_START], 1);
    for (int32_t k = 0; l->copies && k < x->n_copied; k++) {
        const int64_t at = k * x->copied_each;
        const lathe_exchange_args args = {.in = x->state[LATHE_OUTER_START] + at, .out = all};
        const float *from = all;
        LATHE_TRY(lathe_ranks_run(l->copies, x->copied[k], &args, 0));
        for (int32_t c = 0; c < l->n_copies; c++) {
            const lathe_extent part = lathe__islands_part(x, c, l->shard_no);
            const int64_t left = part.n - at;
            const int64_t n = left < 0 ? 0 : left < x->copied_each ? left : x->copied_each;
            if (c != l->copy_no)
                copy_masters(x, part.begin + at, n, (float *)(uintptr_t)from, 1);
            from += n;
        }
    }
    return LATHE_OK;
}

/* Rounds the new masters to the compute copies, and gives them to those that divide. */
static lathe_status refresh(const lathe_islands *x)
{
    const lathe_store *store = x->store;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const lathe_extent own = lathe__islands_row(x, i, x->layout->shard_no);
        const lathe_extent *held = store->rows[i].held;
        if (own.n == 0 || !lathe_params_has_shadow(store->params, i))
            continue;
        const int32_t dtype = lathe_params_value_dtype(store->params, i);
        char *to = (char *)lathe_store_shadow(store, i) +
                   (own.begin - held[LATHE_OF_VALUE].begin) * lathe_dtype_bytes(dtype);
        LATHE_TRY(lathe_convert(
            to, dtype, lathe_store_master(store, i) + (own.begin - held[LATHE_OF_PARAMETER].begin),
            LATHE_F32, own.n));
    }
    return store->peers ? store->peers->spread(store->peers->arg) : LATHE_OK;
}

lathe_status lathe_islands_end_round(lathe_islands *x)
{
    int64_t before = 0, after = 0, received = 0;
    const double begin = lathe_trace_now();
    const lathe_ranks *all = x->layout->all;
    if (all)
        LATHE_TRY(all->table->traffic(all->group, &before, &received));
    for (int32_t k = 0; k < x->n_pieces; k++)
        LATHE_TRY(step_piece(x, k));
    LATHE_TRY(share(x));
    LATHE_TRY(refresh(x));
    if (all)
        LATHE_TRY(all->table->traffic(all->group, &after, &received));
    x->sent_bytes += after - before;
    x->is_within = 0;
    lathe_trace_since("ranks", "end of a round", begin);
    return LATHE_OK;
}
