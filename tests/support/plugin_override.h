/* Lets plugins in a test's own folder take the names of built-in ones. */
#ifndef LATHE_TEST_PLUGIN_OVERRIDE_H
#define LATHE_TEST_PLUGIN_OVERRIDE_H

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Sets LATHE_PLUGIN_OVERRIDE to all plugins of a folder, for registries created from now on. */
static inline void override_all_of(const char *folder)
{
    char pattern[4096], list[1 << 14] = "";
    glob_t found = {0};
    size_t n = 0;
    (void)snprintf(pattern, sizeof pattern, "%s/*/*.so", folder);
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *tail = found.gl_pathv[i] + strlen(folder) + 1;
            if (strchr(tail, '-')) /* a library of a plugin, such as arrow-shim.so */
                continue;
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", n > 0 ? ":" : "",
                                  (int)(strlen(tail) - strlen(".so")), tail);
        }
    globfree(&found);
    (void)setenv("LATHE_PLUGIN_OVERRIDE", list, 1);
}

/**
 * CUDA plugins of registries created from now on: those for the emulated GPU of a build folder. If
 * LATHE_TEST_GPU is "real", those for a real one.
 */
static inline void use_emulated_gpu(const char *build)
{
    const char *gpu = getenv("LATHE_TEST_GPU");
    char folder[1024];
    if (gpu && strcmp(gpu, "real") == 0)
        return;
    (void)snprintf(folder, sizeof folder, "%s/tests/emulated", build);
    (void)setenv("LATHE_PLUGIN_PATH", folder, 1);
    override_all_of(folder);
}

#endif
