/* Decides which checkpoints are due, and writes them in the training thread or in another
 * thread. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/print.h"
#include "base/trace.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_branch.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/checkpoint_writer.h"
#include "checkpoint/state/parents.h"
#include "exec/store/gathered.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/first_rank.h"
#include "parallel/ranks/ranks.h"
#include "run/api/primitives.h"
#include "run/api/save_load.h"
#include "run/decide/run_length.h"
#include "run/folder/folder_check.h"
#include "run/state/run_saved.h"
#include "train/rank_compare.h"
#include "train/rollout.h"
#include "train/training.h"

/* Time for rank 0 to write a checkpoint after a third rank has ended. */
#define LOST_SAVE_SECONDS 60.0

typedef struct lathe_saver {
    lathe_lock lock;
    lathe_writer *writer; /* NULL: the training thread writes */
    lathe_keep keep;
    double *best; /* [keep.best] best metrics so far, best first; unused entries are NAN */
    double saved_at, stall, saved_epoch;
    int64_t saved_step;
    int64_t resumed_step; /* that the run began from, or went back to; -1: none */
    int32_t stalled;      /* a checkpoint was written or begun since the last figures */
    int64_t failed_step;  /* whose checkpoint could not be written, which ends the run; -1: none */
    char failure[2048];   /* why */
    char path[PATH_MAX];  /* newest checkpoint that this thread knows of */
} lathe_saver;

/* ---- begin and end ---- */

/* Reads the metrics of the existing checkpoints. */
static lathe_status know_best(lathe_saver *s, const char *dir, lathe_arena *arena)
{
    const lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < s->keep.best; i++)
        s->best[i] = NAN;
    LATHE_TRY(lathe_checkpoint_best(dir, &s->keep, arena, &list, &n));
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(
            lathe_checkpoint_figure(list[i].path, s->keep.metric, s->keep.read_back, &s->best[i]));
    return LATHE_OK;
}

/* Locks the folder, creates it if necessary, and removes unfinished files of dead processes. */
static lathe_status take_folder(lathe_saver *s, lathe_run *run)
{
    const char *dir = run->set.checkpoint.dir;
    if (lathe_resume_moves_aside(run->set.checkpoint.resume))
        LATHE_TRY(lathe__folder_move_aside(run));
    const int32_t is_new = !lathe_path_is_dir(dir);
    LATHE_TRY(lathe_dir_create(dir));
    if (is_new)
        LATHE_TRY(lathe_file_sync_parent(dir));
    LATHE_TRY(lathe__folder_lock(run, &s->lock));
    run->checkpoints.lock = &s->lock;
    return lathe_checkpoint_remove_stale(dir);
}

