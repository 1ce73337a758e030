/* Starts the exchanges of gradients, lets them go on between the nodes of a backward, and waits for
 * them. */
#include "parallel/ranks/bucket_sums.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/trace.h"
#include "exec/store/grad_lives.h"

lathe_status lathe_bucket_sums_init(lathe_bucket_sums *s, lathe_machine *m,
                                    const lathe_store *store, const lathe_exchange_room *room,
                                    int32_t n)
{
    *s = (lathe_bucket_sums){.m = m,
                             .store = store,
                             .room = room,
                             .list = calloc((size_t)n + 1, sizeof *s->list),
                             .n = n,
                             .queue = calloc((size_t)n + 1, sizeof *s->queue),
                             .begun = calloc((size_t)n + 1, sizeof *s->begun)};
    return s->list && s->queue && s->begun
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for %d buckets of gradients", n);
}

void lathe_bucket_sums_put(lathe_bucket_sums *s, int32_t k, const lathe_bucket_sum *bucket)
{
    s->list[k] = *bucket;
}

void lathe_bucket_sums_fini(lathe_bucket_sums *s)
{
    lathe_bucket_orders_fini(&s->orders);
    free(s->list);
    free(s->queue);
    free(s->begun);
    *s = (lathe_bucket_sums){.list = NULL};
}

lathe_status lathe_bucket_sums_plan(lathe_bucket_sums *s, const lathe_graph *const *graphs,
                                    int32_t n)
{
    const int32_t n_rows = s->store->n_rows;
    lathe_grad_life *lives = calloc((size_t)n_rows + 1, sizeof *lives);
    int32_t *last = calloc((size_t)s->n + 1, sizeof *last);
    lathe_status status = lives && last
                              ? lathe_bucket_orders_init(&s->orders, n)
                              : lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    for (int32_t g = 0; g < n && status == LATHE_OK; g++) {
        lathe_grad_lives(graphs[g], n_rows, lives);
        for (int32_t b = 0; b < s->n; b++)
            last[b] = lathe_grads_last_use(s->store, lives, s->list[b].begin, s->list[b].end);
        status = lathe_bucket_orders_add(&s->orders, graphs[g], last, s->n);
    }
    free(lives);
    free(last);
    return status;
}

double lathe_bucket_sums_take_wait(lathe_bucket_sums *s)
{
    const double seconds = s->wait_seconds;
    s->wait_seconds = 0.0;
    return seconds;
}

/* ---- exchanges ---- */

/* Whether all buckets may be in flight at once: they need no scratch memory, which they would
 * share, and the device goes on by itself. */
static int all_in_flight(const lathe_bucket_sums *s)
{
    return lathe_machine_memory(s->m)->is_queued && lathe_exchange_room_overlaps(s->room);
}

static lathe_status start(const lathe_bucket_sums *s, const lathe_bucket_part *p)
{
    return lathe_data_start(p->ranks, p->exchange, s->room, s->store->grads + p->in_at,
                            s->store->grads + p->out_at);
}

static void trace_bucket(const lathe_bucket_sums *s, int32_t k)
{
    char name[48];
    if (!lathe_trace_on())
        return;
    (void)snprintf(name, sizeof name, "gradients %d of %d", s->queue[k] + 1, s->n);
    lathe_trace_since("exchange", name, s->begun[k]);
}

/* Goes on with the complete buckets, one after the other, since they share scratch memory. waits 1:
 * until all are done; 0: returns at the first exchange that is not done. */
static lathe_status advance(lathe_bucket_sums *s, int waits)
{
    while (s->n_done < s->n_complete) {
        const lathe_bucket_sum *b = &s->list[s->queue[s->n_done]];
        if (s->part == LATHE_BUCKET_PARTS) {
            trace_bucket(s, s->n_done++);
            s->part = 0;
            continue;
        }
        const lathe_bucket_part *p = &b->parts[s->part];
        int32_t is_done = 1;
        if (p->exchange && !s->is_started) {
            if (s->part == 0)
                s->begun[s->n_done] = lathe_now();
            LATHE_TRY(start(s, p));
            s->is_started = 1;
        }
        if (p->exchange && waits)
            LATHE_TRY(lathe_data_wait(p->ranks, p->exchange));
        else if (p->exchange)
            LATHE_TRY(lathe_data_poll(p->ranks, p->exchange, &is_done));
        if (!is_done)
            return LATHE_OK;
        s->is_started = 0;
        s->part++;
    }
    return LATHE_OK;
}

