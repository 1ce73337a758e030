/* The table of parameters: their names, shapes, dtypes in memory, and whether they are trained.
 *
 * One table serves every graph of a run (training, evaluation, generation); graphs refer to its
 * rows. The table has no memory for tensors; core/exec/program allocates it.
 */
#ifndef LATHE_GRAPH_PARAMS_H
#define LATHE_GRAPH_PARAMS_H

#include "base/arena.h"
#include "lathe/graph.h"
#include "lathe/quant.h"

/* Whether a row is a head of the stage, and whether the model's folder must have its weights. */
enum {
    LATHE_HEAD_NONE = 0,
    LATHE_HEAD_NEW = 1,  /* a folder without them is fine: they begin with random values */
    LATHE_HEAD_SAVED = 2 /* it must have them: it is the folder of a sequence classifier */
};

/* Which model a row belongs to, besides the run's own and its reference copy. */
enum {
    LATHE_OTHER_NONE = 0,
    LATHE_OTHER_TEACHER = 1,
    LATHE_OTHER_REWARD = 2,
    LATHE_OTHER_DRAFT = 3
};

/* First values of rows that the core declares for trained rows of tokens, beside LATHE_INIT_*. */
enum {
    LATHE_INIT_TOKEN_ROWS = 100, /* [n,C]: the rows `tokens` of init_from */
    LATHE_INIT_TOKEN_MARKS = 101 /* [V,n]: 1 at [tokens.ids[k], k], else 0 */
};

/** Tokens whose rows of the embedding and head train beside the frozen others, by an adapter that
 *  leaves the base as it is (exec/program/token_rows.h). Borrowed from the run. */
typedef struct lathe_token_rows {
    const int32_t *ids; /* [n] */
    int32_t n;          /* 0: none */
} lathe_token_rows;

struct lathe_instance;

typedef struct lathe_param {
    const char *name;  /* unique */
    lathe_desc desc;   /* F32: shape of the master copy */
    int32_t init;      /* LATHE_INIT_* */
    int32_t role;      /* LATHE_ROLE_* */
    int32_t layer;     /* -1: outside the layers */
    int32_t group;     /* optimizer group */
    int32_t trainable; /* has a gradient and optimizer state */
    int32_t
        transposed;    /* Conv1D, and matrices that an adapter declares so: files store [in, out] */
    int32_t layout;    /* LATHE_LAYOUT_* of the model's own row in files */
    int32_t reference; /* belongs to a frozen model: the reference copy of the model, or `other` */
    int32_t other;     /* LATHE_OTHER_*: belongs to another, frozen model */
    int32_t dtype;     /* of a matrix of another model in computation; else that of the table */
    int32_t head_rows; /* rows of one head in a query or key projection, else 0 */
    int32_t n_experts; /* > 0: so many matrices one below the other, each by itself in files */
    int32_t is_tied;   /* an embedding that is the output head too */
    int32_t in_adapter;  /* the model's own, trained beside an adapter and kept in its file */
    int32_t stage_head;  /* LATHE_HEAD_*; a head always trains and is read in f32 */
    int32_t init_from;   /* LATHE_INIT_*_NORMS, SINGULAR_*, LOFTQ_*: row of the weight */
    int32_t loftq_steps; /* of a quantized row: > 0 if LATHE_INIT_LOFTQ_* rows begin with it */
    int32_t is_derived;  /* computed from init_from at each load, and in no file */
    int32_t is_fixed;    /* of an adapter: frozen, and yet in its file */
    int32_t is_merged;   /* the run merges its adapter into this frozen weight (merge_every) */
    int32_t is_moved;    /* corrects a router: the run moves it by the load of the experts */
    double init_scale;
    lathe_token_rows tokens; /* LATHE_INIT_TOKEN_* */
    const char
        *second; /* another name in the adapter's file, there transposed the other way round */
    /* The quantization format (an instance of a plugin) in whose planes alone the row is stored;
     * NULL: it is not quantized. The instance outlives the table. */
    const struct lathe_instance *format;
    int32_t n_planes;
    int32_t planes_on_file; /* the model's folder holds the planes; 0: they are encoded at load */
    /* A copy of a head or an embedding with the format in which the model's folder stores it, which
     * is decoded when it is read; NULL: the folder has its numbers, or it has planes here too. */
    const struct lathe_param *stored;
    int32_t activations; /* dtype to which products quantize their inputs (lathe_activations in
                            lathe/packed.h); 0: none */
    lathe_plane planes[LATHE_MAX_PLANES];
} lathe_param;

typedef struct lathe_params {
    lathe_arena arena;
    lathe_param **rows; /* pointers, so that addresses are stable */
    int32_t n, capacity;
    int32_t n_model;       /* number of the model's own rows; rows of adapters and copies follow */
    int32_t n_layers;      /* of the model; 0: not known */
    int32_t has_reference; /* some rows are a frozen copy of the model */
    int32_t *by_name;      /* [n_slots] hash table of names: row + 1, or 0 */
    int32_t n_slots;       /* a power of two, or 0 */
    int32_t compute_dtype; /* dtype of matrices in computation: F32, BF16, F16 */
    /* dtype of the gradients of the layers' matrices: F32, or the compute dtype */
    int32_t grad_dtype;
    /* where the graphs of this table find ops of plugins; NULL: they have the core's alone */
    const struct lathe_op_source *ops;
} lathe_params;

void lathe_params_init(lathe_params *params, int32_t compute_dtype);
void lathe_params_fini(lathe_params *params);

/** Adds a row; the name is copied. LATHE_E_ARG when the name exists. */
lathe_status lathe_params_add(lathe_params *params, const lathe_param *row, int32_t *out_index);

/** Index of a name, or -1. */
int32_t lathe_params_find(const lathe_params *params, const char *name);

/** The dtype in which computation reads a parameter: f32 for vectors and heads of the stage, the
 *  compute dtype for other matrices. */
int32_t lathe_params_value_dtype(const lathe_params *params, int32_t index);

/** The dtype in which a gradient is accumulated: f32, except for matrices of the layers if
 *  grad_dtype is another. */
int32_t lathe_params_grad_dtype(const lathe_params *params, int32_t index);

/** Whether its values change during a run: if it is trained, the adapter is merged into it, or the
 *  load of experts moves it. */
int32_t lathe_param_changes(const lathe_param *row);

/** The model's weight to which a parameter of an adapter belongs:
 *  "model.layers.0.mlp.up_proj.weight" for "model.layers.0.mlp.up_proj.lora_A.weight". -1: none. */
int32_t lathe_params_weight_of(const lathe_params *params, const char *name);

/** The bias of the linear layer whose weight is rows[weight]: "X.bias" for "X.weight". -1: it has
 *  none. */
int32_t lathe_params_bias_of(const lathe_params *params, int32_t weight);

/** Whether it has an f32 master copy: if its values change or it is read in f32, and it is not
 *  quantized. */
int32_t lathe_params_has_master(const lathe_params *params, int32_t index);

/** Whether it has a copy in the compute dtype, besides the master or instead of it. Rows of other
 *  models have neither a master nor such a copy, but their values alone. */
int32_t lathe_params_has_shadow(const lathe_params *params, int32_t index);

/** The row in the form that plugins get. */
lathe_param_info lathe_params_info(const lathe_params *params, int32_t index);

#endif
