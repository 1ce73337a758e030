/* Ops of plugins as the graph sees them: each gets two numbers after those of the core, for itself
 * and for its backward, and a lathe_op_info whose rules call the plugin's functions.
 *
 * Numbers are given once per process, when a graph first uses the plugin, which stays loaded; they
 * are in no file.
 */
#ifndef LATHE_GRAPH_PLUGIN_OP_H
#define LATHE_GRAPH_PLUGIN_OP_H

#include "graph/ir/ir_graph.h"
#include "lathe/op_plugin.h"
#include "lathe/plugin.h"

/** An op of a plugin. */
typedef struct lathe_plugin_op {
    lathe_op_info info;     /* of the op itself */
    lathe_op_info backward; /* of number + 1; infer is NULL: builders cannot add it */
    const lathe_plugin *plugin;
    const lathe_op_v1 *table;
    int32_t number;
} lathe_plugin_op;

/** Gives the op of a plugin its number, or finds it. LATHE_E_PLUGIN: it has the name of an op of
 *  the core. LATHE_E_NOMEM. */
lathe_status lathe_plugin_op_add(const lathe_plugin *plugin, const lathe_plugin_op **out);

/** The op of a plugin by its number, or by that of its backward; NULL: an op of the core, or
 *  none. */
const lathe_plugin_op *lathe_plugin_op_get(int32_t op);

/** Number of the kernels of an op, or of its backward, and the kernels. */
const lathe_op_kernel *lathe_plugin_op_kernels(int32_t op, int32_t *out_n);

/** Fills `in` [LATHE_OP_MAX_IN] with the inputs of the op's backward (lathe_op_backward), dy
 *  [n_out] being the gradients of its outputs. Returns their number. */
int32_t lathe_plugin_op_backward_inputs(const lathe_plugin_op *op, const lathe_val *in_of,
                                        const lathe_val *out_of, const lathe_val *dy,
                                        lathe_val *in);

#endif
