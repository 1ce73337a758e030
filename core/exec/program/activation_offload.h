/* Runs the copy and wait nodes of lathe_pass_offload (train.offload_activations). The copies use
 * the machine's two copy streams, `out` and `in`; events order them with the machine's own stream.
 *
 *   copy_out  stream `out` waits for the machine's stream, then copies to the host
 *   wait_out  the machine's stream waits for `out`
 *   copy_in   stream `in` waits for the machine's stream, then copies to the device
 *   wait_in   the machine's stream waits for `in`
 *
 * The host does not wait. Memory of a copy is freed or overwritten only after wait_out or wait_in.
 * Each copy and its wait are in the same range of nodes, so that the two copy streams have joined
 * the machine's stream again when a captured range ends.
 */
#ifndef LATHE_EXEC_ACTIVATION_OFFLOAD_H
#define LATHE_EXEC_ACTIVATION_OFFLOAD_H

#include "exec/store/machine.h"
#include "graph/ir/ir_graph.h"

typedef struct lathe_value_offload {
    lathe_machine *m;
    const lathe_graph *g;
    int64_t host_bytes; /* 0: nothing moves */
    char *host;         /* [host_bytes] */
    lathe_event *mark;  /* last recorded point of the machine's stream */
    lathe_event **done; /* [n_values] end of the copy that writes a value */
    int64_t moved;
} lathe_value_offload;

/** Allocates the host memory and creates the streams; `host` is NULL when nothing is moved. g and m
 * must outlive it. */
lathe_status lathe_value_offload_place(lathe_value_offload *o, lathe_machine *m,
                                       const lathe_graph *g, int64_t host_bytes);
/** Waits for copies in flight, then frees everything. A zeroed object is allowed. */
void lathe_value_offload_fini(lathe_value_offload *o);

/** Runs a node of LATHE_RUNS_BESIDE. */
lathe_status lathe_value_offload_run(lathe_value_offload *o, const lathe_ir_node *n,
                                     const void *from, void *to);

/** Counts the bytes that the nodes [begin, end) move, whether they run one by one or as a replay.
 */
void lathe_value_offload_count(lathe_value_offload *o, int32_t begin, int32_t end);

#endif
