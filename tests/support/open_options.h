/* Opens runs with options as texts, as a command line has them. */
#ifndef LATHE_TEST_OPEN_OPTIONS_H
#define LATHE_TEST_OPEN_OPTIONS_H

#include "run/open/opening.h"

/* path NULL: no run file. wants: LATHE_OPEN_*. */
__attribute__((unused)) static lathe_status open_options(const char *path,
                                                         const lathe_override *list, int32_t n,
                                                         int32_t wants, lathe_run **out)
{
    lathe_edits options = {.n = 0};
    const lathe_run_source from = {path, &options, NULL};
    lathe_edits_options(&options, list, n);
    const lathe_status status = lathe_run_open_for(&from, wants, out);
    lathe_edits_fini(&options);
    return status;
}

/* Opens the run of a stored teacher. */
__attribute__((unused)) static lathe_status open_to_store(const lathe_override *list, int32_t n,
                                                          int32_t top_k, double temperature,
                                                          lathe_run **out)
{
    lathe_edits options = {.n = 0};
    const lathe_run_source from = {NULL, &options, NULL};
    lathe_edits_options(&options, list, n);
    const lathe_status status = lathe_run_open_logprobs(&from, top_k, temperature, out);
    lathe_edits_fini(&options);
    return status;
}

#endif
