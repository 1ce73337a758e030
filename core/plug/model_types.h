/* Finds the plugin that serves a model_type: plugins of kind `model` list theirs in their
 * tables. */
#ifndef LATHE_PLUG_MODEL_TYPES_H
#define LATHE_PLUG_MODEL_TYPES_H

#include "base/buffer.h"
#include "lathe/model.h"
#include "plug/registry.h"

/** Finds the plugin that serves the model_type. A plugin with that name is asked first, then the
 *  others by name. *out is NULL if none does. */
lathe_status lathe_model_type_find(lathe_registry *registry, const char *model_type,
                                   const lathe_component **out);

/** The plugin's entry for the model_type; NULL: the plugin does not serve it. */
const lathe_model_type *lathe_model_type_of(const lathe_plugin *plugin, const char *model_type);

/** All model_types, sorted, without duplicates; in arena. */
lathe_status lathe_model_type_names(lathe_registry *registry, lathe_arena *arena, const char ***out,
                                    int64_t *out_n);

/** Whether a key belongs to the schema of some plugin of kind `model`, or is an alias in one. */
int lathe_model_key_is_known(lathe_registry *registry, const char *key);

/** Whether the key or one of its aliases is `key`. */
int lathe_model_plugin_has_key(const lathe_plugin *plugin, const char *key);

#endif
