/* Finds the lives of fresh gradients, and places them. */
#include "exec/store/fresh_grads.h"

#include <stdlib.h>

#include "base/error.h"

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "no memory for the places of the gradients");
}

/* ---- lives ---- */

/* Lives of the buckets of a store in a finished graph. out: [division->n_buckets] */
static lathe_status find_lives(const lathe_store *store, const lathe_graph *g, lathe_grad_life *out)
{
    const lathe_division *d = store->division;
    lathe_grad_life *rows = calloc((size_t)d->n_table + 1, sizeof *rows);
    if (!rows)
        return no_memory();
    lathe_grad_lives(g, d->n_table, rows);
    for (int32_t b = 0; b < d->n_buckets; b++) {
        int is_complete = 1;
        out[b] = (lathe_grad_life){g->n_nodes, -1};
        for (int32_t k = d->buckets[b].first; k < d->buckets[b].first + d->buckets[b].n; k++) {
            const lathe_grad_life *row = &rows[d->rows[k]];
            is_complete &= row->last >= 0;
            out[b].first = row->first < out[b].first ? row->first : out[b].first;
            out[b].last = row->last > out[b].last ? row->last : out[b].last;
        }
        if (!is_complete)
            out[b] = (lathe_grad_life){0, g->n_nodes - 1};
    }
    free(rows);
    return LATHE_OK;
}

/* ---- places ---- */

typedef struct placing {
    const lathe_grad_life *lives; /* [n_graphs, n] */
    int32_t n_graphs, n;
    int64_t *bytes, *at; /* [n]; at -1: not placed yet */
} placing;

static int live_together(const placing *p, int32_t a, int32_t b)
{
    for (int32_t g = 0; g < p->n_graphs; g++) {
        const lathe_grad_life *x = &p->lives[(int64_t)g * p->n + a];
        const lathe_grad_life *y = &p->lives[(int64_t)g * p->n + b];
        if (x->first <= y->last && y->first <= x->last)
            return 1;
    }
    return 0;
}

/* The lowest place that is free during the life of bucket b. */
static int64_t lowest(const placing *p, int32_t b)
{
    int64_t at = 0;
    for (int is_moved = 1; is_moved;) {
        is_moved = 0;
        for (int32_t k = 0; k < p->n; k++)
            if (p->at[k] >= 0 && p->at[k] < at + p->bytes[b] && at < p->at[k] + p->bytes[k] &&
                live_together(p, b, k)) {
                at = p->at[k] + p->bytes[k];
                is_moved = 1;
            }
    }
    return at;
}

/* Places the largest bucket first, as the plan of activations does. */
static int64_t place_all(placing *p)
{
    int64_t end = 0;
    for (int32_t turn = 0; turn < p->n; turn++) {
        int32_t most = -1;
        for (int32_t b = 0; b < p->n; b++)
            if (p->at[b] < 0 && (most < 0 || p->bytes[b] > p->bytes[most]))
                most = b;
        p->at[most] = lowest(p, most);
        end = p->at[most] + p->bytes[most] > end ? p->at[most] + p->bytes[most] : end;
    }
    return end;
}

/* Lets each bucket live until the next one is complete, the last one to the end of the graph. */
static void lengthen(const lathe_grad_life *lives, int32_t n, int32_t n_nodes, lathe_grad_life *out)
{
    for (int32_t b = 0; b < n; b++) {
        out[b] = (lathe_grad_life){lives[b].first, n_nodes - 1};
        for (int32_t k = 0; k < n; k++) {
            const int is_later =
                lives[k].last > lives[b].last || (lives[k].last == lives[b].last && k > b);
            if (is_later && lives[k].last < out[b].last)
                out[b].last = lives[k].last;
        }
    }
}

lathe_status lathe_fresh_grads_plan(lathe_store *store, const lathe_graph *const *graphs,
                                    int32_t n_graphs, int32_t lags, lathe_grad_life *lives)
{
    const lathe_division *d = store->division;
    placing p = {.lives = lives, .n_graphs = n_graphs, .n = d->n_buckets};
    lathe_grad_life *longer = calloc((size_t)n_graphs * (size_t)p.n + 1, sizeof *longer);
    p.bytes = calloc(2 * (size_t)p.n + 1, sizeof *p.bytes);
    lathe_status status = longer && p.bytes ? LATHE_OK : no_memory();
    for (int32_t g = 0; g < n_graphs && status == LATHE_OK; g++) {
        status = find_lives(store, graphs[g], lives + (int64_t)g * p.n);
        if (status == LATHE_OK)
            lengthen(lives + (int64_t)g * p.n, p.n, graphs[g]->n_nodes, longer + (int64_t)g * p.n);
    }
    if (status != LATHE_OK) {
        free(p.bytes);
        free(longer);
        return status;
    }
    p.lives = lags ? longer : lives;
    p.at = p.bytes + p.n;
    for (int32_t b = 0; b < p.n; b++) {
        const int64_t width = lathe_store_bucket_width(store, b);
        p.bytes[b] = lathe_padded(lathe_bucket_counts(d, b, width, NULL), width);
        p.at[b] = -1;
    }
    store->fresh_bytes = place_all(&p);
    for (int32_t b = 0; b < p.n; b++) {
        int64_t at = p.at[b];
        for (int32_t k = d->buckets[b].first; k < d->buckets[b].first + d->buckets[b].n; k++) {
            store->rows[d->rows[k]].fresh = at;
            at += lathe_padded(d->n[d->rows[k]], lathe_store_bucket_width(store, b));
        }
    }
    free(p.bytes);
    free(longer);
    return LATHE_OK;
}
