/* A small training on one or several ranks, and comparisons of what it wrote. */
#ifndef LATHE_TEST_RANK_TRAINING_H
#define LATHE_TEST_RANK_TRAINING_H

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

enum { MOST_STEPS = 200 };

#define MAYBE_UNUSED __attribute__((unused))

static char root[] = "/tmp/lathe_train_ranks_XXXXXX";
static char output[65536];

MAYBE_UNUSED static void write_file(const char *name, const char *text)
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

MAYBE_UNUSED static void setup(void)
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

MAYBE_UNUSED static void teardown(void)
{
    char line[300];
    (void)snprintf(line, sizeof line, "rm -rf %s", root);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

/* Trains on n ranks in the folder root/dir; what is printed is in `output`. Returns the exit code.
 */
MAYBE_UNUSED static int train(int n, const char *dir, const char *words)
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
MAYBE_UNUSED static int figures(const char *dir, const char *key, double out[MOST_STEPS + 1])
{
    char path[256], line[8192], pattern[64];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", root, dir);
    (void)snprintf(pattern, sizeof pattern, "\"%s\":", key);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "no %s:\n%s", path, output);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, pattern);
        cr_assert_lt(n, MOST_STEPS + 1);
        out[n++] = at ? strtod(at + strlen(pattern), NULL) : (double)NAN;
    }
    cr_assert_eq(fclose(f), 0);
    return n;
}

/* The losses, norms and tokens of two trainings; `most`: relative difference. */
MAYBE_UNUSED static void expect_same(const char *a, const char *b, double max)
{
    static const char *const keys[] = {"loss",       "grad_norm",           "tokens",  "eval_loss",
                                       "eval_count", "eval_token_accuracy", "eval_ece"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        double x[MOST_STEPS + 1], y[MOST_STEPS + 1];
        const int n = figures(a, keys[k], x);
        cr_assert_gt(n, 0);
        cr_expect(k < 3 || !isnan(x[n - 1]), "%s is not in %s", keys[k], a);
        cr_assert_eq(figures(b, keys[k], y), n);
        for (int i = 0; i < n; i++)
            cr_expect((isnan(x[i]) && isnan(y[i])) || fabs(x[i] - y[i]) <= max * fabs(x[i]),
                      "%s of step %d: %.9g in %s, %.9g in %s", keys[k], i + 1, x[i], a, y[i], b);
    }
}

MAYBE_UNUSED static void copy_folder(const char *from, const char *to)
{
    char line[600];
    (void)snprintf(line, sizeof line, "cp -r %s/%s %s/%s", root, from, root, to);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

#endif
