/* Reads scalars in a JSON tree by their path. */
#ifndef LATHE_JSON_AT_H
#define LATHE_JSON_AT_H

#include <jansson.h>

#include "base/arena.h"

/** The value at a path of keys and list indices, "weights.num_bits" or "weight_block_size.0";
 *  NULL: there is none. A key that contains a dot has no path. */
const json_t *lathe_json_at(const json_t *node, const char *path);

/** The text of a string, a number as JSON writes it, "true" or "false"; NULL: it is absent, null, a
 *  list or an object, or memory ran out. Lives as long as the tree and the arena. */
const char *lathe_json_scalar(lathe_arena *arena, const json_t *value);

#endif
