/* lathe launch --trace: one file with all ranks on one clock. */
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

enum { RANKS = 3, STEPS = 6 };

static char root[] = "/tmp/lathe_trace_ranks_XXXXXX";
static char output[65536];

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
    put("run.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nnum_hidden_layers = 1\n"
                    "num_attention_heads = 2\nintermediate_size = 64\nvocab_size = 257\n"
                    "max_position_embeddings = 64\n"
                    "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\nseq_len = 32\n"
                    "[train]\nprecision = \"fp32\"\nmicro_batch_size = 2\nmax_steps = 6\n"
                    "[checkpoint]\ndir = \"out\"\n[parallel]\ndeadline_seconds = 20\n");
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
}

static void teardown(void)
{
    char line[300];
    (void)snprintf(line, sizeof line, "rm -rf %s", root);
    cr_assert_eq(system(line), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): a test's folder */
}

TestSuite(trace_ranks, .init = setup, .fini = teardown);

static int launch(const char *words)
{
    char line[1024];
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    (void)snprintf(line, sizeof line,
                   "cd %s && timeout 100 %s/bin/lathe launch -n %d run.toml %s 2>&1", root,
                   LATHE_TEST_BUILD, RANKS, words);
    FILE *pipe = popen(line, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* All ranks leave a sum only after all have come to it: on one clock, the k-th sums overlap. */
Test(trace_ranks, sums_of_gradients_overlap_on_one_clock)
{
    char path[256];
    double begin[STEPS], end[STEPS];
    int n[RANKS + 1] = {0}, names = 0, ops[RANKS + 1] = {0};
    cr_assert_eq(launch("--trace t.json --trace-steps 2:3"), 0, "%s", output);
    (void)snprintf(path, sizeof path, "%s/t.json", root);
    json_t *file = json_load_file(path, 0, NULL);
    cr_assert_not_null(file, "%s", output);
    const json_t *list = json_object_get(file, "traceEvents");
    for (int k = 0; k < STEPS; k++) {
        begin[k] = -INFINITY;
        end[k] = INFINITY;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const json_int_t pid = json_integer_value(json_object_get(event, "pid"));
        const char *name = json_string_value(json_object_get(event, "name"));
        const json_t *category = json_object_get(event, "cat");
        cr_assert(pid >= 1 && pid <= RANKS);
        names += strcmp(name, "process_name") == 0;
        ops[pid] += category && strcmp(json_string_value(category), "op") == 0;
        if (strcmp(name, "sum of gradients") != 0)
            continue;
        const int k = n[pid]++;
        const double at = json_number_value(json_object_get(event, "ts"));
        cr_assert_lt(k, STEPS);
        begin[k] = fmax(begin[k], at);
        end[k] = fmin(end[k], at + json_number_value(json_object_get(event, "dur")));
    }
    cr_expect_eq(names, RANKS);
    for (int q = 1; q <= RANKS; q++) {
        cr_expect_eq(n[q], STEPS, "rank %d", q - 1);
        cr_expect_gt(ops[q], 0);
        cr_expect_eq(ops[q], ops[1]);
    }
    for (int k = 0; k < STEPS; k++)
        cr_expect_leq(begin[k], end[k], "step %d: %g us", k + 1, begin[k] - end[k]);
    for (int q = 1; q < RANKS; q++) {
        (void)snprintf(path, sizeof path, "%s/t.json.rank-%d", root, q);
        cr_expect_neq(access(path, F_OK), 0, "%s is left", path);
    }
    json_decref(file);
}

/* One step of a rank in a trace: when its first exchange begins and ends, its last one ends, and
 * its last node ends; the number of exchanges. */
typedef struct traced_step {
    double first_begin, first_end, last_end, last_node;
    int n;
} traced_step;

/* Reads the exchanges of the only step that was traced, of each rank. */
static void read_step(traced_step out[RANKS + 1])
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/t.json", root);
    json_t *file = json_load_file(path, 0, NULL);
    cr_assert_not_null(file, "%s", output);
    const json_t *list = json_object_get(file, "traceEvents");
    for (int q = 0; q <= RANKS; q++)
        out[q] = (traced_step){INFINITY, INFINITY, 0.0, 0.0, 0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const char *category = json_string_value(json_object_get(event, "cat"));
        traced_step *step = &out[json_integer_value(json_object_get(event, "pid"))];
        const double begin = json_number_value(json_object_get(event, "ts"));
        const double end = begin + json_number_value(json_object_get(event, "dur"));
        if (category && strcmp(category, "op") == 0)
            step->last_node = fmax(step->last_node, end);
        if (!category || strcmp(category, "exchange") != 0)
            continue;
        step->first_begin = fmin(step->first_begin, begin);
        step->first_end = fmin(step->first_end, end);
        step->last_end = fmax(step->last_end, end);
        step->n++;
    }
    json_decref(file);
}

/* Gradients of the last layers travel while the backward computes those of the first ones. */
Test(trace_ranks, exchanges_of_gradients_begin_before_the_backward_ends)
{
    static const char *const shards[] = {"none", "optimizer"};
    for (int i = 0; i < 2; i++) {
        char words[256];
        traced_step steps[RANKS + 1];
        (void)snprintf(words, sizeof words,
                       "--trace t.json --trace-steps 1:1 --train.max_steps 1 --checkpoint.dir %s "
                       "--parallel.shard %s --parallel.bucket_mb 0.01 "
                       "--train.gradient_accumulation_steps 2",
                       shards[i], shards[i]);
        cr_assert_eq(launch(words), 0, "%s", output);
        read_step(steps);
        for (int q = 1; q <= RANKS; q++) {
            cr_expect_gt(steps[q].n, 4, "%s: %d exchanges", shards[i], steps[q].n);
            cr_expect_eq(steps[q].n, steps[1].n);
            cr_expect_lt(steps[q].first_begin, steps[q].last_node, "%s, rank %d", shards[i], q - 1);
            /* no exchange may begin before all gradients of a bucket are there */
            cr_expect_gt(steps[q].last_end, steps[q].last_node, "%s, rank %d", shards[i], q - 1);
        }
    }
}

Test(trace_ranks, a_trace_that_cannot_be_written_ends_all_ranks)
{
    cr_expect_neq(launch("--trace none/t.json"), 0);
    cr_expect_not_null(strstr(output, "none/t.json: cannot write a trace"), "%s", output);
    cr_expect_neq(launch("--trace t.json --trace-steps x"), 0);
    cr_expect_not_null(strstr(output, "steps to trace: 'x' is neither"), "%s", output);
}
