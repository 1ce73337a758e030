/* The executor: prepares kernels once, then runs nodes in order.
 *
 * Above 500 lines because all that reads or writes the arrays of a node's kernel and addresses is
 * here. */
#include "exec/program/exec.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "exec/program/activation_offload.h"
#include "exec/program/attention_node.h"
#include "exec/program/gather_uses.h"
#include "exec/program/node_kernel.h"
#include "exec/program/op_node.h"
#include "exec/program/quant_node.h"
#include "exec/program/replay.h"
#include "exec/program/value_address.h"
#include "exec/store/transfer.h"
#include "graph/ir/op_info.h"
#include "plug/answers.h"

/* Number of input sets that can be in flight at a time, if the device has its own memory. */
#define INPUT_SETS 4

/* A prepared node. */
typedef struct ready {
    lathe_kernel *kernel;             /* LATHE_RUNS_DEVICE */
    const lathe_instance *component;  /* attention backend */
    lathe_attention_problem *problem; /* attention */
    lathe_op_node *op;                /* LATHE_RUNS_OP */
    const void *in[LATHE_OP_MAX_IN];
    void *out[LATHE_OP_MAX_OUT];
    void *scratch;
} ready;

struct lathe_exec {
    lathe_machine *m;
    lathe_graph *g;
    lathe_plan *plan;
    ready *nodes;
    void **address;                   /* [n_values] */
    char *inputs;                     /* inputs, then constants */
    int64_t inputs_bytes, sent_bytes; /* without constants */
    char *staging; /* |input sets|outputs| if the device has its own memory; else NULL */
    int64_t staging_bytes;
    int64_t *staging_at; /* [n_values] offset: of an input in its set, of an output in `staging` */
    int32_t set;
    int64_t sent_at[INPUT_SETS]; /* m->n_syncs when the set was sent; -1: never */
    lathe_replays replays;
    lathe_value_offload offload;
    const lathe_store *store;  /* of gathered parameters; NULL: none are */
    lathe_gather_uses gathers; /* of its divided values */
    char *own_window;          /* NULL: the store's window is large enough */
    int64_t *scratch_bytes;
    double seconds[3]; /* by phase */
    double *profile;   /* [n_nodes] seconds; NULL: no profile */
    lathe_node_fn watch;
};

double lathe_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static lathe_status prepare_device(lathe_exec *x, int32_t i)
{
    return lathe_node_kernel(x->m, x->g, &x->g->nodes[i], &x->nodes[i].kernel,
                             &x->scratch_bytes[i]);
}

static lathe_status prepare_attention(lathe_exec *x, int32_t i)
{
    ready *r = &x->nodes[i];
    r->problem = calloc(1, sizeof *r->problem);
    if (!r->problem)
        return lathe_error(LATHE_E_NOMEM, "no memory for an attention problem");
    lathe__attention_problem(x->g, &x->g->nodes[i], x->m, r->problem);
    int64_t best = 0;
    LATHE_TRY(lathe_select_attention(x->m->attention, x->m->n_attention, r->problem, &x->g->arena,
                                     &best, NULL));
    r->component = &x->m->attention[best];
    return lathe_answer_attention_scratch(
        r->component, r->problem, x->g->nodes[i].op != LATHE_OP_ATTENTION, &x->scratch_bytes[i]);
}

static lathe_status at_node(const lathe_exec *x, int32_t i, lathe_status status)
{
    const lathe_ir_node *n = &x->g->nodes[i];
    return status == LATHE_OK ? status
                              : lathe_error_context(status, "node %d, %s '%s'", i,
                                                    lathe_op_info_get(n->op)->name, n->label);
}

static int64_t room(const lathe_ir_value *v)
{
    return (lathe_desc_bytes(&v->desc) + LATHE_PLAN_ALIGN - 1) / LATHE_PLAN_ALIGN *
           LATHE_PLAN_ALIGN;
}

/* Lays out the inputs in each input set, and the outputs after the sets. */
static void lay_out_staging(lathe_exec *x)
{
    for (lathe_val v = 0; v < x->g->n_values; v++)
        if (x->g->values[v].kind == LATHE_VALUE_INPUT) {
            x->staging_at[v] = x->sent_bytes;
            x->sent_bytes += room(&x->g->values[v]);
        }
    x->staging_bytes = INPUT_SETS * x->sent_bytes;
    for (lathe_val v = 0; v < x->g->n_values; v++)
        if (x->g->values[v].kind != LATHE_VALUE_INPUT && x->g->values[v].is_output) {
            x->staging_at[v] = x->staging_bytes;
            x->staging_bytes += room(&x->g->values[v]);
        }
    x->staging_bytes = lathe_view_bytes(x->m, x->staging_bytes);
}

