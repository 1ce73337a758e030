/* Plans, places and runs the optimizer step. The path is the same for every device; lathe_updater
 * hides the differences. */
#include "optim/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/peers.h"
#include "exec/store/state_offload.h"
#include "exec/store/transfer.h"
#include "graph/ir/flops.h"
#include "lathe/kit/optimizer_queue.h"
#include "optim/average_rows.h"
#include "optim/clip.h"
#include "optim/step_norms.h"
#include "optim/update_matrices.h"
#include "optim/update_tensors.h"
#include "optim/updater.h"
#include "optim/widen.h"

struct lathe_update {
    lathe_machine *m;
    lathe_store *store;
    const lathe_instance *optimizer;
    const lathe_param_groups *groups;
    lathe_update_tensors tensors;
    lathe_updater *updater;   /* updates the tensors of step(), or their pieces */
    lathe_matrices *matrices; /* NULL: no MATRIX parameters */
    lathe_offload *offload;   /* NULL: the optimizer's state stays on the device */
    lathe_widen *widen;       /* NULL: no gradients in bf16 */
    lathe_step_norms norms;
    lathe_value_clip clip;
    int32_t *ends;           /* [parts] with an offload: end of each part's pieces */
    char *own;               /* device: |norms|sums of matrices|scratch of the clip| */
    char *staging;           /* pinned: |step memory|norms|sums of matrices| */
    lathe_step_memory *step; /* the host's view of store->step */
    double *rows;            /* [n_rows] sums of squares */
};

/* ---- creation ---- */

/* Divides the parameters into parts whose state is copied to the device and back. */
static lathe_status create_offload(lathe_update *u, lathe_update_table *out)
{
    LATHE_TRY(
        lathe_offload_create(u->m, u->store, u->optimizer, u->store->offload_buffer, &u->offload));
    for (int32_t i = 0; i < u->tensors.n_of_step; i++)
        LATHE_TRY(lathe_offload_add_tensor(u->offload, &u->tensors.of_step[i]));
    for (int32_t i = 0; i < u->tensors.n_matrices; i++)
        LATHE_TRY(lathe_offload_add_matrix(u->offload, u->tensors.matrices[i]));
    if (u->matrices)
        LATHE_TRY(lathe_matrices_join(u->matrices, u->offload));
    const int32_t n = lathe_offload_n_tensor_parts(u->offload);
    lathe_optimizer_tensor *pieces = lathe_offload_pieces(u->offload);
    u->ends = calloc((size_t)n + 1, sizeof *u->ends);
    if (!u->ends)
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    for (int32_t k = 0; k < n; k++)
        u->ends[k] = lathe_offload_end(u->offload, k);
    *out = (lathe_update_table){pieces, u->ends, n};
    return u->store->grad_bytes == u->store->wide_grad_bytes || n == 0
               ? LATHE_OK
               : lathe_widen_join(u->m, u->store, pieces, u->ends, n, &u->widen);
}

/* Makes one part of all parameters, or the parts in which bf16 gradients are converted. */
static lathe_status create_parts(lathe_update *u, int64_t elements, lathe_update_table *out)
{
    lathe_update_tensors *t = &u->tensors;
    *out = (lathe_update_table){t->of_step, &t->n_of_step, t->n_of_step > 0};
    if (u->store->grad_bytes == u->store->wide_grad_bytes || t->n_of_step == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_widen_create(u->m, u->store, u->optimizer, t->of_step, t->n_of_step, elements,
                                 &u->widen));
    *out = lathe_widen_table(u->widen);
    return LATHE_OK;
}

static lathe_status create(lathe_update *u)
{
    const lathe_updater_ops *ops =
        lathe_machine_memory(u->m)->runs_host_code ? &lathe_host_updater : &lathe_device_updater;
    lathe_update_table table;
    LATHE_TRY(lathe_update_tensors_init(&u->tensors, u->store, u->optimizer, u->groups));
    LATHE_TRY(lathe_step_norms_init(&u->norms, u->m, u->store));
    LATHE_TRY(lathe_value_clip_init(&u->clip, u->m, u->store));
    if (u->tensors.n_matrices > 0)
        LATHE_TRY(lathe_matrices_create(u->m, u->store, u->optimizer, u->groups,
                                        u->tensors.matrices, u->tensors.n_matrices, &u->matrices));
    LATHE_TRY(u->store->offload_buffer == 0 ? create_parts(u, ops->part_elements, &table)
                                            : create_offload(u, &table));
    return ops->create(u->m, u->store, u->optimizer, &table, &u->updater);
}

