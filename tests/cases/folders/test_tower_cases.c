/* Models of several towers, whose text model trains while the other tensors of the folder are
 * carried. Folders are those of tests/golden/towers.py, which compares the results of the same
 * commands with transformers and PEFT; test_golden_models and test_golden_families compare their
 * numbers. */
#include "../../cli/cli_case.h"
#include "files/safetensors/safetensors.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe "
#define MODELS LATHE_TEST_DATA "/golden/data/models/"
#define TRAIN LATHE "train run.toml --checkpoint.dir out 2>&1"

TestSuite(tower_cases, .init = make_folder, .fini = remove_folder);

/* Copies a golden folder to m, with a tokenizer of 64 tokens and the files of a processor. */
static void copy(const char *name)
{
    char command[1024];
    snprintf(command, sizeof command,
             "rm -rf m out && cp -rL " MODELS
             "%s m && chmod -R u+w m && rm -f m/golden.safetensors "
             "m/text.json && cp " LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json "
             "m/tokenizer.json && chmod u+w m/tokenizer.json",
             name);
    cr_assert_eq(run(command), 0, "%s", output);
    put("m/tokenizer_config.json", "{\"eos_token\": \"a\"}");
    put("m/preprocessor_config.json", "{\"image_size\": 16}");
    put("m/processor_config.json", "{\"image_seq_length\": 4}");
    put("m/chat_template.json",
        "{\"chat_template\": \"{% for m in messages %}{{ m.content }}{% endfor %}\"}");
    put_times("text.txt", "the tool stays where it is, and a chip curls away from it. ", 12);
    put("run.toml", "[model]\npath = \"m\"\n[data]\ndatasets = [{ path = \"text.txt\" }]\n"
                    "seq_len = 16\n[train]\nmax_steps = 2\nprecision = \"fp32\"\nthreads = 1\n"
                    "[optimizer]\nlr = 0.01\n[checkpoint]\nevery = 1\n");
}

static lathe_safetensors *open_all(const char *path)
{
    lathe_safetensors *set = NULL;
    cr_assert_eq(lathe_safetensors_open_all(path, &set), LATHE_OK, "%s", path);
    return set;
}

/* Whether two tensors of files have one dtype, one shape and the same bytes. */
static int same(const lathe_st_tensor *a, const lathe_st_tensor *b)
{
    const int is_same_header = (a->header == NULL) == (b->header == NULL) &&
                               (a->header == NULL || strcmp(a->header, b->header) == 0);
    return is_same_header && memcmp(&a->desc, &b->desc, sizeof a->desc) == 0 &&
           memcmp(a->data, b->data, (size_t)lathe_desc_bytes(&a->desc)) == 0;
}

/* Compares a saved folder with m: the names are the same; the tensors whose names begin with
 * `text`, and the head, may differ, and at least one does; the others may not. Returns their
 * number. */
static int check_folder(const char *saved, const char *text, int changes)
{
    lathe_safetensors *before = open_all("m"), *after = open_all(saved);
    int n_others = 0, n_changed = 0;
    cr_expect_eq(lathe_safetensors_count(before), lathe_safetensors_count(after), "%s", saved);
    for (int64_t i = 0; i < lathe_safetensors_count(before); i++) {
        const lathe_st_tensor *a = lathe_safetensors_at(before, i);
        const lathe_st_tensor *b = lathe_safetensors_find(after, a->name);
        const int is_text =
            strncmp(a->name, text, strlen(text)) == 0 || strstr(a->name, "lm_head") != NULL;
        cr_assert_not_null(b, "%s lacks %s", saved, a->name);
        n_changed += is_text && !same(a, b);
        n_others += !is_text;
        cr_expect(is_text || same(a, b), "%s: %s has changed", saved, a->name);
    }
    cr_expect(!changes || n_changed > 0, "%s", saved);
    lathe_safetensors_close(before);
    lathe_safetensors_close(after);
    return n_others;
}

