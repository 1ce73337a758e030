/* Ops of plugins: their numbers, and the rules of the core in terms of the plugin's functions. */
#include "graph/ir/plugin_op.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/desc_text.h"
#include "graph/ir/tape.h"

static lathe_plugin_op *ops[LATHE_MOST_PLUGIN_OPS];
static int32_t n_ops;
static pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER;

/* Number of ops of plugins; an op is complete before it is counted. */
static int32_t count(void)
{
    return __atomic_load_n(&n_ops, __ATOMIC_ACQUIRE);
}

const lathe_plugin_op *lathe_plugin_op_get(int32_t op)
{
    const int32_t i = op < LATHE_N_CORE_OPS ? -1 : (op - LATHE_N_CORE_OPS) / 2;
    return i < 0 || i >= count() ? NULL : ops[i];
}

static int32_t is_backward(const lathe_plugin_op *op, int32_t number)
{
    return number != op->number;
}

const lathe_op_kernel *lathe_plugin_op_kernels(int32_t op, int32_t *out_n)
{
    const lathe_plugin_op *p = lathe_plugin_op_get(op);
    const lathe_op_backward *b = p->table->backward;
    *out_n = is_backward(p, op) ? b->n_kernels : p->table->n_kernels;
    return is_backward(p, op) ? b->kernels : p->table->kernels;
}

/* ---- rules of the op ---- */

static const lathe_op_v1 *table_of(const lathe_op_problem *p)
{
    return lathe_plugin_op_get(p->op)->table;
}

/* Adds the op, the node's label and the shapes to the plugin's message. */
static lathe_status misfit(const lathe_op_problem *p, lathe_status status)
{
    const lathe_plugin_op *op = lathe_plugin_op_get(p->op);
    char text[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < op->table->n_in && used < sizeof text; i++) {
        char one[64];
        const int absent = p->in[i].dtype == LATHE_ABSENT;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", i > 0 ? ", " : "",
                                 op->table->inputs[i].name,
                                 absent ? "-" : lathe_desc_text(&p->in[i], one, sizeof one));
    }
    if (lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "op %s '%s' refuses (%s) without a message",
                           op->plugin->name, p->label != NULL ? p->label : "", text);
    return lathe_error_context(status, "op %s '%s' of (%s)", op->plugin->name,
                               p->label != NULL ? p->label : "", text);
}

static lathe_status check_inputs(const lathe_op_problem *p)
{
    const lathe_op_v1 *t = table_of(p);
    for (int32_t i = 0; i < t->n_in; i++)
        if (p->in[i].dtype == LATHE_ABSENT && !(t->inputs[i].flags & LATHE_TENSOR_OPTIONAL))
            return misfit(p,
                          lathe_error(LATHE_E_SHAPE, "its input %s is absent", t->inputs[i].name));
    return LATHE_OK;
}

/* Whether a plugin's answer is a dtype and a shape. */
static int32_t is_desc(const lathe_desc *d, int32_t most_dims)
{
    int ok = d->dtype >= 0 && d->dtype < LATHE_N_DTYPES && d->rank >= 0 && d->rank <= most_dims;
    int64_t n = 1;
    for (int32_t i = 0; ok && i < d->rank; i++) {
        ok = d->dims[i] > 0 && d->dims[i] < INT64_C(1) << 46 && n < INT64_C(1) << 46;
        n = ok && n <= (INT64_C(1) << 46) / d->dims[i] ? n * d->dims[i] : INT64_C(1) << 46;
    }
    return ok && n < INT64_C(1) << 46;
}

static lathe_status check_output(const lathe_op_problem *p, int32_t k)
{
    const lathe_plugin_op *op = lathe_plugin_op_get(p->op);
    const lathe_desc *d = &p->out[k];
    return is_desc(d, LATHE_MAX_RANK)
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN,
                             "op %s: its shape() gives output %s rank %d, dtype %d and a first "
                             "dimension of %lld",
                             op->plugin->name, op->table->outputs[k].name, (int)d->rank,
                             (int)d->dtype, (long long)d->dims[0]);
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_op_v1 *t = table_of(p);
    LATHE_TRY(check_inputs(p));
    for (int32_t k = 0; k < LATHE_OP_MAX_OUT; k++)
        p->out[k] = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    lathe_error_clear();
    const lathe_status status = t->shape(p->self, p->in, p->out);
    if (status != LATHE_OK)
        return misfit(p, status);
    for (int32_t k = 0; k < t->n_out; k++) {
        if (k > 0 && p->out[k].dtype == LATHE_ABSENT)
            continue;
        LATHE_TRY(check_output(p, k));
        for (int32_t i = p->out[k].rank; i < LATHE_MAX_RANK; i++)
            p->out[k].dims[i] = 1;
    }
    if (p->n_in > t->n_in) /* with states */
        p->out[t->n_out] = p->in[t->n_in + 1];
    return LATHE_OK;
}

