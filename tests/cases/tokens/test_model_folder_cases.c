/* Model folders that lack a file, or are no folders: what is there is named, and what to do is
 * said; nothing else is taken in its place. */
#include <sys/stat.h>

#include "tokens_case.h"

static const char run_file[] = "[model]\npath = \"m\"\n[data]\n"
                               "datasets = [{ path = \"words.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n[train]\nprecision = \"fp32\"\nmax_steps = 2\n"
                               "threads = 1\n[checkpoint]\ndir = \"out\"\n";

static void setup_run(void)
{
    setup();
    put("run.toml", run_file);
}

TestSuite(model_folder_cases, .init = setup_run, .fini = remove_folder);

/* Every command that reads or makes text. */
static void expect_all_refuse(const char *text)
{
    static const char *const commands[] = {
        LATHE " validate run.toml 2>&1",
        LATHE " train run.toml 2>&1",
        LATHE " data run.toml 2>&1",
        LATHE " eval m --data words.txt --data.seq_len 16 2>&1",
        LATHE " generate m --prompt the --max-new-tokens 2 2>&1",
        LATHE " tokenizer check m 2>&1",
        LATHE " convert m -o m.gguf 2>&1",
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const int code = run(commands[i]);
        cr_expect_neq(code, 0, "%s: %s", commands[i], output);
        cr_expect_not_null(strstr(output, text), "%s: no '%s' in %s", commands[i], text, output);
    }
}

Test(model_folder_cases, a_missing_tokenizer_is_not_raw_bytes)
{
    cr_assert_eq(rename("m/tokenizer.json", "saved.json"), 0);
    expect_all_refuse("m has no tokenizer.json: put the file of the model there");
    put("m/qwen.tiktoken", "");
    put("m/vocab.json", "{}");
    expect_all_refuse(
        "m has no tokenizer.json but vocab.json and qwen.tiktoken, from which none can "
        "be made: make it with transformers");
    expect(LATHE " train run.toml 2>&1", 2, "run.toml:2:8: error: m has no tokenizer.json");
    /* files that would be read, if they were right */
    put("m/merges.txt", "");
    expect_all_refuse("m/vocab.json does not say how a text is split, and neither does "
                      "tokenizer_class (PreTrainedTokenizerFast): make it with transformers");
    put("m/tokenizer.model", "");
    expect_all_refuse("m/tokenizer.model: a SentencePiece model without pieces");
    put("m/tekken.json", "{}");
    expect_all_refuse("m/tekken.json: config.pattern: expected an expression");
    cr_assert_eq(run("rm m/tekken.json m/tokenizer.model m/merges.txt m/vocab.json"), 0);
    /* with a tokenizer of its own, or raw bytes by choice, the run may go on */
    cr_assert_eq(rename("saved.json", "own.json"), 0);
    expect(LATHE " train run.toml --tokenizer.path own.json 2>&1", 0, "checkpoint out/step");
    expect(LATHE " train run.toml --tokenizer.path bytes --checkpoint.dir bytes 2>&1", 0,
           "checkpoint bytes/step");
    /* what was trained on raw bytes says so, itself and in what is made of it */
    expect(LATHE " generate bytes --prompt the --max-new-tokens 2 2>&1", 0, "the");
    expect(LATHE " train run.toml --model.path bytes/step-00000002 --checkpoint.dir more 2>&1", 0,
           "checkpoint more/step");
    expect(LATHE " eval more/step-00000002 --data words.txt --data.seq_len 16 2>&1", 0, "loss");
    expect(LATHE " quantize bytes/step-00000002 --quant.name nf4 -o four 2>&1", 0, "");
    expect(LATHE " generate four --prompt the --max-new-tokens 2 2>&1", 0, "the");
    /* a checkpoint whose tokenizer was removed is none of raw bytes */
    cr_assert_eq(run("rm out/step-00000002/tokenizer.json"), 0);
    expect(LATHE " validate run.toml --model.path out/step-00000002 --checkpoint.dir new 2>&1", 2,
           "out/step-00000002 has no tokenizer.json");
}

/* It needs no tokenizer and computes nothing, but what it copies is for others to read. */
Test(model_folder_cases, quantize_refuses_what_others_could_not_read)
{
    static const char quantize[] = LATHE " quantize m --quant.name nf4 -o four 2>&1";
    cr_assert_eq(
        run("cp -r m whole && sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/' "
            "m/config.json"),
        0);
    expect(quantize, 2,
           "m/model.safetensors: 9 tensors are not part of this model: model.layers.1.");
    cr_assert_eq(run("rm -r m && cp -r whole m"), 0);
    put("m/tokenizer.json", "{");
    cr_expect_neq(run(quantize), 0, "%s", output);
    cr_expect_not_null(strstr(output, "m/tokenizer.json:"), "%s", output);
    cr_expect_neq(access("four", F_OK), 0);
    cr_assert_eq(unlink("m/tokenizer.json"), 0);
    expect(quantize, 0, "warning: the new folder has no tokenizer: m has no tokenizer.json");
}

