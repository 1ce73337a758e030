/* Runs the training loop. */
#include "base/print.h"
#include "train/train.h"

#include <math.h>

#include "base/error.h"
#include "base/log.h"
#include "run/api/save_load.h"
#include "run/decide/run_length.h"
#include "train/run_trace.h"
#include "train/training.h"

/* Makes the evaluation that is due after the step, or passes the training's loss to the scheduler.
 */
static lathe_status judge(lathe_training *t, int32_t last, int32_t *out_stopped)
{
    lathe_run *run = t->run;
    const int64_t every = run->set.eval_every;
    *out_stopped = 0;
    if (run->data.validation &&
        (last || run->at.evaluation_due || (every > 0 && run->at.step % every == 0)))
        return lathe__training_evaluate(t, out_stopped);
    /* a skipped step is no progress */
    if (run->data.validation == NULL && run->at.skipped_in_row == 0 && !run->at.evaluation_due)
        lathe__training_observe(run, t->result->loss);
    return LATHE_OK;
}

static lathe_status after_step(lathe_training *t, int32_t *out_ends)
{
    lathe_run *run = t->run;
    const int64_t step = run->at.step;
    const int32_t last = step == run->set.max_steps, was_due = run->at.evaluation_due != 0;
    int32_t stopped = 0;
    const lathe_status judged = judge(t, last, &stopped);
    if (judged != LATHE_OK) {
        run->at.evaluation_due = 1; /* the run evaluates when it resumes */
        return judged;
    }
    run->at.evaluation_due = stopped;
    if (stopped) { /* the run evaluates when it resumes; then it writes the figures of this step */
        *out_ends = t->result->interrupted = 1;
        return lathe__training_save_partial(t);
    }
    t->result->interrupted = t->stop && *t->stop;
    t->result->paused = run->set.stop_after > 0 && step >= run->set.stop_after && !last;
    *out_ends =
        last || t->result->interrupted || t->result->paused || lathe__training_has_enough(t);
    lathe__training_save_figures(t);
    LATHE_TRY(lathe__training_figures_write(t));
    LATHE_TRY(lathe__training_sample(t));
    int32_t rewound = 0;
    /* a checkpoint without its evaluation is replaced */
    LATHE_TRY(lathe__training_save(t, *out_ends || was_due, &rewound));
    if (rewound) { /* the steps up to this one are repeated */
        *out_ends = t->result->interrupted;
        t->result->paused = t->result->stopped_early = 0;
    }
    return LATHE_OK;
}

static void print_nothing_to_do(const lathe_training *t)
{
    const lathe_run *run = t->run;
    FILE *out = t->options->out;
    lathe_print_to(out, "nothing to do: step %lld of %lld", (long long)run->at.step,
                   (long long)run->set.max_steps);
    if (run->data.n_wanted > 0)
        lathe_print_to(out, ", %.4g of %.4g epochs", lathe__run_epoch(run), run->set.epochs);
    lathe_print_to(out,
                   "; to train on, set %s higher; to start over, give --checkpoint.resume restart, "
                   "which moves the run in %s aside\n",
                   run->data.n_wanted > 0 ? "train.epochs" : "train.max_steps",
                   run->set.checkpoint.dir ? run->set.checkpoint.dir : "checkpoint.dir");
}

static lathe_status loop(lathe_training *t)
{
    lathe_run *run = t->run;
    int32_t ends = 0;
    const int64_t stop_after = run->set.stop_after, max = run->set.max_steps;
    LATHE_TRY(lathe__run_meet(run)); /* rank 0 has opened its files alone */
    lathe_run_trace_begin(run, run->at.step, stop_after > 0 && stop_after < max ? stop_after : max);
    if (run->at.evaluation_due) {
        LATHE_TRY(after_step(t, &ends));
    } else {
        ends = lathe__training_has_enough(t);
        if (run->at.step >= run->set.max_steps)
            print_nothing_to_do(t);
    }
    while (!ends && run->at.step < run->set.max_steps) {
        lathe_step_record step;
        lathe_run_trace_step(run, run->at.step + 1);
        LATHE_TRY(lathe__training_step(t, &step));
        if (step.is_stopped) {
            t->result->interrupted = 1;
            return lathe__training_save_partial(t);
        }
        lathe__training_record(t, &step);
        LATHE_TRY(after_step(t, &ends));
    }
    return LATHE_OK;
}

/* Whether this start takes no step and no evaluation, and leaves the folder as it is. */
static int has_nothing_to_do(const lathe_run *run)
{
    const int64_t patience = run->set.early_stopping_patience;
    return !run->at.evaluation_due && !run->checkpoints.branch.began &&
           (run->at.step >= run->set.max_steps ||
            (patience > 0 && run->at.early.n_since >= patience));
}

/* Trains while the run's folder is locked. The record of the run describes what trained it, so a
 * start that does nothing is not recorded: its settings may be others. */
static lathe_status train(lathe_training *t)
{
    lathe_run *run = t->run;
    lathe_progress_init(&t->progress, t->options->out,
                        run->programs.rank > 0 ? LATHE_PROGRESS_OFF : run->set.progress,
                        run->set.log_every);
    LATHE_TRY(lathe__training_figures_open(t));
    t->result->was_complete = has_nothing_to_do(run);
    if (!t->result->was_complete)
        lathe_run_record_begin(&t->record, run, t->result->checkpoint, t->peak_flops);
    lathe_status status = loop(t);
    if (status != LATHE_OK)
        status = lathe__training_rescue(t, status);
    status = lathe__training_settle(t, status);
    if (!t->result->was_complete)
        lathe_run_record_end(&t->record, status, t->result);
    else if (status == LATHE_OK)
        lathe_run_record_complete(run, t->result);
    lathe_progress_break(&t->progress);
    lathe__training_figures_close(t);
    return status;
}

lathe_status lathe_train(lathe_run *run, const lathe_train_options *options,
                         lathe_train_result *out)
{
    lathe_training t = {.run = run, .options = options, .result = out};
    *out = (lathe_train_result){.validation = NAN, .loss = NAN};
    if (!lathe__run_trains(run))
        return lathe_error(LATHE_E_STATE, "the run was not opened for training");
    t.stop = run->ranks ? &t.agreed_stop : options->stop;
    LATHE_TRY(lathe_peak_flops(run, &t.peak_flops));
    t.begun = lathe_now();
    lathe_status status = lathe__training_begin(&t);
    if (options->steps)
        *options->steps = 1;
    if (options->saves && status == LATHE_OK)
        *options->saves = lathe__training_outlives(&t);
    if (status == LATHE_OK)
        status = train(&t);
    lathe__training_end(&t);
    if (status == LATHE_OK)
        status = lathe__run_meet(run); /* nobody leaves while rank 0 writes its last files */
    out->step = run->at.step;
    return status;
}
