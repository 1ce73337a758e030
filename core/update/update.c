/* The optimizer step: planned, placed and run, which share one private struct; hence its length. */
#include "update/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "exec/state_offload.h"
#include "ir/passes.h"
#include "lathe/kit/optimizer_queue.h"
#include "update/update_device.h"
#include "update/update_ranges.h"
#include "update/widen.h"

struct lathe_update {
    lathe_machine *m;
    lathe_store *store;
    const lathe_instance *optimizer;
    lathe_optimizer_tensor *tensors; /* the parameters that step() updates */
    int32_t n_tensors;
    const lathe_param_groups *groups;
    lathe_exec *matrix;   /* NULL: no MATRIX parameters */
    lathe_val scalars;    /* STATE in the matrix graph */
    lathe_val *slot_vals; /* STATE values of slots, with the place they are bound to */
    int32_t *slot_param, *slot_index;
    int32_t n_slot_vals;
    lathe_ranges ranges; /* how step() is called */
    float **averages;    /* [n_tensors] what average() fills */
    void *scratch;       /* [scratch_bytes] of the optimizer's step */
    int64_t scratch_bytes;
    lathe_device_update *device; /* where the host cannot touch the memory; else NULL */
    lathe_val *sum_vals;         /* STATE values that UPDATE_SQUARES write, in order; there only */
    int32_t n_sum_vals;
    int64_t n_matrix_sums;
    lathe_offload *offload; /* where the state lies in the host's memory; else NULL */
    int32_t *matrix_ends;   /* there: nodes of `matrix` up to the end of each part of matrices */
    lathe_widen *widen;     /* where gradients are in bf16; else NULL */
    double *rows;           /* [n_rows] sums of squares */
};

/* lathe__matrix_measure for every APPLY_UPDATE from node `begin` on. */
static lathe_status measure_updates(lathe_update *u, lathe_graph *g, int32_t begin)
{
    for (int32_t i = begin; i < g->n_nodes; i++) {
        if (g->nodes[i].op != LATHE_OP_APPLY_UPDATE)
            continue;
        lathe_val *grown = realloc(u->sum_vals, ((size_t)u->n_sum_vals + 1) * sizeof *u->sum_vals);
        if (!grown)
            return lathe_error(LATHE_E_NOMEM, "no memory for the update of matrices");
        u->sum_vals = grown;
        LATHE_TRY(lathe__matrix_measure(g, i, &u->sum_vals[u->n_sum_vals]));
        u->n_matrix_sums += lathe_desc_count(&g->values[u->sum_vals[u->n_sum_vals++]].desc);
        i++; /* the node itself, one further on */
    }
    return LATHE_OK;
}

/* The gradient of a MATRIX parameter, in f32. */
static lathe_status matrix_grad(lathe_graph *g, int32_t param, const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.dtype = LATHE_F32};
    lathe_val grad;
    LATHE_TRY(lathe_graph_grad(g, param, &grad));
    *out = grad;
    if (g->values[grad].desc.dtype == LATHE_F32)
        return LATHE_OK;
    return lathe_graph_node(g, LATHE_OP_CAST, &attrs, &grad, 1, out, 1, -1, label);
}

