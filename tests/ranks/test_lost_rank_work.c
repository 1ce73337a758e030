/* Failures injected around a whole state on two ranks: only the step in flight is lost. Each row
 * asserts the exit code, the one line on standard error, that the newest checkpoint is that of the
 * last finished step and is whole, and that the run then ends with the bytes of one that nothing
 * disturbed. One process: cases/failures/test_lost_work_cases.c, which says more; slow checkpoints:
 * test_busy_ranks.c. Public reports: pytorch/torchtune#2093, huggingface/accelerate#3512. */
#include "cli/cli_case.h"

#ifndef LATHE_TEST_MPIRUN
#define LATHE_TEST_MPIRUN ""
#endif

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define DISK "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/disk_calls.so "
#define ROWS(row) (sizeof(row) / sizeof *(row))

enum { EVERY = 4, STEPS = 8, N_RANKS = 2 };

static const char run_file[] =
    "[model]\nmodel_type = \"gpt_neox\"\nhidden_size = 16\nintermediate_size = 32\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
    "[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = [{ path = \"data.jsonl\" }]\nseq_len = 32\n"
    "shuffle = false\npacking = \"none\"\n[stage]\nname = \"sft\"\n"
    "[scheduler]\nname = \"constant\"\n[optimizer]\nname = \"adamw\"\nlr = 1e-3\n"
    "[train]\nprecision = \"fp32\"\nmicro_batch_size = 1\nmax_steps = 8\nthreads = 1\n"
    "[parallel]\ndeadline_seconds = 20\n[checkpoint]\ndir = \"out\"\nevery = 4\n";

static void begin(void)
{
    make_folder();
    put("run.toml", run_file);
    if (LATHE_TEST_MPIRUN[0] == '\0')
        cr_skip_test("this build has no MPI: install libopenmpi-dev and openmpi-bin");
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), 0);
    cr_assert_eq(setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1), 0);
}

TestSuite(lost_rank_work, .init = begin, .fini = remove_folder, .timeout = 400);

/* Writes a record for each rank and step. Those of `step` have another completion. */
static void put_data(int step, const char *other)
{
    char text[4096] = "";
    for (int i = 0; i < N_RANKS * STEPS; i++) {
        const size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n,
                       "{\"prompt\": \"a wheel\", \"completion\": \" %s\"}\n",
                       i / N_RANKS == step - 1 ? other : "turns");
    }
    put("data.jsonl", text);
}

typedef struct failure {
    const char *kind, *shard, *async;
    int step;
} failure;

typedef struct outcome {
    int code;
    const char *line; /* part of the one line on standard error; NULL: there is none */
    int saved;        /* step of the newest checkpoint; 0: there is none; LOGGED: the last step of
                       * metrics.jsonl */
} outcome;

enum { LOGGED = -1 };

static const char *name_of(const failure *f)
{
    static char name[200];
    (void)snprintf(name, sizeof name, "%s, shard %s, checkpoint.async %s, step %d", f->kind,
                   f->shard, f->async, f->step);
    return name;
}

static int number_of(const char *command)
{
    (void)run(command);
    return atoi(output);
}

static int newest(void)
{
    return number_of("ls out | sed -n 's/^step-0*//p' | sort -n | tail -n 1");
}

static int last_logged(void)
{
    return number_of("tail -n 1 out/metrics.jsonl | sed 's/.*\"step\": *\\([0-9]*\\).*/\\1/'");
}

static int launch(const failure *f, const char *environment, const char *dir, const char *arguments)
{
    char line[1500];
    (void)snprintf(line, sizeof line,
                   "%s timeout -k 1 100 " LATHE " launch -n 2 run.toml --checkpoint.dir %s "
                   "--parallel.shard %s --checkpoint.async %s %s >log 2>all; code=$?; "
                   "grep -v '^.warn. Epoll' all >err; exit $code",
                   environment, dir, f->shard, f->async, arguments);
    return run(line);
}

