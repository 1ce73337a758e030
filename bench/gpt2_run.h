/* A run of the GPT-2 124M shape on random tokens, for benchmarks of whole steps. */
#ifndef LATHE_BENCH_GPT2_RUN_H
#define LATHE_BENCH_GPT2_RUN_H

#include "run/state/run_state.h"

/** Prints `what` and the message of the thread's last error, and ends the program. */
_Noreturn void bench_die(const char *what);

/** Sorts x and returns its median. */
double bench_median(double *x, int n);

/** Opens the run; more: n_more settings "section.key=value", which it splits in place; texts
 * without
 *  "=" are ignored. Ends the program on failure. */
lathe_run *gpt2_run_open(const char *precision, int rows, int row_tokens, int n_more,
                         char *const *more);

/** A batch of random tokens, each the target of the one before. Never freed. */
lathe_run_batch gpt2_batch(int rows, int row_tokens);

#endif
