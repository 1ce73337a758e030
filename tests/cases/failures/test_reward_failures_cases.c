/* A run whose reward is late, dies, answers nonsense or hangs while the run is asked to end loses
 * the step in flight, and nothing else. Public reports: databricks/compose-rl#87,
 * verl-project/verl#6673, areal-project/AReaL#548; texts: Aider-AI/aider#3693. */
#include "cli/cli_case.h"

#include <signal.h>
#include <time.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* After 12 rollouts of 4 completions the judge has a bad moment, as HOW says. Its scores depend on
 * the number of the line, and go on the same way when it begins anew. */
static const char judge[] = "n=0\n"
                            "while IFS= read -r line; do\n"
                            "    n=$((n + 1))\n"
                            "    [ -e broken ] && exit 3\n"
                            "    if [ $n -gt 48 ] && [ ! -e mended ]; then\n"
                            "        case $HOW in\n"
                            "        late) : >slept; sleep 100 ;;\n"
                            "        dies) echo 'connection refused' >&2; exit 1 ;;\n"
                            "        none) echo None; continue ;;\n"
                            "        nan) echo nan; continue ;;\n"
                            "        once) : >mended; exit 1 ;;\n"
                            "        stays) : >broken; exit 1 ;;\n"
                            "        null) echo null; continue ;;\n"
                            "        esac\n"
                            "    fi\n"
                            "    echo $((n % 3))\n"
                            "done\n";

static const char run_file[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "hidden_size = 32\n"
                               "intermediate_size = 64\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "max_position_embeddings = 64\n"
                               "[tokenizer]\n"
                               "path = \"bytes\"\n"
                               "[data]\n"
                               "datasets = [{ path = \"q.jsonl\" }]\n"
                               "seq_len = 32\n"
                               "[stage]\n"
                               "name = \"ppo\"\n"
                               "prompts = 1\n"
                               "group = 4\n"
                               "max_new_tokens = 8\n"
                               "[reward]\n"
                               "name = \"command\"\n"
                               "command = [\"sh\", \"judge.sh\"]\n"
                               "timeout_seconds = 1\n"
                               "[optimizer]\n"
                               "name = \"adamw\"\n"
                               "lr = 1e-3\n"
                               "[train]\n"
                               "precision = \"fp32\"\n"
                               "max_steps = 16\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put("run.toml", run_file);
    put("judge.sh", judge);
    put("q.jsonl",
        "{\"prompt\": \"a\", \"answer\": \"1\"}\n{\"prompt\": \"b\", \"answer\": \"2\"}\n");
}

TestSuite(reward_failures, .init = setup, .fini = remove_folder, .timeout = 120);

Test(reward_failures, the_finished_steps_are_saved_and_the_same_command_goes_on)
{
    static const char *const how[][2] = {
        {"late", "did not return within reward.timeout_seconds = 1"},
        {"dies", "ended with exit status 1: connection refused"},
        {"none", "printed the line 'None', expected a number"},
        {"nan", "gave nan, expected a finite number"},
    };
    char line[512];
    expect("HOW=never " LATHE " train run.toml --checkpoint.dir whole 2>&1", 0, "checkpoint");
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        (void)snprintf(line, sizeof line, "rm -rf out; HOW=%s " LATHE " train run.toml 2>&1",
                       how[i][0]);
        expect(line, 1, how[i][1]);
        cr_expect_not_null(strstr(output, "checkpoint out/step-00000012"), "%s", output);
        expect("cat out/latest", 0, "step-00000012");
        expect(LATHE " checkpoint verify out 2>&1", 0, "");
        expect("HOW=never " LATHE " train run.toml 2>&1", 0,
               "resumed from out/step-00000012 at step 12");
        expect("cmp whole/step-00000016/model.safetensors out/step-00000016/model.safetensors && "
               "cmp whole/step-00000016/state/stage.safetensors "
               "out/step-00000016/state/stage.safetensors",
               0, "");
    }
}

/* Between the steps of a rollout, the stage's own state is that of the last finished step, too. */
Test(reward_failures, with_several_steps_per_rollout_the_next_rollout_is_begun_anew)
{
#define MANY " --stage.epochs 2 --stage.minibatches 2 --train.max_steps 52"
    expect("HOW=never " LATHE " train run.toml --checkpoint.dir whole" MANY " 2>&1", 0,
           "checkpoint");
    expect("HOW=dies " LATHE " train run.toml" MANY " 2>&1", 1, "connection refused");
    expect("cat out/latest", 0, "step-00000048");
    expect("HOW=never " LATHE " train run.toml" MANY " 2>&1", 0, "resumed from");
    expect("cmp whole/step-00000052/model.safetensors out/step-00000052/model.safetensors && "
           "cmp whole/step-00000052/state/stage.safetensors "
           "out/step-00000052/state/stage.safetensors",
           0, "");
}

Test(reward_failures, retries_start_the_program_again)
{
    expect("HOW=once " LATHE " train run.toml --reward.retries 2 2>&1", 0,
           "it is tried again, time 1 of reward.retries = 2");
    cr_expect_not_null(strstr(output, "checkpoint out/step-00000016"), "%s", output);
    expect("HOW=never " LATHE " train run.toml --checkpoint.dir whole 2>&1", 0, "checkpoint");
    expect("cmp whole/step-00000016/model.safetensors out/step-00000016/model.safetensors", 0, "");
    expect("rm -rf out mended; HOW=stays " LATHE " train run.toml --reward.retries 2 2>&1", 1,
           "ended with exit status 3; it gave no number");
    cr_expect_not_null(strstr(output, "checkpoint out/step-00000012"), "%s", output);
}

