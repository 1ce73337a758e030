/* Cases of model folders that other programs wrote: quantization_config, config.json, tensors.
 * Folders are copies of tests/golden/data/quantized (tests/golden/quantized_layouts.py), whose
 * logits test_quantized_folders compares. */
#include "../../cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe "
#define QUANTIZED LATHE_TEST_DATA "/golden/data/quantized/"
#define MODELS LATHE_TEST_DATA "/golden/data/models/"
#define GENERATE                                                                                   \
    LATHE "generate m --prompts in.jsonl -o out.jsonl --logprobs --temperature 0 "                 \
          "--max-new-tokens 2 --ignore-eos --train.precision fp32 --tokenizer.path bytes 2>&1"

TestSuite(model_file_cases, .init = make_folder, .fini = remove_folder);

/* Copies a folder to m, and changes its config.json with an expression of sed. */
static void copy(const char *from, const char *expression)
{
    char command[1024];
    snprintf(command, sizeof command,
             "rm -rf m out.jsonl && cp -rL %s m && chmod -R u+w m && sed -i -e '%s' m/config.json",
             from, expression);
    cr_assert_eq(run(command), 0, "%s", output);
    put("in.jsonl", "{\"ids\": [5, 9, 3, 17, 22, 40, 8, 31, 12, 44, 6, 19, 27, 50, 33, 10]}\n");
}

/* checkpoints/04 */
Test(model_file_cases, gptq_zero_points_must_agree_with_sym_and_format)
{
    copy(QUANTIZED "gptq_format_v2", "s/\"gptq_v2\"/\"gptq_v2\"/");
    expect(GENERATE, 0, "");
    copy(QUANTIZED "gptq_format_v2", "s/\"gptq_v2\"/\"gptq\"/");
    expect(GENERATE, 1,
           "gptq: qzeros[0] of output 0 is 8, and quantization_config says sym = true with "
           "checkpoint_format gptq, where every stored zero point is 7: if the file is of the "
           "other version, set checkpoint_format to gptq_v2");
    copy(QUANTIZED "gptq_format_v2", "s/\"gptq_v2\"/\"gptq_v2\", \"checkpoint_format\": \"gptq\"/");
    expect(GENERATE, 2, "checkpoint_format is gptq and format is gptq_v2: one of the two is wrong");
    copy(QUANTIZED "awq_bf16", "s/\"GEMM\"/\"GEMV\"/");
    expect(GENERATE, 2, "awq reads weights with version = gemm, and here it is GEMV");
}

/* checkpoints/07: what decides is the tensors; what would change the weights is refused. */
Test(model_file_cases, quantization_config_is_read_or_refused_by_name)
{
    copy(QUANTIZED "ct_null_format", "s/\"quantization_status\": \"compressed\"/\"xyz\": 3/");
    expect(GENERATE, 0,
           "keys that quantization_config does not have here, and that change nothing: "
           "xyz");
    copy(QUANTIZED "ct_null_format", "s/\"quantization_status\"/\"transform_config\": "
                                     "{\"config_groups\": {}}, \"quantization_status\"/");
    expect(GENERATE, 2, "quantization_config.transform_config changes what the weights mean");
    copy(QUANTIZED "ct_w4a16", "s/\"num_bits\": 4/\"num_bits\": 2/");
    expect(GENERATE, 1, "plane weight_packed of format rtn expects i32[64,4]");
    copy(QUANTIZED "ct_targets", "s/re:.*mlp/re:(mlp/");
    expect(GENERATE, 2, "names layers");
    copy(QUANTIZED "modelopt_w4a16", "s/W4A16_NVFP4/NVFP4_AWQ/");
    expect(GENERATE, 2, "quant_method \"modelopt\" with quant_algo \"NVFP4_AWQ\" is not read");
}

/* A file of settings beside the weights is read, or named where the weights are plain. */
Test(model_file_cases, settings_beside_the_weights_are_read_or_named)
{
    copy(QUANTIZED "beside_gptq", "");
    expect(GENERATE, 0, "");
    copy(MODELS "llama_tied", "");
    cr_assert_eq(run("cp " QUANTIZED "beside_gptq/quantize_config.json m/"), 0);
    expect(GENERATE, 0,
           "m/quantize_config.json changes nothing: the weights beside it are plain numbers");
}

