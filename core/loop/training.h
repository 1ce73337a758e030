/* One call of lathe_train: what the parts of the loop share.
 *
 *   training_loop.c      the loop: resume, steps, what is due after each
 *   training_step.c      one step: micro-batches, the update, what is done about a bad one
 *   training_figures.c   a step's figures: progress line, metrics.jsonl
 *   training_eval.c      evaluation and what follows from it
 *   training_sample.c    what the model makes of a prompt
 *   training_save.c      which checkpoints are due, and writing them
 */
#ifndef LATHE_LOOP_TRAINING_H
#define LATHE_LOOP_TRAINING_H

#include "loop/run_record.h"
#include "loop/train.h"
#include "record/figures.h"
#include "record/metrics.h"
#include "record/progress.h"
#include "record/tensorboard.h"

typedef struct lathe_training {
    lathe_run *run;
    const lathe_train_options *options;
    lathe_train_result *result;
    lathe_progress progress;
    lathe_metrics metrics;
    lathe_tensorboard tensorboard;
    FILE *samples; /* samples.jsonl; NULL: none wanted */
    lathe_run_record record;
    lathe_figures figures; /* of the step at hand */
    /* "eval_<metric>"; NULL before the first evaluation */
    const char *eval_keys[LATHE_MAX_STAGE_METRICS];
    double peak_flops, flops_per_token;
    struct lathe_saver *saver; /* NULL: no checkpoints */
    int64_t rewound_to; /* step of the checkpoint that bad steps led back to, and how often */
    int32_t n_rewinds;
} lathe_training;

/** What one step was, for its figures. */
typedef struct lathe_step_record {
    lathe_step_result result;
    lathe_accumulated sum; /* of its micro-batches */
    double seconds, optimizer_seconds;
    lathe_loss_verdict spike;
    int32_t is_empty; /* none of its tokens was a target: left out */
    /* 1: no step was taken, because options.stop was seen between two micro-batches; run->sum
     * holds the sums of the micro-batches before that */
    int32_t is_stopped;
} lathe_step_record;

/** Takes one step, which may be left out (result.skipped), or none (is_stopped). LATHE_E_NUMERIC: a
 * loss or gradient is not finite and train.on_nonfinite gives up: the message names the step and
 * the first bad tensor; or the loss is a spike and train.on_spike gives up: the message names step,
 * loss, mean and deviation. */
lathe_status lathe__training_step(lathe_training *t, lathe_step_record *out);

/** Goes back to the newest checkpoint because of what `text` tells, and on with the data that
 * follow. LATHE_E_NUMERIC: there is no checkpoint, or it was gone back to too often. */
lathe_status lathe__training_rewind(lathe_training *t, const char *text);

/** Opens what figures are written to, from run->at.step on; closes it, also after a failure. */
lathe_status lathe__training_figures_open(lathe_training *t);
void lathe__training_figures_close(lathe_training *t);
/** Writes the step's figures. */
lathe_status lathe__training_figures_write(lathe_training *t);
/** samples.jsonl: {"step", "prompt", "text"} per line. Opened with the figures; a prompt that the
 * context cannot hold is refused here. */
lathe_status lathe__training_samples_open(lathe_training *t);
void lathe__training_samples_close(lathe_training *t);
/** Writes a sample when one is due after this step. Nothing of the run's state changes. */
lathe_status lathe__training_sample(lathe_training *t);
/** Starts the step's figures and shows the progress line. */
void lathe__training_record(lathe_training *t, const lathe_step_record *step);

/** Evaluates, tells the scheduler, adds to the step's figures. */
lathe_status lathe__training_evaluate(lathe_training *t);
/** Whether early stopping has had enough, by what was evaluated so far; says so when it has. */
int32_t lathe__training_has_enough(lathe_training *t);
/** Tells a scheduler that watches a metric. */
void lathe__training_observe(lathe_run *run, double metric);

/** Takes the run's folder (LATHE_E_STATE: another run has it), resumes from what checkpoint.resume
 * names, if anything, and starts the thread that writes checkpoints, if it is wanted. */
lathe_status lathe__training_begin(lathe_training *t);
/** Adds to the step's figures what the checkpoints since the last one cost. */
void lathe__training_save_figures(lathe_training *t);
/** Writes a checkpoint when one is due after this step, or begins to; `ends`: the loop stops here,
 * and all is written. A failure of one that was begun before is returned here too. *out_rewound 1:
 * the state was not finite, so that nothing was written, and the run went back as
 * train.on_nonfinite = "rewind" says. */
lathe_status lathe__training_save(lathe_training *t, int32_t ends, int32_t *out_rewound);
/** Writes a checkpoint in the middle of a step, after some of its micro-batches; the loop stops
 * here. It has the name and the figures of the step before, and the sums and gradients so far, so
 * that resuming takes the other micro-batches. */
lathe_status lathe__training_save_partial(lathe_training *t);
/** After the run went back to the checkpoint `path`: begins a branch, and learns anew which
 * checkpoints are the best. Before figures are opened again. */
lathe_status lathe__training_saver_rewound(lathe_training *t, const char *path);
/** Waits for what is being written. `status` is the loop's: it is returned, or else the first
 * failure. */
lathe_status lathe__training_settle(lathe_training *t, lathe_status status);
/** Ends the thread and lets go of the folder. After a failed begin too; keeps the thread's message.
 */
void lathe__training_end(lathe_training *t);

#endif