static lathe_status create(lathe_training *t)
{
    lathe_run *run = t->run;
    lathe_saver *s = calloc(1, sizeof *s);
    if (s == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for checkpoints");
    t->saver = s;
    s->lock = (lathe_lock)LATHE_LOCK_INIT;
    s->keep = lathe__checkpoint_keep(lathe__run_saved(run));
    s->saved_step = s->resumed_step = s->failed_step = -1;
    s->best = calloc((size_t)s->keep.best + 1, sizeof *s->best);
    return s->best ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for checkpoints");
}

/* Restores the figures of the step that the run resumes from, because a checkpoint in the middle of
 * the next step needs them. */
static lathe_status restore_figures(lathe_training *t, const char *path)
{
    json_t *meta = NULL, *value;
    const char *key;
    LATHE_TRY(lathe_checkpoint_meta(path, &meta));
    json_object_foreach(json_object_get(meta, "figures"), key, value)
    {
        const char *name = lathe_arena_strdup(&t->run->arena, key);
        if (strcmp(key, "elapsed_seconds") == 0)
            t->begun -= json_number_value(value);
        if (name && t->figures.n < LATHE_MAX_FIGURES)
            lathe__figures_add(&t->figures, name,
                               json_is_number(value) ? json_number_value(value) : (double)NAN);
    }
    json_decref(meta);
    return LATHE_OK;
}

/* Lets `latest` name the checkpoint from which the run goes on: the start before may have ended
 * between the checkpoint and its pointer, or the pointer is damaged. */
static lathe_status point_latest(const char *dir, const char *path, lathe_arena *arena)
{
    const char *slash = strrchr(path, '/'), *name = NULL;
    const size_t n = strlen(dir);
    int64_t step;
    if (slash == NULL || (size_t)(slash - path) != n || strncmp(path, dir, n) != 0 ||
        !lathe_checkpoint_step(slash + 1, &step))
        return LATHE_OK;
    const lathe_status status = lathe_checkpoint_pointer(dir, "latest", arena, &name);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        lathe_error_clear(); /* a damaged pointer is written again */
    return name && strcmp(name, slash + 1) == 0 ? LATHE_OK
                                                : lathe_checkpoint_point(dir, "latest", slash + 1);
}

static lathe_status resume(lathe_training *t)
{
    const char *path = NULL;
    LATHE_TRY(lathe_checkpoint_refuse_mixing(lathe__run_saved(t->run)));
    LATHE_TRY(lathe__run_resume(t->run, &path));
    if (path == NULL)
        return LATHE_OK;
    t->result->checkpoint = path;
    LATHE_TRY(restore_figures(t, path));
    if (t->saver) {
        LATHE_TRY(lathe_branch_begin(lathe__run_saved(t->run), path, 0));
        LATHE_TRY(point_latest(t->run->set.checkpoint.dir, path, &t->run->arena));
        t->saver->resumed_step = t->run->at.step;
    }
    lathe_print_to(t->options->out, "resumed from %s at step %lld\n", path,
                   (long long)t->run->at.step);
    (void)fflush(t->options->out); /* the next line may come many seconds later */
    return LATHE_OK;
}

static lathe_status begin_alone(lathe_training *t)
{
    lathe_run *run = t->run;
    if (run->set.checkpoint.dir == NULL)
        return run->programs.rank > 0 ? LATHE_OK : resume(t);
    LATHE_TRY(create(t));
    LATHE_TRY(take_folder(t->saver, run));
    LATHE_TRY(resume(t));
    LATHE_TRY(lathe__checkpoint_know_plugins(lathe__run_saved(run)));
    LATHE_TRY(lathe__checkpoint_know_parents(lathe__run_saved(run), t->result->checkpoint));
    LATHE_TRY(know_best(t->saver, run->set.checkpoint.dir, &run->arena));
    LATHE_TRY(lathe_checkpoint_point_best(run->set.checkpoint.dir, &t->saver->keep));
    if (run->checkpoints.image)
        LATHE_TRY(lathe_writer_create(run->checkpoints.image, &t->saver->writer));
    t->saver->saved_at = lathe_now();
    t->saver->saved_epoch = lathe__run_epoch(run);
    return LATHE_OK;
}

/* Refuses ranks whose weights differ, such as those of another copy of model.path. */
static lathe_status compare_weights(lathe_run *run)
{
    const double *all = NULL;
    double norm = 0.0;
    if (run->extents) /* a norm would be that of all ranks */
        LATHE_TRY(lathe_store_checksum(&run->store, &norm));
    else
        LATHE_TRY(lathe_update_param_norm(run->opt.update, &norm));
    /* within a round each island has weights of its own */
    lathe_ranks *group = run->outer && run->at.step > 0 ? run->layout->island : run->ranks;
    if (group == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_ranks_gather(group, &norm, 1, 1, &all));
    for (int32_t q = 1; q < lathe_ranks_count(group); q++)
        if (all[q * LATHE_RANK_NUMBERS] != all[0] &&
            !(isnan(all[q * LATHE_RANK_NUMBERS]) && isnan(all[0])))
            return lathe_error(LATHE_E_RANK,
                               "rank %d begins with other weights than rank 0: their %s is %.9g, "
                               "not %.9g; give all ranks the same model.path and checkpoints",
                               q, run->extents ? "checksum" : "norm", all[q * LATHE_RANK_NUMBERS],
                               all[0]);
    return LATHE_OK;
}

/* Rank 0 locks the folder and resumes; the others load the same checkpoint. */
static lathe_status begin_together(lathe_training *t)
{
    lathe_run *run = t->run;
    char path[PATH_MAX] = "";
    LATHE_TRY(lathe__ranks_compare(run));
    LATHE_TRY(begin_alone(t));
    LATHE_TRY(lathe__run_meet(run)); /* rank 0 may need long to read a checkpoint */
    LATHE_TRY(lathe_first_rank_tell(run->ranks, run->checkpoints.lock));
    (void)snprintf(path, sizeof path, "%s", t->result->checkpoint ? t->result->checkpoint : "");
    LATHE_TRY(lathe_ranks_share_text(run->ranks, path, (int64_t)sizeof path));
    t->resumed = path[0] ? lathe_arena_strdup(&run->arena, path) : NULL;
    if (path[0] && run->programs.rank > 0)
        LATHE_TRY(lathe_load(run, path));
    if (run->sum.backwards > 0)
        return lathe_error(LATHE_E_STATE,
                           "%s is in the middle of a step: go on with one rank to the end of the "
                           "step, or resume from a checkpoint before it",
                           path);
    return compare_weights(run);
}

lathe_status lathe__training_begin(lathe_training *t)
{
    return t->run->ranks ? begin_together(t) : begin_alone(t);
}

/* Sets the message for a checkpoint that could not be written; it names the last one that was. */
static lathe_status say_failure(const lathe_training *t, lathe_status status)
{
    const lathe_saver *s = t->saver;
    const char *whole = s->path[0] ? s->path : t->result->checkpoint;
    return lathe_error(status, "a checkpoint was not written: %s; %s%s", s->failure,
                       whole ? "the newest whole one is " : "there is none yet",
                       whole ? whole : "");
}

/* Notes the step whose checkpoint could not be written, and why the first of them could not. */
static lathe_status not_written(const lathe_training *t, int64_t step, lathe_status status)
{
    lathe_saver *s = t->saver;
    if (s->failed_step < 0)
        (void)snprintf(s->failure, sizeof s->failure, "%s", lathe_error_message());
    s->failed_step = step;
    return say_failure(t, status);
}

/* Waits for the checkpoint being written, and stores its path. */
static lathe_status settle(lathe_training *t)
{
    lathe_saver *s = t->saver;
    const char *path = NULL;
    if (s->writer == NULL)
        return LATHE_OK;
    const lathe_status status = lathe_writer_wait(s->writer, &path);
    if (path)
        (void)snprintf(s->path, sizeof s->path, "%s", path);
    if (status == LATHE_OK)
        return LATHE_OK;
    const int64_t step = s->saved_step;
    s->saved_step = -1;
    return not_written(t, step, status);
}

/* The result's path outlives the saver. */
static void hand_over(lathe_training *t)
{
    const char *path =
        t->saver->path[0] ? lathe_arena_strdup(&t->run->arena, t->saver->path) : NULL;
    if (path)
        t->result->checkpoint = path;
}

lathe_status lathe__training_settle(lathe_training *t, lathe_status status)
{
    if (t->saver == NULL)
        return status;
    if (status != LATHE_OK) { /* the loop's message stays; the writer's becomes a warning */
        char message[4096];
        (void)snprintf(message, sizeof message, "%s", lathe_error_message());
        if (settle(t) != LATHE_OK)
            lathe_log(LATHE_LOG_WARN, "%s", lathe_error_message());
        status = lathe_error(status, "%s", message);
    } else {
        status = settle(t);
    }
    hand_over(t);
    return status;
}

void lathe__training_end(lathe_training *t)
{
    lathe_saver *s = t->saver;
    if (s == NULL)
        return;
    lathe_writer_destroy(s->writer);
    t->run->checkpoints.lock = NULL;
    lathe_lock_release(&s->lock);
    free(s->best);
    free(s);
    t->saver = NULL;
}

/* ---- what is due ---- */

static double metric_of(const lathe_training *t)
{
    const lathe_figures *f = &t->figures;
    for (int32_t i = f->n - 1; t->saver->keep.best > 0 && i >= 0; i--)
        if (strcmp(f->keys[i], t->saver->keep.metric) == 0)
            return isfinite(f->values[i]) ? f->values[i] : (double)NAN;
    return NAN;
}

/* Whether the metric belongs among the best. */
static int32_t is_good(const lathe_saver *s, double metric)
{
    return !isnan(metric) && lathe_checkpoint_better(&s->keep, metric, s->best[s->keep.best - 1]);
}

static void note_good(lathe_saver *s, double metric)
{
    int64_t at = s->keep.best - 1;
    for (; at > 0 && lathe_checkpoint_better(&s->keep, metric, s->best[at - 1]); at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = metric;
}

static int32_t is_due(const lathe_training *t)
{
    const lathe_run *run = t->run;
    const lathe_settings *set = &run->set;
    const lathe_saver *s = t->saver;
    return (set->checkpoint.every > 0 && run->at.step % set->checkpoint.every == 0) ||
           (set->checkpoint.every_minutes > 0.0 &&
            lathe_now() - s->saved_at >= 60.0 * set->checkpoint.every_minutes) ||
           (set->checkpoint.every_epochs > 0.0 &&
            floor(lathe__run_epoch(run) / set->checkpoint.every_epochs) >
                floor(s->saved_epoch / set->checkpoint.every_epochs));
}

/* Whether the metric is a figure of an evaluation just made, not one of every step. */
static int32_t is_evaluation(const lathe_saver *s)
{
    return strncmp(s->keep.metric, "eval_", 5) == 0;
}

/* ---- writing ---- */

static lathe_status write_now(lathe_training *t, int32_t gate)
{
    char path[PATH_MAX];
    lathe_saver *s = t->saver;
    const lathe_status status = lathe_checkpoint_write(lathe__run_saved(t->run), &t->figures, gate,
                                                       path, (int64_t)sizeof path);
    if (path[0]) /* it may be whole although the pointer to it could not be written */
        (void)snprintf(s->path, sizeof s->path, "%s", path);
    return status == LATHE_OK ? LATHE_OK : not_written(t, t->run->at.step, status);
}

static lathe_status write_checkpoint(lathe_training *t, int32_t gate, int32_t ends)
{
    lathe_saver *s = t->saver;
    const double begin = lathe_now();
    LATHE_TRY(settle(t));
    LATHE_TRY(lathe__run_fill_averages(t->run));
    if (s->writer && !ends && t->run->sum.backwards == 0) {
        LATHE_TRY(lathe_image_take(t->run->checkpoints.image, lathe__run_saved(t->run)));
        lathe_writer_post(s->writer, &t->figures, gate);
    } else {
        LATHE_TRY(write_now(t, gate));
    }
    s->saved_at = lathe_now();
    s->stall += s->saved_at - begin;
    lathe_trace_span("checkpoint", "checkpoint stall", begin, s->saved_at, NULL);
    s->stalled = 1;
    s->saved_step = t->run->at.step;
    s->saved_epoch = lathe__run_epoch(t->run);
    return LATHE_OK;
}

void lathe__training_save_figures(lathe_training *t)
{
    lathe_saver *s = t->saver;
    if (s == NULL || !s->stalled)
        return;
    lathe__figures_add(&t->figures, "checkpoint_stall_seconds", s->stall);
    s->stall = 0.0;
    s->stalled = 0;
}

/* Saves the checkpoint that is due after this step, or the last one when the run ends. */
static lathe_status save_due(lathe_training *t, int32_t ends)
{
    lathe_saver *s = t->saver;
    const double metric = metric_of(t);
    const int32_t good = is_good(s, metric);
    if (s->writer && !lathe_writer_busy(s->writer))
        /* report an error of the last checkpoint without waiting for the next */
        LATHE_TRY(settle(t));
    if (!ends && !is_due(t) && !(good && is_evaluation(s)))
        return LATHE_OK;
    if (good)
        note_good(s, metric);
    LATHE_TRY(write_checkpoint(t, good && s->keep.read_back, ends));
    if (ends)
        lathe_progress_note(&t->progress, 1, "checkpoint %s", s->path);
    return LATHE_OK;
}

/* Whether all ranks expect rank 0 to save after this step. Between rounds islands exchange nothing
 * but what all of them foresee: what a clock, a signal or a good evaluation asks for waits for the
 * end of the round. */
static int32_t may_save(const lathe_training *t, int32_t ends)
{
    const lathe_run *run = t->run;
    const int64_t every = run->set.checkpoint.every, step = run->at.step;
    return run->outer == NULL || ends || lathe_islands_ends_round(run->outer->islands, step) ||
           (every > 0 && step % every == 0);
}

lathe_status lathe__training_save_partial(lathe_training *t)
{
    lathe_run *run = t->run;
    lathe_saver *s = t->saver;
    if (lathe__run_serves(run))
        return lathe__run_serve(run);
    if (s == NULL)
        return lathe__run_release(run);
    /* one of the best stays one */
    if (run->sum.backwards > 0 || run->at.evaluation_due || s->saved_step != run->at.step)
        LATHE_TRY(write_checkpoint(t, s->keep.best > 0 && s->keep.read_back, 1));
    LATHE_TRY(settle(t));
    LATHE_TRY(lathe__run_release(run));
    if (run->sum.backwards > 0)
        lathe_progress_note(&t->progress, 1,
                            "checkpoint %s, in the middle of step %lld: %d of %d micro-batches",
                            s->path, (long long)run->at.step + 1, run->sum.backwards,
                            run->set.gradient_accumulation_steps);
    else if (run->at.evaluation_due)
        lathe_progress_note(&t->progress, 1,
                            "checkpoint %s; the evaluation of step %lld did not end and is made "
                            "when the run resumes",
                            s->path, (long long)run->at.step);
    else
        lathe_progress_note(&t->progress, 1, "checkpoint %s", s->path);
    return LATHE_OK;
}

/* ---- after an error ---- */

/* Goes back to the state before the step. Where the step has ended a round of islands or merged the
 * adapter, although it was left out, there is no way back: the state after it is whole, too. */
static lathe_status undo_step(lathe_training *t)
{
    lathe_run *run = t->run;
    const int32_t is_counted = run->at.step > t->before.step;
    t->is_in_step = 0;
    if (is_counted && (run->outer || run->set.merge_every > 0))
        return LATHE_OK;
    run->at = t->before;
    lathe_rollout_undo(run);
    return lathe_zero_grad(run);
}

int32_t lathe__training_outlives(const lathe_training *t)
{
    const lathe_run *run = t->run;
    if (run->ranks == NULL || run->saves_in == NULL)
        return LATHE_SAVES_NEVER;
    if (run->extents || run->outer)
        return LATHE_SAVES_NOTHING;
    return run->programs.rank > 0 ? LATHE_SAVES_AS_HEIR : LATHE_SAVES_SOON;
}

/* Step of the newest checkpoint in the folder; -1: there is none, or it cannot be seen. */
static int64_t newest_step(lathe_run *run)
{
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    if (run->saves_in == NULL || !lathe_path_is_dir(run->saves_in) ||
        lathe_checkpoint_list(run->saves_in, &run->arena, &list, &n) != LATHE_OK)
        n = 0;
    lathe_error_clear();
    return n > 0 ? list[n - 1].step : -1;
}

/* Adds the figures of this step that rank 0 has not written any more. */
static void complete_figures(lathe_training *t)
{
    lathe_run *run = t->run;
    const char *path = lathe_path_join(&run->arena, run->set.checkpoint.dir, "metrics.jsonl");
    if (path == NULL || run->at.evaluation_due) /* then they are written after the evaluation */
        return;
    lathe_status status = lathe_metrics_open(&t->metrics, run->set.checkpoint.dir, run->at.step);
    if (status == LATHE_OK && lathe_lines_last(path) < run->at.step)
        status = lathe__training_figures_write(t);
    if (status != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s", lathe_error_message());
}

/* Takes the folder of rank 0, which is lost, while the launcher is held: only the rank that gets
 * the lock has a saver afterwards. It has the settings that rank 0 had. */
static lathe_status inherit(lathe_training *t)
{
    lathe_run *run = t->run;
    lathe_lock lock = LATHE_LOCK_INIT;
    const char *path = lathe_path_join(&run->arena, run->saves_in, "lock");
    if (path == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_lock_inherit(path, &lock));
    if (!lathe_first_rank_had(&lock)) {
        lathe_lock_release(&lock);
        return LATHE_OK;
    }
    if (t->options->saves)
        *t->options->saves = LATHE_SAVES_NOW;
    run->set.checkpoint.dir = run->saves_in;
    run->set.checkpoint.keep_best = run->saves_best;
    const lathe_status status = create(t);
    if (status != LATHE_OK) {
        lathe_lock_release(&lock);
        return status;
    }
    t->saver->lock = lock;
    t->saver->resumed_step = newest_step(run);
    run->checkpoints.lock = &t->saver->lock;
    LATHE_TRY(lathe_branch_know(lathe__run_saved(run)));
    LATHE_TRY(lathe__checkpoint_know_plugins(lathe__run_saved(run)));
    return lathe__checkpoint_know_parents(lathe__run_saved(run), t->resumed);
}

/* Writes the checkpoint, if the state is whole and not saved yet. The disk that did not take the
 * checkpoint of an earlier step may take this one. */
static lathe_status save_whole(lathe_training *t, int32_t *out_saved)
{
    lathe_run *run = t->run;
    const int32_t is_shared = run->extents || run->outer;
    *out_saved = 0;
    if (run->sum.is_updating || (is_shared && !t->fails_together))
        return LATHE_OK;
    if (t->is_in_step)
        LATHE_TRY(undo_step(t));
    if (is_shared && run->programs.rank > 0)
        return lathe__run_serve(run);
    if (lathe__training_outlives(t) == LATHE_SAVES_AS_HEIR && lathe_first_rank_is_lost())
        LATHE_TRY(inherit(t));
    lathe_saver *s = t->saver;
    const lathe_status before = s ? settle(t) : LATHE_OK; /* noted in failed_step */
    const int32_t is_new =
        s && ((run->at.step != s->saved_step && run->at.step > s->resumed_step) ||
              run->at.evaluation_due);
    if (is_new && s->failed_step != run->at.step && run->at.step > 0) {
        LATHE_TRY(write_checkpoint(t, 0, 1));
        *out_saved = 1;
        if (run->programs.rank > 0)
            complete_figures(t);
    }
    if (before != LATHE_OK) /* nothing is lost by it */
        lathe_log(LATHE_LOG_WARN, "an earlier checkpoint was not written: %s", s->failure);
    return is_shared ? lathe__run_release(run) : LATHE_OK;
}

/* Adds to a message what is lost, if this rank knows that nobody could save it. */
static void add_loss(lathe_training *t, char *said, size_t bytes)
{
    lathe_run *run = t->run;
    char why[128] = "an update was under way";
    const int32_t is_shared = run->extents || run->outer, outlives = lathe__training_outlives(t);
    const int64_t newest = newest_step(run), step = t->is_in_step ? t->before.step : run->at.step;
    const size_t n = strlen(said);
    if (is_shared && t->fails_together)
        return;
    if (run->outer)
        (void)snprintf(why, sizeof why, "the ranks are islands of DiLoCo");
    else if (run->extents)
        (void)snprintf(why, sizeof why, "parallel.shard = \"%s\" divides the state among the ranks",
                       lathe_shard_name(run->set.shard));
    else if (outlives == LATHE_SAVES_AS_HEIR && lathe_first_rank_is_lost())
        (void)snprintf(why, sizeof why, "its lock file cannot be taken over from rank 0");
    else if (!run->sum.is_updating || outlives == LATHE_SAVES_AS_HEIR)
        return;
    if (run->saves_in == NULL || step <= newest || step <= 0)
        return;
    if (newest >= 0)
        (void)snprintf(said + n, bytes - n,
                       "; nothing newer than %s/step-%08lld could be saved, because %s, so the "
                       "steps after it, up to %lld, are lost",
                       run->saves_in, (long long)newest, why, (long long)step);
    else
        (void)snprintf(said + n, bytes - n,
                       "; there is no checkpoint in %s, and none could be saved, because %s, so "
                       "all %lld steps are lost",
                       run->saves_in, why, (long long)step);
}

lathe_status lathe__training_rescue(lathe_training *t, lathe_status status)
{
    char said[4096];
    int32_t is_saved;
    (void)snprintf(said, sizeof said, "%s", lathe_error_message());
    const int32_t outlives = lathe__training_outlives(t);
    if (outlives == LATHE_SAVES_AS_HEIR && status != LATHE_E_RANK)
        lathe_ranks_expect_save(t->run->set.deadline_seconds);
    else if (outlives == LATHE_SAVES_AS_HEIR && lathe_first_rank_goes_on())
        lathe_ranks_expect_save(LOST_SAVE_SECONDS); /* it may also be what this rank waited for */
    const int32_t is_sure = outlives == LATHE_SAVES_SOON || outlives == LATHE_SAVES_NOTHING;
    const int32_t holds =
        is_sure || (outlives == LATHE_SAVES_AS_HEIR && lathe_first_rank_is_lost());
    if (is_sure && t->options->saves)
        *t->options->saves = LATHE_SAVES_NOW;
    if (holds)
        lathe_ranks_hold_launcher(1);
    const int32_t is_of_checkpoint = t->saver && t->saver->failed_step >= 0;
    const lathe_status saved = save_whole(t, &is_saved);
    if (is_saved && t->run->programs.rank > 0)
        lathe_log(LATHE_LOG_WARN,
                  "checkpoint %s, written by this rank, because rank 0 has ended, before the run "
                  "ends with an error; the same command goes on from it",
                  t->saver->path);
    else if (is_saved)
        lathe_progress_note(&t->progress, 1,
                            "checkpoint %s, before the run ends with an error; the same command "
                            "goes on from it",
                            t->saver->path);
    if (is_of_checkpoint)
        return say_failure(t, status);
    if (saved != LATHE_OK) {
        char why[2048];
        (void)snprintf(why, sizeof why, "%s", lathe_error_message());
        return lathe_error(status, "%s; step %lld is not saved: %s", said,
                           (long long)t->run->at.step, why);
    }
    if (!is_saved)
        add_loss(t, said, sizeof said);
    return lathe_error(status, "%s", said);
}

lathe_status lathe__training_save(lathe_training *t, int32_t ends, int32_t *out_rewound)
{
    char text[2048];
    *out_rewound = 0;
    if (!may_save(t, ends))
        return lathe__run_meet_island(t->run);
    if (lathe__run_serves(t->run))
        return lathe__run_serve(t->run);
    if (t->saver == NULL)
        return lathe__run_release(t->run);
    const lathe_status status = save_due(t, ends);
    if (status == LATHE_OK)
        return lathe__run_release(t->run);
    if (status != LATHE_E_NUMERIC || t->run->set.on_nonfinite != LATHE_POLICY_REWIND)
        return status;
    *out_rewound = 1;
    (void)snprintf(text, sizeof text, "%s", lathe_error_message());
    return lathe__training_rewind(t, text);
}

lathe_status lathe__training_saver_rewound(lathe_training *t, const char *path)
{
    lathe_run *run = t->run;
    if (t->saver == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_branch_begin(lathe__run_saved(run), path, 1));
    t->saver->resumed_step = run->at.step;
    t->saver->failed_step = -1; /* the run goes on without that state */
    t->saver->saved_epoch = lathe__run_epoch(run);
    return know_best(t->saver, run->set.checkpoint.dir, &run->arena);
}