lathe_status lathe_update_create(lathe_machine *m, lathe_store *store,
                                 const lathe_instance *optimizer, const lathe_param_groups *groups,
                                 lathe_update **out)
{
    lathe_update *u = calloc(1, sizeof *u);
    if (!u)
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    u->m = m;
    u->store = store;
    u->optimizer = optimizer;
    u->groups = groups;
    u->rows = calloc((size_t)store->n_rows + 1, sizeof *u->rows);
    const lathe_status status =
        u->rows ? create(u) : lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    if (status != LATHE_OK) {
        lathe_update_destroy(u);
        return status;
    }
    *out = u;
    return LATHE_OK;
}

/* ---- memory ---- */

static int64_t common_bytes(const lathe_update *u)
{
    return lathe_step_norms_bytes(&u->norms) +
           (u->matrices ? lathe_matrices_bytes(u->matrices) : 0) + lathe_value_clip_bytes(&u->clip);
}

static int64_t step_view_bytes(const lathe_update *u)
{
    return (lathe_view_bytes(u->m, (int64_t)sizeof *u->step) + 63) / 64 * 64;
}

static int64_t common_staging_bytes(const lathe_update *u)
{
    return step_view_bytes(u) + lathe_step_norms_staging_bytes(&u->norms) +
           (u->matrices ? lathe_matrices_staging_bytes(u->matrices) : 0);
}

void lathe_update_destroy(lathe_update *u)
{
    if (!u)
        return;
    if (u->own)
        lathe_machine_free(u->m, LATHE_MEM_OPTIMIZER, common_bytes(u), u->own);
    if (u->staging)
        lathe_machine_free(u->m, LATHE_MEM_STAGING, common_staging_bytes(u), u->staging);
    if (u->updater)
        u->updater->ops->destroy(u->updater);
    lathe_widen_destroy(u->widen);
    lathe_offload_destroy(u->offload);
    lathe_matrices_destroy(u->matrices);
    lathe_step_norms_fini(&u->norms);
    lathe_value_clip_fini(&u->clip);
    free(u->ends);
    free(u->rows);
    lathe_update_tensors_fini(&u->tensors);
    free(u);
}

static const lathe_plan *matrix_plan(const lathe_update *u)
{
    return u->matrices ? lathe_exec_plan(lathe_matrices_exec(u->matrices)) : NULL;
}

int64_t lathe_update_arena_bytes(const lathe_update *u)
{
    return u->matrices ? matrix_plan(u)->arena_bytes : 0;
}

int64_t lathe_update_input_bytes(const lathe_update *u)
{
    return u->matrices ? matrix_plan(u)->input_bytes : 0;
}

int64_t lathe_update_activation_bytes(const lathe_update *u)
{
    return u->matrices ? matrix_plan(u)->activation_bytes : 0;
}

int64_t lathe_update_own_bytes(const lathe_update *u)
{
    return common_bytes(u) + u->updater->ops->own_bytes(u->updater) +
           (u->offload ? lathe_offload_bytes(u->offload) : 0) +
           (u->widen ? lathe_widen_bytes(u->widen) : 0);
}

int64_t lathe_update_staging_bytes(const lathe_update *u)
{
    return common_staging_bytes(u) + u->updater->ops->staging_bytes(u->updater) +
           (u->matrices ? lathe_exec_staging_bytes(lathe_matrices_exec(u->matrices)) : 0);
}

lathe_exec *lathe_update_matrix(const lathe_update *u)
{
    return u->matrices ? lathe_matrices_exec(u->matrices) : NULL;
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
    return u->matrices ? lathe_graph_flops(lathe_exec_graph(lathe_matrices_exec(u->matrices)), 1)
                       : 0.0;
}

