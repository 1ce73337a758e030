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

/** A model of several towers, and what serves its text model. */
typedef struct lathe_wrapper_match {
    const lathe_model_wrapper *wrapper; /* NULL: no plugin lists the model_type as a wrapper */
    const lathe_component *family;      /* NULL: none of those that list it serves `text_type` */
    const lathe_model_type *type;       /* of the text model: an entry of the family's types */
    const char *text_type;              /* the inner model_type, or that which is assumed */
} lathe_wrapper_match;

/** Finds the wrapper of an outer model_type and the plugin that serves its text model. inner:
 *  model_type of the inner configuration, or NULL. only: this plugin alone; NULL: all. */
lathe_status lathe_model_wrapper_find(lathe_registry *registry, const lathe_component *only,
                                      const char *model_type, const char *inner,
                                      lathe_wrapper_match *out);

/** Number of wrappers that a plugin lists. */
int32_t lathe_model_n_wrappers(const lathe_model_v1 *table);

/** All model_types, sorted, without duplicates; in arena. with_wrappers: those of wrappers, too. */
lathe_status lathe_model_type_names(lathe_registry *registry, int32_t with_wrappers,
                                    lathe_arena *arena, const char ***out, int64_t *out_n);

/** Whether a key belongs to the schema of some plugin of kind `model`, or is an alias in one. */
int lathe_model_key_is_known(lathe_registry *registry, const char *key);

/** Whether the key or one of its aliases is `key`. */
int lathe_model_plugin_has_key(const lathe_plugin *plugin, const char *key);

#endif
