/* Prints the progress of training: one line that is rewritten on a terminal, or separate plain
 * lines in a file or a pipe.
 *
 * Plain lines are limited in number: the first two are written at once, then at most one per ten
 * seconds of the run so far, and one after LATHE_PROGRESS_SILENCE without any. If an evaluation
 * gets no line, its loss is printed in the next line. With log_every, a line is written every
 * log_every steps instead.
 *
 * If the output is closed or its disk is full, the run continues without progress lines and logs
 * this once.
 */
#ifndef LATHE_METRICS_PROGRESS_H
#define LATHE_METRICS_PROGRESS_H

#include <stdio.h>

#include "lathe/lathe.h"

enum { LATHE_PROGRESS_AUTO = 0, LATHE_PROGRESS_PLAIN = 1, LATHE_PROGRESS_OFF = 2 };

#define LATHE_PROGRESS_SECONDS 10.0 /* of the run per plain line */
#define LATHE_PROGRESS_SILENCE 25.0 /* after which the next step gets a plain line in any case */

typedef struct lathe_progress {
    FILE *out;
    double (*now)(void);     /* seconds; lathe_now except in tests */
    int32_t in_place;        /* rewrite one line */
    int32_t off;             /* print only notes with `always` */
    int32_t closed;          /* print nothing: writing to `out` failed */
    int32_t log_every;       /* plain: steps per line; 0: limited by time */
    int64_t n_lines;         /* plain: lines so far; the line before step 1 counts */
    double begun;            /* start time, by now() */
    double last_line;        /* time of the last line, by now() */
    int32_t line_open;       /* an in-place line is on the screen */
    double seconds_per_step; /* smoothed */
    double held_validation;  /* loss of an evaluation not printed yet; NAN: none */
} lathe_progress;

/** The figures of one step. */
typedef struct lathe_progress_step {
    int64_t step, max_steps;
    double epoch;    /* passes over the data so far */
    double elapsed;  /* seconds of training so far, of all starts of the run */
    int32_t is_last; /* 1: the run pauses after this step, before max_steps: it gets a line */
    double loss, grad_norm, param_norm, lr;
    double tokens_per_second;
    double flops_per_second, peak_flops; /* peak 0: unknown */
    int64_t memory_bytes;
    double step_seconds;
    const char *headline_name; /* of the stage; NULL: none */
    double headline;
} lathe_progress_step;

void lathe_progress_init(lathe_progress *p, FILE *out, int32_t mode, int32_t log_every);

/** Shows a step: "step 120/1000  loss 3.2140  reward 0.62  |g| 0.81  |w| 102.3  lr 3.00e-04  epoch
 * 0.12  12.3k tok/s  524 GFLOP/s  61% of peak  1.20 GiB  ETA 04:12", with the headline of the
 * stage. On a terminal the least important figures are left out until the line fits. The last step
 * always gets a line. */
void lathe_progress_show(lathe_progress *p, const lathe_progress_step *s);

/** Prints a separate line if a line is due, or if `always` is set. */
__attribute__((format(printf, 3, 4))) void lathe_progress_note(lathe_progress *p, int32_t always,
                                                               const char *format, ...);

/** Shows an evaluation: in a separate line if one is due, otherwise as a figure of the next line.
 * detail: text of its other figures. averaged: the evaluation used the average of the weights; the
 * line says so. */
void lathe_progress_validation(lathe_progress *p, int64_t step, double loss, const char *detail,
                               int32_t averaged, int32_t always);

/** Ends an open in-place line, before other output. */
void lathe_progress_break(lathe_progress *p);

#endif
