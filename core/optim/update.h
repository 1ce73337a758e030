/* Runs the optimizer step: gradient norm, clipping, scalars, the plugin's update, and the refresh
 * of the compute copies.
 *
 * Element-, row- and block-wise parameters are passed to the plugin's step() in one call. MATRIX
 * parameters are updated by one executable, built from the graph that the plugin emits.
 */
#ifndef LATHE_OPTIM_UPDATE_H
#define LATHE_OPTIM_UPDATE_H

#include "exec/program/exec.h"
#include "lathe/scheduler.h"
#include "optim/param_groups.h"

typedef struct lathe_update lathe_update;

/** Inputs and outputs of a step. If ranks divide the parameters (store->peers), all ranks run it;
 * each updates its elements, and every output is that of all. */
typedef struct lathe_update_args {
    double count;          /* divisor of the summed loss: tokens or pairs of the whole step */
    double loss_scale;     /* factor in the gradients; 1 without a scaler */
    double max_grad_norm;  /* 0: no clipping */
    double max_grad_value; /* 0: no clipping of elements; done before max_grad_norm */
    double lr;             /* from the schedule */
    double base_lr;
    int64_t step; /* 1 at the first */
    uint64_t seed;
    /* out */
    double grad_norm;                     /* of the averaged gradient, before clipping */
    double update_norm;                   /* |w_new - w_old| over the trained parameters */
    double param_norm;                    /* |w_new| */
    double group_norms[LATHE_MAX_GROUPS]; /* of grad_norm, by group */
    int32_t overflow;                     /* 1: a gradient was not finite; nothing was updated */
} lathe_update_args;

/** Prepares the step for the parameters of a laid-out store. Optimizer and groups must outlive it.
 */
lathe_status lathe_update_create(lathe_machine *m, lathe_store *store,
                                 const lathe_instance *optimizer, const lathe_param_groups *groups,
                                 lathe_update **out);
void lathe_update_destroy(lathe_update *u);

/** Bytes of the arena that MATRIX updates need (0: none), and their inputs and activations, for the
 * report of the plan. */
int64_t lathe_update_arena_bytes(const lathe_update *u);
int64_t lathe_update_input_bytes(const lathe_update *u);
int64_t lathe_update_activation_bytes(const lathe_update *u);

/** Bytes of memory that place() allocates, counted as the optimizer's. */
int64_t lathe_update_own_bytes(const lathe_update *u);

/** Bytes of LATHE_MEM_STAGING that place() allocates. */
int64_t lathe_update_staging_bytes(const lathe_update *u);

/** Binds the placed store and the shared arena. */
lathe_status lathe_update_place(lathe_update *u, void *arena);

/** One step. Gradients are read, not cleared. */
lathe_status lathe_update_run(lathe_update *u, lathe_update_args *args);

/** Passes the unclipped gradients to the optimizer's estimate(), for the tensors of its step().
 * args->count and loss_scale belong to these gradients. args->overflow 1: they are not finite, and
 * estimate() was not called. */
lathe_status lathe_update_estimate(lathe_update *u, lathe_update_args *args);

/** Calls the optimizer's average() to fill the store's averages; MATRIX parameters get their
 * weights. step: number of the last update, 1 at the first. */
lathe_status lathe_update_average(lathe_update *u, int64_t step, uint64_t seed);

/** Queues the norm of the gradients once they are complete, so that the next wait of the host makes
 * it available. */
lathe_status lathe_update_expect_norm(lathe_update *u);
/** Discards the queued norm, because the gradients change. */
void lathe_update_forget_norm(lathe_update *u);

/** Norm of the accumulated gradients, without averaging; and norm of the trained parameters. */
lathe_status lathe_update_gradient_norm(lathe_update *u, double *out);
lathe_status lathe_update_param_norm(lathe_update *u, double *out);

/** Sets the share in step memory (store.h), in order with the queued work. */
lathe_status lathe_update_share(lathe_update *u, float share);

/** The executable of the MATRIX parameters; NULL: none. */
lathe_exec *lathe_update_matrix(const lathe_update *u);

/** Bytes of state that were queued for a copy to or from the device since the last call; -1: state
 * is not offloaded. */
int64_t lathe_update_take_moved(lathe_update *u);

/** Seconds that updates and estimates waited for state since the last call; -1: they never wait, or
 * the device measures no time. */
double lathe_update_take_waited(lathe_update *u);

/** FLOP of the matrix products of one update. */
double lathe_update_flops(const lathe_update *u);

#endif