/* The parameter that DEQUANT node i decodes. */
static const lathe_param *weight_of(const lathe_exec *x, int32_t i)
{
    return x->g->params->rows[x->g->values[x->g->nodes[i].in[0]].param];
}

static lathe_status prepare(lathe_exec *x)
{
    for (int32_t i = 0; i < x->g->n_nodes; i++) {
        lathe_status status;
        switch (lathe_op_info_get(x->g->nodes[i].op)->runs_on) {
        case LATHE_RUNS_ATTENTION:
            status = prepare_attention(x, i);
            break;
        case LATHE_RUNS_QUANT:
            status = lathe__quant_prepare(x->m, weight_of(x, i),
                                          &x->g->values[x->g->nodes[i].out[0]].desc,
                                          &x->scratch_bytes[i]);
            break;
        case LATHE_RUNS_BESIDE:
            status = LATHE_OK;
            break;
        case LATHE_RUNS_OP:
            status = lathe_op_node_prepare(x->m, x->g, &x->g->nodes[i], &x->g->arena,
                                           &x->nodes[i].op, &x->scratch_bytes[i]);
            break;
        default:
            status = prepare_device(x, i);
        }
        LATHE_TRY(at_node(x, i, status));
    }
    LATHE_TRY(lathe_plan_create(x->g, x->scratch_bytes, &x->plan));
    x->inputs_bytes = x->plan->input_bytes;
    lay_out_staging(x);
    return LATHE_OK;
}

lathe_status lathe_exec_create(lathe_machine *m, lathe_graph *g, lathe_exec **out)
{
    lathe_exec *x = calloc(1, sizeof *x);
    lathe_status status = LATHE_E_NOMEM;
    if (x) {
        x->m = m;
        x->g = g;
        x->nodes = calloc((size_t)g->n_nodes + 1, sizeof *x->nodes);
        x->scratch_bytes = calloc((size_t)g->n_nodes + 1, sizeof *x->scratch_bytes);
        x->address = calloc((size_t)g->n_values + 1, sizeof *x->address);
        x->staging_at = calloc((size_t)g->n_values + 1, sizeof *x->staging_at);
        x->replays.m = m;
        memset(x->sent_at, 0xff, sizeof x->sent_at);
    }
    if (x && x->nodes && x->scratch_bytes && x->address && x->staging_at)
        status = prepare(x);
    else
        (void)lathe_error(LATHE_E_NOMEM, "no memory for an executable of %d nodes", g->n_nodes);
    if (status != LATHE_OK) {
        if (x)
            lathe_exec_destroy(x);
        else
            lathe_graph_destroy(g);
        return status;
    }
    *out = x;
    return LATHE_OK;
}

void lathe_exec_destroy(lathe_exec *x)
{
    if (!x)
        return;
    lathe_value_offload_fini(&x->offload);
    lathe_machine_free(x->m, LATHE_MEM_PARAMETERS, x->gathers.bytes, x->own_window);
    lathe_gather_uses_fini(&x->gathers);
    lathe_replays_fini(&x->replays);
    for (int32_t i = 0; x->nodes && i < x->g->n_nodes; i++) {
        if (x->nodes[i].kernel)
            x->m->dev->kernel_destroy(x->m->device->self, x->nodes[i].kernel);
        free(x->nodes[i].problem);
    }
    lathe_machine_free(x->m, LATHE_MEM_ACTIVATIONS, x->inputs_bytes, x->inputs);
    lathe_machine_free(x->m, LATHE_MEM_STAGING, x->staging_bytes, x->staging);
    lathe_plan_destroy(x->plan);
    lathe_graph_destroy(x->g);
    free(x->nodes);
    free(x->scratch_bytes);
    free(x->address);
    free(x->staging_at);
    free(x->profile);
    free(x);
}

const lathe_graph *lathe_exec_graph(const lathe_exec *x)
{
    return x->g;
}

