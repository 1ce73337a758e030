/* Signals and other events while lathe train runs: the run ends with a complete checkpoint and a
 * known exit code. */
#include "started_program.h"
#include "training_case.h"

TestSuite(cli_signals, .init = setup, .fini = remove_folder);

/* Starts `lathe train` with its output in the file; `more`: further arguments. */
static pid_t start(const char *file, const char *const *more)
{
    const char *argv[32] = {
        LATHE, "train",          "run.toml", "--train.max_steps", "100000000", "--train.eval_every",
        "0",   "--log.progress", "plain"};
    int n = 9;
    while (*more)
        argv[n++] = *more++;
    argv[n] = NULL;
    return start_program(file, argv);
}

static void check_signal(int number, int code, const char *async)
{
    const char *const more[] = {"--checkpoint.async", async, "--checkpoint.keep_last", "2", NULL};
    const pid_t child = start("log", more);
    wait_until(child, "test -e out/latest");
    cr_assert_eq(kill(child, number), 0);
    cr_assert_eq(exit_code(child), code);
    expect("cat log", 0, "finishing the micro-batch and writing a checkpoint");
    expect(LATHE " checkpoint verify out", 0, "whole");
    /* the last line of the metrics has the step of the checkpoint: nothing was lost */
    expect("tail -1 out/metrics.jsonl | sed 's/^{\"step\": \\([0-9]*\\),.*/\\1/' > step; "
           "printf 'step-%08d' $(cat step) | diff - out/latest && echo same",
           0, "same");
    cr_assert_eq(run("ls out | grep tmp"), 1, "%s", output);
    cr_assert_eq(run("rm -r out"), 0);
}

Test(cli_signals, the_first_signal_finishes_the_step_and_writes_a_checkpoint, .timeout = 400)
{
    check_signal(SIGINT, 130, "true");
    check_signal(SIGTERM, 143, "false");
}

/* A lost connection: the terminal and the shell each send SIGHUP. */
Test(cli_signals, a_hangup_ends_the_run_with_a_checkpoint_as_a_signal_to_stop_does, .timeout = 400)
{
    (void)signal(SIGHUP, SIG_DFL); /* also if these tests run under nohup */
    check_signal(SIGHUP, 129, "true");
    const pid_t child = start("log", (const char *const[]){NULL});
    wait_until(child, "test -e out/latest");
    for (int i = 0; i < 3; i++) {
        (void)kill(child, SIGHUP);
        rest_ms(2);
    }
    cr_assert_eq(exit_code(child), 129);
    expect("tail -1 out/metrics.jsonl | sed 's/^{\"step\": \\([0-9]*\\),.*/\\1/' > step; "
           "printf 'step-%08d' $(cat step) | diff - out/latest && echo same",
           0, "same");
}

Test(cli_signals, under_nohup_a_hangup_does_not_end_the_run, .timeout = 400)
{
    (void)signal(SIGHUP, SIG_IGN); /* as nohup does before it starts the program */
    const pid_t child = start("log", (const char *const[]){NULL});
    wait_until(child, "test -e out/latest");
    cr_assert_eq(kill(child, SIGHUP), 0);
    rest_ms(300);
    cr_assert_eq(kill(child, 0), 0);
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_assert_eq(exit_code(child), 143);
}

/* A cache on a disk that is cleaned up while the run reads it. */
Test(cli_signals, a_shard_cut_during_a_run_is_one_error_that_names_it, .timeout = 400)
{
    const pid_t child = start("log", (const char *const[]){"--data.cache_dir", "cache", NULL});
    wait_until(child, "test -e out/latest");
    cr_assert_eq(run("truncate -s 600 cache/shard-*-00000.bin"), 0);
    cr_assert_eq(exit_code(child), 1);
    expect("grep -c 'became shorter' log", 0, "1\n");
    expect("grep '^lathe train: cache/shard-.*-00000.bin: the file became shorter' log", 0, "bin");
    expect(LATHE " checkpoint verify out", 0, "whole"); /* the saved checkpoint is complete */
    expect("grep -c 'null' out/metrics.jsonl", 1, "0\n");
    expect(LATHE " train run.toml --data.cache_dir other --train.max_steps 100000000 "
                 "--train.stop_after 1 2>&1",
           0, "resumed from out/step-");
}

/* The second signal comes while the step is completed or the checkpoint written. In both cases the
 * process ends at once with the signal's exit code, and a later run can continue in the folder. */
Test(cli_signals, the_second_signal_ends_at_once, .timeout = 400)
{
    const char *const more[] = {"--model.hidden_size",
                                "512",
                                "--model.intermediate_size",
                                "2048",
                                "--model.num_hidden_layers",
                                "6",
                                NULL};
    for (int i = 0; i < 4; i++) {
        (void)unlink("log");
        const pid_t child = start("log", more);
        wait_until(child, "grep -qs 'planned peak' log"); /* its handlers are installed now */
        wait_until(child, "test -e out/latest");
        cr_assert_eq(kill(child, SIGINT), 0);
        rest_ms(i * 30);
        const int second = i % 2 ? SIGTERM : SIGINT;
        (void)kill(child, second);
        const int code = exit_code(child);
        cr_assert(code == 128 + second || code == 130, "exit %d", code);
        expect(LATHE " checkpoint verify out", 0, "whole");
    }
    expect(LATHE
           " train run.toml --model.hidden_size 512 --model.intermediate_size 2048 "
           "--model.num_hidden_layers 6 --train.max_steps 100000000 --train.stop_after 1 2>&1",
           0, "resumed from out/step-");
    cr_assert_eq(run("ls out | grep tmp"), 1, "%s", output);
}

Test(cli_signals, two_runs_in_one_folder, .timeout = 200)
{
    const char *const none[] = {NULL};
    char who[64];
    const pid_t child = start("log", none);
    wait_until(child, "test -e out/latest");
    (void)snprintf(who, sizeof who, "held by process %ld on ", (long)child);
    expect(
        LATHE " train run.toml 2>&1", 2,
        "run.toml:20:7: error: checkpoint.dir = \"out\" is the folder of a run that is training");
    cr_assert_not_null(strstr(output, who), "%s", output);
    expect(LATHE " checkpoint rm out --keep-last 1 2>&1", 1, who);
    cr_assert_eq(kill(child, SIGKILL), 0);
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    expect(LATHE " train run.toml --train.max_steps 100000000 --train.stop_after 1 2>&1", 0,
           "resumed from");
}