/* Emits the update of one MATRIX parameter, and the refresh of its compute copy. */
static lathe_status build_matrix(lathe_update *u, lathe_graph *g, int32_t param)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_param_info info = lathe_params_info(u->store->params, param);
    const lathe_store_row *row = &u->store->rows[param];
    lathe_val master, grad, slots[LATHE_MAX_SLOTS];
    LATHE_TRY(lathe_graph_master(g, param, &master));
    LATHE_TRY(matrix_grad(g, param, info.name, &grad));
    for (int32_t k = 0; k < row->n_slots; k++) {
        LATHE_TRY(lathe_graph_state(g, row->slots[k].name, row->slots[k].desc, &slots[k]));
        u->slot_vals[u->n_slot_vals] = slots[k];
        u->slot_param[u->n_slot_vals] = param;
        u->slot_index[u->n_slot_vals++] = k;
    }
    const int32_t before = g->n_nodes;
    if (!LATHE_HAS(table, build))
        return lathe_error(LATHE_E_PLUGIN, "optimizer %s wants '%s' as a matrix but has no build()",
                           u->optimizer->component->plugin->name, info.name);
    LATHE_TRY(table->build(u->optimizer->self, api, g, &info, u->groups->lr_mult[param],
                           u->groups->decay_mult[param], master, grad, slots, u->scalars));
    if (!lathe_machine_shares(u->m))
        LATHE_TRY(measure_updates(u, g, before));
    if (lathe_params_value_dtype(u->store->params, param) == LATHE_F32)
        return LATHE_OK;
    lathe_val updated = LATHE_NONE, shadow;
    for (int32_t i = before; i < g->n_nodes; i++)
        if (g->nodes[i].op == LATHE_OP_APPLY_UPDATE &&
            lathe_graph_root(g, g->nodes[i].out[0]) == master)
            updated = g->nodes[i].out[0];
    if (updated == LATHE_NONE)
        return lathe_error(LATHE_E_PLUGIN, "optimizer %s emitted no APPLY_UPDATE for '%s'",
                           u->optimizer->component->plugin->name, info.name);
    LATHE_TRY(lathe_graph_param(g, param, &shadow));
    lathe_ir_node *cast = lathe__graph_append(g);
    if (!cast)
        return LATHE_E_NOMEM;
    cast->op = LATHE_OP_CAST;
    cast->n_in = cast->n_out = 1;
    cast->attrs.dtype = g->values[shadow].desc.dtype;
    cast->in[0] = updated;
    cast->out[0] = shadow;
    cast->label = info.name;
    return LATHE_OK;
}

static lathe_status build_matrices(lathe_update *u, const int32_t *params, int32_t n)
{
    lathe_graph *g;
    LATHE_TRY(lathe_graph_create(u->store->params, &g));
    lathe_status status =
        lathe_graph_state(g, "scalars", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), &u->scalars);
    for (int32_t i = 0; i < n && status == LATHE_OK; i++)
        status = build_matrix(u, g, params[i]);
    if (status == LATHE_OK)
        status = lathe_pass_dead(g);
    if (status == LATHE_OK)
        status = lathe_pass_inplace(g);
    if (status != LATHE_OK) {
        lathe_graph_destroy(g);
        return lathe_error_context(status, "optimizer %s", u->optimizer->component->plugin->name);
    }
    return lathe_exec_create(u->m, g, &u->matrix);
}

static void fill_tensor(lathe_update *u, int32_t param)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    const lathe_param_info info = lathe_params_info(u->store->params, param);
    lathe_optimizer_tensor *t = &u->tensors[u->n_tensors++];
    memset(t, 0, sizeof *t);
    t->n = lathe_desc_count(&info.desc);
    t->rows = info.desc.rank ? info.desc.dims[0] : 1;
    t->cols = t->rows ? t->n / t->rows : 0;
    t->tensor = param;
    t->group = u->groups->group[param];
    t->lr_mult = u->groups->lr_mult[param];
    t->weight_decay_mult = u->groups->decay_mult[param];
    t->block = LATHE_HAS(table, block) ? table->block(u->optimizer->self, &info) : 1;
    const int64_t scratch =
        LATHE_HAS(table, scratch) ? table->scratch(u->optimizer->self, &info) : 0;
    if (scratch > u->scratch_bytes)
        u->scratch_bytes = scratch;
}

/* The same parameters, in parts whose state passes through the device. */
static lathe_status create_offload(lathe_update *u, const int32_t *matrix, int32_t n_matrix)
{
    LATHE_TRY(
        lathe_offload_create(u->m, u->store, u->optimizer, u->store->offload_buffer, &u->offload));
    for (int32_t i = 0; i < u->n_tensors; i++)
        LATHE_TRY(lathe_offload_add_tensor(u->offload, &u->tensors[i]));
    for (int32_t i = 0; i < n_matrix; i++)
        LATHE_TRY(lathe_offload_add_matrix(u->offload, matrix[i]));
    if (n_matrix == 0)
        return LATHE_OK;
    u->matrix_ends = calloc((size_t)lathe_offload_n_parts(u->offload), sizeof *u->matrix_ends);
    if (!u->matrix_ends)
        return lathe_error(LATHE_E_NOMEM, "no memory for the update of matrices");
    const lathe_matrix_state state = {u->slot_vals, u->slot_param, u->n_slot_vals};
    return lathe__matrices_cut(lathe_exec_graph(u->matrix), &state, u->offload, u->matrix_ends);
}

