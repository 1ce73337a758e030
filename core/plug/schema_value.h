/* One value of a schema: from TOML, checked by type, range and choice. */
#ifndef LATHE_PLUG_SCHEMA_VALUE_H
#define LATHE_PLUG_SCHEMA_VALUE_H

#include "base/buffer.h"
#include "base/toml.h"
#include "lathe/schema.h"

/** Fills *out from the node. LATHE_E_CONFIG: the value is wrong, and `why` continues a sentence
 *  that begins with the key ("is 1.5, expected below 1"). *out_suggestion, if not NULL, gets a
 *  choice that was probably meant (in arena), or NULL. LATHE_E_NOMEM. */
lathe_status lathe_value_from_toml(const lathe_field *field, const lathe_toml_node *node,
                                   lathe_arena *arena, lathe_value *out, char *why,
                                   int64_t why_bytes, const char **out_suggestion);

/** Names the values that a field expects: "a number", "true or false", ... */
const char *lathe_type_text(int32_t type);

/** Appends a value as JSON; null if it is unset. */
void lathe_value_json(const lathe_value *value, lathe_buffer *out);

#endif
