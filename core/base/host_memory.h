/* How much memory this process may still take: what the machine has free, and what its control groups and
 * its own limits leave it. */
#ifndef LATHE_BASE_HOST_MEMORY_H
#define LATHE_BASE_HOST_MEMORY_H

#include "lathe/status.h"

typedef struct lathe_host_memory {
    int64_t available;        /* bytes; INT64_MAX: nothing tells */
    int32_t is_address_space; /* 1: whatever is mapped counts: files, stacks of threads */
    char source[192]; /* where that stands: "MemAvailable of /proc/meminfo", "/sys/fs/cgroup/..." */
} lathe_host_memory;

/** What the process's own limits leave it: RLIMIT_AS (ulimit -v) less the size of its address space, RLIMIT_DATA
 *  (ulimit -d) less its private data; INT64_MAX where neither limits. root: as below, for /proc/self/status. */
void lathe_host_limits_read(const char *root, lathe_host_memory *out);

/** The least of what the process's limits leave, of MemAvailable and, for the process's control group and each above it (version 2, or the
 *  memory controller of version 1), limit - usage + inactive file cache, which the kernel gives up first.
 *  root: prefix of /proc and /sys, "" but in tests. Never fails: what cannot be read does not limit. */
void lathe_host_memory_read(const char *root, lathe_host_memory *out);

#endif
