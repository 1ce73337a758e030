/* Eval, generate, chat and the keys of a run file read folders of ten kinds: each computes with the
 * model that lathe eval gives a loss of, or refuses the folder and says how it is done. */
#include "kinds_case.h"

TestSuite(kinds_read, .init = setup, .fini = remove_folder, .timeout = 200);

static const char *value(const char *json, const char *key, double *out)
{
    const char *at = strstr(json, key);
    *out = at ? strtod(at + strlen(key), NULL) : (double)NAN;
    return at;
}

/* The run knows its weights without reading a folder: the last line of metrics.jsonl. */
Test(kinds_read, eval_gives_the_loss_that_the_run_had)
{
    char command[512];
    double of_run;
    for (int k = 0; k < N_KINDS; k++) {
        if (!kinds[k].settings || kinds[k].is_reward)
            continue;
        snprintf(command, sizeof command,
                 LATHE " train kind.toml --checkpoint.dir run-%d %s --train.eval_every 8 "
                       "--data.validation '[{path = \"other.txt\"}]' 2>&1 && grep eval_loss "
                       "run-%d/metrics.jsonl | tail -1",
                 k, kinds[k].settings, k);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        cr_assert_not_null(value(output, "\"eval_loss\": ", &of_run), "%s", output);
        snprintf(command, sizeof command, "run-%d", k);
        expect_loss(command, &kinds[k], of_run);
        snprintf(command, sizeof command, "run-%d/latest", k);
        expect_loss(command, &kinds[k], of_run);
        snprintf(command, sizeof command, "kind.toml --checkpoint.dir run-%d %s", k,
                 kinds[k].settings);
        expect_loss(command, &kinds[k], of_run);
    }
}

#define ASK                                                                                        \
    "--prompt 'the old' --temperature 0 --max-new-tokens 12 --train.precision fp32 2>/dev/null"

/* A folder and the plain model of the same weights answer alike. */
Test(kinds_read, generate_and_chat_write_what_the_weights_alone_write)
{
    static const char *const forms[] = {LATHE " generate $M " ASK,
                                        "printf 'the old\\n' | " LATHE
                                        " chat $M --data.chat_template t.jinja --temperature 0 "
                                        "--max-new-tokens 12 --train.precision fp32 2>/dev/null"};
    static const struct {
        const char *kind, *make, *plain;
    } same[] = {{"lora", LATHE " merge base lora -o m-lora", "m-lora"},
                {"relora", LATHE " merge relora -o m-relora", "m-relora"},
                {"dora", LATHE " merge base dora -o m-dora", "m-dora"},
                {"average", "cp -r average/step-00000008/average m-average", "m-average"},
                {"free", "cp -r free/step-00000008/average m-free", "m-free"},
                {"model.gguf", "cp -r plain/step-00000008 m-plain", "m-plain"}};
    static char first[1 << 16];
    char command[1024];
    put("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        cr_assert_eq(run(same[i].make), 0, "%s", output);
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            snprintf(command, sizeof command, "M=%s; %s", same[i].kind, forms[f]);
            cr_assert_eq(run(command), 0, "%s: %s", command, output);
            cr_assert_lt(strlen(output), sizeof first);
            memcpy(first, output, strlen(output) + 1);
            snprintf(command, sizeof command, "M=%s; %s", same[i].plain, forms[f]);
            cr_assert_eq(run(command), 0, "%s: %s", command, output);
            cr_expect_str_eq(output, first, "%s", command);
        }
    }
}

Test(kinds_read, a_run_begins_with_the_model_that_is_evaluated)
{
    char command[512];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        const double want = loss_of(kind->name, kind->is_reward);
        snprintf(command, sizeof command,
                 "rm -rf still && " LATHE " train still.toml --model.path %s %s %s 2>&1",
                 kind->name, kind->is_reward ? PAIRS : "",
                 strcmp(kind->name, "quantized") == 0 ? "--adapter.name lora" : "");
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        expect_loss("still", kind, want);
    }
    const double training = loss_of("average --weights training", 0);
    cr_assert_eq(run("rm -rf still && " LATHE " train still.toml --model.path average "
                     "--model.weights training 2>&1"),
                 0, "%s", output);
    expect_loss("still", &kinds[3], training);
    expect_refusal(LATHE " validate still.toml --model.weights average --checkpoint.dir x 2>&1",
                   "still.toml:2:8: error: model.path: base holds no averaged weights");
}

Test(kinds_read, an_adapter_begins_over_its_own_model_alone)
{
    char command[512];
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        snprintf(command, sizeof command,
                 "rm -rf still && " LATHE " train still.toml --model.adapter %s 2>&1", kind->name);
        if (kind->has_adapter != 1) {
            expect_refusal(command, kind->has_adapter ? "holds a whole model beside its adapter"
                                    : strcmp(kind->name, "model.gguf") == 0
                                        ? "a file, expected a folder"
                                        : "so it is not an adapter's");
            continue;
        }
        const double want = loss_of(kind->name, 0);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        expect_loss("still", kind, want);
        snprintf(command, sizeof command, LATHE " generate base --adapter a=%s " ASK, kind->name);
        cr_expect_eq(run(command), 0, "%s: %s", command, output);
    }
    expect_refusal(LATHE " generate base --adapter a=relora --prompt a 2>&1",
                   "holds a whole model beside its adapter");
    expect_refusal(LATHE " validate still.toml --model.path relora --model.adapter lora "
                         "--checkpoint.dir x 2>&1",
                   "relora/step-00000008 holds an adapter of its own, which is part of that model");
}

