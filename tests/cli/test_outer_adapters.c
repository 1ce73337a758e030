/* Adapters of the embedding and of the head, and another adapter as the reference, as a user meets
 * them: train, resume, plan, merge, and what is refused. */
#include <stdint.h>

#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

#define FILE_OF(model, more, dir)                                                                  \
    "[model]\n" model "[tokenizer]\npath = \"bytes\"\n"                                            \
    "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 32\n" more                            \
    "[train]\nmax_steps = 4\nprecision = \"fp32\"\nthreads = 1\n"                                  \
    "[log]\nprogress = \"plain\"\n[checkpoint]\ndir = \"" dir "\"\n"

#define SIZES                                                                                      \
    "model_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"    \
    "num_attention_heads = 2\nmax_position_embeddings = 64\nvocab_size = 260\n"

static const char pairs_file[] =
    "[model]\npath = \"base\"\n[tokenizer]\npath = \"bytes\"\n"
    "[data]\ndatasets = [{ path = \"pairs.jsonl\" }]\nseq_len = 32\n"
    "[stage]\nname = \"dpo\"\n[adapter]\nname = \"lora\"\nr = 2\n[optimizer]\nlr = 0.01\n"
    "[train]\nmax_steps = 4\nprecision = \"fp32\"\nthreads = 1\n"
    "[log]\nprogress = \"plain\"\n[checkpoint]\ndir = \"dpo\"\nevery = 2\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("pairs.jsonl",
              "{\"prompt\": \"a \", \"chosen\": \"good cat\", \"rejected\": \"no\"}\n", 8);
    put("base.toml", FILE_OF(SIZES, "", "first"));
    put("lora.toml", FILE_OF("path = \"base\"\n",
                             "[adapter]\nname = \"lora\"\nr = 4\n"
                             "target_modules = [\"embed_tokens\", \"lm_head\", \"q_proj\"]\n"
                             "[optimizer]\nlr = 0.02\n",
                             "out"));
    put("dpo.toml", pairs_file);
    expect(LATHE " train base.toml 2>&1 && mv first/step-00000004 base", 0, "checkpoint");
}

TestSuite(outer_adapters, .init = setup, .fini = remove_folder, .timeout = 240);

/* The last "loss" of an evaluation's line. */
static double loss_of(const char *command)
{
    cr_assert_eq(run(command), 0, "%s: %s", command, output);
    const char *at = strstr(output, "loss");
    cr_assert_not_null(at, "%s", output);
    return strtod(at + strcspn(at, "0123456789"), NULL);
}

Test(outer_adapters, a_resumed_run_has_the_bits_of_one_that_went_through)
{
    expect(LATHE " train lora.toml --adapter.dropout 0.2 2>&1", 0, "step-00000004");
    expect(LATHE " train lora.toml --adapter.dropout 0.2 --checkpoint.dir part "
                 "--train.stop_after 2 2>&1",
           0, "step-00000002");
    expect(LATHE " train lora.toml --adapter.dropout 0.2 --checkpoint.dir part 2>&1", 0,
           "step-00000004");
    cr_expect_eq(run("cmp out/step-00000004/adapter_model.safetensors "
                     "part/step-00000004/adapter_model.safetensors"),
                 0);
}

/* q_proj of two layers: 2 r (32 + 32); the embedding and the head: r (260 + 32) each. */
Test(outer_adapters, the_plan_counts_them)
{
    expect(LATHE " plan lora.toml --json", 0, "\"tensors\": 8, \"parameters\": 2848}");
}

Test(outer_adapters, a_merged_model_computes_what_the_adapter_does)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000004");
    const double adapted = loss_of(LATHE " eval out --data text.txt --train.precision fp32");
    const double before = loss_of(LATHE " eval base --data text.txt --train.precision fp32 "
                                        "--tokenizer.path bytes");
    expect(LATHE " merge base out -o merged --checkpoint.save_dtype fp32", 0, "into 4 weights");
    const double merged =
        loss_of(LATHE " eval merged --data text.txt --train.precision fp32 --data.seq_len 32 "
                      "--tokenizer.path bytes");
    cr_expect_float_eq(merged, adapted, 2e-4, "%g merged, %g with the adapter", merged, adapted);
    cr_expect(before - adapted > 1e-3, "%g before, %g after", before, adapted);
}

