/* Updates MATRIX parameters with one executable, built from the graph that the optimizer's build()
 * emits.
 *
 * Before each APPLY_UPDATE, an UPDATE_SQUARES measures what the node will subtract from its
 * parameter p: the sum of (s*(alpha*u + beta*p))^2, before the difference from p is rounded, in
 * segments of 16384 elements.
 *
 *   own      device memory: one sum in f64 per segment of each APPLY_UPDATE
 *   staging  a copy of them in pinned memory; empty if the host uses the memory in place
 */
#ifndef LATHE_OPTIM_UPDATE_MATRICES_H
#define LATHE_OPTIM_UPDATE_MATRICES_H

#include "exec/program/exec.h"
#include "exec/store/state_offload.h"
#include "optim/param_groups.h"

typedef struct lathe_matrices lathe_matrices;

/** Builds the executable for n parameters, at least one. Store, optimizer and groups must outlive
 * it. */
lathe_status lathe_matrices_create(lathe_machine *m, lathe_store *store,
                                   const lathe_instance *optimizer,
                                   const lathe_param_groups *groups, const int32_t *params,
                                   int32_t n, lathe_matrices **out);
/** NULL is fine. */
void lathe_matrices_destroy(lathe_matrices *x);

/** Makes the updates use `offload`: finds the nodes of each part. Call it before place(), which
 * binds the state to the buffers of the offload. LATHE_E_STATE: the nodes are not in the order of
 * the parts. */
lathe_status lathe_matrices_join(lathe_matrices *x, const lathe_offload *offload);

lathe_exec *lathe_matrices_exec(const lathe_matrices *x);

/** Bytes of device memory, and of pinned memory, for the sums. */
int64_t lathe_matrices_bytes(const lathe_matrices *x);
int64_t lathe_matrices_staging_bytes(const lathe_matrices *x);
/** Binds the placed store, the run's arena of activations (lathe_exec_place) and the memory of the
 *  sums. */
lathe_status lathe_matrices_place(lathe_matrices *x, void *arena, void *own, void *staging);

/** Runs or queues all updates; run_part only those of one part of the matrices, with an offload.
 * part: index among the parts of matrices, without those of tensors. */
lathe_status lathe_matrices_run(const lathe_matrices *x);
lathe_status lathe_matrices_run_part(const lathe_matrices *x, int32_t part);

/** fetch queues the copy of the sums to the host. After a wait, figures adds the squared L2 norm of
 * the last update over all matrices to *io_update2, in the order of the nodes. */
lathe_status lathe_matrices_fetch(const lathe_matrices *x);
void lathe_matrices_figures(const lathe_matrices *x, double *io_update2);

#endif
