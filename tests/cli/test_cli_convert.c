/* lathe convert: GGUF files from folders, folders from GGUF files, and what is refused. */
#include "cli/cli_case.h"

#include <signal.h>

#include "cli/pending_signal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe convert "
#define DATA LATHE_TEST_DATA "/golden/data/"

/* The tokens that the model $x puts after some tokens, and their log-probabilities. Their text
 * differs: the tokenizer of a GGUF file knows its special tokens. */
#define GENERATE                                                                                   \
    "rm -f out.jsonl; " LATHE_TEST_BUILD                                                           \
    "/bin/lathe generate $x --prompts in.jsonl -o out.jsonl --temperature 0 --max-new-tokens 12 "  \
    "--logprobs --ignore-eos --train.precision fp32 2>/dev/null && "                               \
    "grep -o '\"ids.*' out.jsonl >"

TestSuite(cli_convert, .init = make_folder, .fini = remove_folder);

/* A model's folder with the tokenizer of its vocabulary. */
static void put_model(const char *name, const char *vocab)
{
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "cp -r " DATA "models/%s . && chmod -R u+w %s && cp " DATA
                   "tokenizer/tiny_%s.json %s/tokenizer.json",
                   name, name, vocab, name);
    cr_assert_eq(run(command), 0, "%s", output);
}

Test(cli_convert, a_folder_goes_to_gguf_and_back_bit_for_bit)
{
    static const char *const models[][2] = {{"llama_tied", "128"},
                                            {"qwen2", "120"},
                                            {"qwen3", "120"},
                                            {"phi3", "64"},
                                            {"mistral", "64"},
                                            {"olmo2", "64"},
                                            {"gemma2", "64"},
                                            {"gemma3", "64"},
                                            {"gemma", "64"},
                                            {"olmo3", "64"},
                                            {"smollm3", "64"},
                                            {"granite", "64"},
                                            {"cohere", "64"},
                                            {"cohere2", "64"},
                                            {"glm", "64"},
                                            {"glm4", "64"},
                                            {"seed_oss", "64"},
                                            {"hunyuan", "64"},
                                            {"ernie4_5", "64"},
                                            {"internlm3", "64"},
                                            {"starcoder2", "64"},
                                            {"stablelm", "64"},
                                            {"stablelm_heads", "64"},
                                            {"phi", "64"},
                                            {"exaone4_global", "64"},
                                            {"falcon", "64"},
                                            {"falcon_new", "64"},
                                            {"mpt", "64"},
                                            {"bloom", "64"},
                                            {"apertus", "64"}};
    put("in.jsonl", "{\"ids\": [5, 9, 33, 7, 21, 60, 3, 14, 15, 9, 2, 6]}\n");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char command[1024];
        put_model(models[i][0], models[i][1]);
        (void)snprintf(command, sizeof command,
                       LATHE "%s -o m.gguf --type f32 2>&1 && " LATHE "m.gguf -o back --type f32 "
                             "2>&1 && " LATHE "back -o m2.gguf --type f32 2>&1 && " LATHE
                             "m2.gguf -o back2 --type f32 2>&1 && cmp back/model.safetensors "
                             "back2/model.safetensors && cmp back/config.json back2/config.json",
                       models[i][0]);
        cr_assert_eq(run(command), 0, "%s: %s", models[i][0], output);
        /* a warning says that the file does not hold all of the model */
        const int is_whole = strstr(output, "is not applied by llama.cpp") == NULL;
        cr_expect_eq(is_whole, strcmp(models[i][0], "mistral") != 0, "%s: %s", models[i][0],
                     output);
        /* the rotary base of Hunyuan is computed from alpha, and a GGUF file has it in f32: the
         * tokens are the same, the last bits of the log-probabilities need not be */
        const char *of = strcmp(models[i][0], "hunyuan") == 0 ? "cut -d ']' -f 1" : "cat";
        (void)snprintf(command, sizeof command,
                       "for x in %s back; do " GENERATE "$x.all || exit 1; %s $x.all >$x.text; "
                       "done; test -s back.text && cmp %s.text back.text",
                       models[i][0], of, models[i][0]);
        cr_expect_eq(is_whole ? run(command) : 0, 0, "%s: %s", models[i][0], output);
        (void)run("rm -rf m.gguf m2.gguf back back2");
    }
    /* Against the folder itself: one dtype, the same order of tensors. */
    put_model("llama_untied", "128");
    expect(LATHE "llama_untied -o m.gguf --type f32 && " LATHE "m.gguf -o back && "
                 "tail -c 8000 llama_untied/model.safetensors >a; "
                 "tail -c 8000 back/model.safetensors >b; cmp a b && echo same",
           0, "same");
}

