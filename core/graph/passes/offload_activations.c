/* Moves activations to host memory between the forward and the backward.
 *
 *   forward   |layer 0 |layer 1 |layer 2 |..        |layer 2 |layer 1 |layer 0 |   backward
 *   copies       |copy_out 0||copy_out 1 ..            |copy_in 1 ||copy_in 0
 *                            ^ wait_out 0                         ^ wait_in 1
 *
 * A value is in device memory from the node that computes it to its wait_out, and again from
 * copy_in to its last use. The memory plan treats these as two values with short lifetimes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_info.h"
#include "graph/passes/passes.h"

/* Values smaller than 1/SMALL of the largest moved value stay on the device: statistics of norms
 * and of attention, sums of rows. */
enum { SMALL = 32 };

/* A moved value and the positions of its four nodes: each is inserted before the node with this
 * index in the old order. */
typedef struct trip {
    lathe_val v;
    lathe_val on_host, settled, coming, back; /* h, h', w, w' of op_info.h */
    int32_t copy_out, wait_out, copy_in, wait_in;
} trip;

typedef struct offload {
    lathe_graph *g;
    int32_t forward_end;
    /* [n_nodes] number of the run of nodes of one layer, from 0; forward and backward share the
     * head's */
    int32_t *layer_of;
    int32_t *begin; /* [n_layers + 1] first node of each run */
    int32_t n_layers;
    int32_t *first_use;  /* [n_values] first use after forward_end; -1: none */
    char *stays;         /* [n_values] a node after forward_end reuses its memory */
    lathe_val *replaced; /* [n_values] value that nodes after forward_end read instead */
    trip *trips;
    int32_t n_trips;
    lathe_ir_node *old;
    int32_t n_old, n_values;
} offload;

static void count_layers(offload *o)
{
    for (int32_t i = 0; i < o->n_old; i++) {
        if (i == 0 || o->old[i].layer != o->old[i - 1].layer)
            o->begin[o->n_layers++] = i;
        o->layer_of[i] = o->n_layers - 1;
    }
    o->begin[o->n_layers] = o->n_old;
}

static void find_uses(offload *o)
{
    for (lathe_val v = 0; v < o->n_values; v++) {
        const lathe_ir_value *value = &o->g->values[v];
        o->first_use[v] = -1;
        o->replaced[v] = LATHE_NONE;
        if (value->share != LATHE_NONE && value->node >= o->forward_end)
            o->stays[value->share] = 1;
    }
    for (int32_t i = o->n_old - 1; i >= o->forward_end; i--) {
        const lathe_ir_node *n = &o->old[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE)
                o->first_use[n->in[k]] = i;
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->acc[k] != LATHE_NONE)
                o->stays[n->acc[k]] = 1;
    }
}

/* Decides whether v is moved, and where its four nodes are inserted. Values of the layers next to
 * the head are not moved, because they are needed soon. */
static int plan_trip(const offload *o, lathe_val v, trip *out)
{
    const lathe_ir_value *value = &o->g->values[v];
    const int32_t made = value->node, use = o->first_use[v];
    if (value->kind != LATHE_VALUE_TEMP || lathe_graph_is_persistent(o->g, v) || value->is_output ||
        o->stays[v] || made < 0 || made >= o->forward_end || use < 0)
        return 0;
    const int32_t from = o->layer_of[made], to = o->layer_of[use];
    if (to < from + 3) /* copy_in would be before wait_out */
        return 0;
    *out = (trip){.v = v,
                  .copy_out = made + 1,
                  .wait_out = o->begin[from + 2],
                  .copy_in = o->begin[to - 1],
                  .wait_in = use};
    return out->wait_out < o->forward_end && out->copy_in >= o->forward_end;
}

static int in_order(const void *a, const void *b)
{
    const trip *x = a, *y = b;
    if (x->copy_out != y->copy_out)
        return x->copy_out < y->copy_out ? -1 : 1;
    return x->v < y->v ? -1 : x->v > y->v;
}

static void choose(offload *o)
{
    int64_t most = 0;
    int32_t n = 0;
    for (lathe_val v = 0; v < o->n_values; v++)
        if (plan_trip(o, v, &o->trips[o->n_trips])) {
            const int64_t bytes = lathe_desc_bytes(&o->g->values[v].desc);
            most = bytes > most ? bytes : most;
            o->n_trips++;
        }
    for (int32_t i = 0; i < o->n_trips; i++)
        if (lathe_desc_bytes(&o->g->values[o->trips[i].v].desc) * SMALL >= most)
            o->trips[n++] = o->trips[i];
    o->n_trips = n;
    qsort(o->trips, (size_t)n, sizeof *o->trips, in_order);
}

/* ---- the new order ---- */

static lathe_status append(offload *o, const lathe_ir_node *node)
{
    lathe_ir_node *n = lathe__graph_append(o->g);
    if (!n)
        return LATHE_E_NOMEM;
    *n = *node;
    for (int32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != LATHE_NONE && o->g->values[n->out[k]].kind == LATHE_VALUE_TEMP)
            o->g->values[n->out[k]].node = o->g->n_nodes - 1;
    return LATHE_OK;
}

/* Creates a node of op over (a, b) at its position; *out reuses the memory of `share`, or has new
 * memory. */
