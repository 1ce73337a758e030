/* The conformance suite: checks that an opened plugin does what every plugin of its kind must do.
 *
 * A check builds small problems with numbers from the counter RNG and compares with what the
 * public headers promise, or with a plain double-precision reference. It is bitwise repeatable.
 */
#ifndef LATHE_CHECK_CONFORMANCE_H
#define LATHE_CHECK_CONFORMANCE_H

#include "base/toml.h"
#include "plug/registry.h"

enum { LATHE_CHECK_OK = 0, LATHE_CHECK_FAILED = 1, LATHE_CHECK_SKIPPED = 2 };

typedef struct lathe_report {
    void (*begin)(void *arg, const char *check);
    void (*end)(void *arg, int32_t result, const char *text); /* LATHE_CHECK_*; the reason, or a
                                                               * figure */
    void *arg;
} lathe_report;

typedef struct lathe_conformance_totals {
    int32_t ok, failed, skipped;
} lathe_conformance_totals;

/** How a plugin is checked. All zeros is valid. */
typedef struct lathe_conformance_setup {
    /** A device plugin that this machine can run. If it has memory of its own, optimizers, codecs
     *  and attention backends compute on it, and it must have the kernels of the graphs. NULL, or a
     *  device that uses the host's memory: the checks run in host memory. */
    const lathe_component *device;
    /** A table with values of the plugin's keys, instead of their defaults. NULL: none. */
    const lathe_toml_node *settings;
    int32_t first_failure; /* 1: stops after the first check that fails */
    int32_t reserved;      /* 0 */
} lathe_conformance_setup;

/** Runs all checks of the plugin's kind. setup: NULL for the defaults. Errors: LATHE_E_NOMEM if the
 *  suite itself cannot continue; errors of opening the device. */
lathe_status lathe_conformance_run(const lathe_component *component,
                                   const lathe_conformance_setup *setup, const lathe_report *report,
                                   lathe_conformance_totals *out);

#endif