Test(cli_convert, a_converted_model_generates_the_same_text)
{
    put_model("llama_tied", "128");
    expect(LATHE "llama_tied -o m.gguf --type f32 && " LATHE "m.gguf -o back", 0, "back");
    cr_assert_eq(run(LATHE_TEST_BUILD "/bin/lathe generate llama_tied --prompt abc --temperature 0 "
                                      "--max-new-tokens 12 2>/dev/null >a; " LATHE_TEST_BUILD
                                      "/bin/lathe generate back --prompt abc --temperature 0 "
                                      "--max-new-tokens 12 2>/dev/null >b; test -s a && cmp a b"),
                 0, "%s", output);
}

Test(cli_convert, every_type_is_written_and_read)
{
    put_model("llama_tied", "128");
    static const char *const types[] = {"f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char command[512];
        (void)snprintf(command, sizeof command,
                       LATHE "llama_tied -o %s.gguf --type %s 2>&1 && " LATHE
                             "%s.gguf -o %s 2>&1 && test -s %s/model.safetensors",
                       types[i], types[i], types[i], types[i], types[i]);
        cr_expect_eq(run(command), 0, "%s: %s", types[i], output);
    }
}

Test(cli_convert, what_cannot_be_converted_is_refused_by_name)
{
    put_model("gpt2", "64");
    expect(LATHE "gpt2 -o m.gguf 2>&1", 1, "a model of type gpt2 cannot be written as GGUF");
    put_model("granite", "64");
    cr_assert_eq(run("sed -i 's/\"silu\"/\"gelu\"/' granite/config.json"), 0);
    expect(LATHE "granite -o m.gguf 2>&1", 1,
           "hidden_act is \"gelu\": a model of type granite is written as GGUF with silu only");
    put_model("smollm3", "64");
    cr_assert_eq(run("tr -d ' \\n' <smollm3/config.json | sed 's/\\[1,1,1,0\\]/[1,0,1,1]/' >c && "
                     "grep -q 1,0,1,1 c && mv c smollm3/config.json"),
                 0);
    expect(LATHE "smollm3 -o m.gguf 2>&1", 1, "no_rope_layers: layer 1 has no rotary positions");
    put_model("llama_tied", "128");
    cr_assert_eq(run("cp " DATA "tokenizer/twice.json llama_tied/tokenizer.json"), 0);
    cr_expect_neq(run(LATHE "llama_tied -o m.gguf 2>&1"), 0);
    cr_expect_not_null(strstr(output, "llama.cpp has no name for this pre_tokenizer"), "%s",
                       output);
    cr_assert_eq(run("rm llama_tied/tokenizer.json"), 0);
    cr_expect_neq(run(LATHE "llama_tied -o m.gguf 2>&1"), 0);
    cr_expect_not_null(strstr(output, "has no tokenizer.json"), "%s", output);
    cr_expect_neq(run(LATHE DATA "gguf/values.gguf -o back 2>&1"), 0);
    cr_expect_not_null(strstr(output, "values.gguf: the key llama.embedding_length is missing"),
                       "%s", output);
    cr_assert_eq(
        run("sed 's/general.architecture\\(.\\{12\\}\\)llama/general.architecture\\1mamba/' " DATA
            "gguf/values.gguf >m2.gguf"),
        0);
    cr_expect_neq(run(LATHE "m2.gguf -o back 2>&1"), 0);
    cr_expect_not_null(strstr(output, "the architecture is \"mamba\""), "%s", output);
    cr_expect_neq(run("test -e back || test -e m.gguf"), 0);
}

