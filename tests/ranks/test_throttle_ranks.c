/* collective/throttle over MPI: the same bits, and the time of the link; and what lathe plan says
 * of it before. */
#include <criterion/criterion.h>
#include <jansson.h>
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

enum { STEPS = 6 };

static char root[] = "/tmp/lathe_throttle_XXXXXX";
static char output[1 << 18];

static const char settings[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 64\n"
                               "num_hidden_layers = 2\nnum_attention_heads = 4\n"
                               "intermediate_size = 128\nvocab_size = 257\n"
                               "max_position_embeddings = 64\n"
                               "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "seq_len = 32\n[optimizer]\nname = \"adamw\"\nlr = 1e-3\n"
                               "[train]\nprecision = \"fp32\"\nmicro_batch_size = 2\nseed = 7\n"
                               "threads = 1\nmax_steps = 6\n[log]\nprogress = \"off\"\n"
                               "[parallel]\nbucket_mb = 0.1\ndeadline_seconds = 60\n";

static void put(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    cr_assert_geq(fputs(text, f), 0);
    cr_assert_eq(fclose(f), 0);
}

static void setup(void)
{
    char text[20000];
    size_t n = 0;
    child_programs_skip_the_leak_check(); /* Open MPI keeps memory of parts that it unloads */
    cr_assert_not_null(mkdtemp(root));
    for (int line = 0; n + 60 < sizeof text; line++)
        n += (size_t)snprintf(text + n, sizeof text - n, "the lathe turns piece %d of %d.\n", line,
                              line * 7 % 13);
    put("text.txt", text);
    put("run.toml", settings);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
}

static void teardown(void)
{
    char line[300];
    (void)snprintf(line, sizeof line, "rm -rf %s", root);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

TestSuite(throttle_ranks, .init = setup, .fini = teardown);

/* Runs words of lathe on n ranks (0: without mpirun) in the folder. Returns the exit code. */
static int lathe(int n, const char *words)
{
    char line[2048], launcher[512] = "";
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    if (n > 0)
        (void)snprintf(launcher, sizeof launcher,
                       "%s --oversubscribe --mca btl self,vader,tcp -n %d", LATHE_TEST_MPIRUN, n);
    (void)snprintf(line, sizeof line, "cd %s && timeout 120 %s %s/bin/lathe %s 2>&1", root,
                   launcher, LATHE_TEST_BUILD, words);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    const size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void train(int n, const char *dir, const char *more)
{
    char words[512];
    (void)snprintf(words, sizeof words,
                   "train run.toml --checkpoint.dir %s --data.cache_dir cache %s", dir, more);
    cr_assert_eq(lathe(n, words), 0, "%s", output);
}

static json_t *read_json(const char *dir, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/%s", root, dir, name);
    json_t *found = json_load_file(path, 0, NULL);
    cr_assert_not_null(found, "%s", path);
    return found;
}

/* A figure of each step, as text: equal texts are equal bits. */
static void figures(const char *dir, const char *key, char out[STEPS][40])
{
    char path[512], line[8192], pattern[64];
    int n = 0;
    (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", root, dir);
    (void)snprintf(pattern, sizeof pattern, "\"%s\":", key);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "no %s:\n%s", path, output);
    while (fgets(line, sizeof line, f) && n < STEPS) {
        const char *at = strstr(line, pattern);
        cr_assert_not_null(at, "no %s in %s", key, line);
        at += strlen(pattern);
        (void)snprintf(out[n++], 40, "%.*s", (int)strcspn(at, ",}"), at);
    }
    cr_assert_eq(fclose(f), 0);
    cr_assert_eq(n, STEPS);
}

static void expect_same_bits(const char *a, const char *b)
{
    static const char *const keys[] = {"loss", "grad_norm", "tokens", "ranks_bytes_sent"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        char x[STEPS][40], y[STEPS][40];
        figures(a, keys[k], x);
        figures(b, keys[k], y);
        for (int i = 0; i < STEPS; i++)
            cr_expect_str_eq(x[i], y[i], "%s of step %d", keys[k], i + 1);
    }
}

Test(throttle_ranks, every_check_of_engines_holds_on_four_ranks)
{
    int n = 0;
    cr_expect_eq(
        lathe(4, "plugin check " LATHE_TEST_PLUGIN " --set bandwidth=1000Gbit --set latency=1us"),
        0, "%s", output);
    for (const char *at = output; (at = strstr(at, "collective/throttle: 17 ok, 0 failed")) != NULL;
         at++)
        n++;
    cr_expect_eq(n, 4, "%s", output);
}

Test(throttle_ranks, a_run_has_the_same_bits)
{
    train(2, "plain", "");
    train(2, "slow",
          "--collective.name throttle --collective.bandwidth 100Mbit --collective.latency 1ms");
    expect_same_bits("plain", "slow");
}

/* lathe plan knows before what a rank sends, holds, and waits for the link. */
Test(throttle_ranks, the_plan_knows_memory_bytes_and_time)
{
    for (int n = 2; n <= 4; n += 2) {
        char words[256], dir[16], sent[STEPS][40], seconds[STEPS][40];
        (void)snprintf(dir, sizeof dir, "ranks%d", n);
        train(n, dir,
              "--collective.name throttle --collective.bandwidth 40Mbit --collective.latency 2ms");
        figures(dir, "ranks_bytes_sent", sent);
        figures(dir, "step_seconds", seconds);
        json_t *run = read_json(dir, "run.json");
        (void)snprintf(words, sizeof words,
                       "plan run.toml --json --ranks %d --link 40Mbit,2ms --step-time 1ms", n);
        cr_assert_eq(lathe(0, words), 0, "%s", output);
        json_t *plan = json_loads(output, 0, NULL);
        cr_assert_not_null(plan, "%s", output);
        const json_t *ddp =
            json_array_get(json_object_get(json_object_get(plan, "ranks"), "strategies"), 0);
        cr_assert_str_eq(json_string_value(json_object_get(ddp, "name")), "ddp");
        json_t *made = json_object_get(json_object_get(run, "plan"), "memory");
        const json_t *planned = json_object_get(ddp, "memory");
        const char *key;
        json_t *value;
        json_object_foreach(made, key, value)
        {
            /* the copy of a checkpoint is that of a run with a folder */
            if (strcmp(key, "checkpoint") == 0)
                continue;
            cr_expect_eq(json_integer_value(value),
                         json_integer_value(json_object_get(planned, key)), "%s on %d ranks", key,
                         n);
        }
        cr_expect_gt(json_integer_value(json_object_get(made, "staging")), 0);
        /* extents of the ranks differ by one element at most, of 4 bytes, in each bucket */
        cr_expect_float_eq(strtod(sent[1], NULL),
                           json_number_value(json_object_get(ddp, "bytes_sent")), 8.0 * 20);
        const double exchange = json_number_value(json_object_get(ddp, "exchange_seconds"));
        cr_expect_gt(exchange, 0.05);
        for (int i = 0; i < STEPS; i++)
            cr_expect_geq(strtod(seconds[i], NULL), exchange - 1e-3, "step %d", i + 1);
        json_decref(plan);
        json_decref(run);
    }
}

/* The gather of the numbers of ranks alone takes longer than the deadline. */
Test(throttle_ranks, a_link_that_is_too_slow_ends_all_ranks)
{
    cr_expect_neq(lathe(2, "train run.toml --checkpoint.dir late --data.cache_dir cache "
                           "--collective.name throttle --collective.bandwidth 1Kbit "
                           "--collective.latency 0ms --parallel.deadline_seconds 3"),
                  0);
    cr_expect_not_null(strstr(output, "the link of collective/throttle (1Kbit 0ms) needs "), "%s",
                       output);
}

Test(throttle_ranks, wrong_settings_are_refused_by_validate)
{
    char text[2048];
    (void)snprintf(text, sizeof text, "[collective]\nname = \"throttle\"\nbandwidth = \"10Gb\"\n%s",
                   settings);
    put("bad.toml", text);
    cr_expect_eq(lathe(0, "validate bad.toml"), 2);
    cr_expect_not_null(strstr(output, "bad.toml:3:13: error: collective throttle: bandwidth is "
                                      "\"10Gb\"; expected a number with"),
                       "%s", output);
    cr_expect_eq(lathe(0, "validate run.toml --collective.name throttle --collective.bandwith "
                          "10Gbit"),
                 2);
    cr_expect_eq(lathe(0, "validate run.toml --collective.name throttle"), 0, "%s", output);
}

/* One rank exchanges nothing. */
Test(throttle_ranks, one_rank_is_told_that_the_link_has_no_effect)
{
    train(0, "alone", "--collective.name throttle");
    cr_expect_not_null(strstr(output, "collective \"throttle\" has no effect: one rank exchanges "
                                      "nothing"),
                       "%s", output);
}
