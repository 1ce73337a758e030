/* Finds how much more memory this process may allocate, from the machine's free memory, the
 * limits of its control groups and its own limits. */
#ifndef LATHE_BASE_HOST_MEMORY_H
#define LATHE_BASE_HOST_MEMORY_H

#include "lathe/status.h"

/* Bytes that a process needs in addition to its plan: libraries, tokenizer, kernel caches, file
 * buffers. */
#define LATHE_HOST_RESERVE ((int64_t)128 << 20)

typedef struct lathe_host_memory {
    int64_t available;        /* bytes; INT64_MAX: not known */
    int32_t is_address_space; /* 1: every mapping counts, also mapped files and thread stacks */
    char source[192]; /* what sets it: "MemAvailable of /proc/meminfo", "/sys/fs/cgroup/..." */
} lathe_host_memory;

/** Reads only the process's own limits: RLIMIT_AS (ulimit -v) less the size of its address
 *  space, RLIMIT_DATA (ulimit -d) less its private data; INT64_MAX if neither is set. root: as
 *  below, for /proc/self/status. */
void lathe_host_limits_read(const char *root, lathe_host_memory *out);

/** Reads the lowest of: the process's own limits as above; MemAvailable; and, for the process's
 *  control group and all its parents (version 2, or the memory controller of version 1), limit -
 *  usage + inactive file cache, which the kernel frees first. root: prefix of /proc and /sys, ""
 *  except in tests. Never fails: a limit that cannot be read is ignored. */
void lathe_host_memory_read(const char *root, lathe_host_memory *out);

#endif
