/* The host table that every plugin gets: errors, warnings, memory, loops, patterns, rules of ops.
 */
#include "plug/host_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/eigen.h"
#include "base/error.h"
#include "base/host_pattern.h"
#include "base/log.h"
#include "base/parallel.h"
#include "graph/ops/kernel_problem.h"

static void host_log(int32_t level, const char *message)
{
    lathe_log(level, "%s", message);
}

static void host_warn_at(const char *key, const char *message)
{
    lathe_log_warn_at(key, message);
}

static lathe_status host_fail(lathe_status code, const char *message)
{
    return lathe_error(code, "%s", message);
}

static lathe_status host_fail_at(lathe_status code, const char *key, const char *message)
{
    return lathe_error_at(code, NULL, key, "%s", message);
}

static void *host_alloc(int64_t bytes)
{
    enum { ALIGN = 64 };
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return NULL;
    const size_t rounded = ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, rounded == 0 ? ALIGN : rounded);
    if (memory == NULL)
        return NULL;
    lathe_heap_count();
    return memset(memory, 0, rounded == 0 ? ALIGN : rounded);
}

static void host_free(void *memory)
{
    free(memory);
}

const lathe_host *lathe_host_get(void)
{
    static const lathe_host host = {
        .size = (uint32_t)sizeof host,
        .abi_minor = LATHE_ABI_MINOR,
        .log = host_log,
        .fail = host_fail,
        .fail_at = host_fail_at,
        .warn_at = host_warn_at,
        .parallel_for = lathe_parallel_for,
        .n_threads = lathe_parallel_threads,
        .alloc = host_alloc,
        .free = host_free,
        .check_kernel = lathe_kernel_problem_check,
        .pattern_create = lathe__host_pattern_create,
        .pattern_find = lathe__host_pattern_find,
        .pattern_free = lathe__host_pattern_free,
        .eigenvectors = lathe_eigenvectors,
    };
    return &host;
}
