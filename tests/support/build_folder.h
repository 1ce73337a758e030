/* Finds the build folder and the tests' data: from the location of the test program, wherever it
 * was copied, or else from the place where it was built. */
#ifndef LATHE_TEST_BUILD_FOLDER_H
#define LATHE_TEST_BUILD_FOLDER_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/** The build folder: the parent of <build>/tests/<program>. */
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

/** tests/ of the sources that contain the build folder, if any do. */
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