/* Each other model of a run is a whole one. */
Test(kinds_read, teachers_rewards_and_drafts_are_whole_models)
{
    char command[512];
    put("distill.toml",
        "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"answers.jsonl\"}]\nseq_len = 16\n"
        "[stage]\nname = \"distill\"\n[teacher]\npath = \"base\"\n[train]\nmax_steps = 1\n"
        "[checkpoint]\ndir = \"distilled\"\n");
    put("ppo.toml",
        "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"answers.jsonl\"}]\nseq_len = 16\n"
        "[stage]\nname = \"ppo\"\nprompts = 1\ngroup = 2\nmax_new_tokens = 4\n"
        "[reward]\nmodel = \"base\"\n[train]\nmax_steps = 1\n[checkpoint]\ndir = \"ppo\"\n");
    for (int k = 0; k < N_KINDS; k++) {
        const struct kind *kind = &kinds[k];
        const struct {
            const char *form, *refused; /* NULL: taken */
        } uses[] = {
            {LATHE " validate distill.toml --teacher.path $M 2>&1",
             kind->has_adapter ? "a teacher is a whole model; lathe merge"
             : kind->is_reward ? "is a sequence classifier"
                               : NULL},
            {LATHE " validate ppo.toml --reward.model $M 2>&1",
             kind->has_adapter ? "a reward model is a whole model; lathe merge"
             : kind->is_reward ? NULL
                               : "is no reward model"},
            {LATHE " generate base --generate.draft $M --prompt a --max-new-tokens 2 2>&1",
             kind->has_adapter ? "a draft model is a whole model; lathe merge"
             : kind->is_reward ? "is a sequence classifier"
                               : NULL},
        };
        for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
            snprintf(command, sizeof command, "M=%s; %s", kind->name, uses[i].form);
            if (uses[i].refused)
                expect_refusal(command, uses[i].refused);
            else
                cr_expect_eq(run(command), 0, "%s: %s", command, output);
        }
    }
}

/* The teacher of a folder with an average is the average: the same log-probabilities. */
Test(kinds_read, a_teacher_is_the_average)
{
    put("distill.toml",
        "[model]\npath = \"base\"\n[data]\ndatasets = [{path = \"answers.jsonl\"}]\nseq_len = 16\n"
        "[stage]\nname = \"distill\"\n[teacher]\npath = \"base\"\n[train]\nmax_steps = 1\n"
        "[checkpoint]\ndir = \"distilled\"\n");
    cr_assert_eq(run(LATHE " logprobs distill.toml --teacher.path average -o a 2>&1 && " LATHE
                           " logprobs distill.toml --teacher.path "
                           "average/step-00000008/average -o b 2>&1"),
                 0, "%s", output);
    cr_expect_eq(run("for f in a/*; do case $f in *.json) ;; *) cmp $f b/${f#a/} || exit 1;; esac; "
                     "done; ls a | grep -qv json"),
                 0, "%s", output);
}

/* How many tokens of the draft model generate takes, and of how many. */
static void count_drafted(const char *model, const char *draft, int temperature, long out[2])
{
    static const char of[] = " tokens of the draft model were accepted";
    char command[512];
    snprintf(command, sizeof command,
             LATHE " generate %s --generate.draft %s --prompt 'the old' --temperature %d --seed 1 "
                   "--max-new-tokens 40 --train.precision fp32 2>&1 >/dev/null",
             model, draft, temperature);
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    const char *at = strstr(output, of);
    cr_assert_not_null(at, "%s: %s", command, output);
    while (at > output && at[-1] != '\n')
        at--;
    cr_assert_eq(sscanf(at, "lathe: %ld of the %ld", &out[0], &out[1]), 2, "%s", output);
}

/* A token of a draft model is taken with the probability min(1, p/q): all are taken only if both
 * models give each of them the same probability, which sampling at temperature 1 shows for the
 * numbers, and temperature 0 for the order. So the draft is the folder's model exactly if every
 * token is taken beside the plain model of the same weights, and it is not the weights that a wrong
 * choice would take, which lose some. */
Test(kinds_read, a_draft_is_the_model_that_the_folder_means)
{
    static const struct {
        const char *model, *same, *other;
    } drafts[] = {{"plain", "plain", "base"},      {"lora", "m-lora", "base"},
                  {"relora", "m-relora", "bare"},  {"m-average", "average", "t-average"},
                  {"m-free", "free", "t-free"},    {"average", "m-average", "t-average"},
                  {"free", "m-free", "t-free"},    {"dora", "m-dora", "base"},
                  {"freeze", "freeze", "base"},    {"quantized", "quantized", "plain"},
                  {"plain", "model.gguf", "base"}, {"model.gguf", "model.gguf", "base"}};
    long taken[2];
    cr_assert_eq(run(LATHE " merge base lora -o m-lora 2>&1 && " LATHE
                           " merge relora -o m-relora 2>&1 && " LATHE
                           " merge base dora -o m-dora 2>&1 && for k in average free; do "
                           "cp -r $k/step-00000008/average m-$k && cp -r $k/step-00000008 t-$k && "
                           "rm -r t-$k/average t-$k/manifest.json; done && "
                           "cp -r relora/step-00000008 bare && rm bare/adapter_* "
                           "bare/manifest.json"),
                 0, "%s", output);
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
        for (int temperature = 0; temperature <= 1; temperature++) {
            count_drafted(drafts[i].model, drafts[i].same, temperature, taken);
            cr_expect(taken[0] == taken[1] && taken[1] >= 20, "%s with draft %s: %ld of %ld",
                      drafts[i].model, drafts[i].same, taken[0], taken[1]);
        }
        long lost = 0;
        for (int temperature = 0; temperature <= 1; temperature++) {
            count_drafted(drafts[i].model, drafts[i].other, temperature, taken);
            lost += taken[1] - taken[0];
        }
        cr_expect_gt(lost, 0, "%s takes every token of %s", drafts[i].model, drafts[i].other);
    }
}
