/* The host table for plugins under test: libc and one thread. */
#include <regex.h>
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

static lathe_status host_fail_at(lathe_status code, const char *key, const char *message)
{
    (void)key;
    return host_fail(code, message);
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

/* POSIX extended expressions, and groups (?:..) as groups. */
static lathe_status host_pattern_create(const char *key, const char *pattern, void **out)
{
    (void)key;
    char text[1024];
    size_t n = 0;
    for (const char *s = pattern; *s != '\0' && n + 1 < sizeof text; s++) {
        text[n++] = *s;
        if (strncmp(s, "(?:", 3) == 0)
            s += 2;
    }
    text[n] = '\0';
    regex_t *regex = malloc(sizeof *regex);
    if (regex == NULL || regcomp(regex, text, REG_EXTENDED) != 0) {
        free(regex);
        return host_fail(LATHE_E_CONFIG, "no regular expression");
    }
    *out = regex;
    return LATHE_OK;
}

static int32_t host_pattern_find(const void *pattern, const char *text, int64_t bytes, int64_t from,
                                 int64_t *spans, int32_t n_spans)
{
    regmatch_t match;
    (void)bytes;
    if (regexec(pattern, text + from, 1, &match, 0) != 0)
        return 0;
    if (n_spans > 0) {
        spans[0] = from + match.rm_so;
        spans[1] = from + match.rm_eo;
    }
    return 1;
}

static void host_pattern_free(void *pattern)
{
    if (pattern != NULL)
        regfree(pattern);
    free(pattern);
}

static void host_warn_at(const char *key, const char *message)
{
    (void)key;
    host_log(LATHE_LOG_WARN, message);
}

const lathe_host *mock_host(void)
{
    static const lathe_host host = {.size = sizeof host,
                                    .log = host_log,
                                    .fail = host_fail,
                                    .fail_at = host_fail_at,
                                    .warn_at = host_warn_at,
                                    .parallel_for = host_parallel_for,
                                    .n_threads = host_n_threads,
                                    .alloc = host_alloc,
                                    .free = free,
                                    .pattern_create = host_pattern_create,
                                    .pattern_find = host_pattern_find,
                                    .pattern_free = host_pattern_free};
    return &host;
}

const char *mock_host_error(void)
{
    return host_error;
}
