/* Runs the training loop: steps until the end of the run, with progress, metrics, evaluation and
 * checkpoints. */
#ifndef LATHE_TRAIN_TRAIN_H
#define LATHE_TRAIN_TRAIN_H

#include <signal.h>
#include <stdio.h>

#include "base/work_watch.h"
#include "run/state/run_state.h"

typedef struct lathe_train_options {
    FILE *out; /* progress and notes */
    /* Non-zero: finish the micro-batch (of a step or of an evaluation), write a checkpoint, return.
     * Set it from a thread that waits for the signal: a handler on a computing thread's stack can
     * damage memory (app/stop_signals.h). */
    const volatile sig_atomic_t *stop;
    /* Set to 1 before the first step: from then on there is something to save. NULL: not wanted. */
    volatile sig_atomic_t *steps;
    /* Set from the first step on to what this rank does when another one has ended
     * (first_rank.h: LATHE_SAVES_NEVER, ...). NULL: not wanted. */
    volatile sig_atomic_t *saves;
} lathe_train_options;

typedef struct lathe_train_result {
    int64_t step;           /* steps taken over the whole run */
    double loss;            /* of the last step */
    double validation;      /* last evaluation's loss; NAN without one */
    int32_t interrupted;    /* options.stop was seen */
    int32_t paused;         /* train.stop_after was reached */
    int32_t stopped_early;  /* train.early_stopping_patience ran out */
    int32_t was_complete;   /* no step and no evaluation was left to do; nothing was written */
    const char *checkpoint; /* the last one written; NULL without one */
} lathe_train_result;

/** Trains an opened run (LATHE_OPEN_TRAIN) from its current step, after resuming as
 * checkpoint.resume says. LATHE_E_NUMERIC: a loss or gradient is not finite; the message names the
 * step, which updated nothing. */
lathe_status lathe_train(lathe_run *run, const lathe_train_options *options,
                         lathe_train_result *out);

/** Figures of an evaluation, over every target (or pair) of the data:
 *
 *   loss            -sum log p(target) / count, in nats (or the stage's loss per pair)
 *   perplexity      exp(loss)
 *   token_accuracy  share of targets that are the likeliest token (the smallest id among equals)
 *   ece             expected calibration error of the likeliest token's probability, calibration.h
 *   bits_per_byte   loss / ln 2 * tokens / bytes: the tokens and the UTF-8 bytes of the whole split
 *
 *   metrics         the stage's own, per target (or pair)
 *
 *  All but the loss and the metrics are NAN where they have no meaning: for a loss over pairs, and
 *  bits_per_byte for data without text.
 */
typedef struct lathe_evaluation {
    double loss, perplexity;
    double count;       /* targets, or pairs */
    int32_t count_unit; /* LATHE_COUNT_* */
    int32_t n_metrics;
    double token_accuracy, ece, bits_per_byte;
    double metrics[LATHE_MAX_STAGE_METRICS];
    /* names given by the stage; valid while the run is open */
    const char *metric_names[LATHE_MAX_STAGE_METRICS];
} lathe_evaluation;

/** "targets" or "pairs". */
const char *lathe_count_unit_name(int32_t count_unit);

/** Evaluates the validation split once, with at most max_batches micro-batches (0: all). watch
 * (NULL: nobody): micro-batches; after its error there are no figures. */
lathe_status lathe_evaluate(lathe_run *run, int64_t max_batches, const lathe_work_watch *watch,
                            lathe_evaluation *out);

/** Measures the highest rate of a matrix product in the compute dtype on this device, in FLOP/s; "%
 * of peak" figures refer to it. A planned run (LATHE_OPEN_PLAN) leaves all memory to the
 * measurement, any other run what its plan does not need. 0: that memory is too small. */
lathe_status lathe_peak_flops(lathe_run *run, double *out);

/** Result of several measurements of one rate. */
typedef struct lathe_rate_range {
    double lowest, highest; /* 0: it cannot be measured */
    int32_t n;              /* measurements */
} lathe_rate_range;

/** Measures a rate 3 to 8 times: until two further measurements have not exceeded the highest one
 *  by more than 5 %, because other processes make a measurement lower and never higher. Returns the
 *  status of `once`. */
lathe_status lathe_rate_measure(lathe_status (*once)(void *arg, double *out), void *arg,
                                lathe_rate_range *out);

#endif
