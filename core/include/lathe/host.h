/* The functions that the core offers to every plugin: log, errors, threads and memory. There is one
 * table per process, valid until exit.
 *
 * Threads: every function may be called from the rank's thread and from parallel_for bodies, unless
 * its comment says otherwise.
 */
#ifndef LATHE_HOST_H
#define LATHE_HOST_H

#include <stdarg.h>
#include <stdio.h>

#include "status.h"

enum { LATHE_LOG_DEBUG = 0, LATHE_LOG_INFO = 1, LATHE_LOG_WARN = 2, LATHE_LOG_ERROR = 3 };

/** Body of a parallel loop over [begin, end). worker: 0 .. n_threads - 1, to index scratch per
 *  worker. */
typedef void (*lathe_range_fn)(void *arg, int64_t begin, int64_t end, int32_t worker);

struct lathe_kernel_problem; /* device.h */

typedef struct lathe_host {
    uint32_t size;
    uint32_t abi_minor;

    /* ---- messages ---- */
    /** [any] Writes one line to the run's log (no newline needed). */
    void (*log)(int32_t level, const char *message);
    /** [open] Warns of a key of the component's own table, as fail_at names it: the core adds the
     *  place that sets it. */
    void (*warn_at)(const char *key, const char *message);
    /** [any] Records `message` as the calling thread's error and returns `code` unchanged. */
    lathe_status (*fail)(lathe_status code, const char *message);
    /** [any] Records an error of a key of the component's own table: "block_size"; of a table
     * inside it "rope_scaling.factor"; of a list "target_modules.2". The core tells where the run
     * file sets it, and reads nothing in the message, which names the key for the reader. */
    lathe_status (*fail_at)(lathe_status code, const char *key, const char *message);

    /* ---- memory and threads ---- */
    /** [open] Heap memory for instances and plans, 64-byte aligned, zeroed; NULL when out of
     *  memory. Never called inside a step. Not thread safe inside parallel_for bodies. */
    void *(*alloc)(int64_t bytes);
    /** [open] Frees memory from alloc; NULL is allowed. */
    void (*free)(void *memory);
    /** [any] Runs fn over [0, n) in chunks of exactly `grain` (the last may be shorter), in
     *  parallel on the process's one thread pool; returns when all are done. The chunks depend
     *  only on n and grain, not on the thread count: a reduction that keeps one partial sum per
     *  chunk and adds them in order is bitwise repeatable. Nested calls run serially on the
     *  calling worker. Allocates nothing. grain < 1 counts as 1. */
    void (*parallel_for)(int64_t n, int64_t grain, lathe_range_fn fn, void *arg);
    /** [any] Number of workers parallel_for uses, >= 1; constant during a run. */
    int32_t (*n_threads)(void);

    /* ---- checks and computations that plugins share ---- */
    /** [any] Checks a problem against the rules of lathe/op.h: number of inputs and outputs,
     *  shapes, dtypes and attributes. A device calls it first in kernel_create, and then itself
     *  refuses dtypes and sizes that it does not support. LATHE_E_SHAPE, LATHE_E_DTYPE,
     *  LATHE_E_ARG or LATHE_E_UNSUPPORTED, recorded as by fail. Keeps no pointer. */
    lathe_status (*check_kernel)(const struct lathe_kernel_problem *problem);
    /** [open] Compiles a regular expression (PCRE2's syntax, on UTF-8), of a key as fail_at names
     * it (NULL: of none). LATHE_E_CONFIG, recorded as by fail_at: where it is wrong, and why. */
    lathe_status (*pattern_create)(const char *key, const char *pattern, void **out);
    /** [any] Finds the first match in text[from, bytes) of a pattern. spans[2 * i] and
     *  spans[2 * i + 1]: begin and end of group i (0: the whole match) in bytes, for as many groups
     *  as n_spans has room for; -1 where the group has no part in the match. Returns the number of
     *  groups with the whole match, at least 1; 0: no match; an error code, recorded as by fail: no
     *  memory, or the search takes too many steps. May allocate. */
    int32_t (*pattern_find)(const void *pattern, const char *text, int64_t bytes, int64_t from,
                            int64_t *spans, int32_t n_spans);
    /** [open] Frees a pattern; NULL is allowed. */
    void (*pattern_free)(void *pattern);

    /** [step] Orthonormal eigenvectors of a [n, n] (f64, symmetric, destroyed) for its k largest
     *  eigenvalues, as rows of out [k, n]; the element of largest magnitude of each is positive.
     *  All in host memory; scratch: lathe_eigenvectors_scratch(n) bytes. About 4 n^3
     *  multiplications in double, with a split over the threads that depends only on n.
     *  LATHE_E_NUMERIC: a is not finite, or 60 iterations for one eigenvalue do not suffice. */
    lathe_status (*eigenvectors)(double *a, int64_t n, int64_t k, float *out, void *scratch);
} lathe_host;
LATHE_ABI_SIZE(lathe_host, 112);

/** Bytes of scratch of lathe_host.eigenvectors for a matrix of n x n. */
static inline int64_t lathe_eigenvectors_scratch(int64_t n)
{
    return n * 7 * (int64_t)sizeof(double);
}

/** Formats and records an error: return lathe_fail(host, LATHE_E_ARG, "beta1 is %g", b1); */
__attribute__((format(printf, 3, 4))) static inline lathe_status
lathe_fail(const lathe_host *host, lathe_status code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)host->fail(code, text);
    return code;
}

/** Formats and records an error of a key of the component's table. */
__attribute__((format(printf, 4, 5))) static inline lathe_status
lathe_fail_at(const lathe_host *host, lathe_status code, const char *key, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)host->fail_at(code, key, text);
    return code;
}

/** Formats a warning of a key, for example one that has no effect. */
__attribute__((format(printf, 3, 4))) static inline void
lathe_warn_at(const lathe_host *host, const char *key, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->warn_at(key, text);
}

/** Formats a warning and writes it to the run's log. */
__attribute__((format(printf, 2, 3))) static inline void lathe_warn(const lathe_host *host,
                                                                    const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->log(LATHE_LOG_WARN, text);
}

#endif
