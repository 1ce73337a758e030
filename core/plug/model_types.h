/* Which plugin serves a model_type: the plugins of kind `model` name theirs in their tables. */
#ifndef LATHE_PLUG_MODEL_TYPES_H
#define LATHE_PLUG_MODEL_TYPES_H

#include "base/buffer.h"
#include "lathe/model.h"
#include "plug/registry.h"

/** The plugin that serves the model_type: the one of that name first, then the others by name. *out
 *  NULL: none. */
lathe_status lathe_model_type_find(lathe_registry *registry, const char *model_type,
                                   const lathe_component **out);

/** The row of the table; NULL: the plugin does not serve the model_type. */
const lathe_model_type *lathe_model_type_of(const lathe_plugin *plugin, const char *model_type);

/** All model_types, sorted, without duplicates; in arena. */
lathe_status lathe_model_type_names(lathe_registry *registry, lathe_arena *arena, const char ***out,
                                    int64_t *out_n);

/** Whether a key belongs to the schema of some plugin of kind `model`, or is an alias in one. */
int lathe_model_key_is_known(lathe_registry *registry, const char *key);

/** Whether the key or one of its aliases is `key`. */
int lathe_model_plugin_has_key(const lathe_plugin *plugin, const char *key);

#endif
