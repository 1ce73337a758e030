/* The table of parameters: which exist, their dtypes in memory, and which are trained.
 *
 * One table serves every graph of a run (training, evaluation, generation); graphs refer to its
 * rows. The table holds no memory of tensors: core/run places them.
 */
#ifndef LATHE_IR_PARAMS_H
#define LATHE_IR_PARAMS_H

#include "base/arena.h"
#include "lathe/graph.h"
#include "lathe/quant.h"

typedef struct lathe_param {
    const char *name;   /* unique */
    lathe_desc desc;    /* F32: shape of the master copy */
    int32_t init;       /* LATHE_INIT_* */
    int32_t role;       /* LATHE_ROLE_* */
    int32_t layer;      /* -1 outside the layers */
    int32_t group;      /* optimizer group */
    int32_t trainable;  /* has a gradient and optimizer state */
    int32_t quantized;  /* held as planes only */
    int32_t transposed; /* Conv1D: files hold [in, out] */
    int32_t reference;  /* belongs to the frozen reference copy of the model */
    int32_t head_rows;  /* rows of one head in a query or key projection, else 0 */
    double init_scale;
    int32_t n_planes; /* of the quantized form */
    lathe_plane planes[LATHE_MAX_PLANES];
} lathe_param;

typedef struct lathe_params {
    lathe_arena arena;
    lathe_param **rows; /* stable addresses */
    int32_t n, capacity;
    int32_t n_model;       /* the first rows are the model's own; an adapter's and copies follow */
    int32_t has_reference; /* rows are a frozen copy of the model */
    int32_t *by_name;      /* [n_slots] hash table of names: row + 1, or 0 */
    int32_t n_slots;       /* a power of two, or 0 */
    int32_t compute_dtype; /* of matrices in computation: F32, BF16, F16 */
    int32_t grad_dtype;    /* of the gradients of the layers' matrices: F32, or the compute dtype */
} lathe_params;

void lathe_params_init(lathe_params *params, int32_t compute_dtype);
void lathe_params_fini(lathe_params *params);

/** Adds a row; the name is copied. LATHE_E_ARG when the name exists. */
lathe_status lathe_params_add(lathe_params *params, const lathe_param *row, int32_t *out_index);

/** Index of a name, or -1. */
int32_t lathe_params_find(const lathe_params *params, const char *name);

/** The dtype in which computation reads a parameter: f32 for vectors, the compute dtype for
 *  matrices. */
int32_t lathe_params_value_dtype(const lathe_params *params, int32_t index);

/** The dtype in which a gradient is accumulated: f32, except for matrices of the layers if
 *  grad_dtype is another. */
int32_t lathe_params_grad_dtype(const lathe_params *params, int32_t index);

/** Whether there is an f32 master copy: trainable, or read in f32; never when quantized. */
int32_t lathe_params_has_master(const lathe_params *params, int32_t index);

/** Whether there is a copy in the compute dtype, beside the master or instead of it. */
int32_t lathe_params_has_shadow(const lathe_params *params, int32_t index);

/** The row as plugins see it. */
lathe_param_info lathe_params_info(const lathe_params *params, int32_t index);

#endif
