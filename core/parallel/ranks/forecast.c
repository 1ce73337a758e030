/* Adds up what the strategies exchange, and follows links and computation through a step. */
#include "parallel/ranks/forecast.h"

#include <math.h>
#include <string.h>

#include "lathe/kit/collective_kit.h"
#include "parallel/ranks/ranks.h"

/* Bytes per parameter of DiLoCo's exchange; int8 has one f32 scale per 256, int4 one per 64. */
static const double delta_bytes[] = {4.0, 2.0, 1.0 + 4.0 / 256.0, 0.5 + 4.0 / 64.0};

const char *lathe_forecast_name(int32_t strategy)
{
    static const char *const names[LATHE_N_FORECASTS] = {
        "ddp",         "zero1",       "zero2",       "zero3",      "hybrid",
        "diloco fp32", "diloco bf16", "diloco int8", "diloco int4"};
    return strategy >= 0 && strategy < LATHE_N_FORECASTS ? names[strategy] : "?";
}

int32_t lathe_forecast_is_built(int32_t strategy)
{
    return strategy >= LATHE_FORECAST_DDP && strategy < LATHE_N_FORECASTS;
}

int32_t lathe_forecast_overlaps(int32_t strategy)
{
    return strategy == LATHE_FORECAST_DDP || strategy == LATHE_FORECAST_ZERO1 ||
           (strategy >= LATHE_FORECAST_DILOCO && strategy < LATHE_N_FORECASTS);
}

/* A group that exchanges: ranks of each island, and islands. */
typedef struct ranks_group {
    const lathe_network *network;
    int32_t inside, islands;
} ranks_group;

/* A step that is followed: when the links are free, and what they were used for. */
typedef struct timeline {
    double link, busy; /* s */
    double sent, across;
} timeline;

/* Puts an exchange on the links, not before `ready`. */
static void exchange(timeline *t, const ranks_group *g, int32_t op, double bytes, double ready)
{
    const lathe_network_cost cost =
        lathe_network_exchange(g->network, op, g->inside, g->islands, bytes);
    t->link = fmax(t->link, ready) + cost.seconds;
    t->busy += cost.seconds;
    t->sent += cost.sent;
    t->across += cost.across;
}

static int64_t bucket_of(const lathe_forecast_run *run)
{
    return (run->bucket_bytes + 63) / 64 * 64;
}

/* The share of a backward's time after which a share of the gradients is complete. *io_at: 0 for
 * the first of several shares, each of which is at least the one before. */
static double ready_at(const lathe_forecast_run *run, double share, int32_t *io_at)
{
    if (run->n_ready == 0)
        return share;
    while (*io_at + 1 < run->n_ready && run->ready[*io_at].bytes < share - 1e-9)
        ++*io_at;
    return run->ready[*io_at].time;
}

/* Exchanges two ranges of bytes in buckets, which are ready in [begin, begin + length]. The last
 * bucket in memory, which is ready first, may be shorter. */
static void buckets(const lathe_forecast_run *run, timeline *t, const ranks_group *g, int32_t op,
                    const int64_t ranges[2], double begin, double length)
{
    const double total = (double)ranges[0] + (double)ranges[1];
    const int64_t bucket = bucket_of(run);
    double done = 0.0;
    int32_t at = 0;
    for (int k = 0; k < 2; k++)
        for (int64_t left = ranges[k]; left > 0;) {
            const int64_t bytes = left % bucket > 0 ? left % bucket : bucket;
            left -= bytes;
            done += (double)bytes;
            exchange(t, g, op, (double)bytes, begin + length * ready_at(run, done / total, &at));
        }
}

/* Times of a micro-batch. */
typedef struct micro {
    double all, backward;
} micro;

static micro micro_of(const lathe_forecast_run *run)
{
    const double all = run->seconds / run->n_micro;
    return (micro){all, all * run->backward};
}

/* Sums of gradients, in the last of `times` or in every backward; then all_gathers of what was
 * updated. */
static double data_parallel(const lathe_forecast_run *run, const ranks_group *g, int32_t op,
                            int32_t times, int32_t gathers, timeline *t)
{
    const int64_t grads[2] = {run->wide_grad_bytes, run->grad_bytes - run->wide_grad_bytes};
    const int64_t updated[2] = {run->trained_bytes, 0};
    const micro m = micro_of(run);
    for (int32_t i = run->n_micro - times; i < run->n_micro; i++)
        buckets(run, t, g, op, grads, (i + 1) * m.all - m.backward, m.backward);
    const double end = fmax(run->seconds, t->link);
    if (!gathers)
        return end;
    buckets(run, t, g, LATHE_ALL_GATHER, updated, end, 0.0);
    return fmax(end, t->link);
}

