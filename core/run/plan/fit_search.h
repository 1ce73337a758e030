/* Finds settings with which a plan fits the memory of the machine. */
#ifndef LATHE_RUN_FIT_SEARCH_H
#define LATHE_RUN_FIT_SEARCH_H

#include "run/plan/fit.h"

/** Plans again with settings that need less memory until some fit, and fills the options. A run on
 *  several ranks, or planned as one of them, is planned so again. */
void lathe_fit_search(const lathe_run *run, lathe_fit *fit);

/** Searches for a rank of n_ranks that are not there: also tries what ranks may divide, and more
 *  ranks. */
void lathe_fit_search_ranks(const lathe_run *run, int32_t n_ranks, lathe_fit *fit);

/** Bytes of device memory by which an option of [train] lowers the run's peak: plans again without
 * the option. 0 if that cannot be planned. */
int64_t lathe_fit_saved(const lathe_run *run, const char *key);

/** Returns LATHE_E_NOMEM, with that text as its message, if the plan does not fit. */
lathe_status lathe__run_fits(const lathe_run *run);

#endif
