/* Runs the nodes of lathe_pass_offload (train.offload_activations): copies on the machine's two copy streams, `out` and
 * `in`, ordered with its own stream by events.
 *
 *   copy_out  out waits for the machine's stream, then copies     wait_out  the machine's stream waits for out
 *   copy_in   in waits for the machine's stream, then copies      wait_in   the machine's stream waits for in
 *
 * The host does not wait. Memory of a copy is freed or overwritten only after wait_out or wait_in. Each copy and its wait
 * lie in the same range of nodes, so that a captured range has joined the two streams again when it ends.
 */
#ifndef LATHE_EXEC_ACTIVATION_OFFLOAD_H
#define LATHE_EXEC_ACTIVATION_OFFLOAD_H

#include "exec/machine.h"
#include "ir/graph.h"

typedef struct lathe_value_offload {
    lathe_machine *m;
    const lathe_graph *g;
    int64_t host_bytes; /* 0: nothing moves */
    char *host;         /* [host_bytes] */
    lathe_event *mark;  /* where the machine's stream was last */
    lathe_event **done; /* [n_values] of the copy that makes a value */
    int64_t moved;
} lathe_value_offload;

/** Takes the memory and the streams; NULL of `host` when nothing moves. g and m must outlive it. */
lathe_status lathe_value_offload_place(lathe_value_offload *o, lathe_machine *m,
                                       const lathe_graph *g, int64_t host_bytes);
/** Waits for what is under way. All zeros is fine. */
void lathe_value_offload_fini(lathe_value_offload *o);

/** Runs a node of LATHE_RUNS_BESIDE. */
lathe_status lathe_value_offload_run(lathe_value_offload *o, const lathe_ir_node *n,
                                     const void *from, void *to);

/** Counts what the nodes [begin, end) move, whether run one by one or replayed. */
void lathe_value_offload_count(lathe_value_offload *o, int32_t begin, int32_t end);

#endif
