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

/* mpirun 4.1 sometimes hangs when its ranks have ended, and is then ended without its words. */
static void says_end(int rank)
{
    char text[64];
    (void)snprintf(text, sizeof text, "rank %d was ended by signal 9", rank);
    cr_expect(strstr(output, text) || strstr(output, "because it did not end after its ranks had"),
              "no '%s' in\n%s", text, output);
}

#define SLOW "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/libslow_disk.so timeout 100 "
#define SHORT " --parallel.deadline_seconds 1.5 --data.validation_split 0 --train.eval_every 0"

/* The checkpoint `dir`/latest has the bytes of the undisturbed run `same`, and so has each row of
 * metrics.jsonl its loss. */
static void expect_bytes(const char *dir, const char *same)
{
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "at=$(cat %s/latest); [ $at = $(cat %s/latest) ] || { echo $at; exit 2; }; "
                   "ls %s/$at/state/optimizer.safetensors && "
                   "diff -r -x manifest.json %s/$at %s/$at || exit 3; "
                   "for d in %s %s; do grep -o '\"loss\": [^,]*' $d/metrics.jsonl >$d.loss; done; "
                   "[ -s %s.loss ] && cmp %s.loss %s.loss",
                   dir, same, dir, dir, same, dir, same, dir, dir, same);
    cr_expect_eq(shell(line), 0, "%s: %s", dir, output);
}

Test(busy_ranks, a_checkpoint_may_take_longer_than_the_deadline)
{
    cr_expect_eq(shell(BIN " launch -n 2 run.toml --checkpoint.dir same --data.validation_split 0 "
                           "--train.eval_every 0"),
                 0, "%s", output);
    cr_expect_eq(shell(SLOW BIN " launch -n 2 run.toml --checkpoint.dir out" SHORT), 0, "%s",
                 output);
    says("checkpoint out/step-00000012");
    cr_expect_eq(shell(SLOW BIN " launch -n 2 run.toml --checkpoint.dir every --checkpoint.every 4 "
                                "--checkpoint.async false" SHORT),
                 0, "%s", output);
    says("checkpoint every/step-00000012");
    cr_expect_eq(shell(BIN " checkpoint verify out && " BIN " checkpoint verify every"), 0, "%s",
                 output);
    expect_bytes("out", "same");
    expect_bytes("every", "same");
}

/* SIGTERM during such a checkpoint does not cut it off: exit 143 means that all is saved. */
Test(busy_ranks, a_checkpoint_after_a_signal_may_take_longer_than_the_deadline)
{
    cr_expect_eq(
        shell(SLOW BIN
              " launch -n 2 run.toml --checkpoint.dir out --train.max_steps 1000000" SHORT
              " & p=$!; while [ ! -s out/metrics.jsonl ] && kill -0 $p; do sleep 0.1; done; "
              "sleep 0.5; "
              "pkill -TERM -P $p; wait $p"),
        143, "%s", output);
    says("checkpoint out/step-");
    cr_expect_eq(shell(BIN " checkpoint verify out"), 0, "%s", output);
    cr_expect_eq(shell("at=$(cat out/latest); " BIN " launch -n 2 run.toml --checkpoint.dir same "
                       "--train.max_steps 1000000 --data.validation_split 0 --train.eval_every 0 "
                       "--train.stop_after $(echo ${at#step-} | sed 's/^0*//')"),
                 0, "%s", output);
    expect_bytes("out", "same");
}

/* Kills a rank of the training in this folder. */
static const char kill_rank[] =
    "for f in /proc/[0-9]*; do\n"
    "    [ \"$(readlink $f/exe)\" = " BIN " ] && [ \"$(readlink $f/cwd)\" = \"$PWD\" ] &&\n"
    "        tr '\\0' '\\n' <$f/environ | grep -q \"^OMPI_COMM_WORLD_RANK=$1$\" &&\n"
    "        kill -KILL ${f#/proc/}\n"
    "done\n";

#define FREE                                                                                       \
    " --scheduler.name constant --data.validation_split 0 --train.eval_every 0 "                   \
    "--data.cache_dir cache --parallel.deadline_seconds 20"

