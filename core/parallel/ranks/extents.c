/* Exchanges of what ranks divide. */
#include "parallel/ranks/extents.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "exec/store/fresh_grads.h"
#include "parallel/ranks/extents_internal.h"

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
    if (copies == NULL || n == 0)
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

/* The sums of gradients that every rank holds whole: in the group that divides, then among the
 * copies. */
static lathe_status make_sums(lathe_extents *x)
{
    const lathe_division *d = x->store->division;
    LATHE_TRY(lathe_bucket_sums_init(&x->sums, x->m, x->store, &x->room, d->n_buckets));
    for (int32_t k = 0; k < d->n_buckets; k++) {
        const lathe__bucket *b = &x->list[k];
        const int64_t at = x->store->rows[d->rows[d->buckets[k].first]].grad;
        const int64_t own = at + b->own_grad * b->grad_width;
        const int64_t bytes = lathe_bucket_counts(d, k, b->grad_width, NULL) * b->grad_width;
        const lathe_bucket_sum made = {
            .begin = at,
            .end = at + bytes,
            .parts = {
                {.ranks = x->ranks, .exchange = b->reduce, .in_at = at, .out_at = own},
                {.ranks = x->layout->copies, .exchange = b->across, .in_at = own, .out_at = own}}};
        lathe_bucket_sums_put(&x->sums, k, &made);
    }
    return LATHE_OK;
}

static lathe_status add(void *arg, double *numbers, int32_t n);
static lathe_status spread(void *arg);

/* Collects from the ranks of this rank's island, which is the first, since only rank 0 calls it. */
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
    if (status == LATHE_OK && store->division->shard < LATHE_SHARD_GRADIENTS)
        status = make_sums(x);
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
    if (x == NULL)
        return;
    for (int32_t k = 0; x->list && k < x->store->division->n_buckets; k++) {
        lathe_data_destroy(x->ranks, x->list[k].reduce);
        lathe_data_destroy(x->ranks, x->list[k].spread);
        lathe_data_destroy(x->layout->copies, x->list[k].across);
        if (x->list[k].add)
            x->m->dev->kernel_destroy(x->m->device->self, x->list[k].add);
    }
    lathe_bucket_orders_fini(&x->orders);
    lathe_bucket_sums_fini(&x->sums);
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
static lathe_status reduce_across(const lathe_extents *x)
{
    for (int32_t k = 0; k < x->store->division->n_buckets; k++) {
        char *at = lathe_store_bucket_sums(x->store, k);
        if (x->list[k].across)
            LATHE_TRY(lathe_data_run(x->layout->copies, x->list[k].across, &x->room, at, at));
    }
    return LATHE_OK;
}

lathe_status lathe_extents_reduce(lathe_extents *x)
{
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    LATHE_TRY(x->store->division->shard < LATHE_SHARD_GRADIENTS ? lathe_bucket_sums_run(&x->sums)
                                                                : reduce_across(x));
    return lathe__extents_count_sent(x, 1);
}

double lathe_extents_take_wait(lathe_extents *x)
{
    return lathe_bucket_sums_take_wait(&x->sums);
}

/* ---- in a backward ---- */

/* The orders in which programs complete fresh gradients. lives: [n, n_buckets] */
static lathe_status plan_fresh(lathe_extents *x, const lathe_graph *const *graphs, int32_t n,
                               lathe_grad_life *lives, int32_t *last)
{
    const int32_t n_buckets = x->store->division->n_buckets;
    LATHE_TRY(
        lathe_fresh_grads_plan(x->store, graphs, n, lathe_machine_memory(x->m)->is_queued, lives));
    for (int32_t k = 0; k < n_buckets; k++)
        LATHE_TRY(lathe__fresh_sums_prepare(x, k));
    for (int32_t g = 0; g < n; g++) {
        for (int32_t k = 0; k < n_buckets; k++)
            last[k] = lives[(int64_t)g * n_buckets + k].last;
        LATHE_TRY(lathe_bucket_orders_add(&x->orders, graphs[g], last, n_buckets));
    }
    return LATHE_OK;
}

lathe_status lathe_extents_plan(lathe_extents *x, const lathe_graph *const *graphs, int32_t n)
{
    const int32_t n_buckets = x->store->division->n_buckets;
    if (x->store->division->shard < LATHE_SHARD_GRADIENTS)
        return lathe_bucket_sums_plan(&x->sums, graphs, n);
    lathe_grad_life *lives = calloc((size_t)n * (size_t)n_buckets + 1, sizeof *lives);
    int32_t *last = calloc((size_t)n_buckets + 1, sizeof *last);
    lathe_status status = lives && last
                              ? lathe_bucket_orders_init(&x->orders, n)
                              : lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    if (status == LATHE_OK)
        status = plan_fresh(x, graphs, n, lives, last);
    free(lives);
    free(last);
    return status;
}

lathe_status lathe_extents_foresee(const lathe_machine *m, lathe_store *store,
                                   const lathe_graph *const *graphs, int32_t n)
{
    lathe_grad_life *lives =
        calloc((size_t)n * (size_t)store->division->n_buckets + 1, sizeof *lives);
    if (lives == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    const lathe_status status =
        lathe_fresh_grads_plan(store, graphs, n, lathe_machine_memory(m)->is_queued, lives);
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

/* Runs the nodes from *io_begin to those that complete the bucket at place k of the order. */
static lathe_status run_up_to(lathe_exec *exec, const lathe_bucket_order *o, int32_t k,
                              int32_t *io_begin)
{
    const int32_t begin = *io_begin, end = o->last[k] + 1;
    if (end <= begin)
        return LATHE_OK;
    *io_begin = end;
    return lathe_exec_run_range(exec, begin, end, 0);
}

/* On a device that works by itself, a bucket is added while the nodes up to the next one run, if
 * the engine needs no memory for it. */
static lathe_status fresh_backward(lathe_extents *x, lathe_exec *exec, int32_t begin,
                                   int32_t is_first)
{
    const lathe_graph *g = lathe_exec_graph(exec);
    const lathe_bucket_order *o = NULL;
    const int lags =
        lathe_machine_memory(x->m)->is_queued && lathe_exchange_room_overlaps(&x->room);
    int32_t pending = -1;
    LATHE_TRY(lathe_bucket_orders_find(&x->orders, g, &o));
    for (int32_t k = 0; k < x->store->division->n_buckets; k++) {
        LATHE_TRY(run_up_to(exec, o, k, &begin));
        if (pending >= 0)
            LATHE_TRY(finish_fresh(x, pending, is_first));
        LATHE_TRY(start_fresh(x, o->order[k]));
        pending = lags ? o->order[k] : -1;
        if (!lags)
            LATHE_TRY(finish_fresh(x, o->order[k], is_first));
    }
    LATHE_TRY(lathe_exec_run_range(exec, begin, g->n_nodes, 0));
    return pending >= 0 ? finish_fresh(x, pending, is_first) : LATHE_OK;
}

lathe_status lathe_extents_backward(lathe_extents *x, lathe_exec *exec, int32_t begin,
                                    int32_t is_first)
{
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    LATHE_TRY(x->store->division->shard < LATHE_SHARD_GRADIENTS
                  ? lathe_bucket_sums_backward(&x->sums, exec, begin, !is_first)
                  : fresh_backward(x, exec, begin, is_first));
    return lathe__extents_count_sent(x, 1);
}

static lathe_status spread(void *arg)
{
    lathe_extents *x = arg;
    const lathe_division *d = x->store->division;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    for (int32_t k = 0; k < d->n_buckets; k++) {
        const lathe__bucket *b = &x->list[k];
        if (b->spread == NULL)
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
