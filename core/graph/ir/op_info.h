/* Describes every op for the core. Each op has one constant lathe_op_info in
 * core/graph/ops/<operation>.c; core/graph/ops/table.c lists them by number. Passes, the executor
 * and the conformance suite read this table; only code in core/graph/ops switches over op numbers.
 */
#ifndef LATHE_GRAPH_OP_INFO_H
#define LATHE_GRAPH_OP_INFO_H

#include "lathe/graph.h"

enum {
    LATHE_RUNS_DEVICE = 0,
    LATHE_RUNS_ATTENTION = 1,
    LATHE_RUNS_QUANT = 2,
    LATHE_RUNS_BESIDE = 3, /* the core runs it: a copy on a copy stream, or a wait for one */
    LATHE_RUNS_OP = 4      /* a kernel of the plugin that the op comes from (plugin_op.h) */
};

/* Ops that only lathe_pass_offload creates (passes.h), numbered after those of op.h. v and w are in
 * device memory, h in host memory; h' and w' are h and w after the wait.
 *
 *   copy_out  v -> h         starts a copy of v to h; until wait_out v may be read but not written
 *   wait_out  h, v -> h'     waits for that copy: h contains the value, and the memory of v is free
 *   copy_in   h' -> w        starts a copy of h to w; until wait_in nothing may use w
 *   wait_in   w, h' -> w'    waits for that copy: w contains the value, and the memory of h is free
 */
#define LATHE_CORE_OP_TABLE(X)                                                                     \
    X(COPY_OUT, "copy_out", 1, 1)                                                                  \
    X(WAIT_OUT, "wait_out", 2, 1)                                                                  \
    X(COPY_IN, "copy_in", 1, 1)                                                                    \
    X(WAIT_IN, "wait_in", 2, 1)

enum {
    LATHE_OP_BEFORE_CORE_OPS = LATHE_N_OPS - 1,
#define LATHE_X(name, text, n_in, n_out) LATHE_OP_##name,
    LATHE_CORE_OP_TABLE(LATHE_X)
#undef LATHE_X
        LATHE_N_CORE_OPS
};

/* Ops of plugins have two numbers each, from LATHE_N_CORE_OPS on (plugin_op.h). The limit keeps
 * their list in one place, so that pointers into it stay valid while it grows. */
enum {
    LATHE_MOST_PLUGIN_OPS = 256,
    LATHE_OP_NUMBERS = LATHE_N_CORE_OPS + 2 * LATHE_MOST_PLUGIN_OPS
};

/** One use of an op: attributes, and the shapes of its tensors. */
typedef struct lathe_op_problem {
    int32_t op, n_in, n_out;
    uint32_t may_accumulate; /* bit i: output i will be added to */
    const char *label;       /* label of the node, for messages; NULL: not a node */
    void *self;              /* an op of a plugin: its instance, with the attributes */
    lathe_op_attrs attrs;    /* an op of the core */
    lathe_desc in[LATHE_OP_MAX_IN],
        out[LATHE_OP_MAX_OUT]; /* dtype LATHE_ABSENT: not given or not requested */
} lathe_op_problem;

/** A problem on which kernels and derivatives are tested. Tensors are written "dtype[dims]"; c
 *  means each compute dtype in turn, and - an absent tensor. A suffix selects the content of a
 *  tensor (without one: noise in [-1, 1)):
 *   :+   around 1, positive          :tN  indices below N
 *   :-   around -1, negative         :pT  first tokens of documents, in rows of T tokens
 *   :w   small whole numbers         :TN  targets, every third -1
 *   :2   noise in [-2, 2)            :k   lengths of cached rows
 *   :r   an RNG counter, one rank    :R   an RNG counter, rank 2 of 3, pairs
 *   :s   segments of the first input :dN, :DN requests of SAMPLE for N rows, D: drafted tokens
 *   :h   settings of SAMPLE          :b   bits
 *   :gN  first rows of groups of N rows, one of them empty */
typedef struct lathe_op_case {
    const char *in, *out; /* NULL: the end of a list */
    lathe_op_attrs attrs;
    int64_t terms; /* number of terms summed in f32 per element */
    /* units of c, relative to the largest element, for rounded intermediate values */
    double half_units;
} lathe_op_case;

typedef struct lathe_tape lathe_tape; /* tape.h */
struct lathe_ir_node;                 /* graph.h */

typedef struct lathe_op_info {
    const char *name;
    int32_t n_in, n_out;

    /* ---- traits: 0 for most ops ---- */

    int32_t runs_on;         /* LATHE_RUNS_* */
    int32_t accumulates;     /* its outputs may be added to */
    uint32_t inplace;        /* bit k: output 0 may take the memory of input k */
    int32_t inplace_always;  /* output 0 is input 0 */
    uint32_t reads_anywhere; /* bit k: an element of output 0 depends on more of input k than the
                                element at the same index */
    uint32_t fixed_inputs;   /* bit k: no derivative for input k */
    uint32_t
        param_outputs; /* bit k: output k is a parameter's gradient, f32 with every compute dtype */
    int32_t in_grad_dtype;    /* these outputs may have the dtype of stored gradients */
    int32_t cheap;            /* costs less to recompute in the backward than to store */
    int32_t recomputed;       /* recomputed in the backward in every mode */
    int32_t training_only;    /* outside training its output equals its first input */
    int32_t from_all_outputs; /* derive() reads the gradients of all outputs from the tape; dy is
                                 LATHE_NONE if output 0 has none */

    /* ---- rules: NULL is allowed where the comment says so ---- */

    /** Computes shapes and dtypes of the outputs from p->in and p->attrs into p->out, whose entries
     *  are LATHE_ABSENT before the call. LATHE_E_SHAPE.
     *  NULL: lathe_graph_node cannot create a node of this op. */
    lathe_status (*infer)(lathe_op_problem *p);
    /** Dtype and shape of the state of one sequence that the op keeps while text is generated, of
     *  at most 3 dimensions. NULL: it keeps none. */
    lathe_status (*state)(const lathe_op_problem *p, lathe_desc *out);
    /** Emits the gradient nodes of node n; dy is the gradient of output 0. NULL: no derivative. */
    void (*derive)(lathe_tape *t, const struct lathe_ir_node *n, lathe_val dy);
    /** Floating-point operations, 2 per multiply-add; NULL: negligible. */
    double (*flops)(const lathe_op_problem *p);
    /** Checks that op.h allows these shapes, dtypes and attributes; a device refuses all others.
     *  LATHE_E_SHAPE, LATHE_E_DTYPE, LATHE_E_ARG, LATHE_E_UNSUPPORTED. NULL: no device runs the
     *  op. */
    lathe_status (*check)(const lathe_op_problem *p);
    /** Computes out = op(in) in double precision, row-major. in[i] and out[i] are NULL where
     * absent; outputs are zero before the call. NULL: the result is defined by a codec. */
    void (*exact)(const lathe_op_problem *p, double *const *in, double *const *out);
    /** Problems to test kernels on; the list ends at an entry without `in`. */
    const lathe_op_case *cases;
} lathe_op_info;

/** The description of an op, the core's or a plugin's; NULL for an unknown number. */
const lathe_op_info *lathe_op_info_get(int32_t op);

/** Number of an op of the core by its name, or -1. */
int32_t lathe_op_find(const char *name);

#endif
