/* Runs one training step, and handles bad steps.
 *
 * A step is bad if the loss of a micro-batch or the norm of its gradient is NaN or infinite. In
 * fp16 a gradient that is not finite only means that the loss scale is too high: the scaler skips
 * the step and lowers the scale, and the step is bad only when no lower scale is left. A step is
 * also bad if its mean loss is a spike (loss_spike.h); this is known before the update.
 * train.on_nonfinite and train.on_spike choose what follows a bad step:
 *
 *   ignore   spikes only: they are counted
 *   stop     an error, with the step, the micro-batch and the first bad tensor, or the figures of
 *            the spike
 *   skip     the step counts, but updates nothing and does not advance the schedule; too many
 *            skipped steps in a row are an error
 *   rewind   the run loads its last checkpoint and continues with the data after the bad step
 *
 * A step without any target is skipped in the same way.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/batch_load.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/rank_layout.h"
#include "run/api/agree.h"
#include "run/api/outer_step.h"
#include "run/api/primitives.h"
#include "run/decide/run_length.h"
#include "run/parts/iteration.h"
#include "train/nonfinite_replay.h"
#include "train/rollout.h"
#include "train/training.h"

#define MAX_SKIPPED 10 /* in a row, by "skip" */
#define MAX_REWINDS 3  /* to one checkpoint */

/* Whether to compute another micro-batch of the step; the run may stop between two
 * micro-batches. */
static int goes_on(const lathe_training *t)
{
    return t->run->sum.backwards < t->run->set.gradient_accumulation_steps &&
           !(t->stop && *t->stop);
}