/* Without Git LFS, git checks out this text instead of a large file. */
static const char pointer[] =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f3"
    "2b1258daaa5e2ca24d17e2393\nsize 12345\n";

Test(model_folder_cases, a_pointer_of_git_lfs_is_not_the_file)
{
    static const struct {
        const char *file, *command;
    } cases[] = {
        {"m/config.json", LATHE " generate m --prompt the 2>&1"},
        {"m/model.safetensors", LATHE " generate m --prompt the 2>&1"},
        {"m/model.safetensors", LATHE " quantize m --quant.name nf4 -o four 2>&1"},
        {"m/tokenizer.json", LATHE " tokenizer encode m --text the 2>&1"},
        {"m/tokenizer_config.json", LATHE " tokenizer check m 2>&1"},
        {"m/generation_config.json", LATHE " generate m --prompt the 2>&1"},
        {"m/chat_template.jinja", LATHE " chat-template m 2>&1"},
        {"m/chat_template.jinja", LATHE " convert m -o m.gguf 2>&1"},
        {"words.txt", LATHE " train run.toml 2>&1"},
        {"words.txt", LATHE " eval m --data words.txt --data.seq_len 16 2>&1"},
        {"d.jsonl", LATHE " data run.toml --data.datasets '[{path = \"d.jsonl\"}]' 2>&1"},
        {"d.parquet", LATHE " data run.toml --data.datasets '[{path = \"d.parquet\"}]' 2>&1"},
        {"m.gguf", LATHE " generate m.gguf --prompt the 2>&1"},
        {"a/adapter_model.safetensors", LATHE " merge m a -o merged 2>&1"}};
    cr_assert_eq(run("mkdir a && cp -r m whole && cp words.txt whole"), 0);
    put("a/adapter_config.json", "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"]}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[128];
        put(cases[i].file, pointer);
        (void)snprintf(want, sizeof want, "%s: is a pointer of Git LFS and not the file itself",
                       cases[i].file);
        cr_expect_neq(run(cases[i].command), 0, "%s: %s", cases[i].command, output);
        cr_expect_not_null(strstr(output, want), "%s: no '%s' in %s", cases[i].command, want,
                           output);
        cr_assert_eq(run("rm -r m && cp -r whole m && mv m/words.txt ."), 0);
    }
}

/* A run's folder is its latest checkpoint for the tokenizer's commands, too. */
Test(model_folder_cases, a_run_has_the_tokenizer_of_its_checkpoint)
{
    static const char *const forms[] = {LATHE " tokenizer encode $M --text 'the wheel'",
                                        LATHE " tokenizer check $M",
                                        "printf '116\n' | " LATHE " tokenizer decode $M"};
    char command[256];
    static char first[4096];
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000002");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        (void)snprintf(command, sizeof command, "M=out/step-00000002; %s", forms[i]);
        cr_assert_eq(run(command), 0, "%s: %s", command, output);
        cr_assert_lt(strlen(output), sizeof first);
        memcpy(first, output, strlen(output) + 1);
        (void)snprintf(command, sizeof command, "M=out; %s", forms[i]);
        cr_expect_eq(run(command), 0, "%s: %s", command, output);
        cr_expect_str_eq(output, first, "%s", command);
    }
}

/* The output folder of transformers' trainer holds models in its folders. */
Test(model_folder_cases, models_in_folders_of_their_own_are_named)
{
    static const char *const commands[] = {
        LATHE " generate hf --prompt the 2>&1",
        LATHE " eval hf --data words.txt 2>&1",
        LATHE " convert hf -o m.gguf 2>&1",
        LATHE " quantize hf --quant.name nf4 -o four 2>&1",
        LATHE " validate run.toml --model.path hf 2>&1",
    };
    cr_assert_eq(run("mkdir hf && cp -r m hf/checkpoint-1000 && cp -r m hf/checkpoint-500"), 0);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        expect(commands[i], 2,
               "hf: has no config.json, so it is not a model folder; 2 of its folders hold a "
               "model, such as hf/checkpoint-1000: name one of them");
}