/* Blocks, each gathered while the one before it is computed: two of them are in memory. Returns
 * when the last is computed. */
static double blocks(const lathe_forecast_run *run, const ranks_group *g, double begin,
                     double seconds, int is_backward, timeline *t)
{
    const int32_t n = run->n_blocks;
    const double weights = (double)run->read_bytes / n, grads = (double)run->grad_bytes / n;
    double before = begin, end = begin, ready;
    exchange(t, g, LATHE_ALL_GATHER, weights, begin);
    ready = t->link;
    for (int32_t i = 0; i < n; i++) {
        const double here = ready;
        if (i + 1 < n)
            exchange(t, g, LATHE_ALL_GATHER, weights, before);
        ready = t->link;
        before = end;
        end = fmax(end, here) + seconds / n;
        if (is_backward)
            exchange(t, g, LATHE_REDUCE_SCATTER, grads, end);
    }
    return end;
}

/* zero3 in the group `in`, and sums among its copies in `across` (NULL: there is one). */
static double sharded(const lathe_forecast_run *run, const ranks_group *in,
                      const ranks_group *across, timeline *t)
{
    const micro m = micro_of(run);
    double end = 0.0;
    for (int32_t i = 0; i < run->n_micro; i++) {
        end = blocks(run, in, end, m.all - m.backward, 0, t);
        end = blocks(run, in, end, m.backward, 1, t);
    }
    if (across) {
        const int32_t s = in->inside * in->islands;
        const int64_t grads[2] = {run->wide_grad_bytes / s,
                                  (run->grad_bytes - run->wide_grad_bytes) / s};
        buckets(run, t, across, LATHE_ALL_REDUCE, grads, end, 0.0);
    }
    return fmax(end, t->link);
}

/* Adds the message in which the ranks of a group agree, after the step ended at `end`. */
static void finish(const lathe_forecast_run *run, const ranks_group *g, const timeline *t,
                   double end, lathe_forecast *out)
{
    const double bytes =
        (double)g->inside * g->islands * LATHE_RANK_NUMBERS * (double)sizeof(double);
    const double agree =
        lathe_network_exchange(g->network, LATHE_ALL_GATHER, g->inside, g->islands, bytes).seconds;
    out->sent = t->sent;
    out->across = t->across;
    out->exchange = t->busy + agree;
    out->in_order = run->seconds + out->exchange;
    out->overlapped = end + agree;
}

/* DiLoCo: ddp in each island, and the exchange across islands divided by H. */
static void diloco(const lathe_forecast_run *run, const lathe_forecast_setup *setup, int32_t index,
                   lathe_forecast *out)
{
    const lathe_network *net = &setup->network;
    const int32_t inside = lathe_network_inside(net), h = setup->inner_steps;
    const int has_islands = net->n_islands > 1;
    const ranks_group island = {net, has_islands ? inside : 1, 1};
    const ranks_group others = {net, has_islands ? 1 : inside, net->n_islands};
    const double bytes = delta_bytes[index] * (double)run->n_trained;
    timeline t = {0}, outer = {0};
    const double end = data_parallel(run, &island, LATHE_ALL_REDUCE, 1, 0, &t);
    finish(run, &island, &t, end, out);
    /* each rank of an island exchanges its share, and gathers the weights of the island's others */
    const int32_t ranks = has_islands ? inside : 1;
    const double share = bytes / ranks;
    const double piece = (double)bucket_of(run) * delta_bytes[index] / 4.0;
    const int64_t n_pieces = (int64_t)ceil(share / piece);
    for (int64_t k = 0; k < n_pieces; k++)
        exchange(&outer, &others, LATHE_ALL_REDUCE, fmin(share - (double)k * piece, piece), 0.0);
    const int64_t weights[2] = {4 * run->n_trained, 0};
    if (ranks > 1)
        buckets(run, &outer, &island, LATHE_ALL_GATHER, weights, 0.0, 0.0);
    out->outer_seconds = outer.busy;
    out->outer_bytes = (index >= 2 ? 12 : 8) * run->n_trained / ranks;
    out->sent += outer.sent / h;
    out->across += outer.across / h;
    out->exchange += outer.busy / h;
    out->in_order += outer.busy / h;
    out->overlapped += outer.busy / h;
}

