/* Where the code of each opened plugin lies, for handlers of signals: they may call nothing else.
 */
#ifndef LATHE_PLUG_CODE_RANGE_H
#define LATHE_PLUG_CODE_RANGE_H

#include "lathe/plugin.h"

/** Remembers the object that contains the plugin's constant under a path, which is kept in its
 *  printable form. Plugins beyond the first 512 are not remembered. */
void lathe_code_range_add(const lathe_plugin *plugin, const char *path);

/** The path of the plugin whose object contains an address; NULL: none. Safe in a handler. */
const char *lathe_code_range_find(const void *address);

#endif