/* Replaces tokenizer.json by vocab.json and merges.txt of the same vocabulary. */
static void make_slow(void)
{
    FILE *file = fopen("m/vocab.json", "wb");
    cr_assert_not_null(file);
    fprintf(file, "{");
    put_bytes_vocabulary(file);
    fprintf(file, ", \"<|endoftext|>\": 256, \"<|im_start|>\": 257, \"<|im_end|>\": 258}");
    cr_assert_eq(fclose(file), 0);
    put("m/merges.txt", "#version: 0.2\n");
    put("m/tokenizer_config.json",
        "{\"tokenizer_class\": \"GPT2Tokenizer\", \"additional_special_tokens\": "
        "[\"<|im_start|>\", \"<|im_end|>\"]}");
    cr_assert_eq(run("rm m/tokenizer.json m/special_tokens_map.json m/added_tokens.json; true"), 0);
}

Test(model_folder_cases, a_vocabulary_in_another_form_trains_and_is_saved_as_tokenizer_json)
{
    make_slow();
    expect(LATHE " tokenizer check m 2>&1", 0, "kind            BPE");
    expect(LATHE " validate run.toml 2>&1", 0, "");
    expect(LATHE " data run.toml 2>&1", 0, "");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step");
    expect("cat out/step-00000002/tokenizer.json", 0, "\"<|im_start|>\"");
    expect("grep -c '\"tokenizer_class\": \"PreTrainedTokenizerFast\"' "
           "out/step-00000002/tokenizer_config.json",
           0, "1");
    expect(LATHE " generate out/step-00000002 --prompt the --max-new-tokens 2 2>&1", 0, "the");
    expect(LATHE " convert m -o m.gguf 2>&1", 0, "");
    expect(LATHE " generate m.gguf --prompt the --max-new-tokens 2 2>&1", 0, "the");
    expect(LATHE " train run.toml --train.max_steps 3 2>&1", 0, "checkpoint out/step-00000003");
}

Test(model_folder_cases, weights_in_another_form_are_named)
{
    cr_assert_eq(rename("m/model.safetensors", "m/pytorch_model.bin"), 0);
    expect(LATHE " generate m --prompt the 2>&1", 2,
           "but pytorch_model.bin: only safetensors are read; convert with transformers");
    expect(LATHE " validate run.toml 2>&1", 2, "only safetensors are read");
}

/* Puts a prefix before every name of the tensors. */
static void put_prefix(const char *prefix)
{
    FILE *file = fopen("m/model.safetensors", "rb");
    static char header[1 << 16], changed[1 << 17];
    uint64_t n = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fread(&n, 8, 1, file), 1);
    cr_assert_lt(n, sizeof header);
    cr_assert_eq(fread(header, 1, n, file), n);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        changed[k++] = header[i];
        if (header[i] == '"' && i > 0 && (header[i - 1] == '{' || header[i - 1] == ',') &&
            (strncmp(header + i, "\"model.", 7) == 0 || strncmp(header + i, "\"lm_head", 8) == 0))
            k += (size_t)sprintf(changed + k, "%s", prefix);
    }
    while (k % 8 != 0)
        changed[k++] = ' ';
    FILE *out = fopen("renamed", "wb");
    cr_assert_not_null(out);
    const uint64_t size = k;
    cr_assert_eq(fwrite(&size, 8, 1, out), 1);
    cr_assert_eq(fwrite(changed, 1, k, out), k);
    for (int c; (c = fgetc(file)) != EOF;)
        (void)fputc(c, out);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(rename("renamed", "m/model.safetensors"), 0);
}

