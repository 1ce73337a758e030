/* Finds the uses of divided values in a program, places them, and gathers them in time. */
#include "exec/program/gather_uses.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/gathered.h"
#include "exec/store/peers.h"

/* A range of nodes that reads a gather. start: the node before which it starts. before: the use of
 * the same gather before it; -1: none. */
typedef struct use {
    int32_t gather, start, first, last, before;
} use;

typedef struct finding {
    const lathe_store *store;
    const lathe_graph *g;
    int32_t border; /* nodes of the forward */
    use *list;      /* by `first` */
    int32_t n, capacity;
    int32_t *newest; /* [n gathers] the last use so far; -1: none */
} finding;

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "no memory for the gathers of a program");
}

/* ---- uses ---- */

/* The gathers that a value is in; returns their number. */
static int32_t gathers_of(const lathe_store *store, const lathe_graph *g, lathe_val v,
                          int32_t out[LATHE_MAX_PLANES])
{
    int32_t n = 0, first = 0, last = -1; /* tensors of the row: its values, then its planes */
    if (v == LATHE_NONE)
        return 0;
    const lathe_ir_value *root = &g->values[lathe_graph_root(g, v)];
    if (root->kind == LATHE_VALUE_PARAM)
        last = 0;
    else if (root->kind == LATHE_VALUE_PLANE)
        first = last = 1 + root->plane;
    else if (root->kind == LATHE_VALUE_PLANES)
        first = 1, last = g->params->rows[root->param]->n_planes;
    for (int32_t k = first; k <= last; k++)
        if (store->rows[root->param].gathered[k].gather >= 0)
            out[n++] = store->rows[root->param].gathered[k].gather;
    return n;
}

static int32_t is_forward(const finding *f, int32_t node)
{
    return node < f->border;
}

static int32_t reads_any(const finding *f, int32_t node)
{
    const lathe_ir_node *n = &f->g->nodes[node];
    int32_t gathers[LATHE_MAX_PLANES];
    for (int32_t k = 0; k < n->n_in; k++)
        if (gathers_of(f->store, f->g, n->in[k], gathers) > 0)
            return 1;
    return 0;
}

/* Whether a use that was last read at node `last` ends before node `next`. */
static int32_t ends_between(const finding *f, int32_t last, int32_t next)
{
    const lathe_ir_node *nodes = f->g->nodes;
    if (is_forward(f, last) != is_forward(f, next))
        return 1;
    for (int32_t i = last + 1; i < next; i++)
        if (nodes[i].layer != nodes[last].layer && nodes[i].layer != nodes[next].layer &&
            reads_any(f, i))
            return 1;
    return 0;
}

static lathe_status note(finding *f, int32_t gather, int32_t node)
{
    use *at = f->newest[gather] < 0 ? NULL : &f->list[f->newest[gather]];
    if (at && !ends_between(f, at->last, node)) {
        at->last = node;
        return LATHE_OK;
    }
    if (f->n == f->capacity) {
        const int32_t capacity = 2 * f->capacity + 64;
        use *grown = realloc(f->list, (size_t)capacity * sizeof *grown);
        if (!grown)
            return no_memory();
        f->list = grown;
        f->capacity = capacity;
    }
    f->list[f->n] = (use){gather, node, node, node, f->newest[gather]};
    f->newest[gather] = f->n++;
    return LATHE_OK;
}

/* A gather starts with the first read of another one before it, in the same pass, but not before
 * its use before has ended. */
static void find_starts(const finding *f)
{
    for (int32_t k = 1; k < f->n; k++) {
        use *x = &f->list[k];
        int32_t i = k - 1;
        while (i > 0 && f->list[i].first == x->first)
            i--;
        if (is_forward(f, f->list[i].first) != is_forward(f, x->first))
            continue;
        x->start = f->list[i].first;
        if (x->before >= 0 && x->start <= f->list[x->before].last)
            x->start = f->list[x->before].last + 1;
    }
}

static lathe_status find(finding *f)
{
    int32_t gathers[LATHE_MAX_PLANES];
    for (int32_t i = 0; i < f->g->n_nodes; i++)
        for (int32_t k = 0; k < f->g->nodes[i].n_in; k++) {
            const int32_t n = gathers_of(f->store, f->g, f->g->nodes[i].in[k], gathers);
            for (int32_t j = 0; j < n; j++)
                LATHE_TRY(note(f, gathers[j], i));
        }
    find_starts(f);
    return LATHE_OK;
}

/* ---- places ---- */

static int overlap(const finding *f, int32_t a, int32_t b)
{
    if (!f->list) /* no use was noted */
        return 0;
    for (int32_t i = f->newest[a]; i >= 0; i = f->list[i].before)
        for (int32_t k = f->newest[b]; k >= 0; k = f->list[k].before)
            if (f->list[i].start <= f->list[k].last && f->list[k].start <= f->list[i].last)
                return 1;
    return 0;
}

