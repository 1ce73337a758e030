/* Failures injected around a whole state: whatever ends a run, only the step in flight is lost.
 *
 * Each row of a table is a failure, its moment and a run. Its test asserts the exit code, the one
 * line on standard error, that the newest checkpoint is that of the last finished step and is
 * whole, that nothing unfinished lies beside it, and that the run then ends with the bytes of one
 * that nothing disturbed. Failures of the disk and signals at a chosen moment come from
 * interruptions/disk_calls.c; those of several ranks are in ranks/test_lost_rank_work.c. Public
 * reports: databricks/compose-rl#87, verl-project/verl#6673, meta-pytorch/torchtune#2093. */
#include "cli/cli_case.h"

#include <stdint.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define DISK "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/disk_calls.so "

enum { EVERY = 4, STEPS = 8, GROUP = 4 };

/* ---- the runs ---- */

#define TRAIN                                                                                      \
    "[train]\nprecision = \"fp32\"\nmicro_batch_size = 1\nmax_steps = 8\nthreads = 1\n"            \
    "[checkpoint]\ndir = \"out\"\nevery = 4\n"

#define LISTS                                                                                      \
    "[model]\npath = \"base\"\n[tokenizer]\npath = \"bytes\"\n[data]\n"                            \
    "datasets = [{ path = \"data.jsonl\" }]\nseq_len = 32\nshuffle = false\n"

static const char ppo_file[] =
    "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
    "[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = [{ path = \"q.jsonl\" }]\nseq_len = 32\n"
    "[stage]\nname = \"ppo\"\nprompts = 1\ngroup = 4\nmax_new_tokens = 8\n"
    "[reward]\nname = \"command\"\ncommand = [\"sh\", \"judge.sh\"]\ntimeout_seconds = 60\n"
    "[optimizer]\nname = \"adamw\"\nlr = 1e-3\n" TRAIN;

static const char sft_file[] = LISTS "packing = \"none\"\n[stage]\nname = \"sft\"\n" TRAIN;
static const char dpo_file[] = LISTS "[stage]\nname = \"dpo\"\n" TRAIN;

static const char base_file[] =
    "[model]\nmodel_type = \"gpt_neox\"\nhidden_size = 16\nintermediate_size = 32\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
    "[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\n"
    "seq_len = 32\n[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
    "[checkpoint]\ndir = \"first\"\n";

/* A score depends on the text alone, so a judge that begins anew gives the same ones. After $AT
 * completions it does what $HOW says. */
static const char judge[] = "n=0\n"
                            "while IFS= read -r line; do\n"
                            "    n=$((n + 1))\n"
                            "    if [ $n -gt ${AT:-1000000} ]; then\n"
                            "        case $HOW in\n"
                            "        late) sleep 100 ;;\n"
                            "        dies) echo 'connection refused' >&2; exit 1 ;;\n"
                            "        silent) exec >&-; cat >/dev/null ;;\n"
                            "        word) echo None; continue ;;\n"
                            "        nan) echo nan; continue ;;\n"
                            "        huge) echo 1e308; continue ;;\n"
                            "        esac\n"
                            "    fi\n"
                            "    echo $((${#line} % 3))\n"
                            "done\n";

static void setup(void)
{
    make_folder();
    put("ppo.toml", ppo_file);
    put("sft.toml", sft_file);
    put("dpo.toml", dpo_file);
    put("judge.sh", judge);
    put("q.jsonl",
        "{\"prompt\": \"a\", \"answer\": \"1\"}\n{\"prompt\": \"b\", \"answer\": \"2\"}\n");
}

TestSuite(lost_work, .init = setup, .fini = remove_folder, .timeout = 400);

/* Makes the folder base/, a model for which the token Z is poison: its embedding is finite, and
 * too large for the sum that the first norm takes. */