/* Norms, clip, step memory and the sums of matrices. */
static lathe_status place_common(lathe_update *u, void *arena)
{
    void *own = NULL, *staging = NULL;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_OPTIMIZER, common_bytes(u), &own));
    u->own = own;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_STAGING, common_staging_bytes(u), &staging));
    u->staging = staging;
    char *device = u->own, *pinned = u->staging;
    u->step = lathe_view_at(u->m, u->store->step, pinned);
    pinned += step_view_bytes(u);
    LATHE_TRY(lathe_step_norms_place(&u->norms, device, pinned));
    device += lathe_step_norms_bytes(&u->norms);
    pinned += lathe_step_norms_staging_bytes(&u->norms);
    if (u->matrices) {
        LATHE_TRY(lathe_matrices_place(u->matrices, arena, device, pinned));
        device += lathe_matrices_bytes(u->matrices);
    }
    u->clip.scratch = device;
    return LATHE_OK;
}

lathe_status lathe_update_place(lathe_update *u, void *arena)
{
    lathe_update_tensors_fill(&u->tensors, u->store);
    if (u->offload) {
        LATHE_TRY(lathe_offload_place(u->offload));
        lathe_offload_fill(u->offload, u->tensors.of_step, u->tensors.n_of_step);
    }
    if (u->widen)
        LATHE_TRY(lathe_widen_place(u->widen, u->tensors.of_step, u->tensors.n_of_step));
    LATHE_TRY(u->updater->ops->place(u->updater));
    return place_common(u, arena);
}

/* ---- norms ---- */

/* Makes sums over the elements that this rank updates those of all ranks. */
static lathe_status add_peers(const lathe_update *u, double *sums, int32_t n)
{
    const lathe_peers *peers = u->store->peers;
    return peers ? peers->add(peers->arg, sums, n) : LATHE_OK;
}

static lathe_status norm_of(lathe_update *u, int32_t family, double *out)
{
    double sum = 0.0;
    LATHE_TRY(lathe_step_norms_rows(&u->norms, family, u->rows));
    for (int32_t i = 0; i < u->store->n_rows; i++)
        sum += u->rows[i];
    LATHE_TRY(add_peers(u, &sum, 1));
    *out = sqrt(sum);
    return LATHE_OK;
}

lathe_status lathe_update_expect_norm(lathe_update *u)
{
    return lathe_step_norms_expect(&u->norms);
}

void lathe_update_forget_norm(lathe_update *u)
{
    lathe_step_norms_forget(&u->norms);
}

lathe_status lathe_update_gradient_norm(lathe_update *u, double *out)
{
    return norm_of(u, LATHE_SQUARES_GRADIENTS, out);
}

lathe_status lathe_update_param_norm(lathe_update *u, double *out)
{
    return norm_of(u, LATHE_SQUARES_MASTERS, out);
}

/* Computes the norm of all gradients, parameter by parameter in the table's order, and by group if
 * there are groups. */
static lathe_status gradient_norm(lathe_update *u, double average, double *groups, double *out)
{
    double sums[1 + LATHE_MAX_GROUPS] = {0.0};
    const int32_t n_groups = groups ? u->groups->n : 0;
    LATHE_TRY(lathe_step_norms_rows(&u->norms, LATHE_SQUARES_GRADIENTS, u->rows));
    for (int32_t i = 0; i < u->store->n_rows; i++) {
        sums[0] += u->rows[i];
        if (groups && u->store->params->rows[i]->trainable)
            sums[1 + u->groups->group[i]] += u->rows[i];
    }
    LATHE_TRY(add_peers(u, sums, 1 + n_groups));
    *out = sqrt(sums[0]) * average;
    for (int32_t g = 0; g < n_groups; g++)
        groups[g] = sqrt(sums[1 + g]) * average;
    return LATHE_OK;
}

/* ---- inputs of a step ---- */

/* Queues the copy of u->step to the device. */
static lathe_status send_step(lathe_update *u)
{
    return lathe_send_pinned(u->m, u->store->step, u->step, (int64_t)sizeof *u->step);
}

