/* One plugin's .so: the checks before it is opened, opening, and the checks of what it exports. */
#ifndef LATHE_PLUG_SO_H
#define LATHE_PLUG_SO_H

#include "lathe/plugin.h"

/** Opens the .so at an absolute path as plugin `name` of `kind`; it is never unloaded.
 *
 *  Refuses a file that others may write; a SHA-256 other than `pin` (64 hex digits, or NULL); ELF
 *  headers that do not fit (elf_file.h); what dlopen refuses; another major version; a size, kind,
 *  name, revision, table or schema that does not fit (table_rules.h). Of the plugin's code only its
 *  constructors have run then. kind 0: of any kind.
 *
 *  The file is opened once. Hash and headers are read through that descriptor and the dynamic
 *  loader maps the same descriptor, so the code that runs is the code that was hashed, even if the
 *  path is given to another file meanwhile. dladdr() and debuggers see the real path. The one
 *  exception is a library whose run path has $ORIGIN, which works by path alone: there the path and
 *  the descriptor are compared before and after.
 *  Errors  LATHE_E_PLUGIN, one line that begins with the path. */
lathe_status lathe_so_open(const char *path, int32_t kind, const char *name, const char *pin,
                           const lathe_plugin **out);

/** The path of the plugin whose constructors or create() run now; NULL: none. For who must tell
 *  what ended the process. */
const char *lathe_so_at_work(void);
/** Says so; NULL when they have returned. The text is borrowed until then. */
void lathe_so_set_at_work(const char *path);

/** The checks of an exported constant alone. LATHE_E_PLUGIN, without the path. */
lathe_status lathe_plugin_check(const lathe_plugin *plugin, int32_t kind, const char *name);

#endif
