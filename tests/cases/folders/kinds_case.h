/* Folders of ten kinds, made by small runs: what each command and each key makes of them is
 * compared in the tests beside this file (docs/checkpoints.md has the table). */
#ifndef LATHE_TEST_KINDS_CASE_H
#define LATHE_TEST_KINDS_CASE_H

#include "cli/cli_case.h"

#include <math.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

/* The rate is so large that the training weights differ much from their average. */
static const char kind_file[] = "[model]\npath = \"base\"\n"
                                "[data]\ndatasets = [{ path = \"other.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n[scheduler]\nname = \"constant\"\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 8\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n";

/* A run that changes no weight: its checkpoint computes what the model with which it began does. */
static const char still_file[] = "[model]\npath = \"base\"\n"
                                 "[data]\ndatasets = [{ path = \"other.txt\" }]\nseq_len = 16\n"
                                 "[optimizer]\nlr = 1e-12\n[scheduler]\nname = \"constant\"\n"
                                 "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n"
                                 "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"still\"\n";

#define PAIRS "--stage.name rm --data.datasets '[{path = \"pairs.jsonl\"}]'"
#define MERGES "--adapter.name lora --adapter.merge_every 3 --adapter.merge_warmup_steps 1"

static const struct kind {
    const char *name, *settings; /* settings NULL: made by another command */
    int has_adapter;             /* 2: beside a model that was merged into */
    int has_average, is_reward;
} kinds[] = {{"plain", "", 0, 0, 0},
             {"lora", "--adapter.name lora", 1, 0, 0},
             {"relora", MERGES, 2, 0, 0},
             {"average", "--train.weight_average ema --train.weight_average_decay 0.9", 0, 1, 0},
             {"free", "--optimizer.name schedule_free_adamw", 0, 1, 0},
             {"dora", "--adapter.name dora", 1, 0, 0},
             {"freeze", "--adapter.name freeze --adapter.layers 1", 0, 0, 0},
             {"quantized", NULL, 0, 0, 0},
             {"reward", PAIRS, 0, 0, 1},
             {"rereward", PAIRS " " MERGES, 2, 0, 1},
             {"model.gguf", NULL, 0, 0, 0}};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

__attribute__((unused)) static void setup(void)
{
    char command[512];
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put_times("pairs.jsonl",
              "{\"prompt\": \"q\", \"chosen\": \" a good answer\", \"rejected\": \" no\"}\n", 16);
    put_times("answers.jsonl", "{\"prompt\": \"a dog\", \"completion\": \" ran by\"}\n", 8);
    put("base.toml", base_file);
    put("kind.toml", kind_file);
    put("still.toml", still_file);
    cr_assert_eq(run(LATHE " train base.toml 2>&1 && mv first/step-00000012 base"), 0, "%s",
                 output);
    for (int k = 0; k < N_KINDS; k++) {
        if (!kinds[k].settings)
            continue;
        snprintf(command, sizeof command, LATHE " train kind.toml --checkpoint.dir %s %s 2>&1",
                 kinds[k].name, kinds[k].settings);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
    }
    cr_assert_eq(run(LATHE " quantize base --quant.name nf4 -o quantized 2>&1 && " LATHE
                           " convert plain -o model.gguf --type f32 2>&1"),
                 0, "%s", output);
}

/* The loss that lathe eval gives of a folder. */
__attribute__((unused)) static double loss_of(const char *model, int is_reward)
{
    char command[512];
    double loss = NAN;
    snprintf(command, sizeof command,
             LATHE " eval %s --data %s --stage.name %s --train.precision fp32 --data.seq_len 16 "
                   "--json 2>/dev/null",
             model, is_reward ? "pairs.jsonl" : "other.txt", is_reward ? "rm" : "pretrain");
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    cr_assert_eq(sscanf(output, "{\"loss\": %lf", &loss), 1, "%s", output);
    return loss;
}

/* Sums in another order: 1e-5 is twenty times what f32 loses over the 32 columns of a product. */
__attribute__((unused)) static void expect_loss(const char *model, const struct kind *k,
                                                double want)
{
    const double got = loss_of(model, k->is_reward);
    cr_expect(fabs(got - want) < 1e-5 * (1.0 + fabs(want)), "%s of %s: loss %.9g, expected %.9g",
              model, k->name, got, want);
}

/* Runs a command that must be refused with a message that has the text. */
__attribute__((unused)) static void expect_refusal(const char *command, const char *text)
{
    const int code = run(command);
    cr_expect_neq(code, 0, "%s: not refused:\n%s", command, output);
    cr_expect_not_null(strstr(output, text), "%s: no '%s' in\n%s", command, text, output);
}

#endif
