/* The progress line: rewritten in place on a terminal, a plain line now and then elsewhere. */
#ifndef LATHE_RUN_PROGRESS_H
#define LATHE_RUN_PROGRESS_H

#include <stdio.h>

#include "lathe/lathe.h"

enum { LATHE_PROGRESS_AUTO = 0, LATHE_PROGRESS_PLAIN = 1, LATHE_PROGRESS_OFF = 2 };

typedef struct lathe_progress {
    FILE *out;
    int32_t in_place; /* rewrite one line */
    int32_t off;
    int32_t log_every;       /* plain: a line every so many steps; 0: every ten seconds */
    double min_seconds;      /* plain: between two lines */
    double last_line;        /* when, by lathe_now */
    int32_t line_open;       /* an in-place line is on the screen */
    double seconds_per_step; /* smoothed */
} lathe_progress;

/** One step's figures. */
typedef struct lathe_progress_step {
    int64_t step, max_steps;
    double loss, grad_norm, param_norm, lr;
    double tokens_per_second;
    double flops_per_second, peak_flops; /* peak 0: unknown */
    int64_t memory_bytes;
    double step_seconds;
} lathe_progress_step;

void lathe_progress_init(lathe_progress *p, FILE *out, int32_t mode, int32_t log_every);

/** Shows a step: "step 120/1000  loss 3.214  |g| 0.81  |w| 102.3  lr 3.0e-04  12.3k tok/s  61% of peak
 *  1.2 GiB  ETA 04:12". The last step always gets a line. */
void lathe_progress_show(lathe_progress *p, const lathe_progress_step *s);

/** Ends an open in-place line, before other output. */
void lathe_progress_break(lathe_progress *p);

#endif
