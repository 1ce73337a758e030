/* Stores the fuzzer's bytes as a file with a path, in memory. */
#ifndef LATHE_TEST_FUZZ_FILE_H
#define LATHE_TEST_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct fuzz_file {
    int fd;
    char path[64];
} fuzz_file;

static inline fuzz_file fuzz_file_open(const void *data, size_t size)
{
    fuzz_file file = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    if (file.fd < 0 || write(file.fd, data, size) != (ssize_t)size)
        abort();
    (void)snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    return file;
}

static inline void fuzz_file_close(const fuzz_file *file)
{
    (void)close(file->fd);
}

#endif
