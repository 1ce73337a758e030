/* The names of a text model's tensors in a model of several towers (text_tower.h).
 *
 * Parameters have the names of the modules in transformers 5
 * ("model.language_model.layers.0.mlp.up_proj.weight"), so adapters have PEFT's. A file may have
 * older names; a folder that is saved has the names of the folder that it was made from. In a
 * folder without other towers the names of plugin, parameter and file are the same.
 */
#ifndef LATHE_MODEL_TOWER_NAMES_H
#define LATHE_MODEL_TOWER_NAMES_H

#include "model/family/hf_config.h"
#include "model/family/text_tower.h"

/** The parameter's (or module's) name for the name that the plugin gave it. */
const char *lathe_text_tower_param(const lathe_model_config *config, const char *name, char *out,
                                   int64_t bytes);

/** The name that the plugin gave a parameter. */
const char *lathe_text_tower_plain(const lathe_model_config *config, const char *name, char *out,
                                   int64_t bytes);

/** The name that a file has for the tensor of a parameter. layout: which of the wrapper's sets of
 *  file names; -1: the folder's (config->layout). */
const char *lathe_text_tower_file(const lathe_model_config *config, const char *name,
                                  int32_t layout, char *out, int64_t bytes);

/** Whether a tensor of the folder belongs to another tower, and is copied into folders that are
 *  saved. */
int32_t lathe_text_tower_carries(const lathe_model_config *config, const char *tensor);

#endif
