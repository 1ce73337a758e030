/* Kernels of nodes. */
#ifndef LATHE_EXEC_NODE_KERNEL_H
#define LATHE_EXEC_NODE_KERNEL_H

#include "exec/store/machine.h"
#include "graph/ir/ir_graph.h"

/** Prepares the kernel of a node whose op runs on the device. */
lathe_status lathe_node_kernel(const lathe_machine *m, const lathe_graph *g, const lathe_ir_node *n,
                               lathe_kernel **out, int64_t *out_scratch_bytes);

/** The outputs of a node with this LATHE_WRITE_*, as bits. */
uint32_t lathe__write_mask(const lathe_ir_node *n, int32_t write);

#endif
