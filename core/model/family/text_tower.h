/* The text model inside a model of several towers ("gemma3" with its `text_config`): its
 * configuration, and the names that its modules have.
 *
 * A family's plugin lists the wrappers that it serves (lathe_model_wrapper); nothing else in the
 * core knows one.
 *
 *   in   config.json, the names of a folder's tensors
 *   out  the text model's configuration as one object
 */
#ifndef LATHE_MODEL_TEXT_TOWER_H
#define LATHE_MODEL_TEXT_TOWER_H

#include <jansson.h>

#include "files/safetensors/safetensors.h"
#include "plug/model_types.h"

enum { LATHE_TENSOR_NAME = 512 }; /* bytes of a tensor's name, with its NUL */

/** Makes the configuration of the text model, as the family's keys: what the inner configuration
 *  sets, the values that it leaves out, and what the outer one says for it (token ids, dtype,
 *  quantization, whether the head is tied). `set`: the folder's weights, which decide whether the
 *  head is tied where both matrices are there; NULL: none.
 *  LATHE_E_CONFIG: the inner configuration is missing, or of another kind. */
lathe_status lathe_text_tower_object(const char *place, json_t *outer,
                                     const lathe_wrapper_match *match, const lathe_safetensors *set,
                                     json_t **out);

/** The inner configuration; NULL: the file has none. */
json_t *lathe_text_tower_inner(json_t *outer, const lathe_model_wrapper *wrapper);

/** Number of the wrapper's names (lathe_model_wrapper.names) that the folder's files have. 0: those
 *  of transformers 5, or the folder has no weights. */
int32_t lathe_text_tower_layout(const lathe_model_wrapper *wrapper, const lathe_safetensors *set);

/** The name of a module of the wrapper in transformers 5, or of a tensor of it, from the plugin's:
 *  plain_prefix and plain_head are describe()'s prefix and head. */
const char *lathe_text_tower_module(const lathe_model_wrapper *wrapper, const char *plain_prefix,
                                    const char *plain_head, const char *name, char *out,
                                    int64_t bytes);

/** Puts `to` in place of `from`, with which the name begins. The name itself: `out` is too short.
 */
const char *lathe_text_tower_rename(const char *name, const char *from, const char *to, char *out,
                                    int64_t bytes);

/** Whether the name is the module of a tensor "module.weight", or a tensor of it. */
int32_t lathe_text_tower_is_of(const char *name, const char *tensor);

#endif