/* Clips the values as torch.nn.utils.clip_grad_value_ does to the averaged gradients. */
static lathe_status clip_values(lathe_update *u, double limit)
{
    u->step->limit = (float)limit;
    LATHE_TRY(send_step(u));
    return lathe_value_clip_queue(&u->clip);
}

/* Fills the optimizer's own scalars of a step; those of the core are zero. */
static void fill_user_scalars(const lathe_update *u, int64_t step)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    double user[LATHE_N_SCALARS - LATHE_SCALAR_USER] = {0.0};
    float *s = u->step->scalars;
    memset(s, 0, sizeof(float) * LATHE_N_SCALARS);
    if (LATHE_HAS(table, scalars))
        table->scalars(u->optimizer->self, step, user);
    for (int32_t i = LATHE_SCALAR_USER; i < LATHE_N_SCALARS; i++)
        s[i] = (float)user[i - LATHE_SCALAR_USER];
}

static void fill_scalars(const lathe_update *u, const lathe_update_args *args, double grad_scale)
{
    float *s = u->step->scalars;
    fill_user_scalars(u, args->step);
    u->step->counter[0] = args->seed;
    u->step->counter[1] = (uint64_t)args->step;
    s[LATHE_SCALAR_LR] = (float)args->lr;
    s[LATHE_SCALAR_GRAD_SCALE] = (float)grad_scale;
    s[LATHE_SCALAR_COUNT] = (float)args->count;
    s[LATHE_SCALAR_LR_RATIO] = args->base_lr > 0.0 ? (float)(args->lr / args->base_lr) : 0.0f;
}

/* Makes the step that the plugin gets, without tensors. Its scalars point to host memory. */
static lathe_optimizer_step plugin_step(const lathe_update *u, int64_t step, uint64_t seed)
{
    return (lathe_optimizer_step){.size = (uint32_t)sizeof(lathe_optimizer_step),
                                  .scalars = u->step->scalars,
                                  .step = step,
                                  .seed = seed};
}

/* ---- the update ---- */

/* Runs LATHE_QUEUE_* for the tensors of part k. An average needs only the weights, no gradients. */
static lathe_status run_part(lathe_update *u, int32_t k, int32_t what,
                             const lathe_optimizer_step *step)
{
    if (u->widen && what != LATHE_QUEUE_AVERAGE)
        LATHE_TRY(lathe_widen_run(u->widen, k));
    return u->updater->ops->run(u->updater, k, what, step);
}

/* Runs or queues LATHE_QUEUE_*, part by part. Matrices follow after the tensors, and only in a
 * step. */
static lathe_status run_parts(lathe_update *u, int32_t what, const lathe_optimizer_step *step)
{
    const lathe_matrices *matrices = what == LATHE_QUEUE_STEP ? u->matrices : NULL;
    if (!u->offload) {
        const int32_t n = u->widen ? lathe_widen_table(u->widen).n_parts : u->tensors.n_of_step > 0;
        for (int32_t k = 0; k < n; k++)
            LATHE_TRY(run_part(u, k, what, step));
        return matrices ? lathe_matrices_run(matrices) : LATHE_OK;
    }
    const int32_t n = lathe_offload_n_parts(u->offload);
    const int32_t first = lathe_offload_n_tensor_parts(u->offload);
    for (int32_t k = 0; k < n; k++) {
        LATHE_TRY(lathe_offload_wait_in(u->offload, k));
        if (k < first)
            LATHE_TRY(run_part(u, k, what, step));
        else if (matrices)
            LATHE_TRY(lathe_matrices_run_part(matrices, k - first));
        LATHE_TRY(lathe_offload_copy_out(u->offload, k));
    }
    return LATHE_OK;
}

static lathe_status begin_offload(lathe_update *u)
{
    return u->offload ? lathe_offload_begin(u->offload) : LATHE_OK;
}