static void check_files(const char *saved)
{
    static const char *const names[] = {"preprocessor_config.json", "processor_config.json",
                                        "tokenizer.json"};
    char command[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(command, sizeof command, "cmp m/%s %s/%s 2>&1", names[i], saved, names[i]);
        cr_expect_eq(run(command), 0, "%s", output);
    }
}

static const struct {
    const char *name, *text;
} towers[] = {{"tower_gemma3", "language_model.model."},
              {"tower_mistral3", "language_model.model."},
              {"tower_qwen2_5_vl", "model."},
              {"tower_qwen3_vl", "model.language_model."},
              {"tower_llava_next", "language_model.model."},
              {"tower_smolvlm", "model.text_model."}};

/* Before, "tensors are not part of this model", or model_type was refused. */
Test(tower_cases, full_training_writes_the_whole_model)
{
    for (size_t i = 0; i < sizeof towers / sizeof towers[0]; i++) {
        copy(towers[i].name);
        expect(TRAIN, 0, "checkpoint out/step-00000002");
        cr_expect_geq(check_folder("out/step-00000002", towers[i].text, 1), 5);
        check_files("out/step-00000002");
        expect("cmp m/config.json out/step-00000002/config.json 2>&1", 0, "");
    }
}

Test(tower_cases, merge_writes_the_whole_model_and_adapters_have_the_names_of_peft)
{
    for (size_t i = 0; i < sizeof towers / sizeof towers[0]; i++) {
        copy(towers[i].name);
        cr_assert_eq(run("rm -rf merged"), 0);
        expect(LATHE "train run.toml --checkpoint.dir out --adapter.name lora 2>&1", 0, "");
        expect(LATHE "merge out/step-00000002 -o merged 2>&1", 0, "merged");
        cr_expect_geq(check_folder("merged", towers[i].text, 1), 5);
        check_files("merged");
        lathe_safetensors *set = open_all("out/step-00000002/adapter_model.safetensors");
        const char *key = strcmp(towers[i].name, "tower_smolvlm") == 0
                              ? "base_model.model.model.text_model.layers.0.self_attn.q_proj."
                                "lora_A.weight"
                              : "base_model.model.model.language_model.layers.0.self_attn.q_proj."
                                "lora_A.weight";
        cr_expect_not_null(lathe_safetensors_find(set, key), "%s", towers[i].name);
        lathe_safetensors_close(set);
        expect("cat out/step-00000002/adapter_config.json", 0, "\"exclude_modules\": \"(?!model");
    }
}

/* The tensors come from the file that the run began with, or resumed from, in shards too. */
Test(tower_cases, resume_averages_shards_and_quantized_bases_carry_the_towers)
{
    copy("tower_gemma3");
    expect(LATHE "train run.toml --checkpoint.dir out --train.weight_average ema "
                 "--checkpoint.shard_size 2e-5 2>&1",
           0, "");
    cr_expect_geq(check_folder("out/step-00000002", "language_model.", 1), 5);
    cr_expect_geq(check_folder("out/step-00000002/average", "language_model.", 1), 5);
    cr_assert_eq(
        run("mv out all && mkdir out && cp -r all/step-00000001 out/ && cp all/run.json out/"), 0);
    expect(LATHE "train run.toml --checkpoint.dir out --train.weight_average ema "
                 "--checkpoint.shard_size 2e-5 --checkpoint.resume auto 2>&1",
           0, "");
    expect("cat all/step-00000002/model*.safetensors | sha256sum > a; "
           "cat out/step-00000002/model*.safetensors | sha256sum | cmp - a",
           0, "");
    expect(LATHE "train run.toml --checkpoint.dir ql --adapter.name lora --quant.name nf4 2>&1", 0,
           "");
    expect(LATHE "merge ql/step-00000002 -o merged 2>&1", 0, "");
    cr_expect_geq(check_folder("merged", "language_model.", 1), 5);
    expect(LATHE "train run.toml --checkpoint.dir fr --adapter.name freeze 2>&1", 0, "");
    cr_expect_geq(check_folder("fr/step-00000002", "language_model.", 1), 5);
}

