/* lathe launch: its command line, a job of one rank, signals, restarts, and two ranks. */
#include "cli/started_program.h"
#include "cli/training_case.h"

#ifndef LATHE_TEST_MPIRUN
#define LATHE_TEST_MPIRUN ""
#endif

TestSuite(launch, .init = setup, .fini = remove_folder);

static void need_mpi(void)
{
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
}

/* Starts `lathe launch` of a long run, with its output in the file log. */
static pid_t start(const char *const *more)
{
    const char *argv[32] = {
        LATHE, "launch",         "run.toml", "--train.max_steps", "100000000", "--train.eval_every",
        "0",   "--log.progress", "plain"};
    int n = 9;
    while (*more)
        argv[n++] = *more++;
    argv[n] = NULL;
    return start_program("log", argv);
}

/* Each rank would say it, and mpirun adds a box for each. */
Test(launch, a_wrong_run_file_is_refused_once)
{
    expect(LATHE " launch -n 2 run.toml --train.max_stepz 3 2>&1", 2,
           "unknown key 'max_stepz' in [train] (did you mean 'max_steps'?)");
    cr_expect_null(strstr(output, "mpirun"), "%s", output);
    expect(LATHE " launch -n 2 run.toml --train.max_stepz 3 2>&1 | grep -c max_stepz", 0, "1\n");
}

Test(launch, a_key_of_an_engine_that_auto_does_not_take_is_a_warning)
{
    need_mpi();
    expect(LATHE " launch -n 2 run.toml --collective.algorithm any 2>&1", 0,
           "--collective.algorithm: warning: collective.algorithm has no effect: \"auto\" is \"");
}

Test(launch, command_lines_that_are_wrong)
{
    static const struct {
        const char *arguments, *want;
    } rows[] = {
        {"run.toml", "-n is missing"},
        {"-n 0 run.toml", "--ranks"},
        {"-n many run.toml", "--ranks"},
        {"-n 2 --restarts 1 --min-ranks 3 run.toml", "--min-ranks is 3, expected at most -n = 2"},
        {"-n 2 --min-ranks 1 run.toml", "--min-ranks has no effect without --restarts"},
        {"-n 2 --restarts -1 run.toml", "--restarts"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char command[512];
        (void)snprintf(command, sizeof command, LATHE " launch %s 2>&1", rows[i].arguments);
        expect(command, 2, rows[i].want);
    }
    expect("PATH=/nowhere " LATHE " launch -n 1 run.toml 2>&1", 2,
           "there is no mpirun in PATH: install Open MPI");
}

Test(launch, one_rank_trains_as_lathe_train_does)
{
    need_mpi();
    expect(LATHE " launch -n 1 run.toml --checkpoint.dir=a 2>&1", 0, "");
    expect(LATHE " train run.toml --checkpoint.dir=b 2>&1", 0, "");
    expect(LATHE " checkpoint diff a b 2>&1", 1, "weights: 0 of 12 tensors differ"); /* dir does */
    expect(LATHE " launch -n 1 missing.toml 2>&1", 2, "missing.toml");
}

Test(launch, two_ranks_train_one_model)
{
    need_mpi();
    expect(LATHE " launch -n 2 run.toml 2>&1", 0, "checkpoint out");
    cr_expect_eq(access("out/metrics.jsonl", F_OK), 0);
}

/* The ranks read the same data; each would tell what is wrong with them. */
Test(launch, notes_on_the_data_come_from_rank_0_alone)
{
    need_mpi();
    put_times("p.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n", 20);
    expect(LATHE " launch -n 2 run.toml --stage.name dpo --data.datasets '[{path = \"p.jsonl\"}]' "
                 "2>&1 | tee log | grep -c 'pairs of p.jsonl prefer nothing'",
           0, "1\n");
    expect("grep -c 'rank 1: warning' log", 1, "0\n");
}

Test(launch, a_signal_reaches_the_ranks_and_the_run_ends_with_a_checkpoint, .timeout = 400)
{
    need_mpi();
    const pid_t child = start((const char *const[]){"-n", "1", NULL});
    wait_until(child, "test -e out/latest");
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_expect_eq(exit_code(child), 143);
    expect("cat log", 0, "finishing the micro-batch and writing a checkpoint");
    expect(LATHE " checkpoint verify out", 0, "whole");
}

/* Before mpirun has started all ranks, and while it does. */
Test(launch, a_signal_at_the_start_ends_the_ranks, .timeout = 400)
{
    need_mpi();
    for (int ms = 10; ms < 400; ms += ms / 2 + 20) {
        const pid_t child = start((const char *const[]){"-n", "2", NULL});
        rest_ms(ms);
        cr_assert_eq(kill(child, SIGTERM), 0);
        int status = 0;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect((WIFEXITED(status) && WEXITSTATUS(status) == 143) ||
                      (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM), /* before it takes it */
                  "after %d ms: %d", ms, status);
    }
}

Test(launch, a_killed_rank_is_started_again_from_its_checkpoint, .timeout = 400)
{
    need_mpi();
    const pid_t child = start((const char *const[]){"-n", "1", "--restarts", "1", NULL});
    char command[256];
    wait_until(child, "test -e out/latest");
    (void)snprintf(command, sizeof command, "kill -9 $(pgrep -P $(pgrep -P %d))", (int)child);
    cr_assert_eq(run(command), 0, "%s", output);
    wait_until(child,
               "grep -q 'lathe launch: failed with 137; restart 1 of 1 with 1 rank, from the last "
               "checkpoint' log");
    wait_until(child, "grep -qi 'resum' log");
    cr_assert_eq(kill(child, SIGINT), 0);
    cr_expect_eq(exit_code(child), 130);
    expect(LATHE " checkpoint verify out", 0, "whole");
}

/* An island that dies with its rank: the islands that are left go on, here one of two. */
Test(launch, a_lost_island_is_left_out, .timeout = 400)
{
    need_mpi();
    const pid_t child = start((const char *const[]){"-n", "2", "--restarts", "1", "--min-ranks",
                                                    "1", "--parallel.diloco_islands", "2",
                                                    "--parallel.diloco_inner_steps", "3", NULL});
    char command[256];
    wait_until(child, "test -e out/latest");
    (void)snprintf(command, sizeof command, "kill -9 $(pgrep -P $(pgrep -P %d) | tail -1)",
                   (int)child);
    cr_assert_eq(run(command), 0, "%s", output);
    wait_until(child,
               "grep -q 'restart 1 of 1 with 1 rank in 1 island, from the last checkpoint' log");
    wait_until(child, "grep -q 'was written by 2 islands; the run continues with 1' log");
    cr_assert_eq(kill(child, SIGINT), 0);
    cr_expect_eq(exit_code(child), 130);
    expect(LATHE " checkpoint verify out", 0, "whole");
}