Test(model_folder_cases, prefixes_of_names_are_named)
{
    static const struct {
        const char *prefix, *remedy;
    } cases[] = {{"_orig_mod.", "torch.compile puts it there"},
                 {"module.", "DistributedDataParallel"},
                 {"base_model.model.", "merge_and_unload"},
                 {"module._orig_mod.", "torch.compile puts it there"},
                 {"language_model.", "take the prefix out"}};
    cr_assert_eq(run("cp m/model.safetensors kept"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[128];
        cr_assert_eq(run("cp kept m/model.safetensors"), 0);
        put_prefix(cases[i].prefix);
        (void)snprintf(want, sizeof want, "the names of the tensors begin with \"%s\"",
                       cases[i].prefix);
        expect(LATHE " generate m --prompt the 2>&1", 2, want);
        expect(LATHE " validate run.toml 2>&1", 2, cases[i].remedy);
    }
}

Test(model_folder_cases, a_name_of_the_hub_is_no_folder)
{
    static const char want[] = "hf download acme/tiny-1B --local-dir acme/tiny-1B";
    expect(LATHE " validate run.toml --model.path acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --tokenizer.path acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --model.adapter acme/tiny-1B 2>&1", 2, want);
    expect(LATHE " validate run.toml --stage.name distill --teacher.path acme/tiny-1B 2>&1", 2,
           want);
    expect(LATHE " chat acme/tiny-1B </dev/null 2>&1", 2, want);
    expect(LATHE " generate acme/tiny-1B --prompt a 2>&1", 2, want);
    expect(LATHE " generate m --generate.draft acme/tiny-1B --prompt a 2>&1", 2, want);
    expect(LATHE " convert acme/tiny-1B -o x.gguf 2>&1", 2, want);
    expect(LATHE " merge acme/tiny-1B m -o x 2>&1", 2, want);
    expect(LATHE " tokenizer check acme/tiny-1B 2>&1", 2, want);
    /* relative to the folder of the run file */
    cr_assert_eq(mkdir("sub", 0755), 0);
    put("sub/run.toml", run_file);
    (void)run("sed -i 's|\"m\"|\"acme/tiny-1B\"|' sub/run.toml");
    expect(LATHE " validate sub/run.toml 2>&1", 2,
           "hf download acme/tiny-1B --local-dir sub/acme/tiny-1B");
    /* a folder beside others is mistyped, rather, and these are paths of this machine */
    static const char *const paths[] = {"./acme/tiny", "../acme/tiny", "acme/tiny/1B", "/acme/tiny",
                                        "/srv/acme/tiny"};
    cr_expect_eq(run(LATHE " generate sub/m --prompt a 2>&1"), 2);
    cr_expect_null(strstr(output, "hf download"), "%s", output);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char command[512];
        (void)snprintf(command, sizeof command,
                       LATHE " generate %s --prompt a 2>&1; " LATHE
                             " validate run.toml --model.path %s 2>&1; sed "
                             "'s|\"m\"|\"%s\"|' run.toml >sub/run.toml; " LATHE
                             " validate sub/run.toml 2>&1",
                       paths[i], paths[i], paths[i]);
        cr_expect_eq(run(command), 2);
        cr_expect_not_null(strstr(output, "no such"), "%s", output);
        cr_expect_null(strstr(output, "hf download"), "%s", output);
    }
}

/* transformers loads and trains each, and generates with these options. */
Test(model_folder_cases, a_generation_config_stops_no_training)
{
    static const char *const texts[] = {
        "{\"do_sample\":true,\"temperature\":0.0}", "{\"do_sample\":true,\"top_k\":-1}",
        "{\"do_sample\":false,\"top_p\":0}", "{\"eos_token_id\":-1}", "{\"do_sample\":1}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("m/generation_config.json", texts[i]);
        expect("rm -rf out; " LATHE " train run.toml --train.max_steps 1 2>&1", 0, "checkpoint");
        expect(LATHE " generate m --prompt hi --temperature 0.7 --top-k 5 --top-p 0.9 "
                     "--max-new-tokens 1 2>&1",
               0, "hi");
    }
    put("m/generation_config.json", texts[1]);
    expect(LATHE " generate m --prompt hi --max-new-tokens 1 2>&1", 2,
           "m/generation_config.json: top_k is -1; expected an integer from 0");
    expect(LATHE " validate run.toml --generate.every 1 --checkpoint.dir other 2>&1", 2,
           "top_k is -1");
}

/* One answer of every command to a word that names no model: quantize said of a name of the Hub
 * that it "has no config.json". */
Test(model_folder_cases, words_without_a_model_are_told_apart)
{
    static const char *const commands[][2] = {
        {"quantize", "--quant.name nf4 -o x"}, {"convert", "-o x.gguf"}, {"merge", "m -o x"}};
    static const char *const cases[][2] = {
        {"none", "none: no such file or folder; expected the folder of a model"},
        {"org/name", "hf download org/name --local-dir org/name"},
        {"file.txt", "file.txt: neither a folder nor a GGUF file"},
        {"empty", "empty: has no config.json, so it is not a model folder"},
    };
    char command[1024];
    cr_assert_eq(run("mkdir empty && echo a >file.txt"), 0);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            (void)snprintf(command, sizeof command, LATHE " %s %s %s 2>&1", commands[i][0],
                           cases[k][0], commands[i][1]);
            expect(command, 2, cases[k][1]);
        }
    expect(LATHE " generate m --generate.draft empty --prompt a 2>&1", 2,
           "empty: has no config.json, so it is not a model folder");
    put("p.jsonl", "{\"prompt\": \"a\"}\n");
    put("ppo.toml", "[model]\npath = \"m\"\n[data]\ndatasets = [{ path = \"p.jsonl\" }]\n"
                    "seq_len = 16\n[stage]\nname = \"ppo\"\nmax_new_tokens = 2\n[train]\n"
                    "max_steps = 1\nthreads = 1\n[checkpoint]\ndir = \"ppo\"\n");
    expect(LATHE " validate ppo.toml --reward.model empty 2>&1", 2,
           "--reward.model: error: reward.model: empty: has no config.json, so it is not a model");
    expect(LATHE " merge m file.txt -o x 2>&1", 2,
           "file.txt: is no folder; expected the folder of an adapter");
}
