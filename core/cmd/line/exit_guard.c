/* Reports a plugin, or a library that it uses, that ends the process by exit(). */
#include "cmd/line/exit_guard.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/print.h"
#include "cmd/line/args.h"
#include "lathe/plugin.h"
#include "plug/so.h"

enum { MAX_FRAMES = 64 };

static int is_done;

/* Whether the library that contains an address is a plugin; writes its path to `out`. */
static int is_plugin(void *address, char *out, size_t out_bytes)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return 0;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL || dlsym(library, LATHE_PLUGIN_ENTRY_NAME) == NULL)
        return 0;
    (void)snprintf(out, out_bytes, "%s", info.dli_fname);
    /* Until its constructors have run, a plugin has the name of the file descriptor from which it
     * is loaded. */
    const ssize_t n = readlink(info.dli_fname, out, out_bytes - 1);
    if (n > 0)
        out[n] = '\0';
    return 1;
}

static void complain(void)
{
    void *frames[MAX_FRAMES];
    char path[PATH_MAX];
    if (is_done)
        return;
    const int n = backtrace(frames, MAX_FRAMES);
    const char *who = lathe_so_at_work(); /* after a tail call there is no frame of the plugin */
    for (int i = 0; i < n && who == NULL; i++)
        if (is_plugin(frames[i], path, sizeof path))
            who = path;
    (void)fflush(stdout);
    lathe_print_to(stderr, "lathe: %s ended the process by exit()%s; the command is not finished\n",
                   who != NULL ? who : "a library",
                   who != NULL ? ", which a plugin never does" : "");
    _exit(LATHE_EXIT_FAILED);
}

void lathe_cli_guard_exit(void)
{
    (void)atexit(complain);
    (void)at_quick_exit(complain);
}

void lathe_cli_unguard_exit(void)
{
    is_done = 1;
}
