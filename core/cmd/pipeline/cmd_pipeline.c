/* lathe pipeline: runs several trainings, one after the other. */
#include "cmd/pipeline/cmd_pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/rank_failure.h"
#include "cmd/line/refusal.h"
#include "cmd/line/stop_signals.h"
#include "cmd/pipeline/pipeline_check.h"
#include "cmd/pipeline/train_start.h"
#include "run/open/opening.h"
#include "train/train.h"

static lathe_cli_stop stop;

/* One call of the command. */
typedef struct work {
    const lathe_args *args;
    lathe_arena arena;
    lathe_diags diags;
    lathe_pipeline pipeline;
    lathe_step_state *states;
} work;

/* ---- what there is to do ---- */

static lathe_status load(work *w)
{
    const lathe_args *args = w->args;
    int32_t partly = 0;
    LATHE_TRY(
        lathe_pipeline_load(args->words[0], &args->edits, &w->arena, &w->diags, &w->pipeline));
    w->states = lathe_arena_alloc(&w->arena, w->pipeline.n * (int64_t)sizeof *w->states);
    if (!w->states)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_pipeline_check_files(&w->pipeline, &w->arena, &w->diags));
    for (int32_t i = 0; i < w->pipeline.n; i++)
        LATHE_TRY(lathe_step_state_read(&w->pipeline, i, &w->arena, w->states));
    LATHE_TRY(lathe_pipeline_check(&w->pipeline, w->states, &w->arena, &w->diags, &partly));
    if (partly > 0)
        lathe_print("%d step%s checked by %s keys alone: an earlier step makes the model\n", partly,
                    partly == 1 ? " is" : "s are", partly == 1 ? "its" : "their");
    return LATHE_OK;
}

/* "step 2 of 3, dpo (dpo.toml): model.path = /.../out/sft/step-00000040; goes on from step 10" */
static void print_step(const work *w, int32_t i)
{
    const lathe_pipeline_step *step = &w->pipeline.steps[i];
    const lathe_step_state *state = &w->states[i];
    lathe_print("== step %d of %d, %s (%s)", i + 1, w->pipeline.n, step->name, step->run);
    for (int32_t k = 0; k < step->n_uses; k++) {
        const lathe_edit *one = &step->edits.list[step->uses[k].at];
        lathe_buffer quoted = LATHE_BUFFER_INIT;
        lathe_buffer_json_string(&quoted, one->value->s);
        lathe_print("%s%s = %s", k ? ", " : ": ", one->key, quoted.data ? quoted.data : "");
        lathe_buffer_fini(&quoted);
    }
    if (state->kind == LATHE_STEP_DONE)
        lathe_print("; finished: %s", state->checkpoint);
    else if (state->kind == LATHE_STEP_BEGUN)
        lathe_print("; goes on from step %lld in %s%s%s", (long long)state->at, step->dir,
                    state->why && state->why[0] ? ", because " : "", state->why ? state->why : "");
    lathe_print("\n");
    (void)fflush(stdout);
}

/* ---- one step ---- */

static lathe_status train(const lathe_pipeline_step *step, lathe_diags *diags,
                          lathe_train_result *out)
{
    lathe_run *run = NULL;
    const lathe_train_options options = {
        .out = stdout, .stop = &stop.seen, .steps = &stop.steps, .saves = &stop.saves};
    const lathe_status opened = lathe_run_open_training(
        &(lathe_run_source){step->run, &step->edits, step->inputs}, 0, diags, &run);
    for (int64_t i = 0; i < diags->n; i++)
        diags->items[i].place = lathe_pipeline_place(step, &diags->items[i].place);
    LATHE_TRY(opened);
    lathe_buffer warnings = LATHE_BUFFER_INIT;
    lathe_diags_print(diags, &warnings);
    lathe_print_text(stderr, warnings.data ? warnings.data : "");
    lathe_buffer_fini(&warnings);
    lathe_train_print_start(run);
    (void)fflush(stdout);
    const lathe_status status = lathe_train(run, &options, out);
    lathe_run_close(run);
    return status;
}

static int tell_failure(const work *w, const lathe_pipeline_step *step, lathe_diags *diags,
                        lathe_status status)
{
    const int code = diags->n_errors > 0 ? lathe_cli_tell_refusal(w->args, diags, status)
                                         : lathe_args_fail(w->args, status);
    lathe_print_to(stderr,
                   "step \"%s\" failed; what the steps made is kept, and the same command goes on "
                   "from there\n",
                   step->name);
    return code;
}