/* Elements of a part whose gradients are widened: few on the host, for its caches; elsewhere many, for few launches. */
#define HOST_ELEMENTS ((int64_t)1 << 20)
#define DEVICE_ELEMENTS ((int64_t)1 << 24)

/* The parts of the tensors of step(): one, or those that gradients are widened by. */
static lathe_status create_parts(lathe_update *u, lathe_update_table *out)
{
    const int64_t elements = lathe_machine_shares(u->m) ? HOST_ELEMENTS : DEVICE_ELEMENTS;
    *out = (lathe_update_table){u->tensors, &u->n_tensors, u->n_tensors > 0};
    if (u->store->grad_bytes == u->store->wide_grad_bytes || u->n_tensors == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_widen_create(u->m, u->store, u->optimizer, u->tensors, u->n_tensors, elements,
                                 &u->widen));
    *out = lathe_widen_table(u->widen);
    return LATHE_OK;
}

/* The same where the state comes and goes: `ends` is for its parts. */
static lathe_status join_parts(lathe_update *u, int32_t *ends, lathe_update_table *out)
{
    const int32_t n = lathe_offload_n_tensor_parts(u->offload);
    lathe_optimizer_tensor *pieces = lathe_offload_pieces(u->offload);
    for (int32_t k = 0; k < n; k++)
        ends[k] = lathe_offload_end(u->offload, k);
    *out = (lathe_update_table){pieces, ends, n};
    return u->store->grad_bytes == u->store->wide_grad_bytes || n == 0
               ? LATHE_OK
               : lathe_widen_join(u->m, u->store, pieces, ends, n, &u->widen);
}

/* On a device with memory of its own: one table of all tensors, or of the pieces of the parts. */
static lathe_status create_device(lathe_update *u, const int32_t *matrix, int32_t n_matrix)
{
    int32_t *ends = NULL;
    lathe_update_table table;
    if (u->store->offload_buffer == 0) {
        LATHE_TRY(create_parts(u, &table));
    } else {
        LATHE_TRY(create_offload(u, matrix, n_matrix));
        ends = calloc((size_t)lathe_offload_n_tensor_parts(u->offload) + 1, sizeof *ends);
        if (!ends)
            return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    }
    lathe_status status = ends ? join_parts(u, ends, &table) : LATHE_OK;
    if (status == LATHE_OK)
        status = lathe_device_update_create(u->m, u->store, u->optimizer, &table, u->n_matrix_sums,
                                            &u->device);
    free(ends);
    return status;
}

/* Where the host reads the memory: parts only where gradients are widened. */
static lathe_status create_host(lathe_update *u)
{
    lathe_update_table table;
    return create_parts(u, &table);
}

lathe_status lathe_update_create(lathe_machine *m, lathe_store *store,
                                 const lathe_instance *optimizer, const lathe_param_groups *groups,
                                 lathe_update **out)
{
    lathe_update *u = calloc(1, sizeof *u);
    const size_t n = (size_t)store->n_rows + 1;
    int32_t *matrix = calloc(n, sizeof *matrix), n_matrix = 0;
    lathe_status status = LATHE_E_NOMEM;
    if (!u || !matrix)
        goto out;
    u->m = m;
    u->store = store;
    u->optimizer = optimizer;
    u->groups = groups;
    u->tensors = calloc(n, sizeof *u->tensors);
    u->slot_vals = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_vals);
    u->slot_param = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_param);
    u->slot_index = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_index);
    u->averages = calloc(n, sizeof *u->averages);
    u->rows = calloc(n, sizeof *u->rows);
    if (!u->rows || !u->averages || !u->tensors || !u->slot_vals || !u->slot_param ||
        !u->slot_index)
        goto out;
    for (int32_t i = 0; i < store->n_rows; i++) {
        if (!store->params->rows[i]->trainable)
            continue;
        if (store->rows[i].partition == LATHE_PARTITION_MATRIX)
            matrix[n_matrix++] = i;
        else
            fill_tensor(u, i);
    }
    u->ranges = (lathe_ranges){.optimizer = optimizer,
                               .store = store,
                               .tensors = u->tensors,
                               .n_tensors = u->n_tensors,
                               .sums = calloc(2 * LATHE_RANGES_CHUNKS, sizeof(double))};
    if (!u->ranges.sums)
        goto out;
    u->ranges.capacity =
        lathe_machine_shares(m) ? lathe__ranges_capacity(&u->ranges, m->n_threads) : 0;
    status = n_matrix ? build_matrices(u, matrix, n_matrix) : LATHE_OK;
    if (status == LATHE_OK)
        status = lathe_machine_shares(m) ? create_host(u) : create_device(u, matrix, n_matrix);
