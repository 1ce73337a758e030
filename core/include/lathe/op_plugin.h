/* The interface of op plugins: computations that the graph lacks, which models, adapters, stages
 * and other ops add with lathe_graph_api.op by the plugin's name.
 *
 * The plugin's schema lists the attributes of a node. create() gets the values of one node and
 * makes an instance, `self`, which lives as long as the graph and is only read. All else is a
 * declaration or a pure function, so that the core differentiates, recomputes, plans, counts and
 * checks the op as it does its own.
 *
 * Tensors are dense and row-major, with 0 to 4 dimensions. Dtype rules are those of op.h: c is the
 * compute dtype (f32, bf16 or f16), vectors of parameters are f32, and reductions are computed in
 * f32 or wider.
 *
 * Every kernel must be
 *  - repeatable: the same bits each time, with every number of threads;
 *  - independent of the batch: the bits of a row of a LATHE_TENSOR_BATCHED output do not depend on
 *    the other rows, nor on their number;
 *  - bounded: it reads its inputs, writes its outputs and scratch, and allocates nothing.
 *
 * Threads: the rank's thread; kernels use lathe_host.parallel_for and create no threads.
 */
#ifndef LATHE_OP_PLUGIN_H
#define LATHE_OP_PLUGIN_H

#include "device.h"
#include "graph.h"
#include "host.h"

#define LATHE_OP_REVISION 1

/* Flags of an input or an output. */
enum {
    LATHE_TENSOR_OPTIONAL = 1, /* input: may be absent (LATHE_NONE) */
    /* input: has no derivative; a trainable value must not reach it. Integers have none anyway.
     * Output: no gradient flows through it; it is a statistic, or saved for the backward */
    LATHE_TENSOR_FIXED = 2,
    /* input: often a parameter. `backward` writes its gradient in f32 whatever the compute dtype
     * is, as LINEAR_DW does; if the parameter's gradients are kept in the compute dtype, in that */
    LATHE_TENSOR_PARAMETER = 4,
    /* input: output 0 may take its memory; it has the shape and dtype of output 0. Each element of
     * the output then depends on the input's element at the same index alone, or the kernel reads
     * what it needs before it overwrites it */
    LATHE_TENSOR_IN_PLACE = 8,
    /* the first dimension counts tokens, or rows, of a batch: a row's values do not depend on the
     * other rows */
    LATHE_TENSOR_BATCHED = 16,
};

/** An input or output of an op. Plain data. */
typedef struct lathe_op_tensor {
    const char *name;  /* snake_case, for errors and `lathe show` */
    const char *shape; /* for the reader: "c[N,C]" */
    int32_t flags;     /* LATHE_TENSOR_* */
    int32_t reserved;  /* 0 */
} lathe_op_tensor;
LATHE_ABI_SIZE(lathe_op_tensor, 24);

/** One use of the op, with all that is fixed before it runs. Borrowed during a call. */
typedef struct lathe_op_call {
    uint32_t size;
    uint32_t flags;        /* LATHE_FLAG_* */
    const lathe_desc *in;  /* [n_in]; dtype LATHE_ABSENT: not given */
    const lathe_desc *out; /* [n_out]; dtype LATHE_ABSENT: not wanted */
    int32_t n_in, n_out;   /* of `backward`: see there */
    /* bit k: a run may set accumulate for output k; a run may leave it clear */
    uint32_t may_accumulate, may_overwrite;
    int32_t n_threads; /* of parallel_for */
    int32_t reserved;  /* 0 */
    const lathe_device_info *device;
} lathe_op_call;
LATHE_ABI_SIZE(lathe_op_call, 56);

/** Launches kernels of an image. Borrowed during a call. */
typedef struct lathe_op_launcher {
    uint32_t size;
    uint32_t reserved; /* 0 */
    void *ctx;
    /** [step] Queues the kernel of the image with n_blocks blocks of n_threads threads; its only
     *  argument is a struct of args_bytes, copied during the call. Launches run in order. */
    lathe_status (*launch)(void *ctx, const char *kernel, int64_t n_blocks, int32_t n_threads,
                           const void *args, int64_t args_bytes);
} lathe_op_launcher;
LATHE_ABI_SIZE(lathe_op_launcher, 24);