/* Runs step i. *out_ends: the pipeline ends here. Returns the exit code. */
static int run_step(work *w, int32_t i, int *out_ends)
{
    lathe_pipeline_step *step = &w->pipeline.steps[i];
    lathe_train_result result = {.loss = NAN};
    lathe_diags diags = {0};
    *out_ends = 1;
    stop.steps = 0;
    lathe_status status = lathe_pipeline_resolve(&w->pipeline, i, &w->arena, w->states);
    print_step(w, i);
    if (w->states[i].kind == LATHE_STEP_DONE) {
        *out_ends = 0;
        return LATHE_EXIT_OK;
    }
    if (status == LATHE_OK)
        status = train(step, &diags, &result);
    int code = status == LATHE_OK ? LATHE_EXIT_OK : tell_failure(w, step, &diags, status);
    lathe_diags_fini(&diags);
    if (status != LATHE_OK)
        return code;
    if (result.interrupted || result.paused) {
        lathe_print(
            "the pipeline stops in step %d of %d, %s; the same command goes on from there\n", i + 1,
            w->pipeline.n, step->name);
        return result.interrupted ? 128 + (int)stop.seen : LATHE_EXIT_OK;
    }
    if (result.was_complete && w->states[i].n_changed > 0)
        status =
            lathe_error_in(LATHE_E_CONFIG, step->place.file, step->place.line, step->place.column,
                           "step \"%s\" has taken all its steps with other settings, "
                           "and nothing is trained with the new ones, %s: set them back, or move "
                           "%s away to train the step again",
                           step->name, w->states[i].why, step->dir);
    else
        status = lathe_step_state_write(step);
    if (status == LATHE_OK)
        status = lathe_step_state_read(&w->pipeline, i, &w->arena, w->states);
    if (status == LATHE_OK && w->states[i].kind != LATHE_STEP_DONE)
        status = lathe_error(LATHE_E_STATE,
                             "step \"%s\" ended, but %s does not say so: see its run.json",
                             step->name, step->dir);
    if (status != LATHE_OK)
        return lathe_args_fail(w->args, status);
    *out_ends = 0;
    return LATHE_EXIT_OK;
}

static int run_all(work *w)
{
    int ends = 0, code = LATHE_EXIT_OK;
    for (int32_t i = 0; i < w->pipeline.n && !ends; i++)
        code = run_step(w, i, &ends);
    if (!ends)
        lathe_print("pipeline finished: %s\n", w->states[w->pipeline.n - 1].checkpoint);
    return code;
}

/* ---- the command ---- */

static int run_command(const lathe_args *args)
{
    work w = {.args = args};
    if (lathe_cli_is_rank())
        return lathe_cli_fail_ranks(
            "lathe pipeline: a launcher (mpirun, srun) has started this process as one of several, "
            "and a pipeline runs its steps in one process: run it without the launcher, or train "
            "the steps' run files one by one with lathe launch\n",
            LATHE_E_ARG, lathe_args_code);
    lathe_status status = lathe_cli_take_stop_signals(&stop);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    status = load(&w);
    int code = LATHE_EXIT_OK;
    if (status != LATHE_OK || w.diags.n > 0)
        code = lathe_cli_tell_refusal(args, &w.diags, status);
    if (status == LATHE_OK && lathe_args_value(args, "--dry-run")) {
        for (int32_t i = 0; i < w.pipeline.n; i++)
            print_step(&w, i);
        lathe_print("dry run: %d steps are valid, nothing was trained\n", w.pipeline.n);
    } else if (status == LATHE_OK) {
        code = run_all(&w);
    }
    lathe_diags_fini(&w.diags);
    lathe_pipeline_fini(&w.pipeline);
    lathe_arena_fini(&w.arena);
    return code;
}

static const lathe_option options[] = {
    {"--dry-run", NULL, "check all steps and print what there is to do, but train nothing"},
};

const lathe_command lathe_cmd_pipeline = {
    .name = "pipeline",
    .arguments = "PIPE.toml",
    .summary = "run several trainings in a row, each from the model of an earlier one",
    .details =
        "The file has [[step]] tables: name, run (a run file), overrides. model.path =\n"
        "\"@NAME\" is the final checkpoint of an earlier step. All steps are checked before\n"
        "the first one starts. Finished steps are left out, and a step that began goes on\n"
        "from its latest checkpoint, so that the same command resumes the pipeline after\n"
        "Ctrl-C, a failure, or a changed step. Overrides on the command line are for every\n"
        "step. Ctrl-C and SIGTERM end the step at hand as they end lathe train.\n",
    .options = options,
    .n_options = 1,
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .prints_progress = 1,
    .takes_overrides = 1,
    .run = run_command,
};
