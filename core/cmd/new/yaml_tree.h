/* Reads a YAML file (JSON is YAML too) into a tree of values. */
#ifndef LATHE_CMD_YAML_TREE_H
#define LATHE_CMD_YAML_TREE_H

#include <jansson.h>

#include "lathe/status.h"

/** Reads the first document of a file of at most 1 MiB; *out is a mapping. Plain scalars are typed
 * as PyYAML types them (yes, no, on, off are booleans), except that 2e-5 is a number. A file that
 *  repeats a key keeps the last value, as PyYAML does. LATHE_E_PARSE: "FILE:LINE:COLUMN: what";
 *  LATHE_E_UNSUPPORTED: deeper than 32 levels, or more than 100,000 values with those that aliases
 *  repeat. */
lathe_status lathe_yaml_read(const char *path, json_t **out);

#endif