/* The magnitude of the head scales its logits. */
Test(outer_adapters, a_merged_model_computes_what_dora_of_the_head_does)
{
    expect(LATHE " train lora.toml --adapter.name dora 2>&1", 0, "step-00000004");
    expect("grep -c . out/step-00000004/adapter_config.json >/dev/null; " LATHE
           " checkpoint verify out 2>&1; strings out/step-00000004/adapter_model.safetensors | "
           "grep -o 'lm_head.lora_magnitude_vector' | head -n 1",
           0, "lm_head.lora_magnitude_vector");
    const double adapted = loss_of(LATHE " eval out --data text.txt --train.precision fp32");
    const double before = loss_of(LATHE " eval base --data text.txt --train.precision fp32 "
                                        "--tokenizer.path bytes");
    expect(LATHE " merge base out -o merged --checkpoint.save_dtype fp32", 0, "into 4 weights");
    const double merged =
        loss_of(LATHE " eval merged --data text.txt --train.precision fp32 --data.seq_len 32 "
                      "--tokenizer.path bytes");
    cr_expect_float_eq(merged, adapted, 1e-5, "%g merged, %g with the adapter", merged, adapted);
    cr_expect(before - adapted > 1e-3, "%g before, %g after", before, adapted);
    /* the log-probabilities of generated tokens are those of the merged model */
    expect(
        "for x in out merged; do " LATHE " generate $x --prompt 'the cat' --max-new-tokens 8 "
        "--temperature 0 --train.precision fp32 --tokenizer.path bytes 2>/dev/null >$x.txt; done; "
        "test -s out.txt && cmp out.txt merged.txt && echo same",
        0, "same");
}

Test(outer_adapters, of_a_tied_model_merge_only_if_both_are_adapted_as_one)
{
    put("tied.toml", FILE_OF(SIZES "tie_word_embeddings = true\n", "", "tied-run"));
    expect(LATHE " train tied.toml 2>&1 && mv tied-run/step-00000004 tied", 0, "checkpoint");
    expect(LATHE " train lora.toml --model.path tied --adapter.target_modules "
                 "'[\"embed_tokens\"]' --checkpoint.dir apart 2>&1",
           0, "the adapter changes them apart, as in PEFT");
    expect(LATHE " merge tied apart -o no 2>&1", 2, "it cannot be merged");
    cr_expect_eq(access("no", F_OK), -1);
    expect(LATHE " train lora.toml --model.path tied --adapter.target_modules '[\"lm_head\"]' "
                 "--checkpoint.dir head 2>&1",
           0, "step-00000004");
    expect(LATHE " merge tied head -o no 2>&1", 2, "changes the head alone");
    expect(LATHE
           " train lora.toml --model.path tied --adapter.target_modules "
           "'[\"embed_tokens\"]' --adapter.ensure_weight_tying true --checkpoint.dir both 2>&1",
           0, "step-00000004");
    const double adapted = loss_of(LATHE " eval both --data text.txt --train.precision fp32");
    expect(LATHE " merge tied both -o merged --checkpoint.save_dtype fp32", 0, "into 1 weights");
    const double merged =
        loss_of(LATHE " eval merged --data text.txt --train.precision fp32 --data.seq_len 32 "
                      "--tokenizer.path bytes");
    cr_expect_float_eq(merged, adapted, 2e-4, "%g merged, %g with the adapter", merged, adapted);
    expect(LATHE " validate lora.toml --model.path tied --adapter.target_modules "
                 "'[\"embed_tokens\"]' --adapter.merge_every 2 --adapter.merge_reset none 2>&1",
           2, "changes the embedding alone");
}

Test(outer_adapters, targets_without_a_meaning_are_refused)
{
    expect(LATHE " validate lora.toml --adapter.init pissa 2>&1", 2,
           "lora: init = \"pissa\" is not offered for the head lm_head");
    cr_assert_eq(run("sed 's/\"lora\"/\"oft\"/; /^r = /d' lora.toml >oft.toml"), 0);
    expect(LATHE " validate oft.toml 2>&1", 2,
           "target_modules[0] = \"embed_tokens\" matches no module");
    expect(LATHE " validate oft.toml 2>&1", 2,
           "; embed_tokens is the token embedding, which \"oft\" does not adapt, \"lora\" does");
    expect(
        LATHE " validate lora.toml --adapter.name dora --adapter.dropout 0.1 2>&1", 2,
        "dora: dropout is not offered with the head lm_head in target_modules: set dropout = 0.0");
    expect(LATHE " validate lora.toml --adapter.target_modules '[\"head\"]' 2>&1", 2,
           "down_proj, embed_tokens, lm_head\n");
    expect(LATHE " validate lora.toml --adapter.target_modules '[\"embed\"]' 2>&1", 2,
           "matches no module; the model has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
           "down_proj, embed_tokens, lm_head");
    expect(LATHE " validate lora.toml --adapter.ensure_weight_tying true 2>&1", 2,
           "the model's output head is not tied to model.embed_tokens: leave the key out");
    expect(LATHE " validate lora.toml --adapter.modules_to_save '[\"lm_head\"]' 2>&1", 0, "valid");
}

/* The teacher is the model under the adapter, then a model that was merged from one, then what was
 * stored of it; the folder of an adapter is none. */