out:
    free(matrix);
    if (status == LATHE_E_NOMEM && !u)
        (void)lathe_error(status, "no memory for the optimizer step");
    if (status != LATHE_OK) {
        lathe_update_destroy(u);
        return status;
    }
    *out = u;
    return LATHE_OK;
}

/* |copy of what is being updated|, then |scratch of the optimizer|, at a multiple of 64. */
static int64_t scratch_at(const lathe_update *u)
{
    return (u->ranges.capacity * (int64_t)sizeof(float) + 63) / 64 * 64;
}

static int64_t host_bytes(const lathe_update *u)
{
    return scratch_at(u) + u->scratch_bytes;
}

void lathe_update_destroy(lathe_update *u)
{
    if (!u)
        return;
    if (!u->device)
        lathe_machine_free(u->m, LATHE_MEM_OPTIMIZER, host_bytes(u), u->ranges.before);
    lathe_widen_destroy(u->widen);
    lathe_offload_destroy(u->offload);
    lathe_exec_destroy(u->matrix);
    lathe_device_update_destroy(u->device);
    free(u->matrix_ends);
    free(u->sum_vals);
    free(u->rows);
    free(u->ranges.sums);
    free(u->averages);
    free(u->tensors);
    free(u->slot_vals);
    free(u->slot_param);
    free(u->slot_index);
    free(u);
}

int64_t lathe_update_arena_bytes(const lathe_update *u)
{
    return u->matrix ? lathe_exec_plan(u->matrix)->arena_bytes : 0;
}

int64_t lathe_update_input_bytes(const lathe_update *u)
{
    return u->matrix ? lathe_exec_plan(u->matrix)->input_bytes : 0;
}

int64_t lathe_update_activation_bytes(const lathe_update *u)
{
    return u->matrix ? lathe_exec_plan(u->matrix)->activation_bytes : 0;
}

int64_t lathe_update_own_bytes(const lathe_update *u)
{
    const int64_t own = u->device ? lathe_device_update_own_bytes(u->device) : host_bytes(u);
    return own + (u->offload ? lathe_offload_bytes(u->offload) : 0) +
           (u->widen ? lathe_widen_bytes(u->widen) : 0);
}

int64_t lathe_update_staging_bytes(const lathe_update *u)
{
    const int64_t matrix = u->matrix ? lathe_exec_staging_bytes(u->matrix) : 0;
    return matrix + (u->device ? lathe_device_update_staging_bytes(u->device) : 0);
}

lathe_exec *lathe_update_matrix(const lathe_update *u)
{
    return u->matrix;
}

int64_t lathe_update_take_moved(lathe_update *u)
{
    return u->offload ? lathe_offload_take_moved(u->offload) : -1;
}

double lathe_update_take_waited(lathe_update *u)
{
    return u->offload ? lathe_offload_take_waited(u->offload) : -1.0;
}

double lathe_update_flops(const lathe_update *u)
{
    return u->matrix ? lathe_graph_flops(lathe_exec_graph(u->matrix), 1) : 0.0;
}

/* Where the update finds a slot: in a buffer, when the host keeps it. */
static void *slot_memory(const lathe_update *u, int32_t param, int32_t slot)
{
    return u->offload ? lathe_offload_slot(u->offload, param, slot)
                      : lathe_store_slot(u->store, param, slot);
}

