/* The conformance suite: what every plugin of a kind must do, checked on an open one.
 *
 * A check builds small problems with numbers from the counter RNG and compares with what the
 * public headers promise, or with a plain double-precision reference. It is bitwise repeatable.
 */
#ifndef LATHE_APP_CONFORMANCE_H
#define LATHE_APP_CONFORMANCE_H

#include "plug/registry.h"

enum { LATHE_CHECK_OK = 0, LATHE_CHECK_FAILED = 1, LATHE_CHECK_SKIPPED = 2 };

typedef struct lathe_report {
    void (*begin)(void *arg, const char *check);
    void (*end)(void *arg, int32_t result, const char *text); /* LATHE_CHECK_*; why, or a figure */
    void *arg;
} lathe_report;

typedef struct lathe_conformance_totals {
    int32_t ok, failed, skipped;
} lathe_conformance_totals;

/** Runs all checks of the plugin's kind. device: a device plugin that this machine can run; where it has memory
 *  of its own, optimizers, codecs and attention backends compute there, and graphs must find their kernels; NULL,
 *  or one whose memory is the host's: in host memory. LATHE_E_NOMEM when the suite itself cannot go on; errors of
 *  opening the device. */
lathe_status lathe_conformance_run(const lathe_component *component, const lathe_component *device,
                                   const lathe_report *report, lathe_conformance_totals *out);

/** Heap blocks taken so far; default lathe_heap_allocations. A program that counts malloc itself
 *  sets its own counter before the first run. */
extern int64_t (*lathe_conformance_heap)(void);

#endif