/* Completions without a score have no part in means, and are not learnt. */
Test(reward_failures, a_reward_may_give_no_score)
{
    expect("HOW=null " LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000016");
    cr_expect_not_null(strstr(output, "step 13: none of the tokens was a target: all completions"),
                       "%s", output);
    expect("grep '\"step\": *13,' out/metrics.jsonl", 0, "\"completions/unscored_ratio\": 1");
    expect("grep '\"step\": *12,' out/metrics.jsonl | grep -c unscored_ratio || true", 0, "0");
    put("judge.sh", "while IFS= read -r l; do echo 4; read -r l; echo null; read -r l; echo 2; "
                    "read -r l; echo null; done\n");
    expect("rm -rf out; " LATHE " train run.toml --train.max_steps 2 2>&1", 0, "reward 3");
    expect("cat out/metrics.jsonl", 0, "\"completions/unscored_ratio\": 0.5");
    cr_expect_not_null(strstr(output, "\"reward_std\": 1.41421"), "%s", output);
    cr_expect_not_null(strstr(output, "\"skipped_steps\": 0"), "%s", output);
}

/* The bytes model writes any bytes; the program gets what is UTF-8, as RFC 8259 8.1 wants it. */
Test(reward_failures, programs_get_utf8)
{
    put("judge.sh",
        "while IFS= read -r line; do printf '%s\\n' \"$line\" >>in.jsonl; echo 1; done\n");
    expect(LATHE " train run.toml --train.max_steps 8 --reward.timeout_seconds 9 2>&1", 0,
           "checkpoint");
    expect("iconv -f utf-8 -t utf-8 in.jsonl >/dev/null && wc -l <in.jsonl", 0, "32");
    expect("grep -c \"$(printf '\\357\\277\\275')\" in.jsonl", 0, "");
}

/* SIGTERM of a batch system: 30 s to end, and the reward takes as long as it wants. */
Test(reward_failures, a_signal_cancels_a_slow_reward)
{
    expect("HOW=late " LATHE " train run.toml --reward.timeout_seconds 60 2>&1 & p=$!; "
           "while [ ! -e slept ] && kill -0 $p; do sleep 0.1; done; t=$(date +%s); "
           "kill -TERM $p; wait $p; echo exit $?; [ $(($(date +%s) - t)) -lt 20 ]",
           0, "exit 143");
    cr_expect_not_null(strstr(output, "checkpoint out/step-00000012"), "%s", output);
    expect("HOW=never " LATHE " train run.toml 2>&1", 0, "resumed from out/step-00000012");
    expect("HOW=never " LATHE " train run.toml --checkpoint.dir whole 2>&1", 0, "checkpoint");
    expect("cmp whole/step-00000016/model.safetensors out/step-00000016/model.safetensors", 0, "");
}

/* An hour that no other process of this machine sleeps. */
#define NAP "3617.25"

static void expect_no_nap(const char *what)
{
    expect("for i in $(seq 300); do "
           "grep -als 'sleep.3617.25' /proc/[0-9]*/cmdline | grep -v self >left || break; "
           "sleep 0.1; done; for f in $(cat left); do tr '\\0' ' ' <$f 2>/dev/null; done; echo end",
           0, "end");
    cr_expect_null(strstr(output, "sleep " NAP), "%s: %s", what, output);
}

Test(reward_failures, programs_inherit_no_file_and_do_not_outlive_the_run)
{
    put("judge.sh",
        "ls -l /proc/$$/fd >fds.txt; sleep " NAP " & setsid sleep " NAP " & n=0\n"
        "while IFS= read -r line; do n=$((n + 1)); [ $n -gt 4 ] && sleep " NAP "; echo 1; done\n");
    expect(LATHE " train run.toml 2>&1", 1, "did not return within");
    expect_no_nap("after a time-out");
    expect("cat fds.txt", 0, "pipe:");
    cr_expect_null(strstr(output, "metrics.jsonl"), "%s", output);
    cr_expect_null(strstr(output, "lock"), "%s", output);
    put("judge.sh", "while IFS= read -r line; do sleep " NAP " & sleep " NAP "; done\n");
    expect("rm -rf out; " LATHE " train run.toml --reward.timeout_seconds 60 >/dev/null 2>&1 & "
           "p=$!; while ! grep -qals 'sleep.3617.25' /proc/[0-9]*/cmdline && kill -0 $p; do "
           "sleep 0.1; done; "
           "kill -KILL $p; wait $p; echo exit $?",
           0, "exit 137");
    expect_no_nap("after Lathe was killed");
}

/* A new model rarely ends within 8 tokens: all completions of the first rollouts are cut. */
Test(reward_failures, rollouts_without_a_learnt_completion_are_no_faults)
{
    expect(LATHE " train run.toml --stage.mask_cut true --stage.epochs 5 --stage.minibatches 2 "
                 "--train.max_steps 30 --train.log_every 1 2>&1",
           0, "checkpoint out/step-00000030");
    cr_expect_not_null(strstr(output, "were left out (cut, or without a score)"), "%s", output);
}

/* Any figure of metrics.jsonl may choose the best checkpoint, also those of the stage's rollouts.
 */
Test(reward_failures, the_mean_reward_may_choose_the_best_checkpoint)
{
    expect("HOW=never " LATHE " train run.toml --checkpoint.every 4 --checkpoint.keep_best 1 "
           "--checkpoint.keep_last 1 --checkpoint.best_metric reward 2>&1",
           0, "checkpoint out/step-00000016");
    expect("ls out", 0, "best");
    expect(LATHE
           " validate run.toml --checkpoint.keep_best 1 --checkpoint.best_metric rewardd 2>&1",
           2, "is not a figure of this run");
}