Test(cli_convert, wrong_words_are_refused_with_what_to_do)
{
    put_model("llama_tied", "128");
    expect(LATHE "llama_tied 2>&1", 2, "--output is missing: name the folder or the .gguf file");
    expect(LATHE "llama_tied -o m.gguf --type q9 2>&1", 2, "--type q9: expected f32, f16, bf16");
    expect(LATHE "llama_tied -o m 2>&1", 2, "a folder is converted to a file *.gguf");
    expect(LATHE "none -o m.gguf 2>&1", 2, "none: no such file or folder");
    expect(LATHE "llama_tied -o m.gguf && " LATHE "llama_tied -o m.gguf 2>&1", 2,
           "m.gguf exists; remove it, or choose another name");
    expect(LATHE "m.gguf -o llama_tied 2>&1", 2,
           "llama_tied exists already: give another folder, or remove it");
    expect("mkdir empty; " LATHE "m.gguf -o empty/ 2>&1", 0, "empty");
    expect(LATHE "m.gguf -o back --type q4_0 2>&1", 2, "--type q4_0: expected f32, f16 or bf16");
    expect("head -c 2000 m.gguf >cut.gguf; " LATHE "cut.gguf -o back 2>&1", 1, "was cut short");
}

Test(cli_convert, ctrl_c_leaves_nothing_half_written)
{
    put_model("llama_tied", "128");
    expect(LATHE "llama_tied -o m.gguf", 0, "m.gguf");
    run_with_pending(SIGTERM, LATHE "llama_tied -o other.gguf 2>&1");
    cr_expect_not_null(strstr(output, "lathe convert: stopped; nothing was written"), "%s", output);
    run_with_pending(SIGINT, LATHE "m.gguf -o back 2>&1");
    cr_expect_not_null(strstr(output, "lathe convert: stopped; nothing was written"), "%s", output);
    expect("ls | sort | tr '\\n' ' '", 0, "llama_tied m.gguf ");
    cr_expect_str_eq(output, "llama_tied m.gguf ");
}

/* A model whose vocabulary is that of a SentencePiece tokenizer. */
static void put_spm_model(const char *name)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                   "num_hidden_layers = 1\nnum_attention_heads = 2\nvocab_size = 576\n"
                   "max_position_embeddings = 64\n[tokenizer]\npath = \"" DATA "gguf/%s\"\n"
                   "[data]\ndatasets = [{ path = \"t.txt\", type = \"text\" }]\nseq_len = 16\n"
                   "[train]\nmax_steps = 1\nmicro_batch_size = 1\n",
                   name);
    put("t.toml", text);
    put_times("t.txt", "the quick brown fox jumps over a lazy dog\n", 40);
    cr_assert_eq(
        run("rm -rf spm; " LATHE_TEST_BUILD "/bin/lathe train t.toml --checkpoint.dir spm 2>&1"), 0,
        "%s", output);
}