/** One way to compute the op. The kernel with the highest score computes a node; ties go to the
 *  first. Plain data. */
typedef struct lathe_op_kernel {
    const char *name; /* snake_case: "portable", "avx512", "cuda" */
    /** [pure] Rates how well the kernel suits the call (bands in plugin.h); 0 refuses. `why` gets
     *  one line. The core asks kernels with `run` for devices in host memory alone, and those with
     *  `queue` for devices that launch images. */
    int32_t (*score)(void *self, const lathe_op_call *call, char *why, int64_t why_bytes);
    /** [pure] Bytes of scratch, which the memory plan counts; a kernel must not use more. NULL: 0.
     */
    int64_t (*scratch)(void *self, const lathe_op_call *call);
    /** [step] Computes in host memory. args->accumulate: bit k: adds to output k. NULL: the kernel
     *  is in an image. */
    lathe_status (*run)(void *self, const lathe_op_call *call, const lathe_kernel_args *args);
    /** [step] Queues kernels of `image`. NULL: it runs in host memory. */
    lathe_status (*queue)(void *self, const lathe_op_call *call, const lathe_kernel_args *args,
                          const lathe_op_launcher *to);
    const void *image; /* of queue (lathe/kit/code_image.h); NULL: built without nvcc */
} lathe_op_kernel;
LATHE_ABI_SIZE(lathe_op_kernel, 48);

/** The op's own backward. Its inputs are, in this order: the gradient of each output of the op, the
 *  op's inputs, the op's outputs; those that it does not read are absent, as are gradients of
 *  outputs through which none flows, which count as 0; one at least is there. Its output i is the
 * gradient of input i, with that input's shape and dtype (see LATHE_TENSOR_PARAMETER); absent: not
 * wanted. Other members are as in lathe_op_v1. Plain data. */
typedef struct lathe_op_backward {
    uint32_t reads_in;   /* bit i: it reads input i of the op; the plan keeps these */
    uint32_t reads_out;  /* bit k: it reads output k of the op */
    int32_t accumulates; /* 1: its kernels can add to every output (lathe_kernel_args.accumulate) */
    int32_t n_kernels;
    const lathe_op_kernel *kernels;
    /** [pure] NULL: negligible. */
    double (*flops)(void *self, const lathe_desc *in, const lathe_desc *out);
    /** [pure] Gradients in double precision, by formulas that are as plain as can be. */
    void (*exact)(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y);
} lathe_op_backward;
LATHE_ABI_SIZE(lathe_op_backward, 40);

/** A node whose derivative is a graph of other ops. Borrowed during the call. */
typedef struct lathe_op_derivative {
    uint32_t size;
    uint32_t wanted; /* bit i: the gradient of input i is wanted */
    const lathe_graph_api *api;
    lathe_graph *graph;
    const lathe_val *in, *out; /* of the node; LATHE_NONE: absent */
    const lathe_val *dy;       /* [n_out] gradients of the outputs; LATHE_NONE: none, it is 0 */
    const char *label;         /* for the new nodes */
} lathe_op_derivative;
LATHE_ABI_SIZE(lathe_op_derivative, 56);

/** A problem on which `lathe plugin check` tests the op. Tensors are written "dtype[dims]" and
 *  separated by spaces; c means each compute dtype in turn, - an absent tensor. A suffix selects
 *  the content of an input, without one noise in [-1, 1):
 *   :+   around 1, positive          :-   around -1, negative
 *   :w   small whole numbers         :2   noise in [-2, 2)
 *   :tN  indices below N             :TN  the same, every third is -1
 *   :pT  the first token of each token's document, in rows of T tokens (doc_start)
 *   :k   5, 7, 9, 5, ..              :gN  first rows of groups of N rows, one of them empty
 *   :r   an RNG counter              :b   bits
 *  Plain data. */
typedef struct lathe_op_test {
    const char *in, *out;   /* "c[7,6] f32[6]", "c[7,6]" */
    const char *attributes; /* lines of TOML, "heads = 2\neps = 1e-5"; NULL: the defaults */
    /* number of terms summed in f32 per element of an output; for the backward, the sums over the
     * elements of inputs and outputs are added */
    int64_t terms;
    /* how far intermediate values rounded to c move the result: units in the last place of c,
     * relative to the largest element. 0: none is rounded */
    double half_units;
    /* length of the first dimension of the first batched input that is one row of a batch, such as
     * its T tokens; each row alone then gives the same bits. 0: the test has no batch */
    int32_t rows;
    int32_t reserved; /* 0 */
} lathe_op_test;
LATHE_ABI_SIZE(lathe_op_test, 48);

