/* A small substitute for the graph: records the nodes that a plugin emits through lathe_graph_api
 * and evaluates them in double precision, for tests of adapters, stages and matrix optimizers.
 *
 *     lathe_graph *g = mock_create(LATHE_F32);
 *     const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 3, 4), values);
 *     plugin->wrap(self, mock_api(), g, ..., x, 1, &y);
 *     mock_eval(g);                                  values of every node, in order of building
 *     mock_data(g, y)[0]                             a result
 *     mock_gradient(g, loss, x, 5, 1e-5)             d loss / d x[5], central difference
 *     mock_destroy(g);
 *
 * Shapes and dtypes are checked as the contract in op.h states; a wrong one gives LATHE_E_SHAPE or
 * LATHE_E_DTYPE and mock_error(g). Every value has its own memory: in-place is only recorded.
 * mock_gradient keeps detached values constant, so they add 0 to the derivative.
 *
 * Ops: LINEAR ADD SUB MUL SCALE SCALE_BY LINCOMB DROPOUT CAST COPY SUM ROW_SUM SLICE LOGSIGMOID
 * SIGMOID MATMUL L2_NORMALIZE TRANSPOSE APPLY_UPDATE BROADCAST DIV MAX MIN LESS CLAMP EXP
 * BLOCK_MATMUL SKEW.
 */
#ifndef LATHE_MOCK_GRAPH_H
#define LATHE_MOCK_GRAPH_H

#include "lathe/graph.h"
#include "lathe/host.h"

#define MOCK_MAX 512

/** One recorded node; value ids are those that the API returned. */
typedef struct mock_node {
    int32_t op, n_in, n_out, inplace_in;
    lathe_op_attrs attrs;
    lathe_val in[LATHE_OP_MAX_IN], out[LATHE_OP_MAX_OUT];
    char label[96];
} mock_node;

/** compute: dtype in which param() returns matrices. Aborts if memory runs out, as in any test
 *  program. */
lathe_graph *mock_create(int32_t compute);
void mock_destroy(lathe_graph *g);
const lathe_graph_api *mock_api(void);

/** An input value with its data (copied; NULL: zeros). */
lathe_val mock_input(lathe_graph *g, const char *name, lathe_desc desc, const double *data);
/** The value of a parameter declared through param(); LATHE_NONE: there is no parameter of that
 *  name. */
lathe_val mock_param(const lathe_graph *g, const char *name);
const lathe_param_decl *mock_param_decl(const lathe_graph *g, const char *name);
int mock_n_params(const lathe_graph *g);

int mock_n_nodes(const lathe_graph *g);
const mock_node *mock_node_at(const lathe_graph *g, int i);
/** Number of nodes of one op. */
int mock_count_op(const lathe_graph *g, int32_t op);

lathe_desc mock_desc(const lathe_graph *g, lathe_val v);
int64_t mock_elements(const lathe_graph *g, lathe_val v);
/** Memory of a value; inputs and parameters may be written before mock_eval. */
double *mock_data(lathe_graph *g, lathe_val v);
/** 1: every result is rounded to its dtype (f32, bf16, f16); 0 (default): plain double. */
void mock_round(lathe_graph *g, int on);
/** Computes the values of all nodes. */
void mock_eval(lathe_graph *g);
/** d out[0] / d at[i] by the central difference with step h; leaves the graph evaluated. */
double mock_gradient(lathe_graph *g, lathe_val out, lathe_val at, int64_t i, double h);
/** Message of the last refusal. */
const char *mock_error(const lathe_graph *g);

/** A host table for plugins under test (libc, one thread), and the last message of its fail(). */
const lathe_host *mock_host(void);
const char *mock_host_error(void);

#endif
