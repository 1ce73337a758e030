/* The planes of a quantized weight in a model's folder: finds, checks and reads their tensors. */
#ifndef LATHE_MODEL_WEIGHT_PLANES_H
#define LATHE_MODEL_WEIGHT_PLANES_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"

/** Writes the name of the tensor that a suffix means for a weight: lathe_plane.file_suffix.
 *  LATHE_E_ARG: it is too long. */
lathe_status lathe_plane_name(const char *weight, const char *suffix, char *out, int64_t bytes);

/** Whether the folder stores the row as plain numbers: a tensor of its name and shape, of a float
 *  dtype. */
int32_t lathe_weight_is_plain(const lathe_safetensors *set, const lathe_model_config *config,
                              const lathe_param *row);

/** Checks that the folder has a tensor for every plane of the row, of a size and dtype that fits.
 *  LATHE_E_NOT_FOUND, LATHE_E_SHAPE, LATHE_E_DTYPE name file, tensor, what was seen and expected.
 */
lathe_status lathe_weight_planes_check(const lathe_safetensors *set,
                                       const lathe_model_config *config, const lathe_param *row);

/** Reads the planes into host memory, converts scales without loss, and hands the metadata to the
 *  format. */
lathe_status lathe_weight_planes_read(const lathe_safetensors *set,
                                      const lathe_model_config *config, const lathe_param *row,
                                      void *const *planes);

/** Marks the tensors of the planes and of the metadata in used [count of the set]; *out_complete
 *  becomes 0 if one is missing. */
lathe_status lathe_weight_planes_mark(const lathe_safetensors *set,
                                      const lathe_model_config *config, const lathe_param *row,
                                      uint8_t *used, int *out_complete);

/** Reads the planes of a row into memory of its own and decodes them to F32: values [rows, cols] in
 *  the layout of computation. */
lathe_status lathe_weight_planes_decode(const lathe_safetensors *set,
                                        const lathe_model_config *config, const lathe_param *row,
                                        float *values);

#endif