static void fill_pointers(lathe_update *u)
{
    for (int32_t i = 0; i < u->n_tensors; i++) {
        lathe_optimizer_tensor *t = &u->tensors[i];
        t->param = lathe_store_master(u->store, t->tensor);
        const int is_narrow = lathe_params_grad_dtype(u->store->params, t->tensor) != LATHE_F32;
        t->grad = is_narrow ? NULL : lathe_store_grad(u->store, t->tensor); /* widen.h */
        t->shadow = lathe_store_shadow(u->store, t->tensor);
        u->averages[i] = lathe_store_average(u->store, t->tensor);
        t->shadow_dtype = lathe_params_value_dtype(u->store->params, t->tensor);
        for (int32_t k = 0; k < u->store->rows[t->tensor].n_slots; k++) {
            t->slots[k] = lathe_store_slot(u->store, t->tensor, k);
            t->half_slots |=
                u->store->rows[t->tensor].slots[k].desc.dtype == LATHE_BF16 ? 1u << k : 0u;
        }
    }
}

lathe_status lathe_update_place(lathe_update *u, void *arena)
{
    void *own = NULL;
    fill_pointers(u);
    if (u->offload) {
        LATHE_TRY(lathe_offload_place(u->offload));
        lathe_offload_fill(u->offload, u->tensors, u->n_tensors);
    }
    if (u->widen)
        LATHE_TRY(lathe_widen_place(u->widen, u->tensors, u->n_tensors));
    if (u->device) {
        LATHE_TRY(lathe_device_update_place(u->device));
    } else {
        LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_OPTIMIZER, host_bytes(u), &own));
        u->ranges.before = own;
        u->scratch = u->scratch_bytes > 0 ? (char *)own + scratch_at(u) : NULL;
    }
    if (!u->matrix)
        return LATHE_OK;
    LATHE_TRY(lathe_exec_place(u->matrix, u->store, arena));
    lathe_exec_bind(u->matrix, u->scalars, u->store->step->scalars);
    double *sums = u->device ? lathe_device_update_matrix_sums(u->device) : NULL;
    for (int32_t i = 0; i < u->n_sum_vals; i++) {
        lathe_exec_bind(u->matrix, u->sum_vals[i], sums);
        sums += lathe_desc_count(&lathe_exec_graph(u->matrix)->values[u->sum_vals[i]].desc);
    }
    for (int32_t i = 0; i < u->n_slot_vals; i++)
        lathe_exec_bind(u->matrix, u->slot_vals[i],
                        slot_memory(u, u->slot_param[i], u->slot_index[i]));
    return LATHE_OK;
}

/* Sums of squares by row of the table, of LATHE_SQUARES_*: u->rows. */
static lathe_status square_rows(const lathe_update *u, int32_t family)
{
    if (u->device)
        return lathe_device_update_squares(u->device, family, u->rows);
    for (int32_t i = 0; i < u->store->n_rows; i++) {
        const lathe_param *p = u->store->params->rows[i];
        const int is_gradient = family == LATHE_SQUARES_GRADIENTS;
        const void *x = !p->trainable ? NULL
                        : is_gradient ? lathe_store_grad(u->store, i)
                                      : (const void *)lathe_store_master(u->store, i);
        const int32_t dtype =
            is_gradient ? lathe_params_grad_dtype(u->store->params, i) : LATHE_F32;
        u->rows[i] = x ? lathe_sum_squares(x, dtype, lathe_desc_count(&p->desc)) : 0.0;
    }
    return LATHE_OK;
}

static lathe_status norm_of(const lathe_update *u, int32_t family, double *out)
{
    double sum = 0.0;
    LATHE_TRY(square_rows(u, family));
    for (int32_t i = 0; i < u->store->n_rows; i++)
        sum += u->rows[i];
    *out = sqrt(sum);
    return LATHE_OK;
}

lathe_status lathe_update_expect_norm(lathe_update *u)
{
    return u->device ? lathe_device_update_expect(u->device) : LATHE_OK;
}

void lathe_update_forget_norm(lathe_update *u)
{
    if (u->device)
        lathe_device_update_forget(u->device);
}

lathe_status lathe_update_gradient_norm(const lathe_update *u, double *out)
{
    return norm_of(u, LATHE_SQUARES_GRADIENTS, out);
}

lathe_status lathe_update_param_norm(const lathe_update *u, double *out)
{
    return norm_of(u, LATHE_SQUARES_MASTERS, out);
}