const lathe_plan *lathe_exec_plan(const lathe_exec *x)
{
    return x->plan;
}

lathe_status lathe_exec_divide(lathe_exec *x, const lathe_store *store, int32_t border)
{
    return lathe_gather_uses_init(&x->gathers, store, x->g, border);
}

int64_t lathe_exec_window_bytes(const lathe_exec *x)
{
    return x->gathers.bytes;
}

/* The window of divided values: the store's, or one for a program that is not in the plan. */
static lathe_status place_window(lathe_exec *x, const lathe_store *store)
{
    void *memory = NULL;
    if (x->gathers.n_events == 0)
        return LATHE_OK;
    x->store = store;
    x->gathers.window = store->gathered;
    if (x->gathers.bytes <= store->gathered_bytes)
        return LATHE_OK;
    LATHE_TRY(lathe_machine_alloc(x->m, LATHE_MEM_PARAMETERS, x->gathers.bytes, &memory));
    x->gathers.window = x->own_window = memory;
    return LATHE_OK;
}

/* Address of a planned value; all values that share memory with `root` have the same. */
static void *planned_address(const lathe_exec *x, lathe_val root, char *arena)
{
    const int64_t at = x->plan->offset[root];
    return at < 0 ? NULL : (x->g->values[root].on_host ? x->offload.host : arena) + at;
}

/* Sets the pointers of every node from the addresses of the values. */
static void wire(lathe_exec *x, char *arena)
{
    for (int32_t i = 0; i < x->g->n_nodes; i++) {
        const lathe_ir_node *n = &x->g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            x->nodes[i].in[k] = n->in[k] == LATHE_NONE ? NULL : x->address[n->in[k]];
        for (int32_t k = 0; k < n->n_out; k++)
            x->nodes[i].out[k] = n->out[k] == LATHE_NONE ? NULL : x->address[n->out[k]];
        x->nodes[i].scratch = x->scratch_bytes[i] ? arena + x->plan->scratch_offset[i] : NULL;
    }
}

/* A product reads the addresses of the planes from an array, whose address is that of the value. */
static lathe_status place_planes(lathe_exec *x, const lathe_store *store, lathe_val v)
{
    const void **planes =
        lathe_arena_alloc(&x->g->arena, LATHE_MAX_PLANES * (int64_t)sizeof *planes);
    if (!planes)
        return LATHE_E_NOMEM;
    x->address[v] = planes;
    return lathe__planes_address(&x->gathers, store, &x->g->values[v], planes);
}

lathe_status lathe_exec_place(lathe_exec *x, const lathe_store *store, void *arena)
{
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(x->m, LATHE_MEM_ACTIVATIONS, x->inputs_bytes, &memory));
    x->inputs = memory;
    LATHE_TRY(lathe_machine_alloc(x->m, LATHE_MEM_STAGING, x->staging_bytes, &memory));
    x->staging = memory;
    LATHE_TRY(lathe_value_offload_place(&x->offload, x->m, x->g, x->plan->host_bytes));
    LATHE_TRY(place_window(x, store));
    int64_t at = x->sent_bytes;
    for (lathe_val v = 0; v < x->g->n_values; v++) {
        const lathe_ir_value *value = &x->g->values[v];
        if (value->kind == LATHE_VALUE_INPUT) {
            x->address[v] = x->inputs + x->staging_at[v];
        } else if (value->kind == LATHE_VALUE_CONST) {
            x->address[v] = x->inputs + at;
            at += room(value);
            LATHE_TRY(
                lathe_upload(x->m, x->address[v], value->data, lathe_desc_bytes(&value->desc)));
        } else if (value->kind == LATHE_VALUE_PLANES) {
            LATHE_TRY(place_planes(x, store, v));
        } else if (value->kind != LATHE_VALUE_TEMP && value->kind != LATHE_VALUE_STATE) {
            LATHE_TRY(lathe__value_address(&x->gathers, store, value, &x->address[v]));
        }
    }
    for (lathe_val v = 0; v < x->g->n_values; v++) {
        if (x->g->values[v].kind != LATHE_VALUE_TEMP)
            continue;
        const lathe_val root = lathe_graph_root(x->g, v);
        x->address[v] = x->g->values[root].kind != LATHE_VALUE_TEMP
                            ? x->address[root]
                            : planned_address(x, root, arena);
    }
    wire(x, arena);
    return LATHE_OK;
}

