/* Opens one plugin's .so: checks before opening it, and checks of what it exports. */
#ifndef LATHE_PLUG_SO_H
#define LATHE_PLUG_SO_H

#include "lathe/plugin.h"

/** Opens the .so at an absolute path as plugin `name` of `kind`. It is never unloaded.
 *
 *  Refuses: a file that others may write; a SHA-256 other than `pin` (64 hex digits, or NULL);
 *  wrong ELF headers (elf_file.h); an error of dlopen; another major version; a wrong size, kind,
 *  name, revision, table or schema (table_rules.h). Up to then only the plugin's constructors have
 *  run. kind 0: any kind.
 *
 *  The file is opened once. Hash and headers are read through that descriptor and the dynamic
 *  loader maps the same descriptor, so the code that runs is the code that was hashed, even if
 *  another file takes the path meanwhile. dladdr() and debuggers see the real path. The only
 *  exception is a library with $ORIGIN in its run path, which only works by path: for such a
 *  library the path and the descriptor are compared before and after loading. Errors:
 *  LATHE_E_PLUGIN, one line that begins with the path. */
lathe_status lathe_so_open(const char *path, int32_t kind, const char *name, const char *pin,
                           const lathe_plugin **out);

/** SHA-256 of the file that the plugin was loaded from, as 64 hex digits: of the content that was
 *  mapped when it was opened, so the file is not opened again and need not be there any more.
 *  Computed by the first call. LATHE_E_NOT_FOUND: it was not loaded from a file. Any thread. */
lathe_status lathe_so_sha256(const lathe_plugin *plugin, char out_hex[65]);

/** The path of the plugin whose constructors or create() are running; NULL: none. For error
 *  handlers that report what ended the process. */
const char *lathe_so_at_work(void);
/** Sets that path; NULL when they have returned. The text is borrowed until then. */
void lathe_so_set_at_work(const char *path);

/** Only the checks of an exported constant. LATHE_E_PLUGIN, without the path. */
lathe_status lathe_plugin_check(const lathe_plugin *plugin, int32_t kind, const char *name);

#endif
