/* Tests the words of lathe validate and lathe train on the rewards and the samples of a stage that
 * generates. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static void expect_refused(const char *arguments, const char *text)
{
    static const char *const commands[] = {"validate", "train"};
    char command[512];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, LATHE " %s run.toml %s 2>&1", commands[i], arguments);
        expect(command, 2, text);
    }
}

/* A run whose stage has its completions scored. */
static void make_scored_run(const char *rewards)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                   "num_hidden_layers = 1\nnum_attention_heads = 2\nvocab_size = 260\n"
                   "[tokenizer]\npath = \"bytes\"\n"
                   "[data]\ndatasets = [{ path = \"sums.jsonl\" }]\nseq_len = 16\n"
                   "[stage]\nname = \"ppo\"\nprompts = 2\ngroup = 2\nmax_new_tokens = 4\n%s"
                   "[train]\nmax_steps = 4\nstop_after = 1\nthreads = 1\n"
                   "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"scored\"\n",
                   rewards);
    put("run.toml", text);
    put_times("sums.jsonl", "{\"prompt\": \"1+1=\", \"answer\": 2}\n", 8);
}

TestSuite(rewards_of_a_run, .init = make_folder, .fini = remove_folder, .timeout = 120);

#define MATCH(pattern) "name = \"match\"\npattern = '" pattern "'\n"
#define LENGTH "[[reward]]\nname = \"length\"\ntokens = 3\nrule = \"overlong\"\n"

/* A permission does not make another rollout fit: the key that is the cause is named, and no other.
 */
Test(rewards_of_a_run, a_rollout_of_another_size_is_refused_at_its_key)
{
    make_scored_run("[reward]\n" MATCH("[0-9]"));
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint scored/step-00000001");
    expect_refused("--stage.prompts 4 --optimizer.lr 0.5 --checkpoint.allow_changed "
                   "'[\"stage.prompts\"]'",
                   "--stage.prompts: error: ");
    cr_expect_not_null(strstr(output, "changed since then: stage.prompts 2 -> 4; "), "%s", output);
}

