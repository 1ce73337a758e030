/* The graph: values and nodes in topological order, static single assignment.
 *
 * Values of persistent kinds (parameters, gradients, states) represent memory that outlives a run
 * of the graph; several nodes may write them, in node order. All other values are written once.
 */
#ifndef LATHE_IR_GRAPH_H
#define LATHE_IR_GRAPH_H

#include "base/arena.h"
#include "graph/ir/op_info.h"
#include "graph/ir/params.h"
#include "lathe/graph.h"

enum {
    LATHE_VALUE_TEMP = 0,   /* output of a node: planned */
    LATHE_VALUE_INPUT = 1,  /* written by the run before each execution */
    LATHE_VALUE_CONST = 2,  /* written once (RoPE tables) */
    LATHE_VALUE_PARAM = 3,  /* a parameter as computation reads it */
    LATHE_VALUE_MASTER = 4, /* the f32 master copy of a parameter */
    LATHE_VALUE_GRAD = 5,   /* gradient of a parameter; f32 or the table's grad_dtype */
    LATHE_VALUE_PLANE = 6,  /* a packed plane of a quantized parameter */
    LATHE_VALUE_STATE = 7,  /* named memory kept between runs: optimizer slots, KV caches */
    LATHE_VALUE_PLANES = 8  /* a quantized parameter by all its planes, read by a product */
};

enum { LATHE_BLOCK_NONE = 0, LATHE_BLOCK_ATTENTION = 1, LATHE_BLOCK_MLP = 2 };
enum { LATHE_PHASE_FORWARD = 0, LATHE_PHASE_BACKWARD = 1, LATHE_PHASE_RECOMPUTE = 2 };

/* How an output is written. */
enum {
    LATHE_WRITE_SET = 0,     /* = */
    LATHE_WRITE_ADD = 1,     /* += */
    LATHE_WRITE_RUNTIME = 2, /* = on the first backward after zero_grad, += afterwards */
};

typedef struct lathe_ir_value {
    lathe_desc desc;
    int32_t kind;       /* LATHE_VALUE_* */
    int32_t node;       /* node that computes it; -1: none (or a persistent kind) */
    int32_t param;      /* PARAM, MASTER, GRAD, PLANE, PLANES: row of the table; else -1 */
    int32_t plane;      /* PLANE: its number */
    lathe_val share;    /* value whose memory this one reuses, or LATHE_NONE */
    int32_t is_output;  /* kept until the end of the run */
    int32_t needs_grad; /* set by the derivative */
    int32_t detached;   /* no gradient flows back */
    int32_t on_host;    /* TEMP: planned in host memory, not in device memory */
    const char *name;
    const void *data; /* CONST: content, in the graph's arena */
} lathe_ir_value;

typedef struct lathe_ir_node {
    int32_t op;
    int32_t n_in, n_out;
    int32_t layer, block, phase;
    lathe_val in[LATHE_OP_MAX_IN];
    lathe_val out[LATHE_OP_MAX_OUT];
    lathe_val acc[LATHE_OP_MAX_OUT]; /* value that output k is added to, in its memory, or NONE */
    int32_t write[LATHE_OP_MAX_OUT]; /* LATHE_WRITE_* */
    lathe_op_attrs attrs;
    void *self; /* an op of a plugin: its instance; NULL: it needs none */
    const char *label;
} lathe_ir_node;

