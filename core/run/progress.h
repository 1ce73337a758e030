/* The progress line: rewritten in place on a terminal, a plain line now and then elsewhere.
 *
 * Elsewhere, lines are rationed: the first two come at once, then at most one for every ten seconds
 * that the run has taken so far. An evaluation without a line of its own stands in the next one. With
 * log_every, every line that is due is written.
 *
 * When the output is closed or its disk is full, the run goes on without it and says so once, in the
 * log.
 */
#ifndef LATHE_RUN_PROGRESS_H
#define LATHE_RUN_PROGRESS_H

#include <stdio.h>

#include "lathe/lathe.h"

enum { LATHE_PROGRESS_AUTO = 0, LATHE_PROGRESS_PLAIN = 1, LATHE_PROGRESS_OFF = 2 };

#define LATHE_PROGRESS_SECONDS 10.0 /* of the run for one plain line */

typedef struct lathe_progress {
    FILE *out;
    double (*now)(void);     /* seconds; lathe_now, but in tests */
    int32_t in_place;        /* rewrite one line */
    int32_t off;             /* nothing but notes that come in any case */
    int32_t closed;          /* nothing at all: the output broke */
    int32_t log_every;       /* plain: a line every so many steps; 0: rationed */
    int64_t n_lines;         /* plain: written so far, with one before the first step */
    double begun;            /* when, by now() */
    int32_t line_open;       /* an in-place line is on the screen */
    double seconds_per_step; /* smoothed */
    double held_validation;  /* of an evaluation that got no line yet; NAN: none */
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

/** Shows a step: "step 120/1000  loss 3.2140  |g| 0.81  |w| 102.3  lr 3.00e-04  12.3k tok/s  524 GFLOP/s
 *  61% of peak  1.20 GiB  ETA 04:12". On a terminal the least important figures are left out until the line fits.
 *  The last step always gets a line. */
void lathe_progress_show(lathe_progress *p, const lathe_progress_step *s);

/** A line of its own, when one is due; `always`: in any case. */
__attribute__((format(printf, 3, 4))) void lathe_progress_note(lathe_progress *p, int32_t always,
                                                               const char *format, ...);

/** An evaluation: a line of its own when one is due, else a figure in the next line. detail: its further figures,
 *  as they are printed. averaged: by the average of the weights, and the line says so. */
void lathe_progress_validation(lathe_progress *p, int64_t step, double loss, const char *detail,
                               int32_t averaged, int32_t always);

/** Ends an open in-place line, before other output. */
void lathe_progress_break(lathe_progress *p);

#endif
