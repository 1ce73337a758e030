/* How much memory this process may still take: what the machine has free, and what its control groups
 * leave it. */
#ifndef LATHE_BASE_HOST_MEMORY_H
#define LATHE_BASE_HOST_MEMORY_H

#include "lathe/status.h"

typedef struct lathe_host_memory {
    int64_t available; /* bytes; INT64_MAX: nothing tells */
    char source[192]; /* where that stands: "MemAvailable of /proc/meminfo", "/sys/fs/cgroup/..." */
} lathe_host_memory;

/** The least of MemAvailable and, for the process's control group and each above it (version 2, or the
 *  memory controller of version 1), limit - usage + inactive file cache, which the kernel gives up first.
 *  root: prefix of /proc and /sys, "" but in tests. Never fails: what cannot be read does not limit. */
void lathe_host_memory_read(const char *root, lathe_host_memory *out);

#endif
