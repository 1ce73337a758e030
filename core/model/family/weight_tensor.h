/* The tensor that a model's folder has for a parameter. */
#ifndef LATHE_MODEL_WEIGHT_TENSOR_H
#define LATHE_MODEL_WEIGHT_TENSOR_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"

/** The tensor of a model's parameter, with or without the family's prefix, or NULL. The embedding
 * of a tied model may have the name of the head instead. */
const lathe_st_tensor *lathe_weights_find(const lathe_safetensors *set,
                                          const lathe_model_config *config, const char *name);

/** Whether a row belongs to the model itself, not to an adapter or the reference. */
int32_t lathe_weights_is_model_row(const lathe_param *row);

/** A row's shape in the layout of files; its dtype is the row's. */
lathe_desc lathe_weights_file_desc(const lathe_param *row);

/** Whether files hold the matrix, or those of its experts, transposed. */
int32_t lathe_weights_is_turned(const lathe_param *row);

/** Whether files hold each expert of the row by itself. */
int32_t lathe_weights_is_by_expert(const lathe_param *row);

/** Converts the values of a turned row from the layout of files to ours, or to that of files. src
 *  and dst may be unaligned and must not overlap. LATHE_E_DTYPE as for lathe_convert. */
lathe_status lathe_weights_turn(const lathe_param *row, int32_t to_file, void *dst,
                                int32_t dst_dtype, const void *src, int32_t src_dtype);

#endif
