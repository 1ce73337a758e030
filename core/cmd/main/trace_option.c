/* Reads the options --trace and --trace-steps. */
#include "cmd/main/trace_option.h"

#include "base/error.h"

/* Refuses --trace-steps alone: without a file it would have no effect. */
lathe_status lathe_app_begin_trace(const lathe_args *args, lathe_run *run)
{
    const char *path = lathe_args_value(args, "--trace");
    const char *steps = lathe_args_value(args, "--trace-steps");
    if (steps && !path)
        return lathe_error(
            LATHE_E_ARG, "--trace-steps selects the steps of a trace, but --trace FILE is missing");
    if (steps)
        LATHE_TRY(lathe_run_trace_only(run, steps));
    return path ? lathe_run_trace_open(run, path) : LATHE_OK;
}
