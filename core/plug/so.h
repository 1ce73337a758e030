/* One plugin's .so: the checks before it is opened, opening, and the checks of what it exports. */
#ifndef LATHE_PLUG_SO_H
#define LATHE_PLUG_SO_H

#include "lathe/plugin.h"

/** Opens the .so at an absolute path as plugin `name` of `kind`; it is never unloaded.
 *
 *  Refuses a file, or a folder holding it, that others may write; a SHA-256 other than `pin` (64
 *  hex digits, or NULL); what dlopen refuses; a missing entry symbol; another major version; a
 *  size, kind, name, revision, table or schema that does not fit. No code of the plugin but its
 *  constructors has run then.
 *  Errors  LATHE_E_PLUGIN, one line that begins with the path. */
lathe_status lathe_so_open(const char *path, int32_t kind, const char *name, const char *pin,
                           const lathe_plugin **out);

/** The checks of an exported constant alone. LATHE_E_PLUGIN, without the path. */
lathe_status lathe_plugin_check(const lathe_plugin *plugin, int32_t kind, const char *name);

#endif
