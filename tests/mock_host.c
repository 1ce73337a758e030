/* The host table for plugins under test: libc and one thread. */
#include <stdlib.h>
#include <string.h>

#include "mock_graph.h"

static char host_error[512];

static void host_log(int32_t level, const char *message)
{
    (void)level;
    (void)message;
}

static lathe_status host_fail(lathe_status code, const char *message)
{
    (void)snprintf(host_error, sizeof host_error, "%s", message);
    return code;
}

static void host_parallel_for(int64_t n, int64_t grain, lathe_range_fn fn, void *arg)
{
    grain = grain < 1 ? 1 : grain;
    for (int64_t i = 0; i < n; i += grain)
        fn(arg, i, i + grain < n ? i + grain : n, 0);
}

static int32_t host_n_threads(void)
{
    return 1;
}

static void *host_alloc(int64_t bytes)
{
    const size_t size = ((size_t)bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, size);
    return memory == NULL ? NULL : memset(memory, 0, size);
}

const lathe_host *mock_host(void)
{
    static const lathe_host host = {.size = sizeof host,
                                    .log = host_log,
                                    .fail = host_fail,
                                    .parallel_for = host_parallel_for,
                                    .n_threads = host_n_threads,
                                    .alloc = host_alloc,
                                    .free = free};
    return &host;
}

const char *mock_host_error(void)
{
    return host_error;
}