/* Trains on n ranks in `out` until `when` is true in the shell, and kills one of them. */
static void train_and_kill(int n, int rank, const char *when, const char *words)
{
    char line[2048];
    write_file("kill.sh", kill_rank);
    (void)snprintf(line, sizeof line,
                   "rm -rf out; %s " BIN " launch -n %d run.toml --checkpoint.dir out "
                   "--train.max_steps 1000000" FREE " %s & p=$!; "
                   "while ! { %s; } && kill -0 $p; do sleep 0.05; done; "
                   "sh kill.sh %d; wait $p; echo exit $?",
                   SLOW, n, words, when, rank);
    (void)shell(line);
    says("\nexit 1"); /* 1 of the error, or 137 of the signal */
    cr_expect_null(strstr(output, "Forwarding"), "%s", output);
}

/* The checkpoint `out/latest` is whole, is that of the last step in metrics.jsonl, and has the
 * bytes of a run on as many ranks that stops at this step and was not disturbed. */
static void expect_all_steps(int n)
{
    char line[2048];
    cr_expect_eq(shell(BIN " checkpoint verify out"), 0, "%s", output);
    (void)snprintf(line, sizeof line,
                   "at=$(cat out/latest); step=$(echo ${at#step-} | sed 's/^0*//'); "
                   "[ $(wc -l <out/metrics.jsonl) = $step ] || { echo $step steps, lines: $(wc -l "
                   "<out/metrics.jsonl); exit 2; }; "
                   "rm -rf same; " BIN " launch -n %d run.toml --checkpoint.dir same "
                   "--train.max_steps 1000000 --train.stop_after $step" FREE " && "
                   "cd out/$at && for f in $(find . -type f ! -name manifest.json); do "
                   "cmp $f ../../same/$at/$f || exit 3; done",
                   n);
    cr_expect_eq(shell(line), 0, "%s", output);
}

#define SOME_STEPS "[ -s out/metrics.jsonl ] && sleep 0.5"

Test(busy_ranks, a_rank_that_is_gone_costs_the_step_in_flight_alone)
{
    train_and_kill(2, 1, SOME_STEPS, "");
    says("before the run ends with an error; the same command goes on from it");
    says("rank 1 has ended");
    says_end(1);
    expect_all_steps(2);
}

/* Another rank takes the folder of rank 0 over, and the launcher waits for it. */
Test(busy_ranks, rank_0_that_is_gone_costs_the_step_in_flight_alone)
{
    train_and_kill(2, 0, SOME_STEPS, "--checkpoint.keep_last 2");
    says("written by this rank, because rank 0 has ended");
    says_end(0);
    cr_expect_null(strstr(output, "lost"), "%s", output);
    expect_all_steps(2);
    train_and_kill(3, 0, SOME_STEPS, "--train.weight_average ema");
    says("written by this rank, because rank 0 has ended");
    cr_expect_eq(shell(BIN " checkpoint verify out && [ $(ls -d out/step-* | wc -l) = 1 ] && "
                           "[ ! -s out/lock ]"),
                 0, "%s", output);
}

/* Rank 0 is killed in the middle of its checkpoint. */
Test(busy_ranks, a_checkpoint_of_rank_0_that_is_gone_is_completed)
{
    train_and_kill(2, 0, "ls -d out/step-*.tmp.* >/dev/null 2>&1",
                   "--checkpoint.every 40 --checkpoint.async false");
    says("checkpoint out/step-00000040, written by this rank");
    expect_all_steps(2);
}

/* Where no rank holds all of the state, the message says what is lost. */
Test(busy_ranks, what_a_gone_rank_costs_is_said)
{
    static const struct {
        int n, rank;
        const char *words, *why;
    } cases[] = {
        {2, 0, "--parallel.shard optimizer", "parallel.shard = \"optimizer\" divides the state"},
        {3, 1, "--parallel.shard parameters", "parallel.shard = \"parameters\" divides the state"},
        {2, 0, "--parallel.diloco_islands 2 --parallel.diloco_inner_steps 4",
         "the ranks are islands of DiLoCo"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        train_and_kill(cases[i].n, cases[i].rank, SOME_STEPS, cases[i].words);
        says("there is no checkpoint in out, and none could be saved, because");
        says(cases[i].why);
        says(" steps are lost");
    }
}
