/* Folders that an interrupted or a second process leaves behind, as later starts find them. */
#include "cli/started_program.h"
#include "cli/training_case.h"

#define DISK_CALLS "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/disk_calls.so"

TestSuite(folder_cases, .init = setup, .fini = remove_folder, .timeout = 240);

static const char learning[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "hidden_size = 16\n"
                               "intermediate_size = 32\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "max_position_embeddings = 64\n"
                               "[tokenizer]\n"
                               "train = { vocab_size = 300 }\n"
                               "[data]\n"
                               "datasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n"
                               "cache_dir = \"cache\"\n"
                               "[train]\n"
                               "max_steps = 2\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n";

/* Number of calls that change the disk below `part`, as the command makes them. */
static int count_calls(const char *part, const char *command)
{
    char line[1024];
    (void)remove("calls");
    (void)snprintf(line, sizeof line, "DISK_LOG=calls DISK_PATH=%s " DISK_CALLS " %s >log 2>&1",
                   part, command);
    cr_assert_eq(run(line), 0, "%s", command);
    cr_assert_eq(run("wc -l < calls"), 0);
    return atoi(output);
}

/* Interrupts the command at its call number `at`; what becomes of it does not matter. */
static void interrupt(const char *part, int at, const char *how, const char *command)
{
    char line[1024];
    (void)snprintf(line, sizeof line,
                   "(DISK_AT=%d DISK_HOW=%s DISK_PATH=%s " DISK_CALLS
                   " %s >log 2>&1); true # its shell takes the signal",
                   at, how, part, command);
    (void)run(line);
}

static void expect_nothing_unfinished(const char *where)
{
    cr_expect_neq(run("find . -name '*.tmp.*' | grep ."), 0, "%s: left behind: %s", where, output);
}

Test(folder_cases, a_learnt_tokenizer_that_was_interrupted_is_learnt_again)
{
    static const char *const how[] = {"kill", "term", "enospc"};
    put("run.toml", learning);
    const int n = count_calls("cache/tokenizer", LATHE " data run.toml");
    cr_assert_geq(n, 6, "%d calls make the folder", n);
    for (int at = 1; at <= n; at++)
        for (int k = 0; k < 3; k++) {
            cr_assert_eq(run("rm -rf cache out"), 0);
            interrupt("cache/tokenizer", at, how[k], LATHE " data run.toml");
            cr_assert_eq(run(LATHE " data run.toml 2>&1"), 0, "%s at call %d:\n%s", how[k], at,
                         output);
            cr_expect_eq(run("ls cache/tokenizer-*/tokenizer.json cache/tokenizer-*/"
                             "tokenizer_config.json"),
                         0, "%s at call %d", how[k], at);
            expect_nothing_unfinished(how[k]);
        }
}

Test(folder_cases, a_folder_of_the_cache_that_an_older_lathe_left_half_is_made_again)
{
    put("run.toml", learning);
    cr_assert_eq(run(LATHE " data run.toml 2>&1"), 0, "%s", output);
    cr_assert_eq(run("cat cache/tokenizer-*/tokenizer.json | cksum > before; "
                     "rm cache/tokenizer-*/tokenizer_config.json"),
                 0);
    expect(LATHE " data run.toml 2>&1", 0, "is incomplete");
    cr_expect_eq(run("cat cache/tokenizer-*/tokenizer.json | cksum | cmp - before"), 0);
    cr_expect_eq(run("ls cache/tokenizer-*/tokenizer_config.json"), 0);
    cr_assert_eq(run("rm cache/tokenizer-*/tokenizer_config.json"), 0);
    expect(LATHE " data run.toml 2>&1", 0, "is incomplete");
    cr_assert_eq(run("echo '{' | tee cache/tokenizer-*/tokenizer.json >log"), 0);
    expect(LATHE " data run.toml 2>&1", 0, "is incomplete");
}

Test(folder_cases, several_runs_at_once_share_an_empty_cache)
{
    put("run.toml", learning);
    for (int round = 0; round < 3; round++) {
        pid_t child[4];
        cr_assert_eq(run("rm -rf cache out*"), 0);
        for (int i = 0; i < 4; i++) {
            char dir[16], log[16];
            (void)snprintf(dir, sizeof dir, "out%d", i);
            (void)snprintf(log, sizeof log, "log%d", i);
            const char *const argv[] = {LATHE, "train", "run.toml", "--checkpoint.dir", dir, NULL};
            child[i] = start_program(log, argv);
        }
        for (int i = 0; i < 4; i++) {
            const int code = exit_code(child[i]);
            (void)run("cat log0 log1 log2 log3");
            cr_assert_eq(code, 0, "run %d of round %d:\n%s", i, round, output);
        }
        cr_expect_eq(run("ls out0/step-00000002/tokenizer_config.json "
                         "out1/step-00000002/tokenizer_config.json "
                         "out2/step-00000002/tokenizer_config.json "
                         "out3/step-00000002/tokenizer_config.json 2>&1"),
                     0, "%s", output);
        expect_nothing_unfinished("after a round");
    }
}

Test(folder_cases, tokenizer_train_that_was_interrupted_starts_again)
{
    const char *command = LATHE " tokenizer train text.txt -o tok --vocab-size 300";
    const int n = count_calls("tok", command);
    for (int at = 1; at <= n; at++) {
        cr_assert_eq(run("rm -rf tok"), 0);
        interrupt("tok", at, "kill", command);
        const int is_there = run("test -e tok/tokenizer.json") == 0;
        cr_expect_eq(run("test -e tok"), is_there ? 0 : 1, "call %d: half a folder", at);
        if (!is_there)
            cr_assert_eq(run(LATHE " tokenizer train text.txt -o tok --vocab-size 300 2>&1"), 0,
                         "call %d: %s", at, output);
        cr_expect_eq(run("ls tok/tokenizer.json tok/tokenizer_config.json"), 0, "call %d", at);
        expect_nothing_unfinished("tokenizer train");
    }
}

Test(folder_cases, plugin_new_that_was_interrupted_starts_again)
{
    const char *command = LATHE " plugin new optimizer mine";
    const int n = count_calls("mine", command);
    for (int at = 1; at <= n; at += 3) {
        cr_assert_eq(run("rm -rf mine"), 0);
        interrupt("mine", at, "kill", command);
        if (run("test -e mine") != 0)
            cr_assert_eq(run(LATHE " plugin new optimizer mine 2>&1"), 0, "call %d: %s", at,
                         output);
        cr_expect_eq(run("ls mine/CMakeLists.txt mine/plugin.c"), 0, "call %d", at);
        expect_nothing_unfinished("plugin new");
    }
}

/* ---- the run's own folder ---- */

static const char long_run[] =
    LATHE " train run.toml --train.max_steps 100000 --checkpoint.every 20 "
          "--train.eval_every 0 --log.progress off";

static pid_t start_long_run(void)
{
    const char *const argv[] = {"/bin/sh", "-c", NULL, NULL};
    static char command[512];
    (void)snprintf(command, sizeof command, "exec %s", long_run);
    const char *args[4];
    memcpy(args, argv, sizeof args);
    args[2] = command;
    return start_program("long.log", args);
}

Test(folder_cases, a_run_whose_folder_is_deleted_ends_with_an_error)
{
    const pid_t child = start_long_run();
    wait_until(child, "test -e out/step-00000020");
    cr_assert_eq(run("rm -rf out out 2>&1 || rm -rf out"), 0, "%s", output);
    cr_expect_eq(exit_code(child), 1);
    expect("cat long.log", 0, "out was deleted or replaced while the run trained in it");
    cr_expect_eq(run("test -e out/latest"), 1, "the folder is not made again");
}

Test(folder_cases, a_second_run_in_a_new_folder_of_the_same_name_is_left_alone)
{
    const pid_t child = start_long_run();
    wait_until(child, "test -e out/step-00000020");
    cr_assert_eq(run("mv out moved && " LATHE " train run.toml >second.log 2>&1; cat second.log"),
                 0, "%s", output);
    cr_expect_eq(exit_code(child), 1);
    expect("cat long.log", 0, "out was moved to ");
    cr_expect_not_null(strstr(output, "/moved while the run trained in it"), "%s", output);
    expect(LATHE " checkpoint verify out", 0, "whole    out/step-00000006");
    expect("ls out", 0, "");
    cr_expect_null(strstr(output, "step-00000040"), "%s", output);
}

/* Killed between the writing of `latest` and of `best` after the last step, in every call there. */
Test(folder_cases, best_is_mended_at_the_next_start)
{
    const char *command = LATHE " train run.toml --checkpoint.keep_best 1";
    const int n = count_calls("out/best", command);
    cr_assert_eq(run("cat out/best"), 0);
    char best[64];
    (void)snprintf(best, sizeof best, "%.*s", (int)strcspn(output, "\n"), output);
    cr_assert_str_eq(best, "step-00000006", "the loss of this run falls");
    for (int at = n - 2; at <= n; at++) {
        cr_assert_eq(run("rm -rf out"), 0);
        interrupt("out/best", at, "kill", command);
        expect(LATHE " train run.toml --checkpoint.keep_best 1 2>&1", 0, "nothing to do");
        expect("cat out/best", 0, best);
        expect_nothing_unfinished("best");
    }
}

Test(folder_cases, verify_of_a_training_run_calls_no_removal_damage)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execl(
            "/bin/sh", "sh", "-c",
            "exec " LATHE " train run.toml --train.max_steps 100000 --checkpoint.every 1 "
            "--checkpoint.keep_last 1 --train.eval_every 0 --log.progress off >long.log 2>&1",
            (char *)NULL);
        _exit(127);
    }
    wait_until(child, "test -e out/latest");
    for (int i = 0; i < 60; i++) {
        const int code = run(LATHE " checkpoint verify out 2>&1");
        cr_assert_eq(code, 0, "%s", output);
        cr_assert_null(strstr(output, "damaged"), "%s", output);
    }
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}