Test(cli_convert, sentencepiece_tokenizers_go_to_gguf_and_back)
{
    static const char *const names[] = {"spm_llama", "spm_gemma"};
    for (int i = 0; i < 2; i++) {
        char command[1024];
        put_spm_model(names[i]);
        /* the scores that a SentencePiece model has are found again, to the bit (test_gguf_folder
         * compares ids); so is the whole file */
        (void)snprintf(command, sizeof command,
                       "rm -rf m.gguf x m2.gguf; mkdir x; " LATHE
                       "spm/step-00000001 -o m.gguf 2>&1 && " LATHE
                       "m.gguf -o x/step-00000001 2>&1 && " LATHE
                       "x/step-00000001 -o m2.gguf 2>&1 && cmp m.gguf m2.gguf && " LATHE_TEST_BUILD
                       "/bin/lathe generate m.gguf --prompt 'the quick' --max-new-tokens 2 2>&1");
        cr_expect_eq(run(command), 0, "%s: %s", names[i], output);
        cr_expect_not_null(strstr(output, "the quick"), "%s", output);
    }
    /* merges in another order than SentencePiece's: llama.cpp could not follow them */
    cr_assert_eq(run("rm -f m.gguf; "
                     "sed -i '0,/\"merges\": \\[/s//\"merges\": [[\"o\", \"x\"],/' "
                     "spm/step-00000001/tokenizer.json"),
                 0);
    cr_expect_neq(run(LATHE "spm/step-00000001 -o m.gguf 2>&1"), 0);
    cr_expect_not_null(strstr(output, "SentencePiece"), "%s", output);
}

/* A quantized folder is decoded: the file has the numbers that a run computes with. */
Test(cli_convert, quantized_folders_are_decoded)
{
    static const char *const formats[] = {"bnb_nf4", "gptq_4bit", "awq", "hqq", "mixed_ct"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char command[2048];
        (void)snprintf(
            command, sizeof command,
            "rm -rf q m.gguf && cp -r " DATA "quantized/%s q && chmod -R u+w q && V=$(grep "
            "-o '\"vocab_size\": *[0-9]*' q/config.json | grep -o '[0-9]*$') && cp " DATA
            "tokenizer/tiny_$V.json q/tokenizer.json && echo hello hello hello >t.txt && " LATHE
            "q -o m.gguf --type f32 2>&1 && for x in q m.gguf; do " LATHE_TEST_BUILD
            "/bin/lathe eval $x --data t.txt --train.precision fp32 --json 2>/dev/null "
            ">$x.out; done; test -s q.out && cmp q.out m.gguf.out",
            formats[i]);
        cr_expect_eq(run(command), 0, "%s: %s", formats[i], output);
    }
}

/* A file that a killed process left is removed by the next one that writes it. */
Test(cli_convert, files_that_a_killed_process_left_are_removed)
{
    put_model("llama_tied", "128");
    expect("sh -c 'touch m.gguf.tmp.$$'; ls m.gguf.tmp.* | wc -l", 0, "1");
    expect(LATHE "llama_tied -o m.gguf --type f32 2>&1", 0, "removed, because the process");
    expect("ls m.gguf* | wc -l", 0, "1");
}

Test(cli_convert, keys_that_lie_about_the_tensors_are_refused)
{
    put_model("llama_tied", "128");
    expect(LATHE "llama_tied -o m.gguf --type f32", 0, "m.gguf");
    /* After the name of a key come four bytes of its type, then its value. */
    cr_assert_eq(run("LC_ALL=C sed 's/\\(llama.block_count....\\)..../\\1\\xff\\xff\\xff\\x7f/' "
                     "m.gguf >layers.gguf; LC_ALL=C sed "
                     "'s/\\(llama.embedding_length....\\)..../\\1\\x40\\x00\\x00\\x00/' m.gguf "
                     ">width.gguf; LC_ALL=C sed 's/blk.1.ffn_up/blk.1.ffn_xx/' m.gguf >name.gguf"),
                 0);
    expect(LATHE "layers.gguf -o back 2>&1", 2,
           "llama.block_count is 2147483647, but the file has");
    expect(LATHE "width.gguf -o back 2>&1", 1, "the configuration expects");
    expect(LATHE "name.gguf -o back 2>&1", 1, "tensor blk.1.ffn_xx.weight is not part of a model");
    cr_expect_neq(run("test -e back"), 0);
}
