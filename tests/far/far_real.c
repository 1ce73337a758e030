/* Finds the plugins that those of the far device wrap. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "far.h"

const lathe_plugin *far_real_plugin(const char *kind, const char *name)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/%s/%s.so", FAR_BUILD, kind, name);
    void *const so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *const plugin =
        so ? (const lathe_plugin *)dlsym(so, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (!plugin) {
        fprintf(stderr, "far: %s: %s\n", path, dlerror());
        abort();
    }
    return plugin;
}
