/* Opens runs with options as texts. */
#ifndef LATHE_BENCH_OPEN_H
#define LATHE_BENCH_OPEN_H

#include "run/open/opening.h"

/* wants: LATHE_OPEN_*. */
static inline lathe_status bench_open(const lathe_override *list, int32_t n, int32_t wants,
                                      lathe_run **out)
{
    lathe_edits options = {.n = 0};
    const lathe_run_source from = {NULL, &options, NULL};
    lathe_edits_options(&options, list, n);
    const lathe_status status = lathe_run_open_for(&from, wants, out);
    lathe_edits_fini(&options);
    return status;
}

#endif
