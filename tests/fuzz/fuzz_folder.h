/* A folder that lasts as long as the program, for targets whose bytes are one file of several. */
#ifndef LATHE_TEST_FUZZ_FOLDER_H
#define LATHE_TEST_FUZZ_FOLDER_H

#include "base/fs.h"
#include "fuzz/fuzz_file.h"

static char fuzz_folder[64];

static void fuzz_folder_leave(void)
{
    (void)lathe_dir_remove(fuzz_folder);
}

/* Makes the folder; returns 1 the first time. */
static inline int fuzz_folder_make(void)
{
    if (fuzz_folder[0] != '\0')
        return 0;
    (void)snprintf(fuzz_folder, sizeof fuzz_folder, "/tmp/lathe-fuzz-XXXXXX");
    if (mkdtemp(fuzz_folder) == NULL || atexit(fuzz_folder_leave) != 0)
        abort();
    return 1;
}

static inline void fuzz_folder_put(const char *name, const void *data, size_t size)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    FILE *const file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

#endif
