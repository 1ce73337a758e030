/* The keys of a config.json as the values of a plugin's schema. */
#ifndef LATHE_MODEL_MODEL_VALUES_H
#define LATHE_MODEL_MODEL_VALUES_H

#include "base/arena.h"
#include "lathe/plugin.h"
#include "model/config_reader.h"

/** Values of the schema in its order, in arena. An absent key gives its default, and so does null,
 *  unless the field is nullable. An alias comes before its key, with a warning where both are set
 *  and differ, as in transformers. Failures go to r->status: "config.json: head_dim is 7.5;
 *  expected an integer". */
void lathe_model_values_read(lathe_config_reader *r, const lathe_plugin *plugin, lathe_arena *arena,
                             lathe_value **out);

/** Fails at a key that is neither in the schema, nor an alias, nor in `others`
 *  (NULL-terminated). */
void lathe_model_values_refuse_unknown(lathe_config_reader *r, const lathe_plugin *plugin,
                                       const char *model_type, const char *const *others);

/** Sets every value that is set as a key of the object. */
lathe_status lathe_model_values_write(const lathe_plugin *plugin, const lathe_value *values,
                                      json_t *object);

#endif
