/* The optimizer step. */
#include "run/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ir/passes.h"

struct lathe_update {
    lathe_machine *m;
    lathe_store *store;
    const lathe_instance *optimizer;
    lathe_optimizer_tensor *tensors; /* the parameters that step() updates */
    int32_t n_tensors;
    double vector_decay;  /* weight_decay_mult of norms and biases */
    lathe_exec *matrix;   /* NULL: no MATRIX parameters */
    lathe_val scalars;    /* STATE in the matrix graph */
    lathe_val *slot_vals; /* STATE values of slots, with the place they are bound to */
    int32_t *slot_param, *slot_index;
    int32_t n_slot_vals;
};

static double decay_mult(const lathe_update *u, const lathe_param_info *info)
{
    return info->role == LATHE_ROLE_NORM || info->role == LATHE_ROLE_BIAS ? u->vector_decay : 1.0;
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
    LATHE_TRY(lathe_graph_grad(g, param, &grad));
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
    LATHE_TRY(table->build(u->optimizer->self, api, g, &info, 1.0, decay_mult(u, &info), master,
                           grad, slots, u->scalars));
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
    const lathe_param_info info = lathe_params_info(u->store->params, param);
    lathe_optimizer_tensor *t = &u->tensors[u->n_tensors++];
    memset(t, 0, sizeof *t);
    t->n = lathe_desc_count(&info.desc);
    t->rows = info.desc.rank ? info.desc.dims[0] : 1;
    t->cols = t->rows ? t->n / t->rows : 0;
    t->tensor = param;
    t->group = info.group;
    t->lr_mult = 1.0;
    t->weight_decay_mult = decay_mult(u, &info);
}

lathe_status lathe_update_create(lathe_machine *m, lathe_store *store,
                                 const lathe_instance *optimizer, double weight_decay_mult_vectors,
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
    u->vector_decay = weight_decay_mult_vectors;
    u->tensors = calloc(n, sizeof *u->tensors);
    u->slot_vals = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_vals);
    u->slot_param = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_param);
    u->slot_index = calloc(n * LATHE_MAX_SLOTS, sizeof *u->slot_index);
    if (!u->tensors || !u->slot_vals || !u->slot_param || !u->slot_index)
        goto out;
    for (int32_t i = 0; i < store->n_rows; i++) {
        if (!store->params->rows[i]->trainable)
            continue;
        if (store->rows[i].partition == LATHE_PARTITION_MATRIX)
            matrix[n_matrix++] = i;
        else
            fill_tensor(u, i);
    }
    status = n_matrix ? build_matrices(u, matrix, n_matrix) : LATHE_OK;
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

void lathe_update_destroy(lathe_update *u)
{
    if (!u)
        return;
    lathe_exec_destroy(u->matrix);
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

double lathe_update_flops(const lathe_update *u)
{
    return u->matrix ? lathe_graph_flops(lathe_exec_graph(u->matrix), 1) : 0.0;
}

lathe_status lathe_update_place(lathe_update *u, void *arena)
{
    for (int32_t i = 0; i < u->n_tensors; i++) {
        lathe_optimizer_tensor *t = &u->tensors[i];
        t->param = lathe_store_master(u->store, t->tensor);
        t->grad = lathe_store_grad(u->store, t->tensor);
        t->shadow = lathe_store_shadow(u->store, t->tensor);
        for (int32_t k = 0; k < u->store->rows[t->tensor].n_slots; k++)
            t->slots[k] = lathe_store_slot(u->store, t->tensor, k);
    }
    if (!u->matrix)
        return LATHE_OK;
    LATHE_TRY(lathe_exec_place(u->matrix, u->store, arena));
    lathe_exec_bind(u->matrix, u->scalars, u->store->scalars);
    for (int32_t i = 0; i < u->n_slot_vals; i++)
        lathe_exec_bind(u->matrix, u->slot_vals[i],
                        lathe_store_slot(u->store, u->slot_param[i], u->slot_index[i]));
    return LATHE_OK;
}

/* Norm of all gradients, parameter by parameter in the table's order. */
static double gradient_norm(const lathe_update *u)
{
    double sum = 0.0;
    for (int32_t i = 0; i < u->store->n_rows; i++) {
        const float *g = lathe_store_grad(u->store, i);
        if (g)
            sum += lathe_sum_squares(g, lathe_desc_count(&u->store->params->rows[i]->desc));
    }
    return sqrt(sum);
}

static void fill_scalars(const lathe_update *u, const lathe_update_args *args, double grad_scale)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    double user[LATHE_N_SCALARS - LATHE_SCALAR_USER] = {0.0};
    float *s = u->store->scalars;
    memset(s, 0, sizeof(float) * LATHE_N_SCALARS);
    s[LATHE_SCALAR_LR] = (float)args->lr;
    s[LATHE_SCALAR_GRAD_SCALE] = (float)grad_scale;
    s[LATHE_SCALAR_LR_RATIO] = args->base_lr > 0.0 ? (float)(args->lr / args->base_lr) : 0.0f;
    if (LATHE_HAS(table, scalars))
        table->scalars(u->optimizer->self, args->step, user);
    for (int32_t i = LATHE_SCALAR_USER; i < LATHE_N_SCALARS; i++)
        s[i] = (float)user[i - LATHE_SCALAR_USER];
}

lathe_status lathe_update_run(lathe_update *u, lathe_update_args *args)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    const double average = 1.0 / (args->count * args->loss_scale);
    args->grad_norm = gradient_norm(u) * average;
    args->overflow = !isfinite(args->grad_norm);
    if (args->overflow)
        return LATHE_OK;
    double clip = 1.0;
    if (args->max_grad_norm > 0.0 && args->grad_norm > args->max_grad_norm)
        clip = args->max_grad_norm / (args->grad_norm + 1e-6); /* torch.nn.utils.clip_grad_norm_ */
    fill_scalars(u, args, average * clip);
    if (u->n_tensors > 0) {
        const lathe_optimizer_step step = {.size = (uint32_t)sizeof step,
                                           .n_tensors = u->n_tensors,
                                           .tensors = u->tensors,
                                           .scalars = u->store->scalars,
                                           .step = args->step,
                                           .seed = args->seed};
        LATHE_TRY(table->step(u->optimizer->self, &step));
    }
    return u->matrix ? lathe_exec_run(u->matrix, 0) : LATHE_OK;
}
