/* The graph builder, with which models, adapters, stages and matrix optimizers add computation.
 *
 * The graph is static single assignment: node() gives new value ids, nothing is overwritten (an
 * in-place output is a new value that shares the old one's memory). Shapes and dtypes are inferred
 * and checked by the core; the derivative, recomputation and memory plan need no plugin code.
 *
 * Threads: the rank's thread, before the run. Values belong to the graph.
 */
#ifndef LATHE_GRAPH_H
#define LATHE_GRAPH_H

#include "op.h"
#include "schema.h"
#include "status.h"

typedef struct lathe_graph lathe_graph;
typedef int32_t lathe_val; /* value id; LATHE_NONE: no value */
#define LATHE_NONE (-1)

enum {
    LATHE_INIT_ZERO = 0,
    LATHE_INIT_ONE = 1,
    LATHE_INIT_NORMAL = 2,  /* std = scale */
    LATHE_INIT_UNIFORM = 3, /* in [-scale, scale) */
    LATHE_INIT_KAIMING_UNIFORM =
        4, /* a = sqrt(5), as torch.nn.Linear: U(+-1/sqrt(fan_in)), fan_in = dims[1] */
    LATHE_INIT_ROW_NORMS =
        5, /* element o = |row o of init_from|_2, summed in f64; of the decoded weight if it is
              quantized. With trainable = 0 it is no weight of its own: the core computes it at
              each load, and neither writes nor expects it in files. */
    LATHE_INIT_SINGULAR_A = 6,
    LATHE_INIT_SINGULAR_B = 7, /* singular values s_1 >= s_2 >= .. and vectors u, v of init_from,
              as computation reads it: row k of A [r,I] is sqrt(init_scale*s_k) v_k, column k of
              B [O,r] is sqrt(init_scale*s_k) u_k. With trainable = 0 as INIT_ROW_NORMS. */
    LATHE_INIT_LOFTQ_A = 8,
    LATHE_INIT_LOFTQ_B = 9, /* the same of W - Q, where Q is the weight init_from as its format
              decodes it, and W what the model's folder holds. With init_steps = T > 1 the format
              encodes W - B A/init_scale instead of W, T - 1 times (LoftQ, arXiv:2310.08659) */
    LATHE_INIT_COLUMN_NORMS = 10, /* as INIT_ROW_NORMS, of the columns of init_from */
    LATHE_INIT_MINOR_LEFT = 11,
    LATHE_INIT_MINOR_RIGHT = 12, /* singular vectors of init_from, as computation reads it, for its
              r smallest singular values: column k of f32[O,r] is u, or of f32[I,r] v, of the value
              s_(min(O,I)-r+1+k). With trainable = 0 the adapter's file has them all the same,
              since they belong to the weight as it was when the training began. */
    LATHE_INIT_CONSTANT = 13,    /* init_scale, everywhere */
};

/** A new parameter. The core owns its memory; the name is its key in checkpoints. */
typedef struct lathe_param_decl {
    uint32_t size;
    int32_t init;     /* LATHE_INIT_* */
    const char *name; /* unique; Hugging Face / PEFT style path */
    lathe_desc desc;  /* dtype is F32: the master copy */
    double init_scale;
    int32_t trainable;
    int32_t group;       /* optimizer parameter group, 0 default */
    lathe_val init_from; /* INIT_ROW_NORMS, for desc f32[O], INIT_COLUMN_NORMS, for f32[I],
                            INIT_SINGULAR_*, INIT_LOFTQ_*, INIT_MINOR_*: a frozen weight [O,I]
                            of the model;
                            LOFTQ: one that [quant] encodes */
    int32_t init_steps;  /* INIT_LOFTQ_*: T >= 1, the same for both and in every graph; else 0 */
    int32_t transposed;  /* 1: the adapter's file holds the matrix transposed */
    int32_t reserved;    /* 0 */
    const char *second;  /* another name: the adapter's file holds the matrix under this name, too,
                            there transposed the other way round. NULL: none */
} lathe_param_decl;
LATHE_ABI_SIZE(lathe_param_decl, 96);

/** Description of a parameter, for functions such as select, slots and partition. */
typedef struct lathe_param_info {
    uint32_t size;
    int32_t role; /* LATHE_ROLE_* */
    const char *name;
    lathe_desc desc; /* of the master copy */
    int32_t trainable;
    int32_t quantized;
    int32_t layer; /* transformer layer, -1 outside */
    int32_t group;
    int32_t head_rows; /* rows of one head in a query or key projection (fused ones too), else 0 */
    int32_t n_layers;  /* of the model; 0: not known */
    int32_t is_tied;   /* 1: an embedding that is the output head too */
    int32_t of_site;   /* 1: the weight or the bias of a linear site */
    int32_t n_experts; /* E > 0: desc has the matrices of E experts, one below the other; else 0 */
    int32_t reserved;  /* 0 */
} lathe_param_info;
LATHE_ABI_SIZE(lathe_param_info, 96);