/* ---- memory ---- */

/* Takes out what other ranks of n hold of `bytes`. */
static void divide(lathe_mem_bytes *m, int32_t category, int64_t bytes, int32_t n)
{
    m->by[category] -= bytes - (bytes + n - 1) / n;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Scratch of the exchanges of gradients, on the rank that needs most. */
static int64_t scratch_of(const lathe_forecast_run *run, int32_t n_ranks)
{
    const int64_t ranges[2] = {run->wide_grad_bytes, run->grad_bytes - run->wide_grad_bytes};
    int64_t max = 0;
    for (int k = 0; k < 2; k++) {
        const int64_t width = k ? run->narrow_width : 4;
        const int64_t n = least(bucket_of(run), ranges[k]) / width;
        const int64_t bytes = lathe_exchange_scratch((n + n_ranks - 1) / n_ranks * width, n_ranks);
        max = bytes > max ? bytes : max;
    }
    return (max + 63) / 64 * 64;
}

static void memory(const lathe_forecast_run *run, const lathe_forecast_setup *setup,
                   int32_t strategy, lathe_mem_bytes *out)
{
    const int32_t n =
        strategy == LATHE_FORECAST_HYBRID ? setup->shard_ranks : setup->network.n_ranks;
    *out = run->planned;
    out->by[LATHE_MEM_STAGING] += scratch_of(run, setup->network.n_ranks);
    if (strategy == LATHE_FORECAST_DDP || strategy >= LATHE_FORECAST_DILOCO)
        return;
    divide(out, run->slot_category, run->slot_bytes, n);
    divide(out, LATHE_MEM_AVERAGE, run->average_bytes, n);
    if (strategy < LATHE_FORECAST_ZERO3)
        divide(out, LATHE_MEM_PARAMETERS, run->copied_bytes, n);
    if (strategy >= LATHE_FORECAST_ZERO2) { /* two buckets are on their way */
        divide(out, LATHE_MEM_GRADIENTS, run->grad_bytes, n);
        out->by[LATHE_MEM_STAGING] += least(2 * bucket_of(run), run->grad_bytes);
    }
    if (strategy >= LATHE_FORECAST_ZERO3) { /* two blocks are gathered */
        divide(out, LATHE_MEM_PARAMETERS, run->weight_bytes, n);
        divide(out, LATHE_MEM_QUANTIZED, run->plane_bytes, n);
        out->by[LATHE_MEM_STAGING] += least(2 * run->read_bytes / run->n_blocks, run->read_bytes);
    }
}

void lathe_forecast_make(const lathe_forecast_run *run, const lathe_forecast_setup *setup,
                         lathe_forecast *out)
{
    const lathe_network *net = &setup->network;
    const int32_t inside = lathe_network_inside(net), s = setup->shard_ranks;
    const ranks_group all = {net, inside, net->n_islands};
    memset(out, 0, LATHE_N_FORECASTS * sizeof *out);
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++) {
        timeline t = {0};
        double end = 0.0;
        if (i == LATHE_FORECAST_HYBRID && s == 0)
            continue;
        memory(run, setup, i, &out[i].memory);
        if (i >= LATHE_FORECAST_DILOCO) {
            diloco(run, setup, i - LATHE_FORECAST_DILOCO, &out[i]);
            continue;
        }
        if (i == LATHE_FORECAST_DDP)
            end = data_parallel(run, &all, LATHE_ALL_REDUCE, 1, 0, &t);
        else if (i == LATHE_FORECAST_ZERO1)
            end = data_parallel(run, &all, LATHE_REDUCE_SCATTER, 1, 1, &t);
        else if (i == LATHE_FORECAST_ZERO2)
            end = data_parallel(run, &all, LATHE_REDUCE_SCATTER, run->n_micro, 1, &t);
        else if (i == LATHE_FORECAST_ZERO3)
            end = sharded(run, &all, NULL, &t);
        else {
            const ranks_group shard = {net, s, 1}, copies = {net, inside / s, net->n_islands};
            end = sharded(run, &shard, &copies, &t);
        }
        finish(run, &all, &t, end, &out[i]);
    }
}