static lathe_status state(const lathe_op_problem *p, lathe_desc *out)
{
    const lathe_plugin_op *op = lathe_plugin_op_get(p->op);
    *out = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    lathe_error_clear();
    const lathe_status status = op->table->state->shape(p->self, p->in, out);
    if (status != LATHE_OK)
        return misfit(p, status);
    for (int32_t i = out->rank > 0 ? out->rank : 0; i < LATHE_MAX_RANK; i++)
        out->dims[i] = 1;
    return is_desc(out, LATHE_MAX_RANK - 1)
               ? LATHE_OK
               : lathe_error(LATHE_E_PLUGIN, "op %s: its state has rank %d and dtype %d",
                             op->plugin->name, (int)out->rank, (int)out->dtype);
}

static double flops(const lathe_op_problem *p)
{
    return table_of(p)->flops(p->self, p->in, p->out);
}

static double backward_flops(const lathe_op_problem *p)
{
    return table_of(p)->backward->flops(p->self, p->in, p->out);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const lathe_op_v1 *t = table_of(p);
    if (p->n_in > t->n_in) /* states, in the same memory */
        memcpy(out[t->n_out], in[t->n_in + 1], 8 * (size_t)lathe_desc_count(&p->out[t->n_out]));
    t->exact(p->self, p->in, p->out, (const double *const *)in, out);
}

static void backward_exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    table_of(p)->backward->exact(p->self, p->in, p->out, (const double *const *)in, out);
}

/* ---- the derivative ---- */

int32_t lathe_plugin_op_backward_inputs(const lathe_plugin_op *op, const lathe_val *in_of,
                                        const lathe_val *out_of, const lathe_val *dy, lathe_val *in)
{
    const lathe_op_v1 *t = op->table;
    int32_t n = 0;
    for (int32_t k = 0; k < t->n_out; k++)
        in[n++] = dy[k];
    for (int32_t i = 0; i < t->n_in; i++)
        in[n++] = t->backward->reads_in >> i & 1u ? in_of[i] : LATHE_NONE;
    for (int32_t k = 0; k < t->n_out; k++)
        in[n++] = t->backward->reads_out >> k & 1u ? out_of[k] : LATHE_NONE;
    return n;
}

static void emit_backward(lathe_tape *t, const lathe_ir_node *n, const lathe_plugin_op *op,
                          const lathe_val *dy)
{
    lathe_val in[LATHE_OP_MAX_IN], targets[LATHE_OP_MAX_OUT];
    const int32_t n_in = lathe_plugin_op_backward_inputs(op, n->in, n->out, dy, in);
    for (int32_t i = 0; i < op->table->n_in; i++)
        targets[i] = lathe__needs(t, n->in[i]) ? n->in[i] : LATHE_NONE;
    t->self = n->self;
    lathe__emit(t, op->number + 1, NULL, in, n_in, targets, 0, op->table->n_in, n->label);
}

/* Adds what derive() made to the gradient of input i. */
static lathe_status take_gradient(lathe_tape *t, const lathe_ir_node *n, const lathe_plugin_op *op,
                                  int32_t i, lathe_val dx)
{
    const lathe_graph *g = t->g;
    const char *name = op->table->inputs[i].name;
    if (dx < 0 || dx >= g->n_values)
        return lathe_error(LATHE_E_PLUGIN,
                           "op %s: its derivative of %s is value %d, which does not exist",
                           op->plugin->name, name, (int)dx);
    const lathe_desc *have = &g->values[dx].desc, *want = &g->values[n->in[i]].desc;
    char a[80], b[80];
    if (have->rank != want->rank || memcmp(have->dims, want->dims, sizeof have->dims) != 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "op %s '%s': its derivative of %s has the shape %s, and %s has %s",
                           op->plugin->name, n->label, name, lathe_desc_text(have, a, sizeof a),
                           name, lathe_desc_text(want, b, sizeof b));
    lathe__add_to_grad(t, n->in[i], dx, n->label);
    return t->status;
}

