/* lathe train: runs a training. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/print.h"
#include "cmd/line/rank_failure.h"
#include "cmd/line/refusal.h"
#include "cmd/line/stop_signals.h"
#include "cmd/main/commands.h"
#include "cmd/main/trace_option.h"
#include "cmd/pipeline/train_start.h"
#include "parallel/ranks/failure_report.h"
#include "run/api/run_facts.h"
#include "run/open/opening.h"
#include "train/train.h"

static lathe_cli_stop stop;

static const lathe_option options[] = {
    {"--dry-run", NULL,
     "make the plan, prepare some data and run two steps, but write no checkpoint, log or cache"},
    LATHE_TRACE_OPTIONS("operations, data, evaluation and checkpoints", "steps"),
};

/* The line of an error that is not one of the run file; also when there is no memory. */
static const char *plain_text(const lathe_args *args, lathe_status status)
{
    static char text[8192];
    const char *message = lathe_error_message();
    const int n = snprintf(text, sizeof text - 1, "lathe %s: %s", args->command->name,
                           message[0] ? message : lathe_status_text(status));
    const size_t end = n < 0 ? 0 : (size_t)n < sizeof text - 2 ? (size_t)n : sizeof text - 2;
    text[end] = '\n';
    text[end + 1] = '\0';
    return text;
}

/* The run cannot start. */
static int refuse(const lathe_args *args, lathe_diags *diags, lathe_status status)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    (void)lathe_cli_put_refusal(args, diags, status, &text);
    const int code = lathe_cli_fail_ranks(
        text.status == LATHE_OK && text.data ? text.data : plain_text(args, status), status,
        lathe_cli_refusal_code);
    lathe_buffer_fini(&text);
    return code;
}

/* Prints the warnings that no lower rank prints. */
static lathe_status print_warnings(const lathe_args *args, lathe_run *run, lathe_diags *diags)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    int32_t is_first = 1;
    (void)lathe_cli_put_refusal(args, diags, LATHE_OK, &text);
    const lathe_status status = lathe_run_is_first(run, text.data ? text.data : "", &is_first);
    if (status == LATHE_OK && is_first) {
        (void)fflush(stdout);
        lathe_print_text(stderr, text.data ? text.data : "");
    }
    lathe_buffer_fini(&text);
    return status;
}

/* Opens the run; *out_code: the exit code if it cannot be opened. */
static lathe_status open_run(const lathe_args *args, lathe_run **out, int *out_code)
{
    lathe_diags diags = {0};
    const int is_dry = lathe_args_value(args, "--dry-run") != NULL;
    const lathe_status status = lathe_run_open_training(
        &(lathe_run_source){args->words[0], &args->edits, NULL}, is_dry, &diags, out);
    if (status != LATHE_OK)
        *out_code = refuse(args, &diags, status);
    lathe_status printed = LATHE_OK;
    if (status == LATHE_OK)
        printed = print_warnings(args, *out, &diags);
    lathe_diags_fini(&diags);
    return status == LATHE_OK ? printed : status;
}

/* The training failed: other ranks may wait for this one. */
static int fail_training(const lathe_args *args, lathe_run *run, lathe_status status)
{
    const char *text = plain_text(args, status);
    lathe_run_abandon(run);
    lathe_trace_end();
    return lathe_cli_fail_ranks(text, status, lathe_args_code);
}

static int run_command(const lathe_args *args)
{
    static lathe_run *run; /* in a place that leak checks see: a run that fails is not closed */
    int code = LATHE_EXIT_OK;
    lathe_run_facts facts;
    lathe_train_result result = {.loss = NAN};
    stop.steps = lathe_args_value(args, "--dry-run") != NULL; /* a dry run must remove its data at
                                                               * its end */
    stop.is_told = lathe_ranks_are_ending;
    stop.hold = lathe_ranks_hold_launcher;
    lathe_train_options train_options = {
        .out = stdout, .stop = &stop.seen, .steps = &stop.steps, .saves = &stop.saves};
    lathe_status status = lathe_cli_take_stop_signals(&stop);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    status = open_run(args, &run, &code);
    if (run == NULL)
        return code;
    lathe_run_facts_get(run, &facts);
    if (facts.rank > 0) { /* rank 0 tells how the run goes */
        train_options.out = fopen("/dev/null", "we");
        if (!train_options.out)
            train_options.out = stderr;
    }
    if (status == LATHE_OK)
        status = lathe_app_begin_trace(args, run);
    if (status == LATHE_OK) {
        if (facts.rank == 0)
            lathe_train_print_start(run);
        (void)fflush(stdout);
        status = lathe_train(run, &train_options, &result);
    }
    lathe_run_facts_get(run, &facts); /* the length of a run by epochs may be another now */
    if (status == LATHE_OK && facts.is_dry && facts.rank == 0)
        lathe_print("dry run: %lld steps of %lld taken, nothing was written\n",
                    (long long)result.step, (long long)facts.max_steps);
    if (train_options.out != stdout && train_options.out != stderr)
        (void)fclose(train_options.out);
    if (status != LATHE_OK)
        return fail_training(args, run, status);
    if (facts.engine && lathe_args_value(args, "--trace"))
        lathe_run_trace_join(run, lathe_args_value(args, "--trace"));
    lathe_run_close(run);
    lathe_trace_end();
    if (result.interrupted)
        return 128 + (stop.seen ? (int)stop.seen : SIGTERM); /* or another rank was asked */
    return LATHE_EXIT_OK;
}

const lathe_command lathe_cmd_train = {
    .name = "train",
    .arguments = "RUN.toml",
    .summary = "train a model as the run file describes",
    .details = "Resumes from the latest checkpoint in checkpoint.dir unless checkpoint.resume\n"
               "says otherwise. Ctrl-C, SIGTERM or a lost connection (SIGHUP, unless started\n"
               "with nohup) lets the micro-batch finish, writes a checkpoint (in the middle of\n"
               "the step, if need be) and exits with 130, 143 or 129; before the first step it\n"
               "exits at once. A second Ctrl-C or SIGTERM ends the process at once.\n",
    .min_words = 1,
    .max_words = 1,
    .computes = 1,
    .prints_progress = 1,
    .takes_overrides = 1,
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .run = run_command,
};
