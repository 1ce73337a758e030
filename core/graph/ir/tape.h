/* The interface for derivative rules (core/graph/ops): they read the forward's values and emit
 * gradient nodes. */
#ifndef LATHE_GRAPH_TAPE_H
#define LATHE_GRAPH_TAPE_H

#include "graph/ir/ir_graph.h"

struct lathe_tape {
    lathe_graph *g;
    lathe_val *grad;   /* [n_forward_values] d(loss * seed)/dv so far; LATHE_NONE: none yet */
    int32_t *has_grad; /* [n_params]: the parameter's gradient was written in this graph */
    void *self;        /* instance of the op of a plugin whose backward is emitted */
    lathe_status status;
};

/** Whether the gradient of v is needed. */
int32_t lathe__needs(const lathe_tape *t, lathe_val v);

/** Emits one gradient node. targets[k]: the forward value whose gradient is output k, or LATHE_NONE
 *  for no output k. must: bit k is set if the op computes output k even if that gradient is not
 *  needed. */
void lathe__emit(lathe_tape *t, int32_t op, const lathe_op_attrs *attrs, const lathe_val *in,
                 int32_t n_in, const lathe_val *targets, uint32_t must, int32_t n_targets,
                 const char *label);

/** Emits a node with one output, op(a) or op(a, b), as the gradient of `target`, if that is
 *  needed. */
void lathe__emit_one(lathe_tape *t, const lathe_ir_node *n, int32_t op, const lathe_op_attrs *attrs,
                     lathe_val a, lathe_val b, lathe_val target);

/** Emits a helper node of a composed derivative, op(a) or op(a, b); its output is not yet a
 *  gradient. */
lathe_val lathe__emit_plain(lathe_tape *t, int32_t op, const lathe_op_attrs *attrs, lathe_val a,
                            lathe_val b, const char *label);

/** Adds a computed value to the gradient of `target`, if that is needed. */
void lathe__add_to_grad(lathe_tape *t, lathe_val target, lathe_val contribution, const char *label);

/** v converted to another dtype; v itself if it already has that dtype. */
lathe_val lathe__as_dtype(lathe_tape *t, lathe_val v, int32_t dtype, const char *label);

#endif
