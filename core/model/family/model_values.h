/* Reads the keys of a config.json as the values of a plugin's schema. */
#ifndef LATHE_MODEL_MODEL_VALUES_H
#define LATHE_MODEL_MODEL_VALUES_H

#include "base/arena.h"
#include "lathe/plugin.h"
#include "model/family/config_reader.h"

/** Reads the values in the order of the schema, into the arena. An absent key gives its default; a
 *  null key too, unless the field is nullable. An alias is preferred to its key, as in
 *  transformers; if both are set and differ, a warning is logged. Failures are stored in r->status:
 *  "config.json: head_dim is 7.5; expected an integer". */
void lathe_model_values_read(lathe_config_reader *r, const lathe_plugin *plugin, lathe_arena *arena,
                             lathe_value **out);

/** Fails at a key that is neither in the schema, nor an alias, nor in `others`
 *  (NULL-terminated). */
void lathe_model_values_refuse_unknown(lathe_config_reader *r, const lathe_plugin *plugin,
                                       const char *model_type, const char *const *others);

/** Writes every set value as a key of the object. */
lathe_status lathe_model_values_write(const lathe_plugin *plugin, const lathe_value *values,
                                      json_t *object);

#endif
