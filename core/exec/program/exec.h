/* Executables: planned graphs with prepared kernels and fixed addresses, which run without
 * allocating. */
#ifndef LATHE_EXEC_EXEC_H
#define LATHE_EXEC_EXEC_H

#include "exec/store/machine.h"
#include "exec/store/store.h"
#include "graph/ir/ir_graph.h"
#include "graph/passes/plan.h"

typedef struct lathe_exec lathe_exec;

/** Prepares every kernel of a finished graph and plans its memory. Takes ownership of the graph,
 * also on failure. Allocates no device memory. */
lathe_status lathe_exec_create(lathe_machine *m, lathe_graph *g, lathe_exec **out);
void lathe_exec_destroy(lathe_exec *exec);

const lathe_graph *lathe_exec_graph(const lathe_exec *exec);
const lathe_plan *lathe_exec_plan(const lathe_exec *exec);

/** Bytes of LATHE_MEM_STAGING that place() needs for inputs and outputs; 0 if the host may use the
 * device's memory. */
int64_t lathe_exec_staging_bytes(const lathe_exec *exec);

/** Plans when and where divided values of parameters are gathered (gather_uses.h). border: number
 * of nodes of the forward, which a run of the others may follow later. Without it, a program that
 *  reads divided values is refused when it is placed. */
lathe_status lathe_exec_divide(lathe_exec *exec, const lathe_store *store, int32_t border);
/** Bytes of the store's window that it needs. */
int64_t lathe_exec_window_bytes(const lathe_exec *exec);

/** Gives the executable its memory: parameters from the store, and the shared arena (at least
 *  plan->arena_bytes). Allocates its own inputs and constants, counted as activations,
 *  lathe_exec_staging_bytes() of staging memory, and plan->host_bytes for the values kept in host
 *  memory. Call lathe_staging_place first, because constants are uploaded. */
lathe_status lathe_exec_place(lathe_exec *exec, const lathe_store *store, void *arena);

/** Binds a STATE value to memory. Call it before the first run. */
void lathe_exec_bind(lathe_exec *exec, lathe_val state, void *memory);

/** Returns the address of a value: device memory, or host memory for an activation that is
 *  offloaded. */
void *lathe_exec_data(lathe_exec *exec, lathe_val v);

/** Memory in which the host writes an input of the next run: a view (transfer.h). */
void *lathe_exec_input(lathe_exec *exec, lathe_val v);
/** Call it before filling the inputs of a run. Waits if the device may not have copied the previous
 * contents yet. */
lathe_status lathe_exec_next_inputs(lathe_exec *exec);
/** Queues the copy of all inputs to the device. Call it before each run. */
lathe_status lathe_exec_send(lathe_exec *exec);

/** Waits for the run and returns an output in host memory, valid until the next run or the next
 * fetch of the same value. */
lathe_status lathe_exec_fetch(lathe_exec *exec, lathe_val output, const void **out);
/** Like lathe_exec_fetch of an output of rows of row_bytes; the first kept_bytes of each of the
 * first n_rows rows follow each other in out: [n_rows, kept_bytes]. Overwrites the output, which a
 * run computes anew. */
lathe_status lathe_exec_fetch_rows(lathe_exec *exec, lathe_val output, int64_t n_rows,
                                   int64_t row_bytes, int64_t kept_bytes, const void **out);
/** Queues the copy of an output into the caller's staging memory; the caller waits. */
lathe_status lathe_exec_fetch_later(lathe_exec *exec, lathe_val output, void *to);

/** Runs all nodes, or queues them on an asynchronous device. accumulate: LATHE_WRITE_RUNTIME
 * outputs are added to. Allocates nothing. The error of a node that runs by itself names the node;
 * that of a captured graph does not. */
lathe_status lathe_exec_run(lathe_exec *exec, int32_t accumulate);

/** Runs only the nodes [begin, end): for example the forward now and the backward later. */
lathe_status lathe_exec_run_range(lathe_exec *exec, int32_t begin, int32_t end, int32_t accumulate);

/** Bytes queued to and from host memory since the last call; -1 if the graph moves no activations.
 */
int64_t lathe_exec_take_moved(lathe_exec *exec);

/** Host seconds per phase since the last reset, indexed by LATHE_PHASE_*: forward, backward,
 *  recompute. On an asynchronous device this is the time of queueing. */
void lathe_exec_times(const lathe_exec *exec, double out_seconds[3]);
void lathe_exec_times_reset(lathe_exec *exec);
/** Sets the times back to those that lathe_exec_times returned, to leave out the runs in between.
 */
void lathe_exec_times_put(lathe_exec *exec, const double seconds[3]);

/** Starts a profile: the seconds of every node are summed from now on. */
lathe_status lathe_exec_profile(lathe_exec *exec);
/** The sums, [n_nodes] by node of the graph; NULL without a profile. */
double *lathe_exec_profile_seconds(lathe_exec *exec);

/** Called after a node, with the seconds (lathe_now) before and after it. */
typedef void (*lathe_node_fn)(const lathe_graph *g, int32_t node, double begin, double end);
/** Sets a function to call after every node; NULL removes it. While it is set, nothing is captured
 *  and every node is waited for. */
void lathe_exec_watch(lathe_exec *exec, lathe_node_fn fn);

/** Name of the attention backend chosen for the first attention node, or NULL. */
const char *lathe_exec_attention(const lathe_exec *exec);

/** Monotonic clock for all times, in seconds. */
double lathe_now(void);

#endif