/* Norm of all gradients, parameter by parameter in the table's order; by group where there are any. */
static lathe_status gradient_norm(const lathe_update *u, double average, double *groups,
                                  double *out)
{
    LATHE_TRY(norm_of(u, LATHE_SQUARES_GRADIENTS, out));
    *out *= average;
    for (int32_t g = 0; groups && g < u->groups->n; g++)
        groups[g] = 0.0;
    for (int32_t i = 0; groups && i < u->store->n_rows; i++)
        if (u->store->params->rows[i]->trainable)
            groups[u->groups->group[i]] += u->rows[i];
    for (int32_t g = 0; groups && g < u->groups->n; g++)
        groups[g] = sqrt(groups[g]) * average;
    return LATHE_OK;
}

typedef struct clamp {
    void *grad;
    float limit;
    int32_t dtype; /* LATHE_F32, LATHE_BF16 */
} clamp;

static float clamped(const clamp *c, float x)
{
    return x > c->limit ? c->limit : x < -c->limit ? -c->limit : x;
}

static void clamp_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const clamp *c = arg;
    float *wide = c->grad;
    uint16_t *narrow = c->grad;
    (void)worker;
    if (c->dtype == LATHE_F32)
        for (int64_t i = begin; i < end; i++)
            wide[i] = clamped(c, wide[i]);
    else
        for (int64_t i = begin; i < end; i++)
            narrow[i] = lathe_f32_to_bf16(clamped(c, lathe_bf16_to_f32(narrow[i])));
}

/* torch.nn.utils.clip_grad_value_ on what the raw sums average to. */
static lathe_status clip_values(const lathe_update *u, double limit)
{
    if (u->device) {
        lathe_device_update_step(u->device)->limit = (float)limit;
        LATHE_TRY(lathe_device_update_send(u->device));
        return lathe_device_update_clamp(u->device);
    }
    for (int32_t i = 0; i < u->store->n_rows; i++) {
        clamp c = {lathe_store_grad(u->store, i), (float)limit,
                   lathe_params_grad_dtype(u->store->params, i)};
        if (c.grad)
            lathe_parallel_for(lathe_desc_count(&u->store->params->rows[i]->desc),
                               LATHE_CHUNK_ELEMENTS, clamp_range, &c);
    }
    return LATHE_OK;
}

/* What the next step is told, where the host writes it. */
static lathe_step_memory *step_memory(const lathe_update *u)
{
    return u->device ? lathe_device_update_step(u->device) : u->store->step;
}

/* The optimizer's own scalars of a step; the core's are zero. */
static void fill_user_scalars(const lathe_update *u, int64_t step)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    double user[LATHE_N_SCALARS - LATHE_SCALAR_USER] = {0.0};
    float *s = step_memory(u)->scalars;
    memset(s, 0, sizeof(float) * LATHE_N_SCALARS);
    if (LATHE_HAS(table, scalars))
        table->scalars(u->optimizer->self, step, user);
    for (int32_t i = LATHE_SCALAR_USER; i < LATHE_N_SCALARS; i++)
        s[i] = (float)user[i - LATHE_SCALAR_USER];
}

static void fill_scalars(const lathe_update *u, const lathe_update_args *args, double grad_scale)
{
    lathe_step_memory *memory = step_memory(u);
    float *s = memory->scalars;
    fill_user_scalars(u, args->step);
    memory->counter[0] = args->seed;
    memory->counter[1] = (uint64_t)args->step;
    s[LATHE_SCALAR_LR] = (float)args->lr;
    s[LATHE_SCALAR_GRAD_SCALE] = (float)grad_scale;
    s[LATHE_SCALAR_COUNT] = (float)args->count;
    s[LATHE_SCALAR_LR_RATIO] = args->base_lr > 0.0 ? (float)(args->lr / args->base_lr) : 0.0f;
}

/* All tensors of step(), as the plugin gets them: the scalars where the host reads them. */
static lathe_optimizer_step plugin_step(const lathe_update *u, const lathe_update_args *args)
{
    const lathe_optimizer_step step = {.size = (uint32_t)sizeof step,
                                       .n_tensors = u->n_tensors,
                                       .tensors = u->tensors,
                                       .scalars = step_memory(u)->scalars,
                                       .step = args->step,
                                       .seed = args->seed,
                                       .scratch = u->scratch,
                                       .scratch_bytes = u->scratch ? u->scratch_bytes : 0};
    return step;
}

