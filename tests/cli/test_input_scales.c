/* Scales of inputs are folded into the op before, in every family: a format without loss that asks
 * for arbitrary scales (scaling_quant.c) leaves what the model computes as it is. */
#include "cli/cli_case.h"

#include <math.h>
#include <stdlib.h>

#define LATHE "LATHE_PLUGIN_PATH=" LATHE_TEST_BUILD "/tests/scaling " LATHE_TEST_BUILD "/bin/lathe "

static const char shared[] = "[tokenizer]\npath = \"bytes\"\n"
                             "[data]\ndatasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                             "seq_len = 16\n"
                             "[optimizer]\nlr = 0.05\n"
                             "[train]\nmax_steps = 3\nthreads = 1\nprecision = \"fp32\"\n"
                             "[checkpoint]\ndir = \"run\"\n";

/* The sizes of most families: two layers, two query heads on one head of keys and values. */
#define SIZES                                                                                      \
    "vocab_size = 260\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"          \
    "num_attention_heads = 2\nnum_key_value_heads = 1\nmax_position_embeddings = 64\n"

TestSuite(input_scales, .init = make_folder, .fini = remove_folder);

static double perplexity_of(const char *model)
{
    char command[512];
    (void)snprintf(command, sizeof command,
                   LATHE "eval %s --data text.txt --data.seq_len 16 --train.precision fp32 --json "
                         "2>/dev/null",
                   model);
    cr_assert_eq(run(command), 0, "%s", output);
    const char *at = strstr(output, "\"perplexity\": ");
    cr_assert_not_null(at, "%s", output);
    return strtod(at + strlen("\"perplexity\": "), NULL);
}

/* f32 numbers: about 100 products and sums between a weight and the loss, each off by 2^-24. */
static const double tolerance = 2e-5;

static void check_family(const char *model, const char *saved, int n_scaled)
{
    char text[2048], said[128];
    (void)snprintf(text, sizeof text, "[model]\n%s%ssave_dtype = \"%s\"\n", model, shared, saved);
    put("run.toml", text);
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 40);
    cr_assert_eq(run("rm -rf run model q; " LATHE "train run.toml 2>&1 && mv run/step-* model"), 0,
                 "%s", output);
    cr_assert_eq(run(LATHE "quantize model -o q --quant.name scaling --calibration text.txt 2>&1"),
                 0, "%s", output);
    (void)snprintf(said, sizeof said, "the scales of %d inputs of layers are folded", n_scaled);
    cr_expect(strstr(output, said), "%s%s", model, output);
    cr_expect_neq(run("cmp -s model/model.safetensors q/model.safetensors"), 0);
    const double before = perplexity_of("model"), after = perplexity_of("q");
    cr_expect_float_eq(after, before, tolerance * before, "%s%s: %.9g, before %.9g", model, saved,
                       after, before);
}

Test(input_scales, of_llama_are_those_of_four_inputs_a_layer)
{
    check_family("model_type = \"llama\"\n" SIZES, "fp32", 8);
    check_family("model_type = \"llama\"\n" SIZES, "bf16", 8);
    check_family("model_type = \"llama\"\nattention_bias = true\nmlp_bias = true\n" SIZES, "fp32",
                 8);
}

Test(input_scales, of_norms_that_add_one)
{
    check_family("model_type = \"gemma2\"\nhead_dim = 16\n" SIZES, "fp32", 8);
    check_family("model_type = \"gemma2\"\nhead_dim = 16\n" SIZES, "bf16", 8);
}

Test(input_scales, of_biases_in_the_dtype_of_the_folder)
{
    check_family("model_type = \"qwen2\"\n" SIZES, "bf16", 8);
}

Test(input_scales, of_joined_projections)
{
    check_family("model_type = \"phi3\"\n" SIZES, "fp32", 8);
    check_family("model_type = \"gpt_neox\"\nvocab_size = 260\nhidden_size = 32\n"
                 "intermediate_size = 48\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
                 "max_position_embeddings = 64\n",
                 "fp32", 6);
}

/* Its layers read the residual stream, which other ops read too. */
Test(input_scales, without_a_norm_before_stay)
{
    check_family("model_type = \"olmo2\"\n" SIZES, "fp32", 4);
}
