/* Exchanges of what ranks divide. */
#include "ranks/extents.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "ranks/extents_internal.h"
#include "store/fresh_grads.h"

/* ---- preparing ---- */

static lathe_status prepare(lathe_extents *x, int32_t op, int32_t k, int32_t dtype,
                            lathe_exchange **out, int64_t *out_own)
{
    const lathe_division *d = x->store->division;
    char label[64];
    const int64_t n = lathe_bucket_counts(d, k, lathe_dtype_bytes(dtype), x->counts);
    (void)snprintf(label, sizeof label, "%s %d of %d",
                   op == LATHE_REDUCE_SCATTER ? "gradients" : "parameters", k + 1, d->n_buckets);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = op,
                                            .dtype = dtype,
                                            .reduce = LATHE_REDUCE_SUM,
                                            .n = n,
                                            .counts = x->counts,
                                            .label = label};
    *out_own = 0;
    for (int32_t q = 0; q < d->rank; q++)
        *out_own += x->counts[q];
    return lathe_data_prepare(x->ranks, &problem, &x->room, out);
}

/* The sum over the copies of this rank's extent of a bucket. */
static lathe_status prepare_across(lathe_extents *x, int32_t k, int32_t dtype)
{
    const lathe_division *d = x->store->division;
    lathe_ranks *copies = x->layout->copies;
    char label[64];
    const int64_t n = lathe_bucket_extent(d, k, lathe_dtype_bytes(dtype), d->rank).n;
    if (!copies || n == 0)
        return LATHE_OK;
    (void)snprintf(label, sizeof label, "gradients %d of %d among copies", k + 1, d->n_buckets);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_REDUCE,
                                            .dtype = dtype,
                                            .reduce = LATHE_REDUCE_SUM,
                                            .n = n,
                                            .label = label};
    return lathe_data_prepare(copies, &problem, &x->room, &x->list[k].across);
}

static lathe_status prepare_bucket(lathe_extents *x, int32_t k)
{
    const lathe_store *store = x->store;
    const int32_t row = store->division->rows[store->division->buckets[k].first];
    const int32_t grad = lathe_params_grad_dtype(store->params, row);
    const int32_t value = lathe_params_value_dtype(store->params, row);
    lathe__bucket *b = &x->list[k];
    b->grad_width = (int32_t)lathe_dtype_bytes(grad);
    b->value_width = (int32_t)lathe_dtype_bytes(value);
    LATHE_TRY(prepare(x, LATHE_REDUCE_SCATTER, k, grad, &b->reduce, &b->own_grad));
    LATHE_TRY(prepare_across(x, k, grad));
    if (store->rows[row].gathered[0].gather >= 0)
        return LATHE_OK; /* read as it is gathered */
    return prepare(x, LATHE_ALL_GATHER, k, value, &b->spread, &b->own_value);
}

static lathe_status add(void *arg, double *numbers, int32_t n);
static lathe_status spread(void *arg);

/* Of this rank's island, which is the first: rank 0 calls it. */
static lathe_status collect(void *arg, int32_t family, int32_t row, int32_t slot, lathe_piece_fn fn,
                            void *fn_arg)
{
    const lathe_extents *x = arg;
    return lathe_serving_collect(&x->serving, 0, family, row, slot, fn, fn_arg);
}

static lathe_status fill_averages(void *arg)
{
    return lathe_serving_fill_averages(&((const lathe_extents *)arg)->serving);
}

lathe_status lathe_extents_create(const lathe_rank_layout *layout, lathe_machine *m,
                                  lathe_store *store, lathe_extents **out)
{
    lathe_extents *x = calloc(1, sizeof *x);
    if (x) {
        x->list = calloc((size_t)store->division->n_buckets + 1, sizeof *x->list);
        x->counts = calloc((size_t)store->division->n_ranks, sizeof *x->counts);
        x->layout = layout;
        x->ranks = layout->shard;
        x->m = m;
        x->store = store;
        x->peers = (lathe_peers){.arg = x,
                                 .add = add,
                                 .spread = spread,
                                 .gather_start = lathe__gather_start,
                                 .gather_poll = lathe__gather_poll,
                                 .gather_wait = lathe__gather_wait,
                                 .collect = collect,
                                 .fill_averages = fill_averages};
        x->serving = (lathe_serving){
            .layout = layout, .store = store, .gather = lathe__gather_serve, .gather_arg = x};
    }
    lathe_status status = x && x->list && x->counts
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory for the exchanges of ranks");
    for (int32_t k = 0; status == LATHE_OK && k < store->division->n_buckets; k++)
        status = prepare_bucket(x, k);
    if (status == LATHE_OK && store->gathers)
        status = lathe__gathers_prepare(x);
    if (status != LATHE_OK) {
        lathe_extents_destroy(x);
        return status;
    }
    store->peers = &x->peers;
    *out = x;
    return LATHE_OK;
}

