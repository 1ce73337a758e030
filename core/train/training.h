/* The state of one call of lathe_train, and the functions that the files of the loop share.
 *
 *   training_loop.c      the loop: resume, steps, and what is due after each
 *   training_step.c      one step: micro-batches, the update, handling of bad steps
 *   training_figures.c   figures of a step: progress line, metrics.jsonl
 *   training_eval.c      evaluation and its consequences
 *   training_sample.c    text that the model generates from the prompt
 *   training_save.c      which checkpoints are due, and writing them
 */
#ifndef LATHE_TRAIN_TRAINING_H
#define LATHE_TRAIN_TRAINING_H

#include "metrics/figures.h"
#include "metrics/metrics.h"
#include "metrics/progress.h"
#include "metrics/tensorboard.h"
#include "train/run_record.h"
#include "train/train.h"

typedef struct lathe_training {
    lathe_run *run;
    const lathe_train_options *options;
    lathe_train_result *result;
    lathe_progress progress;
    lathe_metrics metrics;
    lathe_tensorboard tensorboard;
    FILE *samples; /* samples.jsonl; NULL: none wanted */
    lathe_run_record record;
    lathe_figures figures; /* of the current step */
    /* "eval_<metric>"; NULL before the first evaluation */
    const char *eval_keys[LATHE_MAX_STAGE_METRICS];
    double peak_flops;
    double begun; /* when training began, moved back by the seconds of earlier starts */
    /* options.stop; on several ranks agreed_stop, which changes where they agree in a step */
    const volatile sig_atomic_t *stop;
    volatile sig_atomic_t agreed_stop;
    struct lathe_saver *saver; /* NULL: no checkpoints, or another rank writes them */
    const char *resumed;       /* checkpoint that all ranks began from; NULL: none */
    /* How to go back to the state before the step that is being taken (lathe__training_rescue). */
    lathe_counters before;
    int32_t is_in_step; /* 1: the step has changed no weights yet: `before` is the way back */
    /* 1: all ranks return the error of this step, so that they can save together */
    int32_t fails_together;
    char left_out[200]; /* why the newest step that this rank left out was left out */
    /* step of the checkpoint that bad steps led back to, and the number of times */
    int64_t rewound_to;
    int32_t n_rewinds;
} lathe_training;

/** The result of one step, for its figures. */
typedef struct lathe_step_record {
    lathe_step_result result;
    lathe_accumulated sum; /* of its micro-batches */
    double seconds, optimizer_seconds;
    /* Computed in those seconds: less than sum.tokens in a step that was resumed in its middle. */
    int64_t tokens;
    lathe_loss_verdict spike;
    int32_t bad_rank; /* whose micro-batch has a loss that is not finite */
    int32_t is_empty; /* 1: none of its tokens was a target: skipped */
    /* On several ranks: the longest and the shortest time that one of them took for its
     * micro-batches, and whose the longest is. */
    double slowest_seconds, fastest_seconds;
    int32_t slowest_rank;
    /* 1: no step was taken, because options.stop was seen between two micro-batches; run->sum
     * holds the sums of the micro-batches before that */
    int32_t is_stopped;
    double stage_figures[LATHE_MAX_STAGE_FIGURES]; /* of a stage that iterates; NaN: not given */
} lathe_step_record;

/** Takes one step. The step may be skipped (result.skipped) or not taken at all (is_stopped).
 * LATHE_E_NUMERIC: a loss or gradient is not finite and train.on_nonfinite ends the run, with the
 * step and the first bad tensor in the message; or the loss is a spike and train.on_spike ends the
 * run, with step, loss, mean and deviation in the message. */
lathe_status lathe__training_step(lathe_training *t, lathe_step_record *out);

/** Loads the newest checkpoint, for the reason in `text`, and continues with the data that follow.
 * LATHE_E_NUMERIC: there is no checkpoint, or the run went back to it too often. */
lathe_status lathe__training_rewind(lathe_training *t, const char *text);

/** open opens the outputs for figures, from step run->at.step on; close closes them, also after a
 * failure. */
lathe_status lathe__training_figures_open(lathe_training *t);
void lathe__training_figures_close(lathe_training *t);
/** Writes the step's figures. */
lathe_status lathe__training_figures_write(lathe_training *t);
/** Opens and closes samples.jsonl, with one line {"step", "prompt", "text"} per sample. Opening
 * refuses a prompt that is longer than the context. */
lathe_status lathe__training_samples_open(lathe_training *t);
void lathe__training_samples_close(lathe_training *t);
/** Writes a sample if one is due after this step. Does not change the state of the run. */
lathe_status lathe__training_sample(lathe_training *t);
/** Starts the step's figures and shows the progress line. */
void lathe__training_record(lathe_training *t, const lathe_step_record *step);

/** Evaluates, passes the metric to the scheduler, and adds to the step's figures. *out_stopped 1:
 * options.stop was seen before the evaluation ended; it changed nothing. */
lathe_status lathe__training_evaluate(lathe_training *t, int32_t *out_stopped);
/** Whether early stopping ends the run, judged by the evaluations so far; logs it if so. */
int32_t lathe__training_has_enough(lathe_training *t);
/** Passes the metric to a scheduler that uses one. */
void lathe__training_observe(lathe_run *run, double metric);

/** Locks the run's folder (LATHE_E_STATE: another run holds the lock), resumes from the checkpoint
 * that checkpoint.resume names, if any, and starts the thread that writes checkpoints, if the
 * settings ask for it. */
lathe_status lathe__training_begin(lathe_training *t);
/** Adds the cost of the checkpoints since the last call to the step's figures. */
void lathe__training_save_figures(lathe_training *t);
/** Writes a checkpoint, or begins to write it, if one is due after this step. `ends`: the loop ends
 * here, so waits until everything is written. Also returns the error of an earlier checkpoint that
 * was being written. *out_rewound 1: the state was not finite, so nothing was written, and the run
 * went back because train.on_nonfinite is "rewind". */
lathe_status lathe__training_save(lathe_training *t, int32_t ends, int32_t *out_rewound);
/** Writes a checkpoint in the middle of a step, after some of its micro-batches; the loop ends
 * here. It has the name and the figures of the step before, and the sums and gradients so far, so
 * that a resumed run computes only the remaining micro-batches. */
lathe_status lathe__training_save_partial(lathe_training *t);
/** Ends the loop after an error, `status`, with the thread's message. Where the state of a finished
 *  step is whole, writes a checkpoint of it: the only thing lost is the step that was being taken.
 *  Returns `status`, with its message, and what is lost if nothing could be saved. The state is not
 *  whole while an update changes the weights, and on ranks that divide it if some of them may not
 *  have failed. If rank 0 is lost, another one that holds all of the state writes. */
lathe_status lathe__training_rescue(lathe_training *t, lathe_status status);
/** Says how this rank ends when another one has: LATHE_SAVES_NEVER, SOON, AS_HEIR or
 *  NOTHING. */
int32_t lathe__training_outlives(const lathe_training *t);
/** Begins a branch after the run went back to the checkpoint `path`, and determines again which
 * checkpoints are best. Call it before the figures are opened again. */
lathe_status lathe__training_saver_rewound(lathe_training *t, const char *path);
/** Waits until nothing is being written. `status` is that of the loop: returns it, or, if it is
 * LATHE_OK, the first error of writing. */
lathe_status lathe__training_settle(lathe_training *t, lathe_status status);
/** Ends the thread and unlocks the folder, also after begin failed. Keeps the thread's message. */
void lathe__training_end(lathe_training *t);

#endif
