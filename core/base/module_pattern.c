/* Matches names of parameters and their modules. */
#include "base/module_pattern.h"

#include <fnmatch.h>
#include <string.h>

int lathe_name_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

int lathe_module_matches(const char *pattern, const char *name)
{
    char path[512];
    const char *end = strrchr(name, '.');
    const size_t n = end != NULL ? (size_t)(end - name) : 0;
    if (n == 0 || n >= sizeof path)
        return 0;
    memcpy(path, name, n);
    path[n] = '\0';
    if (strpbrk(pattern, ".*?[") != NULL)
        return lathe_name_matches(pattern, path);
    for (char *part = strtok(path, "."); part != NULL; part = strtok(NULL, "."))
        if (strcmp(part, pattern) == 0)
            return 1;
    return 0;
}
