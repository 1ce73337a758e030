/* The options --trace and --trace-steps, of the commands that run a model. */
#ifndef LATHE_CMD_TRACE_OPTION_H
#define LATHE_CMD_TRACE_OPTION_H

#include "cmd/line/args.h"
#include "train/run_trace.h"

#define LATHE_TRACE_OPTIONS(what, unit)                                                            \
    {"--trace", "FILE", "write a Chrome trace of " what},                                          \
    {                                                                                              \
        "--trace-steps", "A:B",                                                                    \
            "range of " unit " in the trace (default: five, after the first two)"                  \
    }

/** Begins a trace if the arguments ask for one; lathe_trace_end ends it. */
lathe_status lathe_app_begin_trace(const lathe_args *args, lathe_run *run);

#endif
