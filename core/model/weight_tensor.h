/* The tensor that a model's folder has for a parameter. */
#ifndef LATHE_MODEL_WEIGHT_TENSOR_H
#define LATHE_MODEL_WEIGHT_TENSOR_H

#include "io/safetensors.h"
#include "ir/params.h"
#include "model/hf_config.h"

/** The tensor of a model's parameter, with or without the family's prefix, or NULL. The embedding
 * of a tied model may have the name of the head instead. */
const lathe_st_tensor *lathe_weights_find(const lathe_safetensors *set,
                                          const lathe_model_config *config, const char *name);

/** Whether a row belongs to the model itself, not to an adapter or the reference. */
int32_t lathe_weights_is_model_row(const lathe_param *row);

/** A row's shape in the layout of files; its dtype is the row's. */
lathe_desc lathe_weights_file_desc(const lathe_param *row);

#endif