/* Notes that a bucket is complete, and starts its exchange as soon as it may be. On a device that
 * works by itself this does not depend on the time that others take. */
static lathe_status complete(lathe_bucket_sums *s, int32_t bucket)
{
    /* with one scratch memory on a device, the bucket before must be done first */
    const int is_queued = lathe_machine_memory(s->m)->is_queued, at_once = all_in_flight(s);
    if (is_queued && !at_once)
        LATHE_TRY(advance(s, 1));
    const int32_t k = s->n_complete++;
    s->queue[k] = bucket;
    if (!is_queued)
        return advance(s, 0);
    s->begun[k] = lathe_now();
    s->is_started = !at_once;
    return start(s, &s->list[bucket].parts[0]);
}

/* Waits for the first exchanges of all buckets and starts the second ones, then waits for these: in
 * the order of starts, which is the same on all ranks. */
static lathe_status finish_in_flight(lathe_bucket_sums *s)
{
    for (int32_t part = 0; part < LATHE_BUCKET_PARTS; part++)
        for (int32_t k = 0; k < s->n_complete; k++) {
            const lathe_bucket_sum *b = &s->list[s->queue[k]];
            const int32_t next = part + 1;
            if (b->parts[part].exchange)
                LATHE_TRY(lathe_data_wait(b->parts[part].ranks, b->parts[part].exchange));
            if (next < LATHE_BUCKET_PARTS && b->parts[next].exchange)
                LATHE_TRY(start(s, &b->parts[next]));
        }
    return LATHE_OK;
}

/* Waits for the exchanges of all buckets. */
static lathe_status finish(lathe_bucket_sums *s)
{
    LATHE_TRY(all_in_flight(s) ? finish_in_flight(s) : advance(s, 1));
    s->n_complete = s->n_done = 0;
    return LATHE_OK;
}

lathe_status lathe_bucket_sums_run(lathe_bucket_sums *s)
{
    for (int32_t k = 0; k < s->n; k++)
        LATHE_TRY(complete(s, k));
    return finish(s);
}

/* ---- in a backward ---- */

/* Runs the nodes from *io_begin to `end`. Where nodes do not run by themselves, an exchange that is
 * under way goes on after each of them. */
static lathe_status run_up_to(lathe_bucket_sums *s, lathe_exec *exec, int32_t *io_begin,
                              int32_t end, int32_t accumulate)
{
    int32_t at = *io_begin;
    if (end <= at)
        return LATHE_OK;
    *io_begin = end;
    while (!lathe_machine_memory(s->m)->is_queued && s->n_done < s->n_complete && at < end) {
        LATHE_TRY(lathe_exec_run_range(exec, at, at + 1, accumulate));
        LATHE_TRY(advance(s, 0));
        at++;
    }
    return at < end ? lathe_exec_run_range(exec, at, end, accumulate) : LATHE_OK;
}

lathe_status lathe_bucket_sums_backward(lathe_bucket_sums *s, lathe_exec *exec, int32_t begin,
                                        int32_t accumulate)
{
    const lathe_graph *g = lathe_exec_graph(exec);
    const lathe_bucket_order *order = NULL;
    LATHE_TRY(lathe_bucket_orders_find(&s->orders, g, &order));
    for (int32_t k = 0; k < s->n; k++) {
        LATHE_TRY(run_up_to(s, exec, &begin, order->last[k] + 1, accumulate));
        LATHE_TRY(complete(s, order->order[k]));
    }
    LATHE_TRY(run_up_to(s, exec, &begin, g->n_nodes, accumulate));
    LATHE_TRY(lathe_machine_settle(s->m)); /* what follows is waiting for others, not for nodes */
    const double since = lathe_now();
    LATHE_TRY(finish(s));
    s->wait_seconds += lathe_now() - since;
    if (s->n > 0)
        lathe_trace_since("ranks", "sum of gradients", s->begun[0]);
    return LATHE_OK;
}