Test(tower_cases, quantize_leaves_the_other_towers_and_says_so_in_config_json)
{
    copy("tower_mistral3");
    expect(LATHE "quantize m --quant.name nf4 -o q 2>&1", 0, "wrote q");
    expect("cat q/config.json", 0, "\"model.vision_tower\"");
    check_files("q");
    expect(LATHE "quantize m --quant.name rtn --quant.bits 8 --quant.group_size 8 -o r 2>&1", 0,
           "");
    expect("cat r/config.json", 0, "\"re:(model[.])?vision_tower[.].*\"");
    expect(LATHE "train run.toml --model.path q --adapter.name lora --checkpoint.dir out 2>&1", 0,
           "");
    expect(LATHE "merge out/step-00000002 -o merged 2>&1", 0, "");
    cr_expect_geq(check_folder("merged", "language_model.", 1), 5);
}

/* GGUF has the text model alone. */
Test(tower_cases, gguf_gets_the_text_model_and_the_command_says_so)
{
    static const char generate[] =
        LATHE "generate %s --prompts in.jsonl -o %s --logprobs --temperature 0 --max-new-tokens 6 "
              "--ignore-eos --train.precision fp32 --train.threads 1 2>&1";
    char command[512];
    put("in.jsonl", "{\"ids\": [5, 9, 3, 17, 22]}\n");
    copy("tower_smolvlm");
    expect(
        LATHE "convert m -o m.gguf --type f32 2>&1", 0,
        "m: model_type smolvlm has more towers than the text model, and GGUF gets the text model "
        "alone, as llama");
    snprintf(command, sizeof command, generate, "m", "a.jsonl");
    expect(command, 0, "");
    snprintf(command, sizeof command, generate, "m.gguf", "b.jsonl");
    expect(command, 0, "");
    expect("cmp a.jsonl b.jsonl", 0, "");
    expect(LATHE "train run.toml --checkpoint.dir out --adapter.name lora 2>&1", 0, "");
    expect(LATHE "convert out/step-00000002 -o adapter.gguf 2>&1", 0, "adapter.gguf");
}

/* Files of the hub have the keys of Qwen2.5-VL's text model beside model_type, and the older name
 * of the rotary settings; other files name the tensors as transformers 5 names modules. */
Test(tower_cases, older_and_newer_layouts_are_one_model)
{
    static const char generate[] =
        LATHE "generate m --prompts in.jsonl -o %s --logprobs --temperature 0 --max-new-tokens 6 "
              "--ignore-eos --train.precision fp32 --train.threads 1 2>&1";
    char command[512];
    put("in.jsonl", "{\"ids\": [5, 9, 3, 17, 22]}\n");
    copy("tower_qwen2_5_vl");
    snprintf(command, sizeof command, generate, "a.jsonl");
    expect(command, 0, "");
    put("m/config.json",
        "{\"model_type\": \"qwen2_5_vl\", \"architectures\": "
        "[\"Qwen2_5_VLForConditionalGeneration\"],"
        " \"vocab_size\": 64, \"hidden_size\": 24, \"intermediate_size\": 40, "
        "\"num_hidden_layers\": "
        "2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": "
        "64, "
        "\"bos_token_id\": 1, \"eos_token_id\": 2, \"tie_word_embeddings\": false, \"rope_theta\": "
        "500.0, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1, 1, 1]}, "
        "\"image_token_id\": 60, \"vision_config\": {\"depth\": 1}, \"hidden_act\": \"silu\"}");
    snprintf(command, sizeof command, generate, "b.jsonl");
    const int code = run(command);
    cr_expect_eq(code, 0, "%s", output);
    cr_expect_null(strstr(output, "warning"), "%s", output);
    expect("cmp a.jsonl b.jsonl", 0, "");
}

