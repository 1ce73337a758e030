/* The services the core offers to every plugin. One table per process; valid until exit.
 *
 * Threads: every entry may be called from the rank's thread and from inside parallel_for bodies,
 * unless it says otherwise.
 */
#ifndef LATHE_HOST_H
#define LATHE_HOST_H

#include <stdarg.h>
#include <stdio.h>

#include "status.h"

enum { LATHE_LOG_DEBUG = 0, LATHE_LOG_INFO = 1, LATHE_LOG_WARN = 2, LATHE_LOG_ERROR = 3 };

/** Body of a parallel loop over [begin, end). worker in [0, n_threads): for per-worker scratch. */
typedef void (*lathe_range_fn)(void *arg, int64_t begin, int64_t end, int32_t worker);

struct lathe_kernel_problem; /* device.h */

typedef struct lathe_host {
    uint32_t size;
    uint32_t abi_minor;

    /** [any] Writes one line to the run's log (no newline needed). */
    void (*log)(int32_t level, const char *message);

    /** [any] Records `message` as the calling thread's error and returns `code` unchanged. */
    lathe_status (*fail)(lathe_status code, const char *message);

    /** [any] Runs fn over [0, n) in chunks of exactly `grain` (the last may be shorter), spread
     *  over the process's one thread pool; returns when all are done. The chunks depend on n and
     *  grain only, never on the thread count, so a reduction that keeps one partial per chunk
     *  and adds them in order is bitwise repeatable. Nested calls run serially on the calling
     *  worker. Allocates nothing. grain < 1 counts as 1. */
    void (*parallel_for)(int64_t n, int64_t grain, lathe_range_fn fn, void *arg);

    /** [any] Number of workers parallel_for uses, >= 1; constant during a run. */
    int32_t (*n_threads)(void);

    /** [open] Heap memory for instances and plans, 64-byte aligned, zeroed; NULL when out of
     *  memory. Never called inside a step. Not thread safe inside parallel_for bodies. */
    void *(*alloc)(int64_t bytes);

    /** [open] Releases what alloc gave; takes NULL. */
    void (*free)(void *memory);

    /** [any] Checks a problem as every device must: arity, shapes, dtypes and attributes of its
     *  op, as lathe/op.h has them. A device calls it first in kernel_create; what the device
     *  itself lacks, a dtype or a size, it refuses itself. LATHE_E_SHAPE, LATHE_E_DTYPE,
     *  LATHE_E_ARG or LATHE_E_UNSUPPORTED, recorded as by fail. Keeps nothing. */
    lathe_status (*check_kernel)(const struct lathe_kernel_problem *problem);
} lathe_host;
LATHE_ABI_SIZE(lathe_host, 64);

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

/** Formats a warning into the run's log, such as a key that the others leave without effect. */
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
