/* Checks whether a plan fits the memory of the machine. */
#ifndef LATHE_RUN_FIT_H
#define LATHE_RUN_FIT_H

#include "run/state/run_state.h"

enum { LATHE_FIT_OPTIONS = 4 };

/** Settings that would fit, as they are written after a command. */
typedef struct lathe_fit_option {
    char settings[224];
    int64_t peak; /* bytes */
} lathe_fit_option;

typedef struct lathe_fit {
    int64_t need;     /* peak of the plan, with the KV cache and states for generation */
    int64_t have;     /* bytes available; INT64_MAX: unknown */
    char source[320]; /* where `have` comes from */
    lathe_fit_option options[LATHE_FIT_OPTIONS];
    int32_t n_options;
    int32_t is_searched; /* 1: options were looked for */
    int32_t tried_ranks; /* 1: more ranks were tried */
    int32_t auto_fits;   /* 1: the options are the methods of adapter.name = "auto" */
} lathe_fit;

/** Returns LATHE_E_CONFIG if the process's own limits (ulimit -v, -d) are lower than what any run
 * with this number of threads needs in addition to its plan. Call it before the libraries that a
 * run uses: they end the process when memory runs out. */
LATHE_MUST_USE lathe_status lathe__fit_floor(int32_t n_threads);

/** Compares the plan with train.memory_limit, or with the free memory: first of a device with its
 * own memory, then of the host, for the host's share of the plan. Reports the first of the two that
 * is too small. */
void lathe_fit_check(const lathe_run *run, lathe_fit *out);

/** Appends what would fit, one option per line, or what would not help either; as a JSON array. */
void lathe_fit_put_options(const lathe_fit *fit, lathe_buffer *out);
void lathe_fit_json(const lathe_fit *fit, lathe_buffer *out);

/** Appends "does not fit: needs ... of ..." and the options, one per line. */
void lathe_fit_text(const lathe_fit *fit, lathe_buffer *out);

#endif
