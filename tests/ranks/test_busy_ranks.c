/* Rank 0 may be busy for longer than parallel.deadline_seconds, and writes a checkpoint when
 * another rank has ended. Public reports: meta-pytorch/torchtune#2093, huggingface/accelerate#3512,
 * deepspeedai/DeepSpeed#7533. The disk is slow: each fsync takes 0.4 s more (slow_disk.c). */
#include "ranks/rank_training.h"

#define BIN LATHE_TEST_BUILD "/bin/lathe"

TestSuite(busy_ranks, .init = setup, .fini = teardown, .timeout = 200);

static int shell(const char *line)
{
    char all[4096];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    (void)snprintf(all, sizeof all, "cd %s && (%s) 2>&1", root, line);
    FILE *pipe = popen(all, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    const size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void says(const char *text)
{
    cr_expect_not_null(strstr(output, text), "no '%s' in\n%s", text, output);
}

#define SLOW "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/libslow_disk.so timeout 100 "
#define SHORT " --parallel.deadline_seconds 1.5 --data.validation_split 0 --train.eval_every 0"

Test(busy_ranks, a_checkpoint_may_take_longer_than_the_deadline)
{
    cr_expect_eq(shell(SLOW BIN " launch -n 2 run.toml --checkpoint.dir out" SHORT), 0, "%s",
                 output);
    says("checkpoint out/step-00000012");
    cr_expect_eq(shell(SLOW BIN " launch -n 2 run.toml --checkpoint.dir every --checkpoint.every 4 "
                                "--checkpoint.async false" SHORT),
                 0, "%s", output);
    says("checkpoint every/step-00000012");
    cr_expect_eq(shell(BIN " checkpoint verify out && " BIN " checkpoint verify every"), 0, "%s",
                 output);
}

/* SIGTERM during such a checkpoint does not cut it off: exit 143 means that all is saved. */
Test(busy_ranks, a_checkpoint_after_a_signal_may_take_longer_than_the_deadline)
{
    cr_expect_eq(shell(SLOW BIN
                       " launch -n 2 run.toml --checkpoint.dir out --train.max_steps 1000000" SHORT
                       " & p=$!; while [ ! -s out/metrics.jsonl ]; do sleep 0.1; done; sleep 0.5; "
                       "pkill -TERM -P $p; wait $p"),
                 143, "%s", output);
    says("checkpoint out/step-");
    cr_expect_eq(shell(BIN " checkpoint verify out"), 0, "%s", output);
}

/* Kills rank 1 of the training in this folder. */
static const char kill_rank_1[] =
    "for f in /proc/[0-9]*; do\n"
    "    [ \"$(readlink $f/exe)\" = " BIN " ] && [ \"$(readlink $f/cwd)\" = \"$PWD\" ] &&\n"
    "        tr '\\0' '\\n' <$f/environ | grep -q '^OMPI_COMM_WORLD_RANK=1$' &&\n"
    "        kill -KILL ${f#/proc/}\n"
    "done\n";

Test(busy_ranks, a_rank_that_is_gone_costs_the_step_in_flight_alone)
{
    write_file("kill.sh", kill_rank_1);
    (void)shell(SLOW BIN
                " launch -n 2 run.toml --checkpoint.dir out --train.max_steps 1000000 "
                "--parallel.deadline_seconds 20 --data.validation_split 0 --train.eval_every 0 & "
                "p=$!; while [ ! -s out/metrics.jsonl ]; do sleep 0.1; done; sleep 0.5; "
                "sh kill.sh; wait $p; echo exit $?");
    says("before the run ends with an error; the same command goes on from it");
    says("rank 1 has ended");
    says("rank 1 was ended by signal 9");
    says("exit 137");
    cr_expect_null(strstr(output, "Forwarding"), "%s", output);
    cr_expect_eq(shell(BIN " checkpoint verify out"), 0, "%s", output);
}