/** State of a sequence while text is generated, of an op that reads earlier tokens of a row: what
 *  remains of them, as keys and values do of attention. A sequence's tokens then come in parts, and
 *  each node has two inputs and an output more, after those of the table:
 *
 *    input n_in       slots i32[B]         the sequence of each row of the part
 *    input n_in + 1   states [S, shape]    states of S sequences; read and written
 *    output n_out     states               the same memory
 *
 *  Row b begins with states[slots[b]], and leaves there what the next part needs. A new sequence's
 *  state is all zeros. Rows of one slot are parts of one sequence in the order of b. Slot -1 is a
 *  row of padding: it begins with zeros and leaves nothing. The core gives sequences their slots,
 *  and copies a slot where sequences begin with the same prompt. exact() gets states as doubles,
 *  and writes those of output n_out, which begin as copies of the input. Plain data. */
typedef struct lathe_op_state {
    /* key of the attribute, an integer, with the tokens of a row: the core divides tests by it */
    const char *tokens;
    /** [pure] Dtype and shape of the state of one sequence, of at most 3 dimensions, from the
     *  inputs of the table. Errors as in lathe_op_v1.shape. */
    lathe_status (*shape)(void *self, const lathe_desc *in, lathe_desc *out);
} lathe_op_state;
LATHE_ABI_SIZE(lathe_op_state, 16);

/* Traits of an op. */
enum {
    LATHE_OP_CHEAP = 1,       /* costs less to recompute in the backward than to store */
    LATHE_OP_ACCUMULATES = 2, /* its kernels can add to every output */
};

typedef struct lathe_op_v1 {
    uint32_t size;
    uint32_t revision;

    /* ---- declares ---- */
    int32_t n_in, n_out;            /* at most LATHE_OP_MAX_IN and LATHE_OP_MAX_OUT */
    const lathe_op_tensor *inputs;  /* [n_in] */
    const lathe_op_tensor *outputs; /* [n_out] */
    uint32_t traits;                /* LATHE_OP_* */
    int32_t n_tests;                /* at least 1 */
    const lathe_op_test *tests;     /* odd sizes, every optional input, every attribute */

    /* ---- rules ---- */
    /** [pure] Shapes and dtypes of the outputs from those of the inputs, whose number and presence
     *  the core has checked. LATHE_E_SHAPE, LATHE_E_DTYPE, recorded with host->fail: the inputs do
     *  not fit each other or the attributes; the core adds the op and the node's label. out: all
     *  LATHE_ABSENT before the call. */
    lathe_status (*shape)(void *self, const lathe_desc *in, lathe_desc *out);
    /** [pure] Floating-point operations, 2 per multiply-add. NULL: negligible. */
    double (*flops)(void *self, const lathe_desc *in, const lathe_desc *out);
    /** [pure] y = op(x) in double precision, by formulas that are as plain as can be: kernels and
     *  the derivative are compared with it. x[i] and y[k] are NULL where absent; y is 0 before the
     *  call. */
    void (*exact)(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y);

    /* ---- derivative: one of the two, or neither for an op that has none ---- */
    /** [build] Adds nodes that compute the gradients of the wanted inputs to the graph, and sets
     *  dx[i] to them; LATHE_NONE, as before the call: that gradient is 0. */
    lathe_status (*derive)(void *self, const lathe_op_derivative *d, lathe_val *dx);
    const lathe_op_backward *backward;

    /* ---- computes ---- */
    const lathe_op_kernel *kernels; /* [n_kernels] */
    int32_t n_kernels;              /* at least 1 */
    int32_t reserved;               /* 0 */

    /* ---- keeps ---- */
    const lathe_op_state *state; /* NULL: none, as an op needs none that reads one token at a time;
                                  * one that reads others cannot generate text without it */
} lathe_op_v1;
LATHE_ABI_SIZE(lathe_op_v1, 112);

#endif
