/* Writes model.safetensors of a saved model: each tensor with its dtype and the source of its
 * values. */
#ifndef LATHE_MODEL_WEIGHT_FILE_H
#define LATHE_MODEL_WEIGHT_FILE_H

#include "io/safetensors.h"
#include "ir/params.h"
#include "model/weight_origin.h"

/** One tensor. Its values are the first of these that is there: origin, values, make() of the
 *  job. */
typedef struct lathe_weight_tensor {
    int32_t param;                     /* row of the table */
    int32_t dtype;                     /* in the file: F32, BF16, F16, F64 */
    const lathe_weight_origin *origin; /* copied from here, converted where the dtype differs */
    const float *values;               /* or from these, in our layout, in host memory */
} lathe_weight_tensor;

/** What is written or compared. */
typedef struct lathe_weight_job {
    const lathe_params *params;
    lathe_weight_tensor *tensors; /* [n], in the order of shards */
    int64_t n;
    /** Values of a tensor that has neither origin nor values: f32 in our layout, in host memory,
     *  valid until the next call. On the calling thread. */
    lathe_status (*make)(void *arg, int32_t param, const float **out_values);
    void *arg;
} lathe_weight_job;

/** A tensor that would be rounded to F16 and holds a finite number which F16 does not have becomes
 *  one in F32, and `report` is told its name: an infinity in its place would make the file
 *  useless. */
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

/** The dtype that config.json states for the file: that of all its tensors; of several dtypes
 *  `said` if it is one of them, else the one with the most elements. */
int32_t lathe_weight_file_dtype(const lathe_weight_job *job, int32_t said);

#endif