/* |w_new - w_old|^2 and |w_new|^2 of the step that was just run or queued. Waits. */
static lathe_status figures(lathe_update *u, double *out_update2, double *out_param2)
{
    *out_update2 = *out_param2 = 0.0;
    LATHE_TRY(u->updater->ops->fetch(u->updater));
    if (u->matrices) {
        LATHE_TRY(lathe_matrices_fetch(u->matrices));
        LATHE_TRY(lathe_step_norms_rows(&u->norms, LATHE_SQUARES_MATRICES, u->rows)); /* waits */
    } else {
        LATHE_TRY(lathe_machine_sync(u->m));
    }
    u->updater->ops->figures(u->updater, out_update2, out_param2);
    if (!u->matrices)
        return LATHE_OK;
    lathe_matrices_figures(u->matrices, out_update2);
    for (int32_t i = 0; i < u->store->n_rows; i++)
        *out_param2 += u->rows[i];
    return LATHE_OK;
}

/* The figures of all ranks, after each has updated its elements and got those of the others. */
static lathe_status finish_step(lathe_update *u, lathe_update_args *args)
{
    const lathe_peers *peers = u->store->peers;
    double sums[2] = {0.0, 0.0};
    LATHE_TRY(figures(u, &sums[0], &sums[1]));
    if (peers)
        LATHE_TRY(peers->spread(peers->arg));
    LATHE_TRY(add_peers(u, sums, 2));
    args->update_norm = sqrt(sums[0]);
    args->param_norm = sqrt(sums[1]);
    return LATHE_OK;
}

lathe_status lathe_update_run(lathe_update *u, lathe_update_args *args)
{
    const double average = 1.0 / (args->count * args->loss_scale);
    LATHE_TRY(begin_offload(u));
    LATHE_TRY(gradient_norm(u, average, args->group_norms, &args->grad_norm));
    args->overflow = !isfinite(args->grad_norm);
    if (args->overflow)
        return LATHE_OK;
    double norm = args->grad_norm;
    if (args->max_grad_value > 0.0) {
        LATHE_TRY(clip_values(u, args->max_grad_value / average));
        LATHE_TRY(gradient_norm(u, average, NULL, &norm));
    }
    fill_scalars(u, args, average * lathe_norm_clip(norm, args->max_grad_norm));
    const lathe_optimizer_step step = plugin_step(u, args->step, args->seed);
    LATHE_TRY(send_step(u));
    LATHE_TRY(run_parts(u, LATHE_QUEUE_STEP, &step));
    LATHE_TRY(finish_step(u, args));
    return u->offload ? lathe_offload_count_waits(u->offload) : LATHE_OK;
}

lathe_status lathe_update_share(lathe_update *u, float share)
{
    u->step->share = share;
    return send_step(u);
}

lathe_status lathe_update_estimate(lathe_update *u, lathe_update_args *args)
{
    const double average = 1.0 / (args->count * args->loss_scale);
    double norm = 0.0;
    LATHE_TRY(gradient_norm(u, average, NULL, &norm));
    args->overflow = !isfinite(norm);
    if (args->overflow || u->tensors.n_of_step == 0)
        return LATHE_OK;
    fill_scalars(u, args, average);
    const lathe_optimizer_step step = plugin_step(u, args->step, args->seed);
    LATHE_TRY(begin_offload(u));
    LATHE_TRY(send_step(u));
    LATHE_TRY(run_parts(u, LATHE_QUEUE_ESTIMATE, &step));
    LATHE_TRY(lathe_machine_sync(u->m)); /* u->step may be changed after this wait */
    return u->offload ? lathe_offload_count_waits(u->offload) : LATHE_OK;
}

lathe_status lathe_update_average(lathe_update *u, int64_t step, uint64_t seed)
{
    const lathe_optimizer_step all = plugin_step(u, step, seed);
    for (int32_t i = 0; i < u->store->n_rows; i++)
        if (u->store->rows[i].partition == LATHE_PARTITION_MATRIX)
            LATHE_TRY(lathe_average_copy_row(u->store, u->m, i));
    fill_user_scalars(u, step);
    if (u->tensors.n_of_step == 0)
        return LATHE_OK;
    LATHE_TRY(begin_offload(u));
    LATHE_TRY(send_step(u));
    return run_parts(u, LATHE_QUEUE_AVERAGE, &all);
}