/* The lowest place where `gather` overlaps with none that is placed. others: room for them. */
static int64_t lowest(const finding *f, const lathe_gather_uses *u, int32_t gather, int32_t *others)
{
    const lathe_gathers *all = f->store->gathers;
    int32_t n = 0;
    int64_t at = 0;
    for (int32_t k = 0; k < all->n; k++)
        if (u->at[k] >= 0 && overlap(f, gather, k))
            others[n++] = k;
    for (int is_moved = 1; is_moved;) {
        is_moved = 0;
        for (int32_t i = 0; i < n; i++) {
            const int64_t begin = u->at[others[i]], end = begin + all->list[others[i]].bytes;
            if (begin < at + all->list[gather].bytes && at < end) {
                at = end;
                is_moved = 1;
            }
        }
    }
    return at;
}

/* Places the largest gather first, as the plan of activations does. */
static lathe_status place(const finding *f, lathe_gather_uses *u)
{
    const lathe_gathers *all = f->store->gathers;
    int32_t *others = calloc((size_t)all->n + 1, sizeof *others);
    if (!others)
        return no_memory();
    for (;;) {
        int32_t most = -1;
        for (int32_t k = 0; k < all->n; k++)
            if (f->newest[k] >= 0 && u->at[k] < 0 &&
                (most < 0 || all->list[k].bytes > all->list[most].bytes))
                most = k;
        if (most < 0)
            break;
        u->at[most] = lowest(f, u, most, others);
        const int64_t end = u->at[most] + all->list[most].bytes;
        u->bytes = end > u->bytes ? end : u->bytes;
    }
    free(others);
    return LATHE_OK;
}

/* ---- events ---- */

static int by_node(const void *a, const void *b)
{
    const lathe_gather_event *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->what != y->what)
        return x->what - y->what;
    return (x->gather > y->gather) - (x->gather < y->gather);
}

static lathe_status make_events(const finding *f, lathe_gather_uses *u)
{
    u->events = calloc(2 * (size_t)f->n + 1, sizeof *u->events);
    if (!u->events)
        return no_memory();
    for (int32_t k = 0; k < f->n; k++) {
        const use *x = &f->list[k];
        const int32_t is_ahead = x->start < x->first;
        if (is_ahead)
            u->events[u->n_events++] =
                (lathe_gather_event){x->start, x->gather, LATHE_GATHER_START};
        u->events[u->n_events++] = (lathe_gather_event){
            x->first, x->gather, is_ahead ? LATHE_GATHER_WAIT : LATHE_GATHER_AT_ONCE};
    }
    qsort(u->events, (size_t)u->n_events, sizeof *u->events, by_node);
    return LATHE_OK;
}

lathe_status lathe_gather_uses_init(lathe_gather_uses *u, const lathe_store *store,
                                    const lathe_graph *g, int32_t border)
{
    finding f = {.store = store, .g = g, .border = border};
    *u = (lathe_gather_uses){.at = NULL};
    if (!store->gathers)
        return LATHE_OK;
    const size_t n = (size_t)store->gathers->n;
    f.newest = malloc((n + 1) * sizeof *f.newest);
    u->at = malloc((n + 1) * sizeof *u->at);
    lathe_status status = f.newest && u->at ? LATHE_OK : no_memory();
    if (status == LATHE_OK) {
        memset(f.newest, 0xff, n * sizeof *f.newest);
        memset(u->at, 0xff, n * sizeof *u->at);
        status = find(&f);
    }
    if (status == LATHE_OK)
        status = place(&f, u);
    if (status == LATHE_OK)
        status = make_events(&f, u);
    free(f.newest);
    free(f.list);
    if (status != LATHE_OK)
        lathe_gather_uses_fini(u);
    return status;
}

void lathe_gather_uses_fini(lathe_gather_uses *u)
{
    free(u->at);
    free(u->events);
    memset(u, 0, sizeof *u);
}

/* ---- running ---- */

void *lathe_gather_uses_address(const lathe_gather_uses *u, const lathe_store *store, int32_t param,
                                int32_t plane)
{
    const lathe_gathered *in = &store->rows[param].gathered[1 + plane];
    return u->at && in->gather >= 0 && u->at[in->gather] >= 0
               ? u->window + u->at[in->gather] + in->at
               : NULL;
}

int32_t lathe_gather_uses_first(const lathe_gather_uses *u, int32_t node)
{
    int32_t low = 0, high = u->n_events;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (u->events[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

lathe_status lathe_gather_uses_before(lathe_gather_uses *u, const lathe_store *store, int32_t node,
                                      int32_t *io_next)
{
    const lathe_peers *peers = store->peers;
    const int32_t has_event = *io_next < u->n_events && u->events[*io_next].node == node;
    if (!has_event)
        return u->n_started > 0 ? peers->gather_poll(peers->arg) : LATHE_OK;
    for (; *io_next < u->n_events && u->events[*io_next].node == node; (*io_next)++) {
        const lathe_gather_event *e = &u->events[*io_next];
        void *to = u->window + u->at[e->gather];
        switch (e->what) {
        case LATHE_GATHER_WAIT:
            LATHE_TRY(peers->gather_wait(peers->arg, e->gather));
            u->n_started--;
            break;
        case LATHE_GATHER_AT_ONCE:
            LATHE_TRY(lathe_gather_run(store, e->gather, to));
            break;
        default:
            LATHE_TRY(peers->gather_start(peers->arg, e->gather, to));
            u->n_started++;
        }
    }
    return LATHE_OK;
}