static void inject(const failure *f, const char *environment, const char *arguments, outcome want)
{
    cr_assert_eq(run("rm -rf out"), 0);
    const int code = launch(f, environment, "out", arguments);
    const int is_at_end = want.code == 143 && newest() == STEPS; /* the signal came too late */
    (void)run("cat err log");
    cr_expect(code == want.code || (is_at_end && code == 0), "%s: exit %d, expected %d:\n%s",
              name_of(f), code, want.code, output);
    cr_expect(want.line == NULL || strstr(output, want.line) != NULL, "%s: no '%s' in\n%s",
              name_of(f), want.line, output);
    const int n_lines = number_of("grep -c . err");
    (void)run("cat err");
    cr_expect_eq(n_lines, want.line != NULL, "%s: %d lines:\n%s", name_of(f), n_lines, output);
    if (want.saved == LOGGED)
        want.saved = last_logged();
    const int saved = newest();
    (void)run("ls out; cat log");
    cr_expect_eq(saved, want.saved, "%s: the newest checkpoint is %d, expected %d\n%s", name_of(f),
                 saved, want.saved, output);
    if (saved > 0)
        cr_expect_eq(run(LATHE " checkpoint verify out 2>&1"), 0, "%s: %s", name_of(f), output);
    cr_expect_neq(run("find out -name '*.tmp.*' | grep ."), 0, "%s: %s", name_of(f), output);
}

static void make_whole(const failure *f, const char *arguments)
{
    cr_assert_eq(run("rm -rf whole"), 0);
    const int code = launch(f, "", "whole", arguments);
    (void)run("cat err log");
    cr_assert_eq(code, 0, "%s: %s", name_of(f), output);
}

/* The command goes on, and ends with the bytes of `whole`. */
static void resume(const failure *f, const char *arguments, int saved)
{
    char from[64];
    const int code = launch(f, "", "out", arguments);
    (void)run("cat err log");
    cr_expect_eq(code, 0, "%s: exit %d:\n%s", name_of(f), code, output);
    (void)snprintf(from, sizeof from, "resumed from out/step-%08d", saved);
    cr_expect_eq(strstr(output, from) != NULL, saved > 0, "%s: no '%s' in\n%s", name_of(f), from,
                 output);
    cr_expect_eq(run("diff -r -q -x manifest.json -x run.json whole/$(cat whole/latest) "
                     "out/$(cat whole/latest)"),
                 0, "%s: %s", name_of(f), output);
}

/* A spike that is stopped at, and left out by the run that goes on. Gradients are those of all
 * ranks, so all of them stop, and they save together where they divide the state. */
Test(lost_rank_work, spike)
{
/* The loss of equal records only falls, so whatever is above the mean is another text's. */
#define SPIKE " --train.spike_window 4 --train.spike_threshold 0.01"
    static const failure rows[] = {{"spike", "none", "true", EVERY + 1},
                                   {"spike", "none", "false", EVERY},
                                   {"spike", "optimizer", "false", STEPS},
                                   {"spike", "optimizer", "false", EVERY + 2}};
    for (size_t i = 0; i < ROWS(rows); i++) {
        const failure *f = &rows[i];
        put_data(f->step, "QXQXQXQXQXQX");
        make_whole(f, "--train.on_spike skip" SPIKE);
        inject(f, "", "--train.on_spike stop" SPIKE, (outcome){1, "a spike", f->step - 1});
        resume(f, "--train.on_spike skip" SPIKE, f->step - 1);
    }
}

/* Both come at the end of a step, which is then saved. */
Test(lost_rank_work, figures_and_signals)
{
    static const failure rows[] = {{"eio", "none", "true", 3},
                                   {"term", "none", "false", 2},
                                   {"term", "optimizer", "false", 2}};
    char environment[400];
    put_data(0, "");
    for (size_t i = 0; i < ROWS(rows); i++) {
        const failure *f = &rows[i];
        const int is_signal = strcmp(f->kind, "term") == 0;
        (void)snprintf(environment, sizeof environment,
                       DISK "DISK_PATH=metrics.jsonl DISK_CALL=fflush DISK_HOW=%s DISK_AT=%d",
                       f->kind, f->step);
        make_whole(f, "");
        inject(f, environment, "",
               is_signal ? (outcome){143, "finishing the micro-batch", LOGGED}
                         : (outcome){1, "cannot write the figures of step 3", f->step});
        resume(f, "", newest());
    }
}

