/* Whether a plan fits the machine, and what would. */
#ifndef LATHE_RUN_FIT_H
#define LATHE_RUN_FIT_H

#include "run/run_state.h"

/* What a process takes beside the plan: libraries, tokenizer, caches of kernels, buffers of files.
 */
#define LATHE_FIT_RESERVE ((int64_t)128 << 20)

enum { LATHE_FIT_OPTIONS = 4 };

/** Settings that would fit, as they are typed behind a command. */
typedef struct lathe_fit_option {
    char settings[224];
    int64_t peak; /* bytes */
} lathe_fit_option;

typedef struct lathe_fit {
    int64_t need;     /* the plan's peak; of generation with its KV cache */
    int64_t have;     /* what the machine leaves it, INT64_MAX: unknown */
    char source[320]; /* where `have` comes from */
    lathe_fit_option options[LATHE_FIT_OPTIONS];
    int32_t n_options;
} lathe_fit;

/** LATHE_E_CONFIG when the process's own limits (ulimit -v, -d) leave less than any run with so
 * many threads takes beside its plan. Libraries that a run calls end the process where memory fails
 * them, so this comes before they are called. */
LATHE_MUST_USE lathe_status lathe__fit_floor(int32_t n_threads);

/** Compares the run's plan with train.memory_limit, or with what the machine has free: a device
 * with memory of its own, and the host for what it keeps of the plan. The first of the two that
 * lacks is told. */
void lathe_fit_check(const lathe_run *run, lathe_fit *out);

/** Plans again with less demanding settings, until some fit: fills the options. The configuration
 * is read anew from config_path with the overrides that the run was opened with. */
void lathe_fit_search(const lathe_run *run, const char *config_path,
                      const lathe_override *overrides, int32_t n_overrides, lathe_fit *fit);

/** Bytes of the device that an option of [train] takes off the run's peak: plans again without it.
 * 0 when that cannot be planned. */
int64_t lathe_fit_saved(const lathe_run *run, const char *key, const char *config_path,
                        const lathe_override *overrides, int32_t n_overrides);

/** "does not fit: needs ... of ...", and the options, a line each. */
void lathe_fit_text(const lathe_fit *fit, lathe_buffer *out);

/** LATHE_E_NOMEM with all of that as its message when the plan does not fit. */
lathe_status lathe__run_fits(const lathe_run *run, const char *config_path,
                             const lathe_override *overrides, int32_t n_overrides);

#endif