/* LATHE_QUEUE_* for the tensors of a part; averages are of the weights alone. */
static lathe_status queue_part(lathe_update *u, int32_t k, int32_t what,
                               const lathe_optimizer_step *step)
{
    if (u->widen && what != LATHE_QUEUE_AVERAGE)
        LATHE_TRY(lathe_widen_run(u->widen, k));
    return lathe_device_update_queue(u->device, k, what, step);
}

/* Queues LATHE_QUEUE_*, part by part when the state comes and goes or gradients are widened. Only a step has
 * matrices. */
static lathe_status queue_update(lathe_update *u, int32_t what, const lathe_optimizer_step *step)
{
    lathe_exec *matrix = what == LATHE_QUEUE_STEP ? u->matrix : NULL;
    if (!u->offload) {
        const int32_t n = u->widen ? lathe_widen_table(u->widen).n_parts : u->n_tensors > 0;
        for (int32_t k = 0; k < n; k++)
            LATHE_TRY(queue_part(u, k, what, step));
        return matrix ? lathe_exec_run(matrix, 0) : LATHE_OK;
    }
    const int32_t n = lathe_offload_n_parts(u->offload);
    const int32_t first = lathe_offload_n_tensor_parts(u->offload);
    for (int32_t k = 0; k < n; k++) {
        LATHE_TRY(lathe_offload_arrive(u->offload, k));
        if (k < first)
            LATHE_TRY(queue_part(u, k, what, step));
        else if (matrix)
            LATHE_TRY(lathe_exec_run_range(matrix, k > first ? u->matrix_ends[k - first - 1] : 0,
                                           u->matrix_ends[k - first], 0));
        LATHE_TRY(lathe_offload_leave(u->offload, k));
    }
    return LATHE_OK;
}

/* Calls fn for the tensors of step(), on the host, where their gradients are in f32: part by part when they are
 * widened. */
typedef lathe_status (*tensors_fn)(lathe_update *u, const lathe_optimizer_step *step, double *sums);
static lathe_status each_part(lathe_update *u, const lathe_optimizer_step *all, tensors_fn fn,
                              double *sums)
{
    lathe_optimizer_step step = *all;
    if (!u->widen)
        return step.n_tensors > 0 ? fn(u, &step, sums) : LATHE_OK;
    const lathe_update_table t = lathe_widen_table(u->widen);
    for (int32_t k = 0; k < t.n_parts; k++) {
        const int32_t begin = k > 0 ? t.ends[k - 1] : 0;
        step.tensors = t.tensors + begin;
        step.n_tensors = t.ends[k] - begin;
        LATHE_TRY(lathe_widen_run(u->widen, k));
        LATHE_TRY(fn(u, &step, sums));
    }
    return LATHE_OK;
}

/* tensors_fn: sums, of the change and of the parameters */
static lathe_status step_tensors(lathe_update *u, const lathe_optimizer_step *step, double *sums)
{
    lathe_ranges ranges = u->ranges;
    ranges.tensors = step->tensors;
    ranges.n_tensors = step->n_tensors;
    return lathe__ranges_run(&ranges, step, &sums[0], &sums[1]);
}

/* tensors_fn */
static lathe_status estimate_tensors(lathe_update *u, const lathe_optimizer_step *step,
                                     double *sums)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    (void)sums;
    return table->estimate(u->optimizer->self, step);
}

/* The tensors of step(), then the matrices; and the squares of what it did. */
static lathe_status update_all(lathe_update *u, const lathe_update_args *args, double *update2,
                               double *param2)
{
    const lathe_optimizer_step step = plugin_step(u, args);
    if (u->device) {
        LATHE_TRY(lathe_device_update_send(u->device));
        LATHE_TRY(queue_update(u, LATHE_QUEUE_STEP, &step));
        LATHE_TRY(lathe_device_update_figures(u->device, update2, param2)); /* waits */
        return u->offload ? lathe_offload_count_waits(u->offload) : LATHE_OK;
    }
    double sums[2] = {*update2, *param2};
    LATHE_TRY(each_part(u, &step, step_tensors, sums));
    *update2 = sums[0];
    *param2 = sums[1];
    return u->matrix ? lathe__matrices_run(u->matrix, update2, param2) : LATHE_OK;
}

