/* Runs nodes whose op is a plugin's: chooses one of its kernels and calls it in host memory, or
 * launches its image on a device with its own memory. */
#ifndef LATHE_EXEC_OP_NODE_H
#define LATHE_EXEC_OP_NODE_H

#include "exec/store/machine.h"
#include "graph/ir/plugin_op.h"

/** A prepared node: the kernel, and the call as the plugin gets it. */
typedef struct lathe_op_node lathe_op_node;

/** Chooses the kernel of the node with the highest score; *out is in `arena`.
 *  LATHE_E_UNSUPPORTED: none takes it on this machine; the message has their reasons.
 *  LATHE_E_PLUGIN: an answer that the plugin's header forbids. */
lathe_status lathe_op_node_prepare(const lathe_machine *m, const lathe_graph *g,
                                   const lathe_ir_node *n, lathe_arena *arena, lathe_op_node **out,
                                   int64_t *out_scratch_bytes);

/** Queues a run of the kernel. */
lathe_status lathe_op_node_run(const lathe_machine *m, const lathe_op_node *node,
                               const lathe_kernel_args *args);

/** Name of the chosen kernel. */
const char *lathe_op_node_kernel(const lathe_op_node *node);

#endif