/* The disk of rank 0 is full, or fails once while the ranks pass it their parts of the state. */
Test(lost_rank_work, disk)
{
    static const struct {
        failure f;
        const char *call;
        int at, saved;
    } rows[] = {{{"enospc", "none", "false", STEPS}, "mkdir", 4, EVERY},
                {{"enospc", "optimizer", "false", EVERY}, "rename", 7, 0},
                {{"eio", "optimizer", "false", EVERY}, "pwrite", 4, STEPS},
                {{"eio", "none", "true", EVERY}, "pwrite", 4, STEPS}};
    char environment[400];
    put_data(0, "");
    for (size_t i = 0; i < ROWS(rows); i++) {
        const failure *f = &rows[i].f;
        const int is_full = strcmp(f->kind, "enospc") == 0;
        (void)snprintf(environment, sizeof environment,
                       DISK "DISK_PATH=out DISK_CALL=%s DISK_AT=%d DISK_HOW=%s", rows[i].call,
                       rows[i].at, f->kind);
        make_whole(f, "");
        inject(f, environment, "",
               is_full ? (outcome){1, "No space left on device", rows[i].saved}
                       : (outcome){0, "is whole at the second attempt", rows[i].saved});
        resume(f, "", rows[i].saved);
    }
}

/* Kills rank 1 of the training in this folder. */
static const char kill_rank_1[] =
    "for f in /proc/[0-9]*; do\n"
    "    [ \"$(readlink $f/exe)\" = " LATHE " ] && [ \"$(readlink $f/cwd)\" = \"$PWD\" ] &&\n"
    "        tr '\\0' '\\n' <$f/environ | grep -q '^OMPI_COMM_WORLD_RANK=1$' &&\n"
    "        kill -KILL ${f#/proc/}\n"
    "done\n";

/* Rank 0 has the whole state, and writes it when it learns that the other rank is gone. */
Test(lost_rank_work, peer_that_is_gone)
{
    static const failure rows[] = {{"killed", "none", "true", 0}, {"killed", "none", "false", 0}};
    char line[1500], end[64];
    put("kill.sh", kill_rank_1);
    put_data(0, "");
    for (size_t i = 0; i < ROWS(rows); i++) {
        const failure *f = &rows[i];
        (void)snprintf(line, sizeof line,
                       "rm -rf out; " LATHE " launch -n 2 run.toml --checkpoint.async %s "
                       "--train.max_steps 100000 --checkpoint.every 50 >log 2>err & p=$!; "
                       "while [ ! -s out/metrics.jsonl ] && kill -0 $p; do sleep 0.05; done; "
                       "sh kill.sh; wait $p; echo exit $?; cat err log",
                       f->async);
        (void)run(line);
        cr_expect_not_null(strstr(output, "exit 137"), "%s: %s", name_of(f), output);
        /* mpirun 4.1 sometimes hangs when its ranks have ended, and is then ended without its words
         */
        cr_expect(strstr(output, "rank 1 was ended by signal 9") ||
                      strstr(output, "because it did not end after its ranks had"),
                  "%s: %s", name_of(f), output);
        const int saved = newest(), logged = last_logged();
        cr_expect_gt(saved, 0);
        cr_expect_eq(saved, logged, "%s: saved %d of %d steps", name_of(f), saved, logged);
        cr_expect_eq(run(LATHE " checkpoint verify out 2>&1"), 0, "%s: %s", name_of(f), output);
        (void)snprintf(end, sizeof end, "--train.max_steps 100000 --train.stop_after %d",
                       saved + 2);
        make_whole(f, end);
        resume(f, end, saved);
    }
}
