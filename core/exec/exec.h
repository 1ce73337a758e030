/* Executables: a planned graph with prepared kernels and addresses, run without allocating. */
#ifndef LATHE_EXEC_EXEC_H
#define LATHE_EXEC_EXEC_H

#include "exec/machine.h"
#include "exec/store.h"
#include "ir/graph.h"
#include "ir/plan.h"

typedef struct lathe_exec lathe_exec;

/** Prepares every kernel of a finished graph and plans its memory. Takes the graph over, also on
 *  failure. Allocates no device memory. */
lathe_status lathe_exec_create(lathe_machine *m, lathe_graph *g, lathe_exec **out);
void lathe_exec_destroy(lathe_exec *exec);

/** Prepares the kernel of a node whose op is the device's. */
lathe_status lathe_node_kernel(const lathe_machine *m, const lathe_graph *g, const lathe_ir_node *n,
                               lathe_kernel **out, int64_t *out_scratch_bytes);

const lathe_graph *lathe_exec_graph(const lathe_exec *exec);
const lathe_plan *lathe_exec_plan(const lathe_exec *exec);

/** Bytes of LATHE_MEM_STAGING that place() takes for what goes in and comes out; 0 where the host shares the
 *  device's memory. */
int64_t lathe_exec_staging_bytes(const lathe_exec *exec);

/** Gives the executable its memory: parameters from the store, the shared arena (at least
 *  plan->arena_bytes), and its own inputs and constants, allocated here as activations, and plan->host_bytes for the
 *  values that wait in the host's memory. Transfers are placed. */
lathe_status lathe_exec_place(lathe_exec *exec, const lathe_store *store, void *arena);

/** Binds a STATE value to memory. Before the first run. */
void lathe_exec_bind(lathe_exec *exec, lathe_val state, void *memory);

/** Device memory of a value. */
void *lathe_exec_data(lathe_exec *exec, lathe_val v);

/** Host memory to write an input to, for the next run: the device's own, where the host shares it. */
void *lathe_exec_input(lathe_exec *exec, lathe_val v);
/** Before the inputs of a run are filled: waits when the device may not have taken yet what lies there. */
lathe_status lathe_exec_next_inputs(lathe_exec *exec);
/** Queues all inputs, as they stand, to the device. Before each run. */
lathe_status lathe_exec_send(lathe_exec *exec);

/** What a run left in an output, in host memory, once it is done: waits for it. Valid until the next run
 *  or fetch of the same value. */
lathe_status lathe_exec_fetch(lathe_exec *exec, lathe_val output, const void **out);
/** Queues the copy of an output into staging memory of the caller, who waits for it. */
lathe_status lathe_exec_fetch_later(lathe_exec *exec, lathe_val output, void *to);

/** Runs all nodes. accumulate: LATHE_WRITE_RUNTIME outputs are added to. Allocates nothing.
 *  An error names the node. */
lathe_status lathe_exec_run(lathe_exec *exec, int32_t accumulate);

/** The nodes [begin, end) of a run only: a forward now, its backward later. */
lathe_status lathe_exec_run_range(lathe_exec *exec, int32_t begin, int32_t end, int32_t accumulate);

/** Bytes of values queued to the host's memory and back since the last call; -1: none ever are. */
int64_t lathe_exec_take_moved(lathe_exec *exec);

/** Seconds spent per phase (forward, backward with recompute) since the last reset, by wall clock. */
void lathe_exec_times(const lathe_exec *exec, double out_seconds[3]);
void lathe_exec_times_reset(lathe_exec *exec);
/** Puts back what lathe_exec_times gave: what ran since then is not counted. */
void lathe_exec_times_put(lathe_exec *exec, const double seconds[3]);

/** Starts a profile: from now on the seconds of every node are summed. */
lathe_status lathe_exec_profile(lathe_exec *exec);
/** The sums, [n_nodes] by node of the graph; NULL without a profile. */
double *lathe_exec_profile_seconds(lathe_exec *exec);

/** Called behind every node, with the seconds (lathe_now) around it; NULL: no more. */
typedef void (*lathe_node_fn)(const lathe_graph *g, int32_t node, double begin, double end);
void lathe_exec_watch(lathe_exec *exec, lathe_node_fn fn);

/** Name of the attention backend chosen for the first attention node, or NULL. */
const char *lathe_exec_attention(const lathe_exec *exec);

/** The clock that times are taken from: monotonic seconds. */
double lathe_now(void);

#endif
