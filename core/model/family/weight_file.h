/* Writes model.safetensors of a saved model: each tensor with its dtype and the source of its
 * values. */
#ifndef LATHE_MODEL_WEIGHT_FILE_H
#define LATHE_MODEL_WEIGHT_FILE_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/weight_origin.h"

/** One tensor. Its values are the first of these that is set: origin, values, make() of the job. */
typedef struct lathe_weight_tensor {
    int32_t param;                     /* row of the table */
    int32_t dtype;                     /* in the file: F32, BF16, F16, F64 */
    const lathe_weight_origin *origin; /* copied from here, converted if the dtype differs */
    const float *values;               /* values in our layout, in host memory */
    /* for weight_file.c: the matrix of one expert of a row that has several, which the file holds
     * by itself, and its first element in the row; else 0 */
    int32_t expert;
    int64_t first;
} lathe_weight_tensor;

/** Tensors to write or compare, and how to get their values. */
typedef struct lathe_weight_job {
    const lathe_params *params;
    const lathe_model_config *config; /* gives the names in files */
    /* Its carried tensors are written after those of the job; NULL: there are none. */
    const lathe_weight_origin *carried;
    lathe_weight_tensor *tensors; /* [n], in the order of shards */
    int64_t n;
    /** Makes the values of a tensor that has neither origin nor values: f32 in our layout, in host
     *  memory, valid until the next call. Called on the calling thread. */
    lathe_status (*make)(void *arg, int32_t param, const float **out_values);
    void *arg;
    int32_t is_divided; /* for weight_file.c: tensors[] has the matrices of experts one by one */
} lathe_weight_job;

/** Changes the dtype of a tensor from F16 to F32 if it holds a finite number that F16 would round
 *  to infinity, because the file would be useless. Passes the tensor's name to `report`. */
lathe_status lathe_weight_file_widen(const lathe_weight_job *job,
                                     void (*report)(void *arg, const char *name), void *report_arg);

/** Writes folder/model.safetensors, or shards of at most max_shard_bytes (> 0) with their index,
 *  with the names and the layout of transformers. Rounds to nearest even. All threads of the pool
 *  convert and write. Durable; the folder must exist. */
lathe_status lathe_weight_file_write(const lathe_weight_job *job, const char *folder,
                                     int64_t max_shard_bytes);

/** LATHE_E_CORRUPT: the set holds other bytes, or another dtype or shape, than the job would write;
 *  names the tensor. */
lathe_status lathe_weight_file_compare(const lathe_weight_job *job, const lathe_safetensors *set);

/** The dtype that config.json states for the file: the dtype of all tensors. If they have several:
 *  `said` if it is one of them, else the one with the most elements. */
int32_t lathe_weight_file_dtype(const lathe_weight_job *job, int32_t said);

#endif