lathe_status lathe_update_run(lathe_update *u, lathe_update_args *args)
{
    const double average = 1.0 / (args->count * args->loss_scale);
    double update2 = 0.0, param2 = 0.0;
    LATHE_TRY(u->offload ? lathe_offload_begin(u->offload) : LATHE_OK);
    LATHE_TRY(gradient_norm(u, average, args->group_norms, &args->grad_norm));
    args->overflow = !isfinite(args->grad_norm);
    if (args->overflow)
        return LATHE_OK;
    double clip = 1.0, norm = args->grad_norm;
    if (args->max_grad_value > 0.0) {
        LATHE_TRY(clip_values(u, args->max_grad_value / average));
        LATHE_TRY(gradient_norm(u, average, NULL, &norm));
    }
    if (args->max_grad_norm > 0.0 && norm > args->max_grad_norm)
        clip = args->max_grad_norm / (norm + 1e-6); /* torch.nn.utils.clip_grad_norm_ */
    fill_scalars(u, args, average * clip);
    LATHE_TRY(update_all(u, args, &update2, &param2));
    args->update_norm = sqrt(update2);
    args->param_norm = sqrt(param2);
    return LATHE_OK;
}

lathe_status lathe_update_share(lathe_update *u, float share)
{
    step_memory(u)->share = share;
    return u->device ? lathe_device_update_send(u->device) : LATHE_OK;
}

lathe_status lathe_update_estimate(lathe_update *u, lathe_update_args *args)
{
    const double average = 1.0 / (args->count * args->loss_scale);
    double norm = 0.0;
    LATHE_TRY(gradient_norm(u, average, NULL, &norm));
    args->overflow = !isfinite(norm);
    if (args->overflow || u->n_tensors == 0)
        return LATHE_OK;
    fill_scalars(u, args, average);
    const lathe_optimizer_step step = plugin_step(u, args);
    if (!u->device)
        return each_part(u, &step, estimate_tensors, NULL);
    LATHE_TRY(u->offload ? lathe_offload_begin(u->offload) : LATHE_OK);
    LATHE_TRY(lathe_device_update_send(u->device));
    LATHE_TRY(queue_update(u, LATHE_QUEUE_ESTIMATE, &step));
    LATHE_TRY(lathe_machine_sync(u->m)); /* step memory's way is free again */
    return u->offload ? lathe_offload_count_waits(u->offload) : LATHE_OK;
}

/* On the host. Pieces go one by one: each has its place in its tensor's average. */
static lathe_status average_tensors(lathe_update *u, const lathe_optimizer_step *all)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    if (!u->widen)
        return table->average(u->optimizer->self, all, u->averages);
    const lathe_update_table t = lathe_widen_table(u->widen);
    lathe_optimizer_step step = *all;
    step.n_tensors = 1;
    for (int32_t i = 0; i < t.ends[t.n_parts - 1]; i++) {
        float *whole = lathe_store_average(u->store, t.tensors[i].tensor);
        float *average = whole ? whole + t.tensors[i].first : NULL;
        step.tensors = &t.tensors[i];
        LATHE_TRY(table->average(u->optimizer->self, &step, &average));
    }
    return LATHE_OK;
}

lathe_status lathe_update_average(lathe_update *u, int64_t step, uint64_t seed)
{
    const lathe_update_args args = {.step = step, .seed = seed};
    const lathe_optimizer_step all = plugin_step(u, &args);
    for (int32_t i = 0; i < u->store->n_rows; i++)
        if (u->store->rows[i].partition == LATHE_PARTITION_MATRIX &&
            lathe_store_average(u->store, i))
            LATHE_TRY(lathe_move(u->m, lathe_store_average(u->store, i),
                                 lathe_store_master(u->store, i),
                                 lathe_desc_bytes(&u->store->params->rows[i]->desc)));
    fill_user_scalars(u, step);
    if (u->n_tensors == 0)
        return LATHE_OK;
    if (!u->device)
        return average_tensors(u, &all);
    LATHE_TRY(u->offload ? lathe_offload_begin(u->offload) : LATHE_OK);
    LATHE_TRY(lathe_device_update_send(u->device));
    return queue_update(u, LATHE_QUEUE_AVERAGE, &all);
}