static lathe_status add(offload *o, int32_t op, int32_t before, lathe_val a, lathe_val b,
                        lathe_val share, lathe_val *out)
{
    lathe_graph *g = o->g;
    const lathe_op_info info = *lathe_op_info_get(op);
    const lathe_ir_node *at = &o->old[before < o->n_old ? before : o->n_old - 1];
    lathe_ir_value value = g->values[a];
    value.share = share;
    value.on_host = op == LATHE_OP_COPY_OUT || op == LATHE_OP_WAIT_OUT;
    value.param = -1;
    value.detached = value.needs_grad = 0;
    *out = lathe__graph_value(g, &value);
    lathe_ir_node *n = *out == LATHE_NONE ? NULL : lathe__graph_append(g);
    if (!n)
        return LATHE_E_NOMEM;
    n->op = op;
    n->n_in = info.n_in;
    n->n_out = info.n_out;
    n->in[0] = a;
    n->in[1] = b;
    n->out[0] = *out;
    n->layer = at->layer;
    n->phase = value.on_host ? LATHE_PHASE_FORWARD : LATHE_PHASE_BACKWARD;
    n->label = g->values[a].name;
    g->values[*out].node = g->n_nodes - 1;
    return LATHE_OK;
}

/* Adds the nodes that go before node i: first wait_out, which frees memory, then the copies, and
 * wait_in last. */
static lathe_status add_before(offload *o, int32_t i)
{
    for (int32_t k = 0; k < o->n_trips; k++) {
        trip *t = &o->trips[k];
        if (t->wait_out == i)
            LATHE_TRY(add(o, LATHE_OP_WAIT_OUT, i, t->on_host, t->v, t->on_host, &t->settled));
    }
    for (int32_t k = 0; k < o->n_trips; k++) {
        trip *t = &o->trips[k];
        if (t->copy_out == i)
            LATHE_TRY(add(o, LATHE_OP_COPY_OUT, i - 1, t->v, LATHE_NONE, LATHE_NONE, &t->on_host));
    }
    const int begins = i >= o->forward_end && o->begin[o->layer_of[i]] == i;
    /* in the order of first use, a layer ahead */
    for (int32_t use = i; begins && use < o->n_old; use++) {
        if (o->layer_of[use] > o->layer_of[i] + 1)
            break;
        for (int32_t k = 0; k < o->n_trips; k++) {
            trip *t = &o->trips[k];
            if (t->copy_in == i && t->wait_in == use)
                LATHE_TRY(
                    add(o, LATHE_OP_COPY_IN, i, t->settled, LATHE_NONE, LATHE_NONE, &t->coming));
        }
    }
    for (int32_t k = 0; k < o->n_trips; k++) {
        trip *t = &o->trips[k];
        if (t->wait_in != i)
            continue;
        LATHE_TRY(add(o, LATHE_OP_WAIT_IN, i, t->coming, t->settled, t->coming, &t->back));
        o->replaced[t->v] = t->back;
    }
    return LATHE_OK;
}

static lathe_status rebuild(offload *o)
{
    for (int32_t i = 0; i < o->n_old; i++) {
        lathe_ir_node n = o->old[i];
        LATHE_TRY(add_before(o, i));
        for (int32_t k = 0; k < n.n_in && i >= o->forward_end; k++)
            if (n.in[k] != LATHE_NONE && o->replaced[n.in[k]] != LATHE_NONE)
                n.in[k] = o->replaced[n.in[k]];
        LATHE_TRY(append(o, &n));
    }
    return LATHE_OK;
}

lathe_status lathe_pass_offload(lathe_graph *g, int32_t forward_end, int32_t *out_n)
{
    offload o = {.g = g,
                 .forward_end = forward_end,
                 .old = g->nodes,
                 .n_old = g->n_nodes,
                 .n_values = g->n_values};
    const size_t n_nodes = (size_t)g->n_nodes + 2, n_values = (size_t)g->n_values + 1;
    *out_n = 0;
    if (forward_end <= 0 || forward_end >= g->n_nodes)
        return LATHE_OK;
    o.layer_of = malloc(n_nodes * sizeof *o.layer_of);
    o.begin = malloc(n_nodes * sizeof *o.begin);
    o.first_use = malloc(n_values * sizeof *o.first_use);
    o.stays = calloc(n_values, 1);
    o.replaced = malloc(n_values * sizeof *o.replaced);
    o.trips = calloc(n_values, sizeof *o.trips);
    lathe_status status = LATHE_OK;
    if (!o.layer_of || !o.begin || !o.first_use || !o.stays || !o.replaced || !o.trips) {
        status = lathe_error(LATHE_E_NOMEM, "no memory to move values to the host");
    } else {
        count_layers(&o);
        find_uses(&o);
        choose(&o);
        *out_n = o.n_trips;
    }
    if (status == LATHE_OK && o.n_trips > 0) {
        g->nodes = NULL;
        g->n_nodes = g->cap_nodes = 0;
        status = rebuild(&o);
        free(o.old);
    }
    free(o.layer_of);
    free(o.begin);
    free(o.first_use);
    free(o.stays);
    free(o.replaced);
    free(o.trips);
    return status;
}