Test(outer_adapters, distillation_takes_an_adapted_head)
{
    put("pairs.jsonl", "{\"prompt\": \"a \", \"completion\": \"good cat\"}\n"
                       "{\"prompt\": \"b \", \"completion\": \"no\"}\n");
    cr_assert_eq(run("sed 's/embed_tokens/k_proj/; s/text.txt/pairs.jsonl/; "
                     "s/^.adapter.$/[stage]\\nname = \"distill\"\\n[adapter]/' "
                     "lora.toml >distill.toml; sed 's/\"lora\"/\"dora\"/' distill.toml "
                     ">dora.toml"),
                 0);
    expect(LATHE " validate distill.toml --teacher.path base 2>&1", 0, "valid");
    expect(LATHE " validate dora.toml --teacher.path base 2>&1", 0, "valid");
    expect(LATHE " train dora.toml --teacher.path base 2>&1", 0, "step-00000004");
    expect(LATHE " validate dora.toml --checkpoint.dir b --teacher.path out/step-00000004 2>&1", 2,
           "--teacher.path: error: teacher.path = \"out/step-00000004\" holds an adapter, and a "
           "teacher is a whole model; lathe merge out/step-00000004 -o OUT makes one of it");
    expect(LATHE " merge base out/step-00000004 -o merged 2>&1", 0, "merged");
    expect(LATHE " train dora.toml --checkpoint.dir b --teacher.path merged 2>&1", 0,
           "step-00000004");
    expect(LATHE " logprobs dora.toml --teacher.path merged --top-k 5 -o top 2>&1", 0,
           "targets of 2 examples");
    expect(LATHE " train distill.toml --checkpoint.dir c --teacher.stored top 2>&1", 0,
           "step-00000004");
}

/* Changes the first element of a tensor of a safetensors file. */
static void change_first(const char *path, const char *tensor)
{
    uint64_t n = 0, offset = 0;
    FILE *file = fopen(path, "r+b");
    cr_assert(file && fread(&n, sizeof n, 1, file) == 1 && n < 1 << 20);
    char *header = calloc(1, (size_t)n + 1);
    cr_assert(header && fread(header, 1, (size_t)n, file) == n);
    const char *at = strstr(header, tensor), *list = at ? strstr(at, "data_offsets") : NULL;
    cr_assert_not_null(list);
    offset = 8 + n + strtoull(list + strcspn(list, "0123456789"), NULL, 10);
    const float other = 0.625f;
    cr_assert_eq(fseek(file, (long)offset, SEEK_SET), 0);
    cr_assert_eq(fwrite(&other, sizeof other, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
    free(header);
}

/* PEFT saves the base's embedding beside an adapter of it. */
Test(outer_adapters, the_embedding_of_another_base_in_the_file_is_refused)
{
    static const char peft[] = LATHE_TEST_DATA "/golden/data/adapters/outer_untied";
    char command[1024];
    snprintf(command, sizeof command,
             "cp -r %s peft && cp -r %s/golden/data/models/llama_untied model && chmod -R u+w peft "
             "model",
             peft, LATHE_TEST_DATA);
    cr_assert_eq(run(command), 0);
    expect(LATHE " merge model peft -o merged 2>&1", 0, "into 4 weights");
    change_first("model/model.safetensors", "model.embed_tokens.weight");
    expect(LATHE " merge model peft -o again 2>&1", 2,
           "is not the 'model.embed_tokens.weight' of the model model");
}

Test(outer_adapters, a_linear_combination_needs_lora_of_one_rank)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000004");
    expect(LATHE " train lora.toml --adapter.r 2 --checkpoint.dir small 2>&1", 0, "step-00000004");
    expect(LATHE " train lora.toml --adapter.name dora --adapter.target_modules '[\"q_proj\"]' "
                 "--checkpoint.dir dora 2>&1",
           0, "step-00000004");
    expect(LATHE " merge base out small --combination linear -o no 2>&1", 2,
           "needs adapters of one rank");
    expect(LATHE " merge base dora out --combination linear -o no 2>&1", 2,
           "lora_magnitude_vector.weight' beside them");
    expect(LATHE " merge base out out --combination svd -o no 2>&1", 2,
           "--combination: expected cat or linear, seen \"svd\"");
    cr_expect_eq(access("no", F_OK), -1);
    expect(LATHE " merge base out out --combination linear --adapter-weights 0.5,0.5 -o yes", 0,
           "merged 2 adapters into 4 weights");
}

/* ---- another adapter as the reference ---- */

Test(outer_adapters, the_reference_is_the_other_adapter_and_resuming_keeps_it)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000004");
    expect(LATHE " train dpo.toml --model.reference_adapter out 2>&1", 0,
           "the reference is the model with the adapter in out/step-00000004");
    cr_expect_null(strstr(output, "step 1/4  loss 0.6931"), "the reference is the policy:\n%s",
                   output);
    expect(LATHE " lineage dpo", 0, "<- reference_adapter: ");
    expect(LATHE " train dpo.toml --model.reference_adapter out --checkpoint.dir part "
                 "--train.stop_after 2 2>&1",
           0, "step-00000002");
    cr_assert_eq(run("cp -r part broken"), 0);
    expect(LATHE " train dpo.toml --model.reference_adapter out --checkpoint.dir part 2>&1", 0,
           "step-00000004");
    cr_expect_eq(run("cmp dpo/step-00000004/adapter_model.safetensors "
                     "part/step-00000004/adapter_model.safetensors"),
                 0);
    expect(LATHE " train dpo.toml --checkpoint.dir broken 2>&1", 2,
           "and the configuration has no model.reference_adapter");
    cr_assert_eq(run(LATHE " eval dpo --data pairs.jsonl --train.precision fp32 2>/dev/null"), 0);
    cr_assert_eq(run("printf ' ' >>out/step-00000004/adapter_config.json"), 0);
    expect(LATHE " train dpo.toml --model.reference_adapter out --checkpoint.dir broken 2>&1", 2,
           "adapter_config.json: ");
}