/* data/04: a mistral with layer_types is a ministral in transformers; the numbers are those of
 * test_config_edits. */
Test(model_file_cases, layer_types_of_mistral_change_what_is_computed)
{
    copy(LATHE_TEST_DATA "/golden/data/models/llama_untied",
         "s/\"model_type\": \"llama\"/\"model_type\": \"mistral\", \"sliding_window\": 4/");
    expect(GENERATE, 0, "");
    cr_assert_eq(run("mv out.jsonl all.jsonl"), 0);
    cr_assert_eq(run("sed -i -e 's/\"sliding_window\"/\"layer_types\": [\"full_attention\", "
                     "\"sliding_attention\"], \"sliding_window\"/' m/config.json"),
                 0);
    expect(GENERATE, 0, "");
    cr_expect_neq(run("cmp out.jsonl all.jsonl"), 0);
    cr_assert_eq(run("sed -i -e 's/\"full_attention\", //' m/config.json && rm out.jsonl"), 0);
    expect(GENERATE, 2, "layer_types is [\"sliding_attention\"]; expected one name for each layer");
}

/* The shared matrix of a tied model may have either name, as in transformers. */
Test(model_file_cases, a_tied_model_may_store_its_head_alone)
{
    copy(MODELS "llama_tied", "");
    expect(GENERATE, 0, "");
    cr_assert_eq(run("mv out.jsonl first && LC_ALL=C sed -i "
                     "-e 's/\"model.embed_tokens.weight\"/\"lm_head.weight\"           /' "
                     "m/model.safetensors && grep -a -q lm_head m/model.safetensors"),
                 0);
    expect(GENERATE, 0, "");
    cr_expect_eq(run("cmp first out.jsonl"), 0, "%s", output);
    copy(MODELS "llama_tied", "s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/");
    expect(GENERATE, 2, "9 tensors are not part of this model: model.layers.1.input_layernorm");
}

/* TOML that is printed can be read. */
Test(model_file_cases, show_prints_how_a_run_file_chooses_a_plugin)
{
    expect(LATHE "show model/llama", 0, "[model]\nmodel_type = \"llama\"\n");
    expect(LATHE "show model/qwen", 0,
           "[model]\nmodel_type = \"qwen2\"\n# model_type = \"qwen3\"\n");
    expect(LATHE "show optimizer/adamw", 0, "[optimizer]\nname = \"adamw\"\n");
    expect(LATHE "show renderer/chatml", 0, "[renderer]\nname = \"chatml\"\n# it has no keys");
}

/* nf4's quant_state names the dtype of the weights before. */
Test(model_file_cases, quant_state_has_the_dtype_of_the_model)
{
    copy(MODELS "llama_tied", "s/\"[a-z_]*dtype\": \"[a-z0-9]*\"/\"torch_dtype\": \"float16\"/");
    expect(LATHE "quantize m --quant.name nf4 -o q 2>&1", 0, "");
    expect("grep -a -o 'blocksize.: 64, .dtype.: .[a-z0-9]*' q/model.safetensors | head -1", 0,
           "float16");
    expect("cat q/config.json", 0, "\"bnb_4bit_compute_dtype\": \"float16\"");
}

/* Asymmetric gptq is written as GPTQModel loads it. */
Test(model_file_cases, asymmetric_gptq_is_version_2)
{
    copy(MODELS "llama_tied", "");
    cr_assert_eq(run("cp " LATHE_TEST_DATA "/golden/data/tokenizer/tiny_128.json "
                     "m/tokenizer.json"),
                 0);
    put_times("text.txt", "the quick brown fox jumps over the lazy dog. ", 200);
    expect(LATHE "quantize m --quant.name gptq --quant.group_size 32 --quant.symmetric false "
                 "--calibration text.txt --rows 8 --data.seq_len 32 -o q 2>&1",
           0, "");
    expect("cat q/config.json", 0, "\"checkpoint_format\": \"gptq_v2\"");
}