/* Runs the micro-batches of one step and waits for each. */
static lathe_status accumulate_one_by_one(lathe_training *t, int32_t *out_bad, double *out_loss)
{
    lathe_run *run = t->run;
    while (goes_on(t)) {
        lathe_forward_result f = {.size = (uint32_t)sizeof f};
        LATHE_TRY(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        if (!isfinite(f.loss_sum) && *out_bad == 0) {
            *out_bad = run->sum.backwards + 1;
            *out_loss = f.loss_sum;
        }
        if (*out_bad && !lathe__backwards_exchange(run))
            return LATHE_OK;
        /* where ranks add their gradients in it, the others wait for this rank */
        LATHE_TRY(lathe__backward_of_step(run));
    }
    return LATHE_OK;
}

/* Queues all micro-batches and then waits for them, so that the device does not idle in between. */
static lathe_status accumulate_at_once(lathe_training *t, int32_t *out_bad, double *out_loss)
{
    lathe_run *run = t->run;
    while (goes_on(t)) {
        LATHE_TRY(lathe__forward_later(run));
        LATHE_TRY(lathe__backward_of_step(run));
    }
    return lathe__losses_settle(run, out_bad, out_loss);
}

/* Lets the stage make the batches of a step. */
static lathe_status accumulate_by_stage(lathe_training *t, lathe_step_record *out, int32_t *out_bad,
                                        double *out_loss)
{
    lathe_rollout rollout = {.stop = t->stop};
    LATHE_TRY(lathe_rollout_step(t->run, &rollout));
    out->is_stopped = rollout.is_stopped;
    memcpy(out->stage_figures, rollout.figures, sizeof out->stage_figures);
    *out_bad = rollout.bad;
    *out_loss = rollout.loss;
    return LATHE_OK;
}

/* *out_bad: the micro-batch whose loss is bad, from 1; 0: none. */
static lathe_status accumulate(lathe_training *t, lathe_step_record *out, int32_t *out_bad,
                               double *out_loss)
{
    const lathe_run *run = t->run;
    *out_bad = 0;
    if (lathe__run_iterates(run)) {
        LATHE_TRY(accumulate_by_stage(t, out, out_bad, out_loss));
    } else {
        LATHE_TRY(lathe_machine_memory(&run->machine)->is_queued
                      ? accumulate_at_once(t, out_bad, out_loss)
                      : accumulate_one_by_one(t, out_bad, out_loss));
        out->is_stopped = !*out_bad && run->sum.backwards < run->set.gradient_accumulation_steps;
    }
    if (isnan(*out_loss))
        *out_loss = (double)NAN; /* without its sign */
    return LATHE_OK;
}

/* Skips the rest of the step's batches, so that every step takes the same amount of data whatever
 * happened to it. */
static lathe_status pass_over(lathe_loader *loader, int32_t are_padded, lathe_counters *at,
                              int32_t n)
{
    lathe_batch batch;
    for (int32_t i = 0; i < n; i++) {
        LATHE_TRY(lathe_loader_next(loader, &batch));
        const lathe_run_batch rows = {.n_rows = batch.n_rows,
                                      .row_tokens = batch.row_tokens,
                                      .targets = batch.targets,
                                      .doc_start = batch.doc_start};
        at->micro++;
        at->tokens += lathe__batch_tokens(&rows, are_padded, 1);
        lathe_loader_cursor(loader, &at->cursor);
    }
    return LATHE_OK;
}

lathe_status lathe__training_rewind(lathe_training *t, const char *text)
{
    lathe_run *run = t->run;
    const int64_t step = run->at.step, micro = run->at.micro, n_spikes = run->at.spike.n_spikes;
    const lathe_cursor behind = run->at.cursor;
    const lathe_status settled = lathe__training_settle(t, LATHE_OK);
    if (settled != LATHE_E_NUMERIC) /* the bad state that is left behind here was not written */
        LATHE_TRY(settled);
    const char *path = t->result->checkpoint;
    if (path == NULL)
        return lathe_error(LATHE_E_NUMERIC, "%s; there is no checkpoint to go back to", text);
    run->sum.is_updating = 1;
    LATHE_TRY(lathe_load(run, path));
    run->sum.is_updating = t->is_in_step = 0;
    t->n_rewinds = t->rewound_to == run->at.step ? t->n_rewinds + 1 : 1;
    t->rewound_to = run->at.step;
    if (t->n_rewinds > MAX_REWINDS)
        return lathe_error(LATHE_E_NUMERIC, "%s; after going back to %s %d times", text, path,
                           MAX_REWINDS);
    LATHE_TRY(lathe_loader_seek(run->data.loader, &behind));
    run->at.cursor = behind;
    lathe__run_follow_cursor(run);
    run->at.micro = micro;
    run->at.spike.n_spikes = n_spikes;
    lathe__training_figures_close(t);
    LATHE_TRY(lathe__training_saver_rewound(t, path));
    LATHE_TRY(lathe__training_figures_open(t));
    lathe_progress_note(
        &t->progress, 1,
        "%s\nback from step %lld to %s; the data that follow the bad step come next", text,
        (long long)step, path);
    return LATHE_OK;
}

/* Where to search a bad step for its first NaN or infinity, and who does. */
typedef struct step_search {
    const lathe_position *begin; /* of the step; NULL: this rank does not search */
    int32_t all_search;          /* 1: all ranks that take the step together do */
} step_search;

/* Handles the bad step run->at.step, which was counted as skipped; `what` says what was wrong.
 * search: NULL: none. *out_again: the step must be repeated, from another state. */
static lathe_status follow_policy(lathe_training *t, int32_t policy, const step_search *search,
                                  const char *what, int *out_again)
{
    lathe_run *run = t->run;
    char where[600] = "", text[900];
    *out_again = 0;
    const int last = run->at.skipped_in_row >= MAX_SKIPPED;
    /* islands end the run together, when the round ends (check_islands) */
    if (policy == LATHE_POLICY_SKIP && (!last || lathe__islands_count_skips(run))) {
        (void)snprintf(t->left_out, sizeof t->left_out, "%s", what);
        lathe_progress_note(&t->progress, 1, "%s; the step is left out", what);
        return LATHE_OK;
    }
    (void)snprintf(text, sizeof text, "%s", what);
    if (search && search->begin)
        LATHE_TRY(lathe__nonfinite_find(run, search->begin, search->all_search, where,
                                        (int64_t)sizeof where));
    if (where[0])
        (void)snprintf(text, sizeof text, "%s; %s", what, where);
    if (policy == LATHE_POLICY_REWIND) {
        *out_again = 1;
        return lathe__training_rewind(t, text);
    }
    /* the step's sums, by which ranks decide, are those of all ranks, or those of an island */
    t->fails_together = run->layout == NULL || run->layout->n_islands == 1;
    return policy == LATHE_POLICY_STOP
               ? lathe_error(LATHE_E_NUMERIC, "%s; nothing was updated", text)
               : lathe_error(LATHE_E_NUMERIC, "%s; %d steps in a row were left out", text,
                             MAX_SKIPPED);
}

/* Skips the update of a step because of its loss, which is known after `n_done` micro-batches. */
static lathe_status leave_out(lathe_training *t, int32_t n_done, double loss,
                              lathe_step_record *out)
{
    lathe_run *run = t->run;
    if (!lathe__run_iterates(run))
        LATHE_TRY(pass_over(run->data.loader, run->programs.are_padded, &run->at,
                            run->set.gradient_accumulation_steps - n_done));
    LATHE_TRY(lathe__run_left_out(run, &out->result));
    out->result.loss = loss;
    return lathe_zero_grad(run);
}

/* Ends a step whose micro-batches are good: updates the weights, unless the loss is a spike and
 * train.on_spike asks for more than counting it. *out_spikes: the update was skipped for that
 * reason. */
static lathe_status update(lathe_training *t, lathe_step_record *out, int *out_spikes)
{
    lathe_run *run = t->run;
    const lathe_accumulated *sum = &run->sum;
    const double loss = sum->loss_sum / sum->count;
    *out_spikes = 0;
    out->is_empty = !(sum->count > 0.0);
    if (out->is_empty) { /* such as the last token of an epoch alone in its row */
        const int64_t in_row = run->at.skipped_in_row;
        LATHE_TRY(leave_out(t, run->set.gradient_accumulation_steps, (double)NAN, out));
        if (lathe__run_iterates(run)) /* only faults end a run after some in a row */
            run->at.skipped_in_row = in_row;
        return LATHE_OK;
    }
    out->spike = lathe_loss_spike_judge(&run->at.spike, loss, run->set.spike_window,
                                        run->set.spike_threshold);
    run->at.spike.n_spikes += out->spike.is_spike;
    if (out->spike.is_spike && run->set.on_spike != LATHE_POLICY_IGNORE) {
        *out_spikes = 1;
        return leave_out(t, run->set.gradient_accumulation_steps, loss, out);
    }
    LATHE_TRY(lathe_step(run, &out->result));
    if (!out->result.skipped)
        lathe_loss_spike_accept(&run->at.spike, loss);
    return LATHE_OK;
}

/* Handles a skipped step. `bad`: the micro-batch whose loss is not finite, or 0. */
static lathe_status treat(lathe_training *t, const lathe_step_record *step,
                          const step_search *search, int32_t bad, int spikes, int *out_again)
{
    const lathe_run *run = t->run;
    const lathe_loss_verdict *v = &step->spike;
    const double norm = step->result.grad_norm;
    const long long n = (long long)run->at.step;
    const int is_f16 = run->set.compute_dtype == LATHE_F16;
    char what[200];
    if (step->is_empty && lathe__run_iterates(run)) { /* a choice of the stage's, no fault */
        (void)snprintf(
            what, sizeof what,
            "step %lld: none of the tokens was a target: all completions of this part of the "
            "rollout were left out (cut, or without a score)",
            n);
        lathe_progress_note(&t->progress, 1, "%s; the step is left out", what);
        return LATHE_OK;
    }
    if (step->is_empty) {
        (void)snprintf(what, sizeof what, "step %lld: none of the tokens was a target", n);
        return follow_policy(t, LATHE_POLICY_SKIP, NULL, what, out_again);
    }
    if (spikes) {
        (void)snprintf(
            what, sizeof what,
            "step %lld: the loss is %.6g, a spike: the mean of the %d before it is %.6g, "
            "their std %.3g (z-score %.3g, train.spike_threshold %g)",
            n, step->result.loss, v->n, v->mean, v->std, v->zscore, run->set.spike_threshold);
        return follow_policy(t, run->set.on_spike, NULL, what, out_again);
    }
    if (bad && run->ranks)
        (void)snprintf(what, sizeof what, "step %lld, micro-batch %d of rank %d: the loss is %g", n,
                       bad, step->bad_rank, step->result.loss);
    else if (bad)
        (void)snprintf(what, sizeof what, "step %lld, micro-batch %d: the loss is %g", n, bad,
                       step->result.loss);
    else if (is_f16 && (double)run->at.scaler.scale >= LATHE_SCALE_LEAST)
        return LATHE_OK; /* the scaler acts */
    else
        (void)snprintf(what, sizeof what, "step %lld: the gradient's norm is %g%s", n,
                       isnan(norm) ? (double)NAN : norm, is_f16 ? " at the least loss scale" : "");
    return follow_policy(t, run->set.on_nonfinite, search, what, out_again);
}

/* Makes the sums and the bad micro-batch those of all ranks. A rank with a bad loss has not read
 * the rest of its batches yet. since: when this rank began. *out_n_done: micro-batches that were
 * read. */
static lathe_status agree(lathe_training *t, double since, int32_t *bad, double *loss,
                          lathe_step_record *out, int32_t *out_n_done)
{
    lathe_run *run = t->run;
    const int32_t n = run->set.gradient_accumulation_steps;
    lathe_agreement agreement = {.bad = *bad,
                                 .loss = *loss,
                                 .seconds = lathe_now() - since - run->sum.data_seconds -
                                            run->sum.wait_seconds};
    out->bad_rank = 0;
    *out_n_done = run->sum.backwards + run->sum.pending;
    if (run->ranks == NULL)
        return LATHE_OK;
    LATHE_TRY(pass_over(run->data.loader, run->programs.are_padded, &run->at, n - *out_n_done));
    *out_n_done = n;
    agreement.stops = t->options->stop && *t->options->stop;
    LATHE_TRY(lathe__run_agree(run, &agreement));
    *bad = agreement.bad;
    *loss = agreement.loss;
    out->bad_rank = agreement.rank;
    out->slowest_rank = agreement.slowest;
    out->slowest_seconds = agreement.seconds;
    out->fastest_seconds = agreement.least_seconds;
    t->agreed_stop = run->outer ? 0 : agreement.stops; /* islands agree when a round ends */
    return LATHE_OK;
}

/* Ends the run if an island has left out too many steps in a row, which all know since the round
 * has ended. The state is whole then, and is saved. The ranks of that island say why. */
static lathe_status check_islands(lathe_training *t)
{
    const lathe_run *run = t->run;
    int32_t rank = 0;
    if (run->outer == NULL || !lathe__islands_count_skips(run) ||
        !lathe_islands_ends_round(run->outer->islands, run->at.step))
        return LATHE_OK;
    const int64_t n = lathe_islands_skipped_in_row(run->outer->islands, &rank);
    if (n < MAX_SKIPPED)
        return LATHE_OK;
    t->fails_together = 1;
    if (run->at.skipped_in_row == n)
        return lathe_error(LATHE_E_NUMERIC, "%s; %lld steps in a row were left out", t->left_out,
                           (long long)n);
    return lathe_error(LATHE_E_NUMERIC,
                       "step %lld: the island of rank %d has left out %lld steps in a row",
                       (long long)run->at.step, rank, (long long)n);
}

/* The rank with the bad micro-batch searches it alone, unless its forward needs the others. */
static step_search search_of(const lathe_run *run, const lathe_step_record *step, int32_t bad,
                             const lathe_position *begin)
{
    const int32_t all = !bad || run->store.gathers != NULL;
    if (lathe__run_iterates(run) || (!all && step->bad_rank != run->programs.rank))
        return (step_search){.begin = NULL};
    return (step_search){begin, all};
}

/* One attempt; *out_again as above. */
static lathe_status attempt(lathe_training *t, lathe_step_record *out, int *out_again)
{
    lathe_run *run = t->run;
    const double since = lathe_now();
    const lathe_position begin = {run->at.cursor, run->at.micro, run->sum.backwards};
    const int64_t tokens = run->sum.tokens; /* of micro-batches before a resumption */
    int32_t bad = 0, n_done = 0;
    int spikes = 0;
    double loss = 0.0;
    *out_again = 0;
    (void)lathe_extents_take_sent(run->extents); /* of an evaluation, a sample, or loading */
    out->result = (lathe_step_result){.size = (uint32_t)sizeof out->result};
    out->spike = (lathe_loss_verdict){.mean = NAN, .std = NAN, .zscore = NAN};
    out->is_empty = 0;
    t->before = run->at;
    t->is_in_step = 1;
    LATHE_TRY(accumulate(t, out, &bad, &loss));
    if (out->is_stopped) {
        t->is_in_step = 0;
        return LATHE_OK;
    }
    LATHE_TRY(agree(t, since, &bad, &loss, out, &n_done));
    out->sum = run->sum;
    out->tokens = run->sum.tokens - tokens;
    const double before = lathe_now();
    LATHE_TRY(bad ? leave_out(t, n_done, loss, out) : update(t, out, &spikes));
    if (run->outer)
        t->agreed_stop = lathe_islands_stop(run->outer->islands);
    out->seconds = lathe_now() - since;
    out->optimizer_seconds = lathe_now() - before;
    t->result->loss = out->result.loss;
    if (out->result.skipped) {
        const step_search search = search_of(run, out, bad, &begin);
        LATHE_TRY(treat(t, out, &search, bad, spikes, out_again));
    }
    t->is_in_step = 0;
    return check_islands(t);
}

lathe_status lathe__training_step(lathe_training *t, lathe_step_record *out)
{
    int again = 1;
    while (again)
        LATHE_TRY(attempt(t, out, &again));
    return LATHE_OK;
}
