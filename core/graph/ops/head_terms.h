/* The logits that all ops of the head over the vocabulary have in common: (x W^T + u v^T) * s, with
 * x c[N,C], W c[V,C] and what an adapter adds: u c[N,R], v c[V,R], s f32[V]. Without u and v there
 * is the first product alone; s is the factor of a column, and needs u and v.
 */
#ifndef LATHE_GRAPH_HEAD_TERMS_H
#define LATHE_GRAPH_HEAD_TERMS_H

#include "graph/ops/rules.h"

/** Numbers of a model's inputs: W follows x; v and s follow u. */
typedef struct lathe__head_inputs {
    int32_t x, u;
} lathe__head_inputs;

/** Outputs of a derivative. Output 0 repeats the result of the forward op. */
enum {
    LATHE__HEAD_DX = 1,
    LATHE__HEAD_DW = 2, /* f32[V,C] */
    LATHE__HEAD_DU = 3,
    LATHE__HEAD_DS = 4,
    LATHE__HEAD_DV = 5, /* f32[V,R] */
    LATHE__HEAD_OUTPUTS = 6,
    LATHE__HEAD_PARAM_OUTPUTS = 1 << LATHE__HEAD_DW | 1 << LATHE__HEAD_DS | 1 << LATHE__HEAD_DV
};

/** Checks u, v and s, if they are there. LATHE_E_SHAPE. */
lathe_status lathe__head_infer(const lathe_op_problem *p, lathe__head_inputs h);
/** Sets the shapes of the outputs of a derivative, except output 0. */
void lathe__head_infer_gradients(lathe_op_problem *p, lathe__head_inputs h);

/** Emits the derivative `op`, whose inputs are those of node n with dy after the first n_first. */
void lathe__head_derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy, int32_t op,
                        int32_t n_first, lathe__head_inputs h);

/** Operations of the logits. */
double lathe__head_flops(const lathe_op_problem *p, lathe__head_inputs h);
/** Operations of a derivative: the logits again, and the gradients that are wanted. */
double lathe__head_flops_bwd(const lathe_op_problem *p, lathe__head_inputs h);

/** Checks x, W, u, v and s of n rows; *out_r: columns of u and v, 0 if they are not there. */
lathe_status lathe__head_check(const lathe_op_problem *p, lathe__head_inputs h, int64_t n,
                               int64_t *out_r);
/** Checks the outputs of a derivative, except output 0. r: from lathe__head_check. */
lathe_status lathe__head_check_gradients(const lathe_op_problem *p, lathe__head_inputs h, int64_t n,
                                         int64_t r);

/** Logit v of row r, before the soft-cap, in double. */
double lathe__head_logit(const lathe_op_problem *p, double *const *in, lathe__head_inputs h,
                         int64_t r, int64_t v);
/** Adds what the gradient g of that logit gives to the outputs of a derivative. */
void lathe__head_add_gradient(const lathe_op_problem *p, double *const *in, double *const *out,
                              lathe__head_inputs h, int64_t r, int64_t v, double g);

#endif
