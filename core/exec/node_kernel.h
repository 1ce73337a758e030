/* How a node writes its outputs, for its kernel. */
#ifndef LATHE_EXEC_NODE_KERNEL_H
#define LATHE_EXEC_NODE_KERNEL_H

#include "exec/exec.h"

/** The outputs of a node with this LATHE_WRITE_*, as bits. */
uint32_t lathe__write_mask(const lathe_ir_node *n, int32_t write);

#endif
