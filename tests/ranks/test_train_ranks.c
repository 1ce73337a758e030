/* lathe train under mpirun: R ranks with micro-batches of B rows train as one rank with R*B rows.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child_program.h"

#ifndef LATHE_TEST_MPIRUN
#define LATHE_TEST_MPIRUN ""
#endif

enum { STEPS = 12 };

static char root[] = "/tmp/lathe_train_ranks_XXXXXX";
static char output[65536];

static void write_file(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    cr_assert_geq(fputs(text, f), 0);
    cr_assert_eq(fclose(f), 0);
}

static const char settings[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                               "num_hidden_layers = 2\nnum_attention_heads = 4\n"
                               "intermediate_size = 64\nvocab_size = 257\n"
                               "max_position_embeddings = 64\n"
                               "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "validation_split = 0.1\nseq_len = 32\n"
                               "[optimizer]\nname = \"adamw\"\nlr = 1e-3\n"
                               "[train]\nprecision = \"fp32\"\nmicro_batch_size = 8\n"
                               "gradient_accumulation_steps = 2\nseed = 7\nthreads = 1\n"
                               "eval_every = 6\nmax_steps = 12\n"
                               "[log]\nprogress = \"off\"\n";

static void setup(void)
{
    child_programs_skip_the_leak_check(); /* Open MPI keeps memory of parts that it unloads */
    char text[40000];
    size_t n = 0;
    cr_assert_not_null(mkdtemp(root));
    for (unsigned line = 0, x = 1; n + 100 < sizeof text; line++) {
        for (int word = 0; word < 9; word++) {
            x = x * 1103515245u + 12345u;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s ",
                                  (const char *[]){"the", "lathe", "turns", "a", "round", "piece",
                                                   "of", "wood"}[x >> 16 & 7]);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "%u.\n", line);
    }
    write_file("text.txt", text);
    write_file("run.toml", settings);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
}

static void teardown(void)
{
    char line[300];
    (void)snprintf(line, sizeof line, "rm -rf %s", root);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

TestSuite(train_ranks, .init = setup, .fini = teardown);

/* Trains on n ranks in the folder root/dir; what is printed is in `output`. Returns the exit code.
 */
static int train(int n, const char *dir, const char *words)
{
    char line[2048], launcher[512] = "";
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    if (n > 1)
        (void)snprintf(launcher, sizeof launcher,
                       "%s --oversubscribe --mca btl self,vader,tcp -n %d", LATHE_TEST_MPIRUN, n);
    (void)snprintf(line, sizeof line,
                   "cd %s && timeout 120 %s %s/bin/lathe train run.toml --checkpoint.dir %s "
                   "--data.cache_dir cache --parallel.deadline_seconds 20 %s 2>&1",
                   root, launcher, LATHE_TEST_BUILD, dir, words);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    const size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Reads a figure of every step of metrics.jsonl; returns the number of steps. */
static int figures(const char *dir, const char *key, double out[STEPS + 1])
{
    char path[256], line[8192], pattern[64];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", root, dir);
    (void)snprintf(pattern, sizeof pattern, "\"%s\":", key);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "no %s:\n%s", path, output);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, pattern);
        cr_assert_lt(n, STEPS + 1);
        out[n++] = at ? strtod(at + strlen(pattern), NULL) : (double)NAN;
    }
    cr_assert_eq(fclose(f), 0);
    return n;
}

/* The losses, norms and tokens of two trainings; `most`: relative difference. */
static void expect_same(const char *a, const char *b, double most)
{
    static const char *const keys[] = {"loss",       "grad_norm",           "tokens",  "eval_loss",
                                       "eval_count", "eval_token_accuracy", "eval_ece"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        double x[STEPS + 1], y[STEPS + 1];
        const int n = figures(a, keys[k], x);
        cr_assert_eq(n, STEPS);
        cr_expect(k < 3 || !isnan(x[STEPS - 1]), "%s is not in %s", keys[k], a);
        cr_assert_eq(figures(b, keys[k], y), n);
        for (int i = 0; i < n; i++)
            cr_expect((isnan(x[i]) && isnan(y[i])) || fabs(x[i] - y[i]) <= most * fabs(x[i]),
                      "%s of step %d: %.9g in %s, %.9g in %s", keys[k], i + 1, x[i], a, y[i], b);
    }
}

/* Each rank sends what adding up the gradients takes at least: 2 (R-1)/R of their bytes. */
static void expect_bytes(const char *run, int n_ranks)
{
    const int n_params = 2 * 257 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
    const double least = 2.0 * (n_ranks - 1) / n_ranks * 4.0 * n_params;
    double sent[STEPS + 1], rank[STEPS + 1], slow[STEPS + 1], fast[STEPS + 1];
    cr_assert_eq(figures(run, "ranks_bytes_sent", sent), STEPS);
    cr_assert_eq(figures(run, "ranks_slowest", rank), STEPS);
    cr_assert_eq(figures(run, "ranks_slowest_seconds", slow), STEPS);
    cr_assert_eq(figures(run, "ranks_fastest_seconds", fast), STEPS);
    for (int i = 0; i < STEPS; i++) {
        cr_expect_float_eq(sent[i], least, 0.005 * least, "%s: %.0f bytes, %.0f are needed", run,
                           sent[i], least);
        cr_expect(rank[i] >= 0 && rank[i] < n_ranks && slow[i] >= fast[i] && fast[i] > 0.0);
    }
}

