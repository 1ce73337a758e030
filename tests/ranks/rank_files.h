/* Results of several ranks: what they saved, sent and planned (rank_training.h). */
#ifndef LATHE_TEST_RANK_FILES_H
#define LATHE_TEST_RANK_FILES_H

#include <jansson.h>

#include "rank_training.h"

/* Returns the exit code of a shell command in the folder of the test; output: what it prints. */
MAYBE_UNUSED static int shell(const char *line)
{
    char all[4096];
    (void)snprintf(all, sizeof all, "cd %s && { %s; } 2>&1", root, line);
    FILE *pipe = popen(all, "r"); /* NOLINT(cert-env33-c): the test makes the line */
    cr_assert_not_null(pipe);
    const size_t got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whether the weights and the state of two checkpoints have the same bytes. */
MAYBE_UNUSED static void expect_same_files(const char *a, const char *b, const char *what)
{
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "diff -r -q -x manifest.json -x run.json -x config.json %s %s && "
                   "ls %s/state/optimizer.safetensors",
                   a, b, a);
    cr_expect_eq(shell(line), 0, "%s: %s", what, output);
}

MAYBE_UNUSED static void expect_sent(const char *dir, double bytes)
{
    double sent[MOST_STEPS + 1];
    cr_assert_eq(figures(dir, "ranks_bytes_sent", sent), 6);
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq(sent[i], bytes, 0.01 * bytes, "%s: %.0f bytes, %.0f are needed", dir,
                           sent[i], bytes);
}

/* Planned bytes by category on rank 0, as run.json has them. */
MAYBE_UNUSED static json_t *made(const char *dir)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s/run.json", root, dir);
    json_t *all = json_load_file(path, 0, NULL);
    json_t *found = json_object_get(json_object_get(all, "plan"), "memory");
    cr_assert_not_null(found, "no memory in %s", path);
    json_incref(found);
    json_decref(all);
    return found;
}

/* The memory of a strategy in lathe plan --ranks n. */
MAYBE_UNUSED static json_t *planned(int n, const char *strategy, const char *words)
{
    char line[2048];
    (void)snprintf(line, sizeof line,
                   "%s/bin/lathe plan run.toml --json --ranks %d --link 1GB,0s --step-time 1s "
                   "--checkpoint.dir new %s",
                   LATHE_TEST_BUILD, n, words);
    cr_assert_eq(shell(line), 0, "%s", output);
    json_t *all = json_loads(output, 0, NULL), *row, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(all, "ranks"), "strategies"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "name")), strategy) != 0)
            continue;
        cr_expect(json_is_true(json_object_get(row, "memory_is_exact")), "%s", strategy);
        found = json_object_get(row, "memory");
    }
    cr_assert_not_null(found, "no memory of %s: %s", strategy, output);
    json_incref(found);
    json_decref(all);
    return found;
}

MAYBE_UNUSED static double bytes_of(const json_t *memory, const char *category)
{
    const json_t *found = json_object_get(memory, category);
    cr_assert(json_is_integer(found), "no %s", category);
    return (double)json_integer_value(found);
}

/* Loads `from` on n ranks and saves `to`. */
MAYBE_UNUSED static int reshard(int n, const char *shard, const char *from, const char *to,
                                const char *words)
{
    char line[2048];
    (void)snprintf(line, sizeof line,
                   "timeout 120 %s --oversubscribe --mca btl self,vader,tcp -n %d "
                   "%s/tests/reshard_program run.toml %s %s parallel.shard=%s "
                   "data.cache_dir=cache checkpoint.resume=never %s",
                   LATHE_TEST_MPIRUN, n, LATHE_TEST_BUILD, from, to, shard, words);
    return shell(line);
}

#endif
