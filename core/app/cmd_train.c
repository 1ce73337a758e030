/* lathe train: runs a training. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/commands.h"
#include "app/trace_option.h"
#include "cli/refusal.h"
#include "cli/stop_signals.h"
#include "loop/train.h"
#include "opening/opening.h"
#include "pipeline/train_start.h"
#include "ranks/ranks.h"

static lathe_cli_stop stop;

static const lathe_option options[] = {
    {"--dry-run", NULL,
     "make the plan, prepare some data and run two steps, but write no checkpoint, log or cache"},
    LATHE_TRACE_OPTIONS("operations, data, evaluation and checkpoints", "steps"),
};

/* Opens the run; *out_code: the exit code if it cannot be opened. */
static lathe_status open_run(const lathe_args *args, lathe_run **out, int *out_code)
{
    lathe_diags diags = {0};
    const int is_dry = lathe_args_value(args, "--dry-run") != NULL;
    const lathe_status status = lathe_run_open_training(args->words[0], args->overrides,
                                                        args->n_overrides, is_dry, &diags, out);
    /* a launcher ends all ranks when the first one fails: rank 0, when it has said why */
    *out_code =
        lathe_ranks_is_silent() ? LATHE_EXIT_OK : lathe_cli_tell_refusal(args, &diags, status);
    lathe_diags_fini(&diags);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_run *run = NULL;
    int code = LATHE_EXIT_OK;
    lathe_train_result result = {.loss = NAN};
    stop.steps = lathe_args_value(args, "--dry-run") != NULL; /* a dry run must remove its data at
                                                               * its end */
    lathe_train_options train_options = {.out = stdout, .stop = &stop.seen, .steps = &stop.steps};
    lathe_status status = lathe_cli_take_stop_signals(&stop);
    if (status != LATHE_OK)
        return lathe_args_fail(args, status);
    if (open_run(args, &run, &code) != LATHE_OK) {
        lathe_ranks_abort(code);
        return code;
    }
    if (run->programs.rank > 0) { /* rank 0 tells how the run goes */
        train_options.out = fopen("/dev/null", "w");
        if (!train_options.out)
            train_options.out = stderr;
    }
    status = lathe_app_begin_trace(args, run);
    if (status == LATHE_OK) {
        if (run->programs.rank == 0)
            lathe_train_print_start(run);
        (void)fflush(stdout);
        status = lathe_train(run, &train_options, &result);
    }
    if (status == LATHE_OK && run->open.is_dry)
        printf("dry run: %lld steps of %lld taken, nothing was written\n", (long long)result.step,
               (long long)run->set.max_steps);
    if (status != LATHE_OK)
        lathe_ranks_forsake(run->ranks);
    else if (run->ranks && lathe_args_value(args, "--trace"))
        lathe_run_trace_join(run, lathe_args_value(args, "--trace"));
    if (train_options.out != stdout && train_options.out != stderr)
        (void)fclose(train_options.out);
    lathe_run_close(run);
    lathe_trace_end();
    if (status != LATHE_OK) {
        code = lathe_args_fail(args, status);
        lathe_ranks_abort(code);
        return code;
    }
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