static lathe_status derive_by_graph(lathe_tape *t, const lathe_ir_node *n,
                                    const lathe_plugin_op *op, const lathe_val *dy)
{
    lathe_val dx[LATHE_OP_MAX_IN];
    lathe_op_derivative d = {.size = (uint32_t)sizeof d,
                             .api = lathe_graph_api_get(),
                             .graph = t->g,
                             .in = n->in,
                             .out = n->out,
                             .dy = dy,
                             .label = n->label};
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        dx[i] = LATHE_NONE;
    for (int32_t i = 0; i < op->table->n_in; i++)
        d.wanted |= lathe__needs(t, n->in[i]) ? 1u << i : 0u;
    LATHE_TRY(op->table->derive(n->self, &d, dx));
    for (int32_t i = 0; i < op->table->n_in; i++)
        if (d.wanted >> i & 1u && dx[i] != LATHE_NONE)
            LATHE_TRY(take_gradient(t, n, op, i, dx[i]));
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy_of_first)
{
    const lathe_plugin_op *op = lathe_plugin_op_get(n->op);
    lathe_val dy[LATHE_OP_MAX_OUT];
    (void)dy_of_first;
    for (int32_t k = 0; k < op->table->n_out; k++) {
        dy[k] = n->out[k] != LATHE_NONE ? t->grad[n->out[k]] : LATHE_NONE;
        if (dy[k] != LATHE_NONE && op->table->outputs[k].flags & LATHE_TENSOR_FIXED) {
            t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                    "%s '%s' has no derivative for its output %s, which the loss "
                                    "reads",
                                    op->plugin->name, n->label, op->table->outputs[k].name);
            return;
        }
    }
    if (op->table->backward != NULL) {
        emit_backward(t, n, op, dy);
        return;
    }
    const lathe_status status = derive_by_graph(t, n, op, dy);
    if (t->status == LATHE_OK && status != LATHE_OK)
        t->status =
            lathe_error_context(status, "the derivative of op %s '%s'", op->plugin->name, n->label);
}

/* ---- numbers ---- */

static uint32_t inputs_with(const lathe_op_v1 *t, int32_t flag)
{
    uint32_t mask = 0;
    for (int32_t i = 0; i < t->n_in; i++)
        mask |= t->inputs[i].flags & flag ? 1u << i : 0u;
    return mask;
}

static void fill(lathe_plugin_op *op, const char *backward_name)
{
    const lathe_op_v1 *t = op->table;
    op->info = (lathe_op_info){.name = op->plugin->name,
                               .n_in = t->n_in,
                               .n_out = t->n_out,
                               .runs_on = LATHE_RUNS_OP,
                               .accumulates = (t->traits & LATHE_OP_ACCUMULATES) != 0,
                               .inplace = inputs_with(t, LATHE_TENSOR_IN_PLACE),
                               .reads_anywhere = ~inputs_with(t, LATHE_TENSOR_IN_PLACE),
                               .fixed_inputs = inputs_with(t, LATHE_TENSOR_FIXED),
                               .cheap = (t->traits & LATHE_OP_CHEAP) != 0,
                               .from_all_outputs = 1,
                               .infer = infer,
                               .state = LATHE_HAS(t, state) ? state : NULL,
                               .derive = t->derive != NULL || t->backward != NULL ? derive : NULL,
                               .flops = t->flops != NULL ? flops : NULL,
                               .exact = exact};
    if (t->backward == NULL)
        return;
    op->backward = (lathe_op_info){.name = backward_name,
                                   .n_in = t->n_in + 2 * t->n_out,
                                   .n_out = t->n_in,
                                   .runs_on = LATHE_RUNS_OP,
                                   .accumulates = t->backward->accumulates,
                                   .param_outputs = inputs_with(t, LATHE_TENSOR_PARAMETER),
                                   .in_grad_dtype = 1,
                                   .flops = t->backward->flops != NULL ? backward_flops : NULL,
                                   .exact = backward_exact};
}

/* Called with the lock. */
static lathe_status add(const lathe_plugin *plugin, const lathe_plugin_op **out)
{
    const size_t n_name = strlen(plugin->name);
    for (int32_t i = 0; i < n_ops; i++)
        if (ops[i]->plugin == plugin) {
            *out = ops[i];
            return LATHE_OK;
        }
    if (n_ops == LATHE_MOST_PLUGIN_OPS)
        return lathe_error(LATHE_E_NOMEM, "a process has at most %d ops of plugins",
                           LATHE_MOST_PLUGIN_OPS);
    lathe_plugin_op *op = calloc(1, sizeof *op + n_name + sizeof "_bwd");
    if (op == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for op %s", plugin->name);
    char *backward_name = (char *)(op + 1);
    memcpy(backward_name, plugin->name, n_name);
    memcpy(backward_name + n_name, "_bwd", sizeof "_bwd");
    op->plugin = plugin;
    op->table = plugin->table;
    op->number = LATHE_N_CORE_OPS + 2 * n_ops;
    fill(op, backward_name);
    ops[n_ops] = op;
    __atomic_store_n(&n_ops, n_ops + 1, __ATOMIC_RELEASE);
    *out = op;
    return LATHE_OK;
}

lathe_status lathe_plugin_op_add(const lathe_plugin *plugin, const lathe_plugin_op **out)
{
    *out = NULL;
    if (lathe_op_find(plugin->name) >= 0)
        return lathe_error(LATHE_E_PLUGIN,
                           "op %s has the name of an op of the core: give the plugin another",
                           plugin->name);
    pthread_mutex_lock(&ops_lock);
    const lathe_status status = add(plugin, out);
    pthread_mutex_unlock(&ops_lock);
    return status;
}