Test(tower_cases, what_is_wrong_with_a_wrapper_is_named)
{
    static const char validate[] = LATHE "validate run.toml 2>&1";
    copy("tower_gemma3");
    cr_assert_eq(run("sed -i 's/\"text_config\"/\"text_configs\"/' m/config.json"), 0);
    expect(validate, 2, "model_type \"gemma3\" wraps a text model, and text_config is missing");
    copy("tower_gemma3");
    cr_assert_eq(run("sed -i 's/\"mm_tokens_per_image\"/\"mm_xyz\"/' m/config.json"), 0);
    expect(validate, 0, "keys that gemma3 does not have here, and that change nothing: mm_xyz");
    copy("tower_gemma3");
    cr_assert_eq(run("sed -i 's/\"query_pre_attn_scalar\"/\"query_xyz\"/' m/config.json"), 0);
    expect(validate, 0, "m/config.json (text_config): keys that gemma3 does not have here");
    copy("tower_gemma3");
    cr_assert_eq(run("sed -i 's/\"head_dim\": 8/\"head_dim\": 7/' m/config.json"), 0);
    expect(validate, 2, "head_dim");
    copy("tower_gemma3");
    cr_assert_eq(run("sed -i 's/Gemma3ForConditionalGeneration/Gemma3ForSequenceClassification/' "
                     "m/config.json"),
                 0);
    expect(validate, 2, "a sequence classifier over a model of several towers");
    copy("tower_gemma3");
    put("p.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
    expect(LATHE "validate run.toml --stage.name rm --data.datasets '[{path=\"p.jsonl\"}]' 2>&1", 2,
           "has more towers than the text model (model_type gemma3)");
}

Test(tower_cases, show_names_the_wrappers_of_a_family)
{
    expect(LATHE "show model/qwen", 0, "inside    qwen2_vl, qwen2_5_vl, qwen3_vl, llava");
}

/* Before, a family that Lathe lacks was refused with the list of all families. */
Test(tower_cases, a_family_that_lathe_lacks_is_refused_with_what_is_missing_and_the_nearest)
{
    static const struct {
        const char *config, *wants[3];
    } cases[] = {
        {"{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", "
         "\"num_local_experts\": 16, \"attention_chunk_size\": 8192}}",
         {"wraps a text model of type \"llama4_text\" (text_config.model_type)",
          "a mixture of experts (text_config.num_local_experts), attention in chunks "
          "(text_config.attention_chunk_size)",
          "the nearest family is llama;"}},
        {"{\"model_type\": \"mistrum\", \"architectures\": [\"MistrumForCausalLM\"], "
         "\"num_local_experts\": 8}",
         {"model_type is \"mistrum\"", "a mixture of experts (num_local_experts)",
          "the nearest family is mistral;"}},
        {"{\"model_type\": \"qwen3_5_omni\", \"text_config\": {\"model_type\": \"qwen3_5_om\", "
         "\"linear_num_key_heads\": 4}}",
         {"linear attention (text_config.linear_num_key_heads)", "the nearest family is qwen3",
          ""}},
        {"{\"model_type\": \"deepseek_v32\", \"kv_lora_rank\": 512, \"n_routed_experts\": 256}",
         {"latent attention (kv_lora_rank)", "a mixture of experts (n_routed_experts)",
          "the nearest family is deepseek_v3;"}},
        {"{\"model_type\": \"xyz_vl\", \"text_config\": {\"model_type\": \"llama\"}}",
         {"no plugin that serves llama lists it as a wrapper", "the nearest family is llama;", ""}},
        {"{\"model_type\": \"bert\", \"type_vocab_size\": 2}",
         {"an encoder, which reads in both directions (type_vocab_size)", "supported: ", ""}},
    };
    copy("tower_gemma3");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("m/config.json", cases[i].config);
        for (int k = 0; k < 3 && cases[i].wants[k] != NULL; k++)
            expect(LATHE "validate run.toml 2>&1", 2, cases[i].wants[k]);
    }
}
