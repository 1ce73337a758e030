/* Loads a model's weights from a folder's safetensors into host memory. weight_file.h writes
 * them. */
#ifndef LATHE_MODEL_WEIGHTS_H
#define LATHE_MODEL_WEIGHTS_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"
#include "model/family/weight_tensor.h"

/** The destination of loaded weights. */
typedef struct lathe_weight_sink {
    /** Gives the host memory of a row: its elements in our layout, in F32, BF16 or F16 (out_dtype
     *  comes in as F32). NULL memory skips the row. */
    lathe_status (*place)(void *arg, int32_t index, const lathe_param *row, void **out_data,
                          int32_t *out_dtype);
    /** Called when the row is filled, to encode it or copy it to the device; then the memory may be
     *  reused. May be NULL. */
    lathe_status (*done)(void *arg, int32_t index, const lathe_param *row, void *data);
    /** Gives the host memory of the planes of a row whose planes are in the folder
     *  (lathe_param.planes_on_file); planes_done is called when they are filled. NULL: the
     *  destination takes no planes, and such a row is an error. */
    lathe_status (*place_planes)(void *arg, int32_t index, const lathe_param *row, void **planes);
    lathe_status (*planes_done)(void *arg, int32_t index, const lathe_param *row,
                                void *const *planes);
    /** Called for a head of the stage of which the folder has no weights. NULL: that is an error
     * for a head among the rows of the model (lathe_params.n_model). */
    lathe_status (*new_head)(void *arg, int32_t index);
    void *arg;
} lathe_weight_sink;

/** Fills every row of the model (not of adapters or the reference) from the tensor of its name,
 *  with or without the family's prefix, or from the tensors of its planes. Conv1D tensors are
 *  transposed. Rows are visited in the order of the table. Tensors without a row are listed in a
 *  warning.
 *
 *   Errors  LATHE_E_NOT_FOUND: a tensor is missing. LATHE_E_SHAPE: it has another shape.
 *           LATHE_E_DTYPE: its dtype is no float. LATHE_E_CONFIG: tie_word_embeddings
 *           contradicts the file.
 */
lathe_status lathe_weights_load(const lathe_safetensors *set, const lathe_model_config *config,
                                const lathe_params *params, const lathe_weight_sink *sink);

/** Like lathe_weights_load without reading values, except a tied model's head that is also in the
 *  file: checks names, shapes and dtypes. The heads of the stage may be missing. */
lathe_status lathe_weights_check(const lathe_safetensors *set, const lathe_model_config *config,
                                 const lathe_params *params);

/** Copies the tokenizer's files and generation_config.json, if they exist, from a folder or a GGUF
 *  file to a folder. `from` may also be a tokenizer.json of any name. */
lathe_status lathe_tokenizer_files_copy(const char *from, const char *to);
/** Copies the files of a model of several towers that say how images become tokens, if they exist:
 *  the configurations of its processors. */
lathe_status lathe_tower_files_copy(const char *from, const char *to);
/** Bytes of the files that lathe_tokenizer_files_copy copies. */
lathe_status lathe_tokenizer_files_bytes(const char *from, int64_t *out);

#endif
