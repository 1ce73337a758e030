/* Ranks with an emulated GPU each, whose memory collective/nccl exchanges through an emulated NCCL:
 * the checks of engines, trainings against one rank, and what is said when something is missing. */
#include "ranks/rank_training.h"

#include "support/plugin_override.h"

#define EMULATED LATHE_TEST_BUILD "/tests/emulated"

/* A model that the emulated GPU trains in seconds. */
#define SMALL                                                                                      \
    "--device.name cuda --attention.name reference_cuda --data.seq_len 16 --train.max_steps 4 "    \
    "--train.eval_every 4 --train.eval_batches 2 --model.num_hidden_layers 1 "                     \
    "--model.hidden_size 16 --model.num_attention_heads 2 --model.intermediate_size 32 "           \
    "--parallel.bucket_mb 0.005 "

static void setup_gpus(void)
{
    setup();
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", EMULATED, 1), 0);
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=4", 1), 0);
    override_all_of(EMULATED);
}

TestSuite(nccl_ranks, .init = setup_gpus, .fini = teardown);

/* Runs a command on n ranks. Returns the exit code; `output` has what is printed. */
static int launch(int n, const char *command)
{
    char line[1024];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    (void)snprintf(line, sizeof line,
                   "cd %s && timeout 200 %s --oversubscribe --mca btl self,vader,tcp -n %d %s 2>&1",
                   root, LATHE_TEST_MPIRUN, n, command);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int rank_program(int n, const char *words)
{
    char line[512];
    (void)snprintf(line, sizeof line, LATHE_TEST_BUILD "/tests/gpu_rank_program %s", words);
    return launch(n, line);
}

static void says(const char *text)
{
    cr_expect_not_null(strstr(output, text), "expected \"%s\" in:\n%s", text, output);
}

static void train_small(int n, const char *dir, const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof line, SMALL "%s", words);
    cr_assert_eq(train(n, dir, line), 0, "%s: %s", line, output);
}

static void expect_same_weights(const char *a, const char *b)
{
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "cd %s && diff -r -q -x manifest.json -x run.json -x config.json "
                   "%s/step-00000004 %s/step-00000004",
                   root, a, b);
    cr_expect_eq(system(line), 0, "%s and %s", a,
                 b); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
}

Test(nccl_ranks, every_check_of_engines_holds_on_two_and_three_ranks)
{
    for (int n = 2; n <= 3; n++) {
        int seen = 0;
        cr_expect_eq(launch(n, LATHE_TEST_BUILD "/bin/lathe plugin check " EMULATED
                                                "/collective/nccl.so --device cuda"),
                     0, "%s", output);
        for (const char *at = output; (at = strstr(at, "on cuda: 16 ok, 0 failed")) != NULL; at++)
            seen++;
        cr_expect_eq(seen, n, "%s", output);
    }
}

/* Whatever the ranks divide; two NCCL ranks add like two ranks through the host's memory. */
Test(nccl_ranks, two_and_four_gpus_train_as_one)
{
    static const char *const shards[] = {"none", "optimizer", "gradients", "parameters"};
    char words[256];
    train_small(1, "one", "--train.micro_batch_size 4");
    train_small(2, "staged", "--train.micro_batch_size 2 --collective.name staged");
    says("2 ranks: staged over Open MPI");
    for (int i = 0; i < 4; i++) {
        (void)snprintf(words, sizeof words, "--train.micro_batch_size 2 --parallel.shard %s",
                       shards[i]);
        train_small(2, shards[i], words);
        says("2 ranks: NCCL 2.28.9 over Open MPI");
        expect_same("one", shards[i], 1e-5);
    }
    expect_same("staged", "none", 0.0);
    expect_same_weights("staged", "none");
    train_small(4, "four", "--train.micro_batch_size 1 --parallel.shard parameters");
    expect_same("one", "four", 1e-5);
}

/* Groups of ranks have communicators of their own. */
Test(nccl_ranks, two_groups_of_two_gpus_train_as_one)
{
    static const char *const shards[] = {"optimizer", "gradients", "parameters"};
    char words[256];
    train_small(1, "one", "--train.micro_batch_size 4");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(words, sizeof words,
                       "--train.micro_batch_size 1 --parallel.shard %s --parallel.shard_ranks 2",
                       shards[i]);
        train_small(4, shards[i], words);
        says("4 ranks: NCCL 2.28.9 over Open MPI");
        expect_same("one", shards[i], 1e-5);
    }
}

