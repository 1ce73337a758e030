/* One value of a schema: from TOML, by type, range and choice. */
#ifndef LATHE_PLUG_SCHEMA_VALUE_H
#define LATHE_PLUG_SCHEMA_VALUE_H

#include "base/buffer.h"
#include "base/toml.h"
#include "lathe/schema.h"

/** Fills *out from the node. LATHE_E_CONFIG: it does not fit, and `why` continues a sentence that
 *  begins with the key ("is 1.5, expected below 1"); *out_suggestion, if asked for, may hold a
 *  choice that was probably meant (in arena). LATHE_E_NOMEM. */
lathe_status lathe_value_from_toml(const lathe_field *field, const lathe_toml_node *node,
                                   lathe_arena *arena, lathe_value *out, char *why,
                                   int64_t why_bytes, const char **out_suggestion);

/** "a number", "true or false", ...: what a field expects. */
const char *lathe_type_text(int32_t type);

/** Appends a value as JSON; unset ones as null. */
void lathe_value_json(const lathe_value *value, lathe_buffer *out);

#endif