void lathe_exec_bind(lathe_exec *x, lathe_val state, void *memory)
{
    for (lathe_val v = 0; v < x->g->n_values; v++)
        if (lathe_graph_root(x->g, v) == state)
            x->address[v] = memory;
    for (int32_t i = 0; i < x->g->n_nodes; i++) {
        const lathe_ir_node *n = &x->g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE && lathe_graph_root(x->g, n->in[k]) == state)
                x->nodes[i].in[k] = memory;
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != LATHE_NONE && lathe_graph_root(x->g, n->out[k]) == state)
                x->nodes[i].out[k] = memory;
    }
}

void *lathe_exec_data(lathe_exec *x, lathe_val v)
{
    return x->address[v];
}

int64_t lathe_exec_staging_bytes(const lathe_exec *x)
{
    return x->staging_bytes;
}

void *lathe_exec_input(lathe_exec *x, lathe_val v)
{
    return x->staging ? x->staging + x->set * x->sent_bytes + x->staging_at[v] : x->address[v];
}

lathe_status lathe_exec_next_inputs(lathe_exec *x)
{
    if (!x->staging)
        return LATHE_OK;
    x->set = (x->set + 1) % INPUT_SETS;
    return x->sent_at[x->set] == x->m->n_syncs ? lathe_machine_sync(x->m) : LATHE_OK;
}

lathe_status lathe_exec_send(lathe_exec *x)
{
    if (!x->staging || x->sent_bytes == 0)
        return LATHE_OK;
    x->sent_at[x->set] = x->m->n_syncs;
    return x->m->dev->copy(x->m->device->self, x->m->stream, x->inputs,
                           x->staging + x->set * x->sent_bytes, x->sent_bytes,
                           LATHE_COPY_TO_DEVICE);
}

lathe_status lathe_exec_fetch_later(lathe_exec *x, lathe_val output, void *to)
{
    const int64_t bytes = lathe_desc_bytes(&x->g->values[output].desc);
    if (x->staging)
        return x->m->dev->copy(x->m->device->self, x->m->stream, to, x->address[output], bytes,
                               LATHE_COPY_TO_HOST);
    memcpy(to, x->address[output], (size_t)bytes);
    return LATHE_OK;
}

lathe_status lathe_exec_fetch(lathe_exec *x, lathe_val output, const void **out)
{
    *out = x->address[output];
    if (!x->staging)
        return LATHE_OK;
    void *to = x->staging + x->staging_at[output];
    LATHE_TRY(lathe_exec_fetch_later(x, output, to));
    *out = to;
    return lathe_machine_sync(x->m);
}

lathe_status lathe_exec_fetch_rows(lathe_exec *x, lathe_val output, int64_t n_rows,
                                   int64_t row_bytes, int64_t kept_bytes, const void **out)
{
    LATHE_TRY(lathe_exec_fetch(x, output, out));
    char *rows = x->staging ? x->staging + x->staging_at[output] : x->address[output];
    /* A row moves towards the begin, so that no row is overwritten before it has moved. */
    for (int64_t r = 1; kept_bytes < row_bytes && r < n_rows; r++)
        memmove(rows + r * kept_bytes, rows + r * row_bytes, (size_t)kept_bytes);
    return LATHE_OK;
}

static lathe_status run_node(lathe_exec *x, int32_t i, int32_t accumulate)
{
    const lathe_ir_node *n = &x->g->nodes[i];
    ready *r = &x->nodes[i];
    uint32_t add = lathe__write_mask(n, LATHE_WRITE_ADD);
    if (accumulate)
        add |= lathe__write_mask(n, LATHE_WRITE_RUNTIME);
    switch (lathe_op_info_get(n->op)->runs_on) {
    case LATHE_RUNS_ATTENTION:
        return lathe__attention_run(n, r->component, r->problem, r->in, r->out, r->scratch, add,
                                    x->m->stream);
    case LATHE_RUNS_QUANT:
        return lathe__quant_run(x->m, weight_of(x, i), &x->g->values[n->out[0]].desc, r->in,
                                r->out[0], r->scratch);
    case LATHE_RUNS_BESIDE:
        return lathe_value_offload_run(&x->offload, n, r->in[0], r->out[0]);
    default: {
        const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                        .accumulate = add,
                                        .in = r->in,
                                        .out = r->out,
                                        .scratch = r->scratch,
                                        .stream = x->m->stream};
        if (r->op != NULL)
            return lathe_op_node_run(x->m, r->op, &args);
        return x->m->dev->kernel_run(x->m->device->self, r->kernel, &args);
    }
    }
}