/* In bf16 with two micro-batches, stopped in between. */
Test(nccl_ranks, gpus_go_on_with_the_same_bits)
{
    static const char words[] = "--train.micro_batch_size 1 --parallel.shard gradients "
                                "--train.precision bf16 --train.grad_dtype bf16";
    char stopped[256];
    train_small(2, "whole", words);
    (void)snprintf(stopped, sizeof stopped, "%s --train.stop_after 2", words);
    train_small(2, "parts", stopped);
    train_small(2, "parts", words);
    expect_same("whole", "parts", 0.0);
    expect_same_weights("whole", "parts");
}

Test(nccl_ranks, a_rank_that_hangs_is_named_after_the_deadline)
{
    cr_expect_eq(rank_program(3, "sum 20"), 0, "%s", output);
    cr_expect_neq(rank_program(2, "stop 1"), 0);
    says("all_reduce of 400.0 kB on the GPU (gradients 1 of 1): timed out after 1.0 s");
    says("step 3: rank 0 of 2 on ");
    says("timed out after 1.0 s; rank 1 (stopped by a signal) did not arrive");
}

/* NCCL tells it, or, if it does not, the deadline ends the wait. */
Test(nccl_ranks, a_rank_that_has_ended_is_noticed)
{
    cr_expect_neq(rank_program(2, "exit 60"), 0);
    says("step 3: rank 0 of 2 on ");
    says("NCCL: remote process exited or there was a network error");
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=4 quiet=1", 1), 0);
    cr_expect_neq(rank_program(2, "exit 1"), 0);
    says("step 3: rank 0 of 2 on ");
    says("rank 1 has ended (process ");
}

Test(nccl_ranks, what_is_asked_for_wrongly_is_refused)
{
    cr_expect_neq(rank_program(2, "differ 20"), 0);
    says("the ranks ask for different exchanges: rank 0 for all_reduce of 100000 f32");
    cr_expect_neq(rank_program(2, "twice 20"), 0);
    says("an exchange is started before its last run is done");
    cr_expect_neq(rank_program(2, "host 20"), 0);
    says("400000 bytes at ");
    says("are not in memory of the GPU");
    cr_expect_neq(rank_program(2, "after 1"), 0);
    says("an exchange has failed before; this rank must end");
}

static void expect_refusal(int n, const char *words, const char *message)
{
    char line[1024];
    (void)snprintf(line, sizeof line, SMALL "--train.micro_batch_size 1 %s", words);
    cr_expect_neq(train(n, "refused", line), 0, "%s", output);
    says(message);
}

Test(nccl_ranks, what_is_missing_is_told)
{
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=1", 1), 0);
    expect_refusal(2, "", "ranks 0 and 1 have the same GPU 0, and NCCL needs one for each rank");
    train_small(2, "shared", "--train.micro_batch_size 1 --collective.name staged");
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=2", 1), 0);
    expect_refusal(4, "",
                   "this process is number 3 of those that a launcher started on this "
                   "machine, counted from 0, and it shows 2 GPUs: start at most 2 there");
    expect_refusal(2, "--device.index 1", "ranks 0 and 1 have the same GPU 1");
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=2 nccl=21300", 1), 0);
    expect_refusal(2, "--collective.name nccl", "NCCL is 2.13.0, 2.14 or later is needed");
    train_small(2, "old", "--train.micro_batch_size 1");
    says("2 ranks: staged over Open MPI");
    expect_refusal(2, "--device.name cpu --attention.name reference --collective.name nccl",
                   "collective \"nccl\" is for devices with memory of their own");
    expect_refusal(1, "--collective.algorithm tree", "algorithm");
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=4", 1), 0);
    expect_refusal(4, "--collective.algorithm any",
                   "train.deterministic is true, and the sums of NCCL 2.28.9 over Open MPI ");
    train_small(
        4, "any",
        "--train.micro_batch_size 1 --collective.algorithm any --train.deterministic false");
}

/* A plugin whose library is not there. */
Test(nccl_ranks, a_missing_library_is_told)
{
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/without_nccl:" EMULATED, 1),
                 0);
    expect_refusal(2, "--collective.name nccl",
                   "NCCL 2 cannot be opened (libnot-there.so.2: cannot open shared object file");
    train_small(2, "without", "--train.micro_batch_size 1");
    says("2 ranks: staged over Open MPI");
}