static void make_base(void)
{
    float huge[16];
    char *text;
    long at = 0;
    put_times("text.txt", "the wheel turns and the tool holds\n", 9);
    put("base.toml", base_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint");
    expect("mkdir base && cp first/step-00000001/config.json first/step-00000001/model.safetensors "
           "base && head -c 4000 base/model.safetensors | tr -d '\\000'",
           0, "gpt_neox.embed_in.weight");
    text = strstr(output, "gpt_neox.embed_in.weight");
    text = text ? strstr(text, "\"data_offsets\":[") : NULL;
    cr_assert_not_null(text, "%s", output);
    cr_assert_eq(sscanf(text, "\"data_offsets\":[%ld", &at), 1, "%s", text);
    for (int i = 0; i < 16; i++)
        huge[i] = 3e38f;
    uint64_t header = 0;
    FILE *file = fopen("base/model.safetensors", "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fread(&header, sizeof header, 1, file), 1);
    cr_assert_eq(fseek(file, 8 + (long)header + at + 'Z' * (long)sizeof huge, SEEK_SET), 0);
    cr_assert_eq(fwrite(huge, sizeof huge, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
}

/* Writes the data of a stage, a record for each step. In `step` stands another completion. */
static void put_data(const char *stage, int step, const char *other)
{
    char text[4096] = "";
    const int is_pair = strcmp(stage, "dpo") == 0;
    for (int i = 1; i <= STEPS; i++) {
        const size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "{\"prompt\": \"a wheel\", \"%s\": \" %s\"%s}\n",
                       is_pair ? "chosen" : "completion", i == step ? other : "turns",
                       is_pair ? ", \"rejected\": \" holds\"" : "");
    }
    put("data.jsonl", text);
}

/* ---- a failure ---- */

typedef struct failure {
    const char *stage;
    const char *kind;
    int step;          /* the step in which it comes, or after which */
    const char *async; /* checkpoint.async */
} failure;

/* Outcome of a failing command. */
typedef struct outcome {
    int code;
    const char *line; /* part of the one line on standard error; NULL: there is none */
    int saved;        /* step of the newest checkpoint; 0: there is none; LOGGED: the last step of
                       * metrics.jsonl */
} outcome;

enum { LOGGED = -1 };

static int n_injected;

static const char *name_of(const failure *f)
{
    static char name[200];
    (void)snprintf(name, sizeof name, "%s, %s, step %d, checkpoint.async %s", f->stage, f->kind,
                   f->step, f->async);
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

/* Runs the command with the failure, and asserts what is left. */
static void inject(const failure *f, const char *environment, const char *arguments, outcome want)
{
    char line[1500];
    n_injected++;
    (void)snprintf(line, sizeof line,
                   "rm -rf out; %s " LATHE " train %s.toml --checkpoint.async %s %s >log 2>err",
                   environment, f->stage, f->async, arguments);
    const int code = run(line);
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

/* Makes the folder `whole` by a run that nothing disturbs. */
static void make_whole(const char *stage, const char *arguments)
{
    char line[1000];
    (void)snprintf(line, sizeof line,
                   "rm -rf whole; " LATHE " train %s.toml --checkpoint.dir whole %s 2>&1", stage,
                   arguments);
    expect(line, 0, "checkpoint whole/step-00000008");
}

/* The command goes on from the newest checkpoint, and ends with the bytes of `whole`. */
static void resume(const failure *f, const char *arguments, int saved)
{
    char line[1000], from[64];
    (void)snprintf(line, sizeof line, LATHE " train %s.toml --checkpoint.async %s %s 2>&1",
                   f->stage, f->async, arguments);
    cr_expect_eq(run(line), 0, "%s: %s", name_of(f), output);
    (void)snprintf(from, sizeof from, "resumed from out/step-%08d", saved);
    cr_expect_eq(strstr(output, from) != NULL, saved > 0, "%s: no '%s' in\n%s", name_of(f), from,
                 output);
    cr_expect_eq(run("diff -r -q -x manifest.json -x run.json whole/step-00000008 "
                     "out/step-00000008 && cat out/latest | grep step-00000008"),
                 0, "%s: %s", name_of(f), output);
}

/* ---- a reward ---- */

static const struct reward_failure {
    const char *how, *line, *arguments;
} rewards[] = {
    {"late", "did not return within reward.timeout_seconds = 1", "--reward.timeout_seconds 1"},
    {"dies", "ended with exit status 1: connection refused", ""},
    {"silent", "ended", ""},
    {"word", "printed the line 'None', expected a number", ""},
    {"nan", "gave nan, expected a finite number", ""},
    {"huge", "gave 1e+308, expected a number from -3.4e38 to 3.4e38", ""},
};

/* In the first step, just before a checkpoint, after it, which may still be being written, and in
 * the last step. */
static const int moments[] = {1, EVERY, EVERY + 1, STEPS};
enum { N_MOMENTS = 4 };

static void fail_reward(size_t i)
{
    char environment[64];
    const struct reward_failure *r = &rewards[i];
    make_whole("ppo", "");
    for (size_t m = 0; m < N_MOMENTS; m++) {
        const failure f = {"ppo", r->how, moments[m], (i + m) % 2 ? "true" : "false"};
        (void)snprintf(environment, sizeof environment, "HOW=%s AT=%d", r->how,
                       GROUP * (f.step - 1) + (int)m % GROUP);
        inject(&f, environment, r->arguments, (outcome){1, r->line, f.step - 1});
        resume(&f, "", f.step - 1);
    }
    cr_expect_eq(n_injected, N_MOMENTS);
}

Test(lost_work, reward_that_is_late)
{
    fail_reward(0);
}

Test(lost_work, reward_that_dies)
{
    fail_reward(1);
}

Test(lost_work, reward_that_is_silent)
{
    fail_reward(2);
}

Test(lost_work, reward_that_prints_a_word)
{
    fail_reward(3);
}

Test(lost_work, reward_that_is_nan)
{
    fail_reward(4);
}

Test(lost_work, reward_that_overflows)
{
    fail_reward(5);
}

/* ---- the run stops itself ---- */

/* The run that goes on leaves the bad step out, as the run beside it does from the beginning. */
static void stop_itself(const failure *f, const char *other, const char *stop, const char *skip,
                        const char *line)
{
    put_data(f->stage, f->step, other);
    make_whole(f->stage, skip);
    inject(f, "", stop, (outcome){1, line, f->step - 1});
    resume(f, skip, f->step - 1);
}

static const char *const stages[] = {"sft", "dpo"};
enum { N_STAGES = 2 };

Test(lost_work, nan)
{
    make_base();
    for (size_t s = 0; s < N_STAGES; s++)
        for (size_t m = 0; m < N_MOMENTS; m++) {
            const failure f = {stages[s], "NaN", moments[m], (s + m) % 2 ? "true" : "false"};
            stop_itself(&f, "turZ s", "", "--train.on_nonfinite skip",
                        "micro-batch 1: the loss is");
        }
    cr_expect_eq(n_injected, N_STAGES * N_MOMENTS);
}

/* A second start meets the same data: it says so again, and leaves what is there. */
Test(lost_work, nan_again)
{
    const failure f = {"sft", "NaN again", EVERY + 2, "true"};
    make_base();
    put_data("sft", f.step, "turZ s");
    inject(&f, "", "", (outcome){1, "step 6, micro-batch 1: the loss is", f.step - 1});
    expect(LATHE " train sft.toml 2>&1", 1, "step 6, micro-batch 1: the loss is");
    expect("cat out/latest", 0, "step-00000005");
    expect(LATHE " checkpoint verify out 2>&1", 0, "");
}

Test(lost_work, spike)
{
#define SPIKE " --train.spike_window 4 --train.spike_threshold 2"
    make_base();
    for (size_t s = 0; s < N_STAGES; s++)
        for (size_t m = 1; m < N_MOMENTS; m++) { /* a spike has losses before it */
            const failure f = {stages[s], "spike", moments[m], (s + m) % 2 ? "true" : "false"};
            const int is_pair = strcmp(f.stage, "dpo") == 0; /* a loss of its completions' texts */
            stop_itself(&f, "QXQXQXQXQX",
                        is_pair ? "--train.on_spike stop --stage.loss_type cpo" SPIKE
                                : "--train.on_spike stop" SPIKE,
                        is_pair ? "--train.on_spike skip --stage.loss_type cpo" SPIKE
                                : "--train.on_spike skip" SPIKE,
                        "a spike");
        }
    cr_expect_eq(n_injected, N_STAGES * (N_MOMENTS - 1));
}

/* ---- the log, and signals, at the end of a step ---- */

static void prepare(const char *stage)
{
    if (strcmp(stage, "ppo") != 0) {
        if (access("base", F_OK) != 0)
            make_base();
        put_data(stage, 0, "");
    }
    make_whole(stage, "");
}

Test(lost_work, figures_that_cannot_be_written)
{
    static const failure rows[] = {
        {"ppo", "eio", 1, "true"},  {"ppo", "enospc", EVERY, "false"}, {"ppo", "eio", 8, "true"},
        {"sft", "eio", 3, "false"}, {"sft", "enospc", EVERY, "true"},  {"dpo", "enospc", 7, "true"},
    };
    char environment[400], line[100];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const failure *f = &rows[i];
        if (i == 0 || strcmp(f->stage, rows[i - 1].stage) != 0)
            prepare(f->stage);
        (void)snprintf(environment, sizeof environment,
                       DISK "DISK_PATH=metrics.jsonl DISK_CALL=fflush DISK_HOW=%s DISK_AT=%d",
                       f->kind, f->step);
        (void)snprintf(line, sizeof line, "cannot write the figures of step %d", f->step);
        inject(f, environment, "", (outcome){1, line, f->step});
        resume(f, "", f->step);
    }
}

/* Nothing at all is lost by a signal, which the run sees in one of the next steps. */
Test(lost_work, signals)
{
    static const failure rows[] = {
        {"ppo", "term", 1, "true"},  {"ppo", "term", EVERY, "false"},
        {"sft", "term", 1, "false"}, {"sft", "term", EVERY, "true"},
        {"dpo", "term", 1, "true"},  {"dpo", "term", EVERY, "false"},
    };
    char environment[400];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const failure *f = &rows[i];
        if (i == 0 || strcmp(f->stage, rows[i - 1].stage) != 0)
            prepare(f->stage);
        (void)snprintf(environment, sizeof environment,
                       DISK "DISK_PATH=metrics.jsonl DISK_CALL=fflush DISK_HOW=%s DISK_AT=%d",
                       f->kind, f->step);
        inject(f, environment, "",
               (outcome){143, "finishing the micro-batch and writing a checkpoint", LOGGED});
        resume(f, "", newest());
    }
}

/* The last step is finished, its evaluation is not: the run makes it when it goes on. A signal that
 * comes too early or too late on a busy machine is sent again. */
Test(lost_work, signals_within_an_evaluation)
{
#define EVALUATION " --train.eval_every 8 --data.validation '[{ path = \"more.jsonl\" }]'"
    static const char *const names[] = {"TERM", "INT", "HUP"};
    static const int codes[] = {143, 130, 129};
    char line[1000], text[32];
    make_base();
    for (size_t i = 0; i < 3; i++) {
        const failure f = {stages[i % N_STAGES], names[i], STEPS, "true"};
        double wait = 0.02, least = 0.0, most = 0.0; /* most 0.0: not known yet */
        int is_within = 0;
        put_data(f.stage, 0, "");
        expect("cat data.jsonl data.jsonl data.jsonl data.jsonl >a; cat a a a a a >b; "
               "cat b b b b b >a; cat a a a a >more.jsonl",
               0, "");
        make_whole(f.stage, EVALUATION);
        /* step 8 says nothing before its evaluation: the wait until then is searched by halving */
        for (int k = 0; k < 16 && !is_within; k++) {
            (void)snprintf(
                line, sizeof line,
                "rm -rf out; " LATHE " train %s.toml" EVALUATION " >log 2>&1 & p=$!; "
                "while ! grep -qs '\"step\": *7,' out/metrics.jsonl && kill -0 $p; do "
                "sleep 0.002; done; sleep %g; kill -%s $p; wait $p; echo exit $?; cat log",
                f.stage, wait, f.kind);
            (void)run(line);
            is_within = strstr(output, "the evaluation of step 8 did not end") != NULL;
            const int is_late = system("grep -qs '\"step\": *8,' out/metrics.jsonl") == 0;
            least = is_late ? least : wait;
            most = is_late ? wait : most;
            wait = most > 0.0 ? 0.5 * (least + most) : 2.0 * wait;
        }
        (void)snprintf(text, sizeof text, "exit %d", codes[i]);
        cr_expect(is_within && strstr(output, text) != NULL, "%s: %s", name_of(&f), output);
        cr_expect_eq(run(LATHE " checkpoint verify out 2>&1"), 0, "%s", output);
        resume(&f, EVALUATION, STEPS);
        expect("grep '\"step\": *8,' out/metrics.jsonl", 0, "eval_loss");
    }
}

/* ---- the disk ---- */

/* The call of a run that saves after steps 4 and 8, as DISK_LOG counts it under out/. */
typedef struct disk_row {
    const char *what, *call;
    int at, step, saved; /* saved: of the disk that is full from there on */
} disk_row;

static const disk_row disk_rows[] = {
    {"the first checkpoint's folder", "mkdir", 2, EVERY, 0},
    {"its weights", "pwrite", 3, EVERY, 0},
    {"its name", "rename", 7, EVERY, 0},
    {"latest", "write", 5, EVERY, EVERY},
    {"the last checkpoint's folder", "mkdir", 4, STEPS, EVERY},
    {"the last latest", "write", 9, STEPS, STEPS},
};
enum { N_DISK_ROWS = sizeof disk_rows / sizeof disk_rows[0] };

static void fill_disk(const char *how, const char *async)
{
    char environment[400];
    prepare("sft");
    for (size_t i = 0; i < N_DISK_ROWS; i++) {
        const disk_row *r = &disk_rows[i];
        const failure f = {"sft", r->what, r->step, async};
        const int is_full = strcmp(how, "enospc") == 0;
        (void)snprintf(environment, sizeof environment,
                       DISK "DISK_PATH=out DISK_CALL=%s DISK_AT=%d DISK_HOW=%s", r->call, r->at,
                       how);
        /* once there is room again, the command goes on from what the disk took */
        const outcome want = {
            is_full, is_full ? "No space left on device" : "is whole at the second attempt",
            is_full ? r->saved : STEPS};
        inject(&f, environment, "", want);
        resume(&f, "", want.saved);
    }
}

Test(lost_work, full_disk)
{
    fill_disk("enospc", "false");
}

Test(lost_work, full_disk_under_the_thread_that_writes)
{
    fill_disk("enospc", "true");
}

Test(lost_work, one_error_of_the_disk)
{
    fill_disk("eio", "false");
}

Test(lost_work, one_error_of_the_disk_under_the_thread_that_writes)
{
    fill_disk("eio", "true");
}

/* The thread's checkpoint of step 4 fails while the run takes the steps after it: the disk is asked
 * again for the last finished one. */
Test(lost_work, a_step_that_the_disk_refuses_while_the_run_goes_on)
{
    const failure f = {"sft", "step 4 refused", EVERY, "true"};
    prepare("sft");
    (void)run(DISK "DISK_PATH=out/step-00000004 DISK_CALL=mkdir DISK_AT=1 DISK_HOW=enospc " LATHE
                   " train sft.toml --checkpoint.async true >log 2>err");
    const int saved = newest(), logged = last_logged();
    expect("cat err", 0, "No space left on device; the newest whole one is out/step-0000000");
    cr_expect_gt(saved, EVERY, "%s", output);
    cr_expect_eq(saved, logged, "saved %d of %d", saved, logged);
    expect(LATHE " checkpoint verify out 2>&1", 0, "");
    resume(&f, "", saved);
}