/* A policy that begins with the adapter of the reference does not differ from it: kto's loss is the
 * sigmoid of 0, and ppo's divergence is 0. */
Test(outer_adapters, the_reference_of_kto_and_ppo_is_the_adapter_too)
{
    static const char more[] = " --train.micro_batch_size 4 --train.max_steps 1 ";
    static const char same[] =
        "--model.adapter out/step-00000004 --adapter.r 4 "
        "--adapter.target_modules '[\"embed_tokens\",\"lm_head\",\"q_proj\"]' ";
    char line[1024];
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000004");
    put("unpaired.jsonl", "{\"prompt\": \"a \", \"completion\": \"good cat\", \"label\": true}\n"
                          "{\"prompt\": \"a \", \"completion\": \"no\", \"label\": false}\n"
                          "{\"prompt\": \"a \", \"completion\": \"fine\", \"label\": true}\n"
                          "{\"prompt\": \"a \", \"completion\": \"not\", \"label\": false}\n");
    put_times("prompts.jsonl", "{\"prompt\": \"the cat \"}\n", 4);
    cr_assert_eq(
        run("sed -e 's/pairs.jsonl/unpaired.jsonl/' -e 's/name = \"dpo\"/name = \"kto\"/' "
            "dpo.toml >kto.toml; "
            "sed -e 's/pairs.jsonl/prompts.jsonl/' -e 's/name = \"dpo\"/name = \"ppo\"\\n"
            "max_new_tokens = 8\\nkl_coef = 0.1\\n[reward]\\nname = \"length\"\\ntokens = 4/' "
            "dpo.toml >ppo.toml"),
        0);
    for (int i = 0; i < 4; i++) {
        const int is_same = i % 2, is_kto = i < 2;
        const char *const figure = is_kto ? "\"loss\": 0.5[,}]" : "\"kl\": 0[,}]";
        (void)snprintf(line, sizeof line,
                       LATHE " train %s --checkpoint.dir r%d --model.reference_adapter out%s%s2>&1",
                       is_kto ? "kto.toml" : "ppo.toml", i, more, is_same ? same : "");
        expect(line, 0, "the reference is the model with the adapter in out/step-00000004");
        (void)snprintf(line, sizeof line, "grep -Ec '%s' r%d/metrics.jsonl", figure, i);
        expect(line, !is_same, is_same ? "1" : "0");
    }
}

Test(outer_adapters, a_reference_of_another_base_is_refused)
{
    expect(LATHE " train lora.toml 2>&1", 0, "step-00000004");
    expect(LATHE " train base.toml --model.seed 5 --checkpoint.dir second 2>&1 && "
                 "mv second/step-00000004 other",
           0, "checkpoint");
    expect(LATHE " train dpo.toml --model.path other --model.reference_adapter out 2>&1", 2,
           "which has other weights than other: name the adapter's own model, or an adapter of "
           "this one");
    /* a copy of the base is the same model */
    cr_assert_eq(run("cp -r base copy"), 0);
    expect(LATHE " validate dpo.toml --model.path copy --model.reference_adapter out 2>&1", 0,
           "valid");
    expect(LATHE " validate dpo.toml --model.reference_adapter base 2>&1", 2,
           "model.reference_adapter = \"base\": the folder has no adapter_model.safetensors");
    expect(LATHE " validate lora.toml --model.reference_adapter out 2>&1", 2,
           "model.reference_adapter has no effect: stage \"pretrain\"");
    expect(LATHE " validate dpo.toml --model.reference_adapter out --quant.name nf4 2>&1", 0,
           "valid");
}
