/* The options --trace and --trace-steps, of the commands that run a model. */
#ifndef LATHE_APP_TRACE_OPTION_H
#define LATHE_APP_TRACE_OPTION_H

#include "app/args.h"
#include "run/run_trace.h"

#define LATHE_TRACE_OPTIONS(what, unit)                                                            \
    {"--trace", "FILE", "Chrome trace of " what},                                                  \
    {                                                                                              \
        "--trace-steps", "A:B", unit " whose operations it holds (default: five, after two)"       \
    }

/** Begins the trace that the arguments ask for, if they do. lathe_trace_end ends it. */
lathe_status lathe_app_begin_trace(const lathe_args *args, lathe_run *run);

#endif
