/* What of a run goes into the process's trace (base/trace.h): its nodes, for a range of steps.
 *
 * Within the range: spans of the step, its update, its waits for data, and of every node, with op,
 * phase, dtype, layer and floating-point operations as arguments. Evaluations and checkpoints are
 * in the trace of the whole run.
 */
#ifndef LATHE_LOOP_RUN_TRACE_H
#define LATHE_LOOP_RUN_TRACE_H

#include "base/trace.h"
#include "run/run_state.h"

/** Steps (batches of an evaluation) whose nodes are traced when nothing else is said: the third to
 * the seventh of this start, behind the warm-up. */
#define LATHE_TRACE_SKIPPED 2
#define LATHE_TRACE_STEPS 5

/** Reads "3:7" or "3" into run->trace.first and trace_last: steps as the run counts them.
 * LATHE_E_ARG says what was expected. */
lathe_status lathe_run_trace_steps(lathe_run *run, const char *text);

/** Before the first step: settles the default, for a start that has taken `done` steps before. */
void lathe_run_trace_begin(lathe_run *run, int64_t done);

/** Before step `step`: from here on the nodes of all programs are traced if it is one of those,
 * else not. Without a trace, nothing. */
void lathe_run_trace_step(lathe_run *run, int64_t step);

#endif
