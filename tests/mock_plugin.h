/* Opens a plugin under test from the path in LATHE_TEST_PLUGIN, and makes values from its
 * defaults. */
#ifndef LATHE_MOCK_PLUGIN_H
#define LATHE_MOCK_PLUGIN_H

#include "lathe/plugin.h"

#define MOCK_MAX_FIELDS 32

/** The plugin's constant. Aborts if it does not load, because then nothing can be tested. */
const lathe_plugin *mock_plugin_open(const char *path);

/** Fills values with the schema's defaults (bool, number, string; lists: "[]" or one string). */
void mock_defaults(const lathe_plugin *plugin, lathe_value *values);

/** The value of a key, to change before create. NULL: the key does not exist. */
lathe_value *mock_value(const lathe_plugin *plugin, lathe_value *values, const char *key);

#endif