lathe_status lathe_exec_run(lathe_exec *x, int32_t accumulate)
{
    return lathe_exec_run_range(x, 0, x->g->n_nodes, accumulate);
}

/* lathe_range_run_fn */
static lathe_status run_nodes(void *arg, int32_t begin, int32_t end, int32_t accumulate)
{
    lathe_exec *x = arg;
    double since = lathe_now();
    int32_t phase = LATHE_PHASE_FORWARD;
    const int looks = x->profile || x->watch;
    int32_t next = lathe_gather_uses_first(&x->gathers, begin);
    for (int32_t i = begin; i < end; i++) {
        if (x->g->nodes[i].phase != phase) {
            const double now = lathe_now();
            x->seconds[phase] += now - since;
            since = now;
            phase = x->g->nodes[i].phase;
        }
        const double begun = looks ? lathe_now() : 0.0;
        if (x->gathers.n_events > 0)
            LATHE_TRY(at_node(x, i, lathe_gather_uses_before(&x->gathers, x->store, i, &next)));
        LATHE_TRY(at_node(x, i, run_node(x, i, accumulate)));
        if (looks) /* measure the node's run, not its queueing */
            LATHE_TRY(at_node(x, i, lathe_machine_settle(x->m)));
        if (x->profile)
            x->profile[i] += lathe_now() - begun;
        if (x->watch)
            x->watch(x->g, i, begun, lathe_now());
    }
    x->seconds[phase] += lathe_now() - since;
    return LATHE_OK;
}

/* Whether the forward or the backward begins or ends before node i. */
static int is_border(const lathe_exec *x, int32_t i)
{
    const lathe_ir_node *nodes = x->g->nodes;
    return i == 0 || i == x->g->n_nodes ||
           (nodes[i - 1].phase == LATHE_PHASE_FORWARD) != (nodes[i].phase == LATHE_PHASE_FORWARD);
}

/* Activations are moved on streams of their own, which a capture must wait for before it ends: the
 * graph does that at the ends of forward and backward. */
lathe_status lathe_exec_run_range(lathe_exec *x, int32_t begin, int32_t end, int32_t accumulate)
{
    const int cannot = x->offload.host_bytes > 0 &&
                       (!x->m->info.capture_events || !is_border(x, begin) || !is_border(x, end));
    lathe_value_offload_count(&x->offload, begin, end);
    if (x->profile || x->watch || cannot || x->gathers.n_events > 0)
        return run_nodes(x, begin, end, accumulate);
    return lathe_replays_run(&x->replays, begin, end, accumulate, run_nodes, x);
}

int64_t lathe_exec_take_moved(lathe_exec *x)
{
    const int64_t moved = x->offload.host_bytes > 0 ? x->offload.moved : -1;
    x->offload.moved = 0;
    return moved;
}

void lathe_exec_times(const lathe_exec *x, double out_seconds[3])
{
    memcpy(out_seconds, x->seconds, sizeof x->seconds);
}

void lathe_exec_times_reset(lathe_exec *x)
{
    memset(x->seconds, 0, sizeof x->seconds);
}

void lathe_exec_times_put(lathe_exec *x, const double seconds[3])
{
    memcpy(x->seconds, seconds, sizeof x->seconds);
}

lathe_status lathe_exec_profile(lathe_exec *x)
{
    if (!x->profile)
        x->profile = calloc((size_t)x->g->n_nodes + 1, sizeof *x->profile);
    return x->profile ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a profile");
}

void lathe_exec_watch(lathe_exec *x, lathe_node_fn fn)
{
    x->watch = fn;
}

double *lathe_exec_profile_seconds(lathe_exec *x)
{
    return x->profile;
}

const char *lathe_exec_attention(const lathe_exec *x)
{
    for (int32_t i = 0; i < x->g->n_nodes; i++)
        if (x->g->nodes[i].op == LATHE_OP_ATTENTION)
            return x->nodes[i].component->component->plugin->name;
    return NULL;
}