void lathe_extents_destroy(lathe_extents *x)
{
    if (!x)
        return;
    for (int32_t k = 0; x->list && k < x->store->division->n_buckets; k++) {
        lathe_data_destroy(x->ranks, x->list[k].reduce);
        lathe_data_destroy(x->ranks, x->list[k].spread);
        lathe_data_destroy(x->layout->copies, x->list[k].across);
        if (x->list[k].add)
            x->m->dev->kernel_destroy(x->m->device->self, x->list[k].add);
    }
    for (int32_t g = 0; g < x->n_programs; g++)
        free(x->programs[g].order);
    free(x->programs);
    lathe__gathers_destroy(x);
    x->store->peers = NULL;
    free(x->list);
    free(x->counts);
    free(x);
}

lathe_exchange_room *lathe_extents_room(lathe_extents *x)
{
    return x ? &x->room : NULL;
}

const lathe_serving *lathe_extents_serving(const lathe_extents *x)
{
    return &x->serving;
}

void lathe_extents_lead(lathe_extents *x, int32_t is_alone)
{
    x->is_alone = is_alone;
}

int64_t lathe_extents_take_sent(lathe_extents *x)
{
    const int64_t sent = x ? x->sent_bytes : 0;
    if (x)
        x->sent_bytes = 0;
    return sent;
}

/* ---- in a step ---- */

lathe_status lathe__extents_count_sent(lathe_extents *x, int64_t sign)
{
    int64_t sent = 0;
    if (sign < 0 ? x->counting++ > 0 : --x->counting > 0)
        return LATHE_OK;
    LATHE_TRY(lathe_data_sent(x->ranks, &sent));
    x->sent_bytes += sign * sent;
    return LATHE_OK;
}

/* Adds the sums of the copies to this rank's, bucket by bucket. */
static lathe_status reduce_across(lathe_extents *x, int32_t k)
{
    const lathe__bucket *b = &x->list[k];
    if (!b->across)
        return LATHE_OK;
    const lathe_division *d = x->store->division;
    char *at = d->shard >= LATHE_SHARD_GRADIENTS
                   ? lathe_store_bucket_sums(x->store, k)
                   : (char *)lathe_store_grad(x->store, d->rows[d->buckets[k].first]) +
                         b->own_grad * b->grad_width;
    return lathe_data_run(x->layout->copies, b->across, &x->room, at, at);
}

lathe_status lathe_extents_reduce(lathe_extents *x)
{
    const lathe_division *d = x->store->division;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    for (int32_t k = 0; k < d->n_buckets; k++) {
        const lathe__bucket *b = &x->list[k];
        if (d->shard < LATHE_SHARD_GRADIENTS) {
            char *at = lathe_store_grad(x->store, d->rows[d->buckets[k].first]);
            LATHE_TRY(lathe_data_run(x->ranks, b->reduce, &x->room, at,
                                     at + b->own_grad * b->grad_width));
        }
        LATHE_TRY(reduce_across(x, k));
    }
    return lathe__extents_count_sent(x, 1);
}

/* ---- in a backward ---- */

static lathe_status make_schedule(lathe__schedule *s, const lathe_bucket_life *lives, int32_t n)
{
    s->order = calloc(2 * (size_t)n + 1, sizeof *s->order);
    if (!s->order)
        return lathe_error(LATHE_E_NOMEM, "no memory for the order of %d buckets", n);
    s->last = s->order + n;
    for (int32_t b = 0; b < n; b++) {
        int32_t k = b;
        for (; k > 0 && lives[s->order[k - 1]].last > lives[b].last; k--)
            s->order[k] = s->order[k - 1];
        s->order[k] = b;
    }
    for (int32_t k = 0; k < n; k++)
        s->last[k] = lives[s->order[k]].last;
    return LATHE_OK;
}

lathe_status lathe_extents_plan(lathe_extents *x, const lathe_graph *const *graphs, int32_t n)
{
    const int32_t n_buckets = x->store->division->n_buckets;
    lathe_bucket_life *lives = calloc((size_t)n * (size_t)n_buckets + 1, sizeof *lives);
    x->programs = calloc((size_t)n + 1, sizeof *x->programs);
    lathe_status status = lives && x->programs
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    if (status == LATHE_OK)
        status = lathe_fresh_grads_plan(x->store, graphs, n, !lathe_machine_shares(x->m), lives);
    for (int32_t k = 0; k < n_buckets && status == LATHE_OK; k++)
        status = lathe__fresh_sums_prepare(x, k);
    for (int32_t g = 0; g < n && status == LATHE_OK; g++) {
        x->programs[x->n_programs++].graph = graphs[g];
        status = make_schedule(&x->programs[g], lives + (int64_t)g * n_buckets, n_buckets);
    }
    free(lives);
    return status;
}

