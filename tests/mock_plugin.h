/* Opening a plugin under test from the path in LATHE_TEST_PLUGIN, and its values from defaults. */
#ifndef LATHE_MOCK_PLUGIN_H
#define LATHE_MOCK_PLUGIN_H

#include "lathe/plugin.h"

#define MOCK_MAX_FIELDS 32

/** The plugin's constant; aborts when it does not load: nothing else can be tested then. */
const lathe_plugin *mock_plugin_open(const char *path);

/** Fills values with the schema's defaults (bool, number, string; lists: "[]" or one string). */
void mock_defaults(const lathe_plugin *plugin, lathe_value *values);

/** The value of a key, to change before create. NULL: no such key. */
lathe_value *mock_value(const lathe_plugin *plugin, lathe_value *values, const char *key);

#endif
