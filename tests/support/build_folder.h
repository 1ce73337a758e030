/* Where a test finds what was built and its data: around its own program, wherever that was taken,
 * else where it was built. */
#ifndef LATHE_TEST_BUILD_FOLDER_H
#define LATHE_TEST_BUILD_FOLDER_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/** The build folder: that above <build>/tests/<program>. */
static inline const char *lathe_test_build(void)
{
    static char folder[320];
    char known[384];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 && n < (ssize_t)sizeof folder - 1 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
    }
    (void)snprintf(known, sizeof known, "%s/lib/lathe/plugins", folder);
    return access(known, F_OK) == 0 ? folder : LATHE_TEST_BUILD;
}

/** tests/ of the sources: those that the build folder lies in, if it does. */
static inline const char *lathe_test_data(void)
{
    static char folder[384];
    (void)snprintf(folder, sizeof folder, "%s/../tests/golden", lathe_test_build());
    if (access(folder, F_OK) != 0)
        return LATHE_TEST_DATA;
    *strrchr(folder, '/') = '\0';
    return folder;
}

#endif