lathe_status lathe_extents_foresee(const lathe_machine *m, lathe_store *store,
                                   const lathe_graph *const *graphs, int32_t n)
{
    lathe_bucket_life *lives =
        calloc((size_t)n * (size_t)store->division->n_buckets + 1, sizeof *lives);
    if (!lives)
        return lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    const lathe_status status =
        lathe_fresh_grads_plan(store, graphs, n, !lathe_machine_shares(m), lives);
    free(lives);
    return status;
}

/* Starts to add the gradients of a bucket over all ranks. */
static lathe_status start_fresh(const lathe_extents *x, int32_t k)
{
    const lathe_division *d = x->store->division;
    const lathe__bucket *b = &x->list[k];
    char *at = lathe_store_fresh(x->store, d->rows[d->buckets[k].first]);
    return lathe_data_start(x->ranks, b->reduce, &x->room, at, at + b->own_grad * b->grad_width);
}

/* Waits for it, and adds this rank's extent to its sums. */
static lathe_status finish_fresh(const lathe_extents *x, int32_t k, int32_t is_first)
{
    LATHE_TRY(lathe_data_wait(x->ranks, x->list[k].reduce));
    return lathe__fresh_sums_add(x, k, is_first);
}

/* Runs the nodes from *io_begin to those that complete bucket k of the schedule. */
static lathe_status run_up_to(lathe_exec *exec, const lathe__schedule *s, int32_t k,
                              int32_t *io_begin)
{
    const int32_t begin = *io_begin, end = s->last[k] + 1;
    if (end <= begin)
        return LATHE_OK;
    *io_begin = end;
    return lathe_exec_run_range(exec, begin, end, 0);
}

/* On a device with memory of its own, a bucket is added while the nodes up to the next one run, if
 * the engine needs no memory for it. */
lathe_status lathe_extents_backward(lathe_extents *x, lathe_exec *exec, int32_t begin,
                                    int32_t is_first)
{
    const lathe_graph *g = lathe_exec_graph(exec);
    const lathe__schedule *s = x->programs;
    const int lags = !lathe_machine_shares(x->m) && lathe_exchange_room_overlaps(&x->room);
    int32_t pending = -1;
    while (s < x->programs + x->n_programs && s->graph != g)
        s++;
    if (s == x->programs + x->n_programs)
        return lathe_error(LATHE_E_STATE, "a backward that was not planned");
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    for (int32_t k = 0; k < x->store->division->n_buckets; k++) {
        LATHE_TRY(run_up_to(exec, s, k, &begin));
        if (pending >= 0)
            LATHE_TRY(finish_fresh(x, pending, is_first));
        LATHE_TRY(start_fresh(x, s->order[k]));
        pending = lags ? s->order[k] : -1;
        if (!lags)
            LATHE_TRY(finish_fresh(x, s->order[k], is_first));
    }
    LATHE_TRY(lathe_exec_run_range(exec, begin, g->n_nodes, 0));
    if (pending >= 0)
        LATHE_TRY(finish_fresh(x, pending, is_first));
    return lathe__extents_count_sent(x, 1);
}

static lathe_status spread(void *arg)
{
    lathe_extents *x = arg;
    const lathe_division *d = x->store->division;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    for (int32_t k = 0; k < d->n_buckets; k++) {
        const lathe__bucket *b = &x->list[k];
        if (!b->spread)
            continue;
        char *at = lathe_store_value(x->store, d->rows[d->buckets[k].first]);
        LATHE_TRY(
            lathe_data_run(x->ranks, b->spread, &x->room, at + b->own_value * b->value_width, at));
    }
    return lathe__extents_count_sent(x, 1);
}

static lathe_status add(void *arg, double *numbers, int32_t n)
{
    const lathe_extents *x = arg;
    const double *all = NULL;
    LATHE_TRY(lathe_ranks_gather(x->ranks, numbers, n, 0, &all));
    for (int32_t i = 0; i < n; i++) {
        numbers[i] = 0.0;
        for (int32_t q = 0; q < lathe_ranks_count(x->ranks); q++)
            numbers[i] += all[(int64_t)q * LATHE_RANK_NUMBERS + i];
    }
    return LATHE_OK;
}