/* The permission has the name that the key has in [reward] and in [[reward]]. */
Test(rewards_of_a_run, that_changed_are_named_by_their_keys)
{
    make_scored_run("[reward]\n" MATCH("[0-9]"));
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint scored/step-00000001");
    expect_refused("--reward.pattern '[0-5]'",
                   "--reward.pattern: error: reward.pattern is \"[0-5]\", but "
                   "scored/step-00000001, from which the run would resume, was written with "
                   "\"[0-9]\": set it back, set checkpoint.allow_changed = [\"reward.pattern\"] ");
    expect_refused("--reward.pattern '[0-5]' --checkpoint.allow_changed '[\"reward.weight\"]'",
                   "--reward.pattern: error: reward.pattern is ");
    expect(LATHE " validate run.toml --reward.pattern '[0-5]' --checkpoint.allow_changed "
                 "'[\"reward.pattern\"]' 2>&1",
           0, "with other settings than it was written with: reward.pattern \"[0-9]\" -> ");
    expect(LATHE " validate run.toml --reward.timeout_seconds 9 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    /* the same reward in an array of tables, another pattern, another reward beside it */
    make_scored_run("[[reward]]\n" MATCH("[0-9]"));
    expect(LATHE " validate run.toml 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    make_scored_run("[[reward]]\n" MATCH("[0-5]"));
    expect_refused("", "error: reward.pattern is \"[0-5]\", but ");
    make_scored_run("[[reward]]\n" MATCH("[0-5]") LENGTH);
    expect_refused("", "error: reward.name is [\"match\", \"length\"], but ");
    expect(LATHE " train run.toml --train.stop_after 2 --checkpoint.allow_changed "
                 "'[\"reward.name\"]' 2>&1",
           0, "reward.name \"match\" -> [\"match\", \"length\"]");
    make_scored_run("[[reward]]\n" MATCH("[0-9]") LENGTH);
    expect_refused("", "error: reward.pattern is [\"[0-9]\", null], but scored/step-00000002, from "
                       "which the run would resume, was written with [\"[0-5]\", null]: ");
}

/* A regular expression that is none has the place of its key, in the file and on the command line.
 */
/* The program of a reward: its content is recorded, and a change is named at each start. */
Test(rewards_of_a_run, whose_program_was_edited_are_named)
{
    put("score.py", "while read line; do echo 1; done\n");
    make_scored_run("[reward]\nname = \"command\"\ncommand = [\"sh\", \"score.py\"]\n");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint scored/step-00000001");
    expect("cat scored/step-00000001/manifest.json", 0, "\"programs\":");
    cr_expect_not_null(strstr(output, "/score.py\""), "%s", output);
    expect(LATHE " validate run.toml 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "warning"), "%s", output);
    put("score.py", "while read line; do echo 2; done\n"); /* as many bytes */
    expect(LATHE " validate run.toml 2>&1", 0, "/score.py has changed (SHA-256 ");
    cr_expect_not_null(strstr(output, "since scored/step-00000001 was written"), "%s", output);
    cr_expect_not_null(strstr(output, "run.toml:"), "%s", output);
    expect(LATHE " train run.toml --train.stop_after 2 2>&1", 0, "/score.py has changed (SHA-256 ");
    expect(LATHE " validate run.toml 2>&1", 0, "valid"); /* the new one is recorded now */
    cr_expect_null(strstr(output, "warning"), "%s", output);
    /* another name is another setting, and refused as one */
    put("other.py", "while read line; do echo 3; done\n");
    expect_refused("--reward.command '[\"sh\", \"other.py\"]'", "reward.command is");
    cr_expect_null(strstr(output, "has changed"), "%s", output);
}

/* A program that a shell finds in PATH, and is no interpreter of a file, is the reward itself. */
Test(rewards_of_a_run, whose_program_is_in_path_are_compared_too)
{
    cr_assert_eq(run("mkdir bin && printf '#!/bin/sh\nwhile read line; do echo 1; done\n' > "
                     "bin/score && chmod +x bin/score"),
                 0);
    make_scored_run("[reward]\nname = \"command\"\ncommand = [\"score\"]\n");
    expect("PATH=$PWD/bin:$PATH " LATHE " train run.toml 2>&1", 0, "scored/step-00000001");
    cr_assert_eq(run("printf '# mended\n' >> bin/score"), 0);
    expect("PATH=$PWD/bin:$PATH " LATHE " validate run.toml 2>&1", 0, "/bin/score has changed");
}

Test(rewards_of_a_run, that_are_wrong_stand_at_their_keys)
{
    make_scored_run("[reward]\n" MATCH("("));
    expect(LATHE " validate run.toml 2>&1", 2,
           "run.toml:20:11: error: reward match: the regular expression '(' is wrong at byte 1");
    expect(LATHE " validate run.toml --reward.pattern '[0-9' 2>&1", 2,
           "--reward.pattern: error: reward match: the regular expression '[0-9' is wrong at");
    expect(LATHE " validate run.toml --reward.pattern '[0-9]' --reward.column_pattern '(' 2>&1", 2,
           "--reward.column_pattern: error: reward match: the regular expression '(' is wrong at");
}

/* Keys of [generate] that a stage which samples by itself does not read. */
Test(rewards_of_a_run, leave_the_sampling_to_the_stage)
{
    static const char *const keys[] = {
        "max_new_tokens 3", "temperature 5",          "top_k 3",       "top_p 0.5",
        "min_p 0.1",        "repetition_penalty 1.5", "stop '[\"a\"]'"};
    char command[1024], want[128];
    make_scored_run("[reward]\n" MATCH("[0-9]"));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const int n = (int)strcspn(keys[i], " ");
        snprintf(command, sizeof command, LATHE " validate run.toml --generate.%s 2>&1", keys[i]);
        snprintf(want, sizeof want,
                 "--generate.%.*s: warning: generate.%.*s has no effect on this training: stage "
                 "\"ppo\" decides",
                 n, keys[i], n, keys[i]);
        expect(command, 0, want);
        snprintf(command, sizeof command,
                 LATHE " validate run.toml --generate.%s --generate.every 1 2>&1", keys[i]);
        expect(command, 0, "run.toml: valid");
        cr_expect_null(strstr(output, "has no effect on this training"), "%s", output);
    }
}