struct lathe_graph {
    lathe_arena arena;
    lathe_params *params; /* borrowed */
    lathe_ir_value *values;
    lathe_ir_node *nodes;
    int32_t n_values, cap_values, n_nodes, cap_nodes;
    int32_t *param_values; /* [cap_param_values] value + 1 of (parameter, kind, plane), or 0:
                              param_value() */
    int32_t cap_param_values;
    int32_t layer, block, phase; /* for new nodes */
    uint64_t next_rng_stream;
    lathe_val rng;        /* the RNG input, once it was requested */
    int32_t drop_nothing; /* outside training: DROPOUT returns its input */
    /* While a frozen copy of the adapter is built: declared parameters that train become copies
     * under this prefix. NULL otherwise. */
    const char *copy_prefix;
    /* While an adapter builds a site of experts: their number, and the first row of each; the
     * parameters that it declares and the products that it adds then have a matrix for each
     * expert. 0: no such site. */
    int32_t n_experts;
    lathe_val expert_first;
    struct lathe_op_opened *opened; /* instances of ops of plugins, closed with the graph */
    /* While a program that generates text is built: rows of the batch, and states of sequences that
     * an op of a plugin may keep. 0: another program. */
    int64_t n_rows, n_slots;
    lathe_val slots;   /* i32[n_rows], once an op keeps a state */
    lathe_val *states; /* [n_states] STATE values [n_slots, ..], in the order of their nodes */
    int32_t n_states;
};

/** An empty graph over a parameter table, which must outlive it. */
lathe_status lathe_graph_create(lathe_params *params, lathe_graph **out);
void lathe_graph_destroy(lathe_graph *g);

/** The builder table that plugins get. */
const lathe_graph_api *lathe_graph_api_get(void);

/** Says that the graph generates text: ops that keep a state have it for n_rows rows of a batch, in
 *  n_slots slots. */
void lathe_graph_decodes(lathe_graph *g, int64_t n_rows, int64_t n_slots);

/** Sets the transformer layer (-1: none) and LATHE_BLOCK_* of the nodes added from now on. */
void lathe_graph_set_layer(lathe_graph *g, int32_t layer, int32_t block);

/** Adds a batch input; a constant (copied); a named state. */
lathe_status lathe_graph_input(lathe_graph *g, const char *name, lathe_desc desc, lathe_val *out);
lathe_status lathe_graph_const(lathe_graph *g, const char *name, lathe_desc desc, const void *data,
                               lathe_val *out);
lathe_status lathe_graph_state(lathe_graph *g, const char *name, lathe_desc desc, lathe_val *out);

/** The value of a parameter row as computation reads it; its master; its gradient; a plane; all of
 *  its planes, as a W of dtype LATHE_PLANES (lathe/packed.h). */
lathe_status lathe_graph_param(lathe_graph *g, int32_t param, lathe_val *out);
lathe_status lathe_graph_master(lathe_graph *g, int32_t param, lathe_val *out);
lathe_status lathe_graph_grad(lathe_graph *g, int32_t param, lathe_val *out);
lathe_status lathe_graph_plane(lathe_graph *g, int32_t param, int32_t plane, lathe_val *out);
lathe_status lathe_graph_planes(lathe_graph *g, int32_t param, lathe_val *out);

/** Marks a value as a result, which is readable after the run. */
void lathe_graph_output(lathe_graph *g, lathe_val v);

/** Adds a node; infers and checks its shapes. See lathe_graph_api.node. */
lathe_status lathe_graph_node(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                              const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                              int32_t inplace_in, const char *label);

/** The value whose memory v uses, following the chain of shares. */
lathe_val lathe_graph_root(const lathe_graph *g, lathe_val v);

/** Whether v is of a kind that outlives a run. */
int32_t lathe_graph_is_persistent(const lathe_graph *g, lathe_val v);

/* shared inside the floor */
lathe_val lathe__graph_value(lathe_graph *g, const lathe_ir_value *init);
lathe_ir_node *lathe__graph_append(lathe_graph *g);
/** Checks the declaration of a parameter by a plugin (lathe_graph_api.param), and adds its row to
 * the table of parameters, or finds it there if another graph declared it. *out is its value in the
 * graph. LATHE_E_ARG, LATHE_E_SHAPE. declared.c. */
lathe_status lathe__graph_declare(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out);
/** lathe_graph_node for every op, also one of a plugin with the instance `self`, all of whose
 *  outputs the node has, however few the caller wants. */
lathe_status lathe__graph_add(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs, void *self,
                              const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                              int32_t inplace_in, const char *label);
/** Describes a node as a problem of its op. */
void lathe__graph_problem(const lathe_graph *g, const lathe_ir_node *n, lathe_op_problem *out);

#endif