enum {
    LATHE_ROLE_MATRIX = 0,    /* weight of a linear site */
    LATHE_ROLE_EMBEDDING = 1, /* token or position embedding */
    LATHE_ROLE_HEAD = 2,      /* output head (untied) */
    LATHE_ROLE_NORM = 3,
    LATHE_ROLE_BIAS = 4,
    LATHE_ROLE_ADAPTER = 5, /* made by an adapter */
    LATHE_ROLE_ROUTER = 6,  /* [E,C], scores experts: no site of adapters, never quantized */
    LATHE_ROLE_BUFFER = 7,  /* a vector without a gradient: it is saved as it was read, unless it
                               corrects a router and [moe] bias_rate moves it */
    LATHE_ROLE_CONV = 8,    /* [C,K], taps of a convolution of each channel: no site of adapters,
                               never quantized; files hold [C,1,K] */
};

/** The value of an attribute of an op, for op(). Plain data. */
typedef struct lathe_op_attr {
    const char *key;
    int32_t type;     /* LATHE_T_BOOL, LATHE_T_INT, LATHE_T_FLOAT or LATHE_T_STRING */
    int32_t reserved; /* 0 */
    int64_t i;        /* BOOL (0 or 1), INT */
    double f;         /* FLOAT */
    const char *s;    /* STRING; copied */
} lathe_op_attr;
LATHE_ABI_SIZE(lathe_op_attr, 40);

/* Initializers: {LATHE_ATTR_INT("heads", 4), LATHE_ATTR_FLOAT("eps", 1e-6)}. */
#define LATHE_ATTR_BOOL(attr_key, value)                                                           \
    {                                                                                              \
        .key = (attr_key), .type = LATHE_T_BOOL, .i = (value)                                      \
    }
#define LATHE_ATTR_INT(attr_key, value)                                                            \
    {                                                                                              \
        .key = (attr_key), .type = LATHE_T_INT, .i = (value)                                       \
    }
#define LATHE_ATTR_FLOAT(attr_key, value)                                                          \
    {                                                                                              \
        .key = (attr_key), .type = LATHE_T_FLOAT, .f = (value)                                     \
    }
#define LATHE_ATTR_STRING(attr_key, value)                                                         \
    {                                                                                              \
        .key = (attr_key), .type = LATHE_T_STRING, .s = (value)                                    \
    }

typedef struct lathe_graph_api {
    uint32_t size;
    uint32_t revision;

    /** [build] Shape and dtype of a value. */
    lathe_status (*desc)(lathe_graph *g, lathe_val v, lathe_desc *out);

    /** [build] Adds one node. in[n_in] (LATHE_NONE: absent), out[n_out] receives the new values.
     *  attrs may be NULL. label: for dumps and errors. inplace_in: -1, or the input whose memory
     *  output 0 takes. LATHE_E_SHAPE, LATHE_E_DTYPE with both shapes named. */
    lathe_status (*node)(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                         const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                         int32_t inplace_in, const char *label);

    /** [build] Declares a parameter and returns its value in the compute dtype (matrices) or f32
     *  (vectors). */
    lathe_status (*param)(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out);

    /** [build] Plain linear layer y = x W^T + b of a site. If the weight is quantized, it is
     *  decoded first. */
    lathe_status (*linear)(lathe_graph *g, lathe_val x, lathe_val w, lathe_val bias,
                           const char *label, lathe_val *out);

    /** [build] Value x without its derivative: no gradient flows back through it. */
    lathe_status (*detach)(lathe_graph *g, lathe_val x, lathe_val *out);

    /** [build] The run's RNG counter input (i64[5], lathe/rng.h), for DROPOUT. */
    lathe_status (*rng)(lathe_graph *g, lathe_val *out);
    /** [build] A number unique in this graph, for rng_stream of a DROPOUT. */
    uint64_t (*rng_stream)(lathe_graph *g);

    /** [build] Adds one node of the op called `name`: the core's of that name (op.h, whose
     *  attributes are the members of lathe_op_attrs), else the op plugin's (op_plugin.h, whose
     *  attributes are the keys of its schema). Missing attributes have their defaults. in, out and
     *  label are as in node(). LATHE_E_NOT_FOUND: there is no such op. LATHE_E_CONFIG: an unknown
     *  attribute, or a value that it does not allow. LATHE_E_SHAPE, LATHE_E_DTYPE. */
    lathe_status (*op)(lathe_graph *g, const char *name, const lathe_op_attr *attrs,
                       int32_t n_attrs, const lathe_val *in, int32_t n_in, lathe_val *out,
                       int32_t n_out, const char *label);
} lathe_graph_api;
LATHE_ABI_SIZE(lathe_graph_api, 72);

#endif
