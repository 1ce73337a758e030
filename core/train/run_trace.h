/* Adds the nodes of a run to the process's trace (base/trace.h), for a range of steps.
 *
 * In this range the trace has a span for the step, its update, its waits for data and every node,
 * with op, phase, dtype, layer and floating-point operations as arguments. Evaluations and
 * checkpoints are traced in the whole run.
 *
 * Ranks write a file each, `path` and `path`.rank-1, ...; at the end of a run that succeeds rank 0
 * joins them in `path`, with one process per rank. Their clock is that of rank 0: ranks of one host
 * share it, and a rank of another host takes the moment at which a message of all ranks arrives.
 */
#ifndef LATHE_TRAIN_RUN_TRACE_H
#define LATHE_TRAIN_RUN_TRACE_H

#include "base/trace.h"
#include "run/state/run_state.h"

/** Default range of steps (batches, in an evaluation) whose nodes are traced: the third to the
 * seventh of this start, after the warm-up. */
#define LATHE_TRACE_SKIPPED 2
#define LATHE_TRACE_STEPS 5

/** Reads "3:7" or "3" into trace->first and last: step numbers of the run. LATHE_E_ARG says
 * what was expected. */
lathe_status lathe_run_trace_steps(lathe_trace_range *trace, const char *text);

/** Takes such a range for the run's trace. */
lathe_status lathe_run_trace_only(lathe_run *run, const char *text);

/** Sets the default range, and warns if no step of this start is in the range; call it before the
 * first step. `done`: number of steps that the run took before this start; `last`: number of the
 * last step. */
void lathe_run_trace_begin(lathe_run *run, int64_t done, int64_t last);

/** Call it before step `step`: turns the tracing of all programs' nodes on if the step is in the
 * range, and off otherwise. Does nothing without a trace. */
void lathe_run_trace_step(lathe_run *run, int64_t step);

/** Begins the trace of this rank. All ranks call it; errors of lathe_trace_begin. */
lathe_status lathe_run_trace_open(lathe_run *run, const char *path);

/** Ends the trace of this rank, and on rank 0 joins those of all. All ranks call it, before the run
 *  is closed. Warns of a rank whose file is not found, as on a host without the folder. */
void lathe_run_trace_join(lathe_run *run, const char *path);

#endif
