/* Writes a graph as expressions: each function adds one node and returns its value.
 *
 *     lathe_expression e = {build->api, build->graph, "ppo", LATHE_OK};
 *     const lathe_val shift = lathe_expr_two(&e, LATHE_OP_SUB, logp, old_logp);
 *     const lathe_val ratio = lathe_expr_one(&e, LATHE_OP_EXP, shift);
 *     ...
 *     return e.status;
 *
 * The first node that fails sets the status; the functions then add nothing more and return
 * LATHE_NONE, so that the status needs to be read only at the end.
 *
 * C does not fix the order in which the arguments of a call are evaluated. A call whose arguments
 * add more than one node therefore gives a graph whose order of nodes depends on the compiler: use
 * a variable for all but one of them.
 */
#ifndef LATHE_KIT_EXPRESSION_H
#define LATHE_KIT_EXPRESSION_H

#include <string.h>

#include "lathe/graph.h"

typedef struct lathe_expression {
    const lathe_graph_api *api;
    lathe_graph *graph;
    const char *label;   /* of the nodes; borrowed */
    lathe_status status; /* LATHE_OK at first */
} lathe_expression;

/** A node of the inputs x and y (LATHE_NONE: of x alone). attrs NULL: all 0. */
static inline lathe_val lathe_expr_node(lathe_expression *e, int32_t op,
                                        const lathe_op_attrs *attrs, lathe_val x, lathe_val y)
{
    const lathe_val in[2] = {x, y};
    lathe_val out = LATHE_NONE;
    if (e->status == LATHE_OK)
        e->status =
            e->api->node(e->graph, op, attrs, in, y == LATHE_NONE ? 1 : 2, &out, 1, -1, e->label);
    return out;
}

static inline lathe_val lathe_expr_one(lathe_expression *e, int32_t op, lathe_val x)
{
    return lathe_expr_node(e, op, NULL, x, LATHE_NONE);
}

static inline lathe_val lathe_expr_two(lathe_expression *e, int32_t op, lathe_val x, lathe_val y)
{
    return lathe_expr_node(e, op, NULL, x, y);
}

/** alpha x + beta */
static inline lathe_val lathe_expr_affine(lathe_expression *e, double alpha, lathe_val x,
                                          double beta)
{
    lathe_op_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.alpha = alpha;
    attrs.beta = beta;
    return lathe_expr_node(e, LATHE_OP_SCALE, &attrs, x, LATHE_NONE);
}

/** x limited to low .. high */
static inline lathe_val lathe_expr_clamp(lathe_expression *e, double low, lathe_val x, double high)
{
    lathe_op_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.alpha = low;
    attrs.beta = high;
    return lathe_expr_node(e, LATHE_OP_CLAMP, &attrs, x, LATHE_NONE);
}

/** The sum of x * weights over all elements, f32[]. */
static inline lathe_val lathe_expr_weighted_sum(lathe_expression *e, lathe_val x, lathe_val weights)
{
    return lathe_expr_one(e, LATHE_OP_SUM, lathe_expr_two(e, LATHE_OP_MUL, x, weights));
}

/** x without a gradient */
static inline lathe_val lathe_expr_detach(lathe_expression *e, lathe_val x)
{
    lathe_val out = LATHE_NONE;
    if (e->status == LATHE_OK)
        e->status = e->api->detach(e->graph, x, &out);
    return out;
}

#endif