static void copy_folder(const char *from, const char *to)
{
    char line[600];
    (void)snprintf(line, sizeof line, "cp -r %s/%s %s/%s", root, from, root, to);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

/* The same global batch and fp32: only the order of sums differs. A training that is stopped and
 * goes on has the bits of one that is not; on another number of ranks the same rows follow. */
Test(train_ranks, two_and_four_ranks_train_as_one_and_go_on)
{
    cr_assert_eq(train(1, "one", ""), 0, "%s", output);
    cr_assert_eq(train(2, "two", "--train.micro_batch_size 4 --parallel.bucket_mb 0.02"), 0, "%s",
                 output);
    cr_assert_eq(train(4, "four", "--train.micro_batch_size 2"), 0, "%s", output);
    expect_same("one", "two", 1e-5);
    expect_same("one", "four", 1e-5);
    expect_bytes("two", 2);
    expect_bytes("four", 4);
    cr_assert_eq(train(2, "parts", "--train.micro_batch_size 4 --train.stop_after 6"), 0, "%s",
                 output);
    copy_folder("parts", "other");
    cr_assert_eq(train(2, "parts", "--train.micro_batch_size 4"), 0, "%s", output);
    expect_same("two", "parts", 0.0);
    cr_assert_eq(train(4, "other", "--train.micro_batch_size 2"), 0, "%s", output);
    expect_same("one", "other", 1e-5);
}

/* LoRA's dropout draws by the global row. */
Test(train_ranks, dropout_is_that_of_one_rank)
{
    cr_assert_eq(train(1, "one", "--adapter.name lora --adapter.dropout 0.3"), 0, "%s", output);
    cr_assert_eq(
        train(2, "two", "--adapter.name lora --adapter.dropout 0.3 --train.micro_batch_size 4"), 0,
        "%s", output);
    expect_same("one", "two", 1e-5);
}

/* Masks and prefixes are keyed by the global row; evaluations have the same ones too. */
Test(train_ranks, masks_and_prefixes_are_those_of_one_rank)
{
    static const char *const words[] = {"--stage.objective prefix",
                                        "--stage.objective masked --stage.mask_token '~'"};
    for (int i = 0; i < 2; i++) {
        char one[16], two[16], line[160];
        (void)snprintf(one, sizeof one, "one%d", i);
        (void)snprintf(two, sizeof two, "two%d", i);
        (void)snprintf(line, sizeof line, "%s --train.micro_batch_size 4", words[i]);
        cr_assert_eq(train(1, one, words[i]), 0, "%s", output);
        cr_assert_eq(train(2, two, line), 0, "%s", output);
        expect_same(one, two, 1e-5);
    }
}

/* Each rank reads the stored numbers of its own rows. */
Test(train_ranks, a_stored_teacher_is_that_of_one_rank)
{
    static const char of_data[] = "--data.datasets '[{ path = \"answers.jsonl\" }]' ";
    char text[20000], words[512];
    size_t n = 0;
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"prompt\": \"%d:\", \"completion\": \"%.*s\"}\n", i, 1 + i % 20,
                              "it turns a piece of wood");
    write_file("answers.jsonl", text);
    (void)snprintf(words, sizeof words, "%s--stage.name sft --train.max_steps 1", of_data);
    cr_assert_eq(train(1, "teacher", words), 0, "%s", output);
    (void)snprintf(
        words, sizeof words,
        "cd %s && %s/bin/lathe logprobs run.toml %s--stage.name distill --data.cache_dir "
        "cache --teacher.path teacher/step-00000001 --top-k 8 -o top8 2>&1",
        root, LATHE_TEST_BUILD, of_data);
    cr_assert_eq(system(words),
                 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): the test's line */
    (void)snprintf(words, sizeof words,
                   "%s--stage.name distill --stage.alpha 0.2 --teacher.stored top8 --model.seed 5",
                   of_data);
    cr_assert_eq(train(1, "one", words), 0, "%s", output);
    (void)snprintf(words + strlen(words), sizeof words - strlen(words),
                   " --train.micro_batch_size 4");
    cr_assert_eq(train(2, "two", words), 0, "%s", output);
    expect_same("one", "two", 1e-5);
}

Test(train_ranks, what_several_ranks_cannot_do_is_refused)
{
    cr_expect_neq(train(2, "out", "--optimizer.name sophia"), 0);
    cr_expect_not_null(strstr(output, "optimizer \"sophia\" estimates curvature"), "%s", output);
}

/* Each rank gets a learning rate of its own. */
Test(train_ranks, ranks_that_differ_are_refused_by_the_difference)
{
    write_file("differ.sh", "#!/bin/sh\nexec \"$@\" --optimizer.lr 1e-${OMPI_COMM_WORLD_RANK}\n");
    char line[2048];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI");
    (void)snprintf(line, sizeof line,
                   "cd %s && timeout 120 %s --oversubscribe --mca btl self,vader,tcp -n 2 sh "
                   "differ.sh %s/bin/lathe train run.toml --checkpoint.dir out --data.cache_dir "
                   "cache 2>&1",
                   root, LATHE_TEST_MPIRUN, LATHE_TEST_BUILD);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    cr_expect_neq(pclose(pipe), 0);
    cr_expect_not_null(strstr(output, "rank 1 of 2 on host"), "%s", output);
    cr_expect_not_null(strstr(output, " differs from rank 0: settings.optimizer.lr is 0.1"), "%s",
                       output);
}
