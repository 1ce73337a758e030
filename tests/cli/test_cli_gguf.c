/* Training, evaluation, text, merging and quantization from a GGUF file: each as from the folder
 * that lathe convert makes of the file, bit for bit; and files that cannot be a model. */
#include "cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe "
#define DATA LATHE_TEST_DATA "/golden/data/"

static const char run_text[] = "[data]\n"
                               "datasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "seq_len = 16\n"
                               "[train]\n"
                               "max_steps = 2\n"
                               "threads = 1\n"
                               "micro_batch_size = 2\n"
                               "[checkpoint]\n"
                               "every = 1\n";

static void setup(void)
{
    make_folder();
    put("run.toml", run_text);
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 40);
}

TestSuite(cli_gguf, .init = setup, .fini = remove_folder);

/* Makes m.gguf of a model, and the folder "back" of m.gguf. */
static void put_both(const char *name, const char *vocab, const char *type)
{
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "rm -rf m.gguf back %s && cp -r " DATA
                   "models/%s . && chmod -R u+w %s && cp " DATA
                   "tokenizer/tiny_%s.json %s/tokenizer.json && echo '{{ messages[0].content }}' "
                   ">%s/chat_template.jinja && " LATHE "convert %s -o m.gguf --type %s && " LATHE
                   "convert m.gguf -o back",
                   name, name, name, vocab, name, name, name, type);
    cr_assert_eq(run(command), 0, "%s", output);
}

/* Runs a command with MODEL as the file and as the folder, with outputs a and b, and compares what
 * it printed and the files that `files` lists. */
static void expect_same(const char *command, const char *files)
{
    char both[4096];
    (void)snprintf(both, sizeof both,
                   "rm -rf a b; MODEL=m.gguf; OUT=a; %s >a.txt 2>a.err || { cat a.err; exit 1; }; "
                   "MODEL=back; OUT=b; %s >b.txt 2>b.err || { cat b.err; exit 1; }; "
                   "for f in %s; do cmp a/$f b/$f || exit 1; done",
                   command, command, files);
    cr_expect_eq(run(both), 0, "%s: %s", command, output);
}

#define TRAIN LATHE "train run.toml --model.path $MODEL --checkpoint.dir $OUT "
#define LOSSES " && grep -o '\"step.*\"lr\"' $OUT/metrics.jsonl | sed 's/\"lr\".*//'"

Test(cli_gguf, every_family_trains_as_from_the_folder)
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
                                            {"apertus", "64"},
                                            {"mixtral", "64"},
                                            {"qwen2_moe", "64"},
                                            {"qwen3_moe", "64"},
                                            {"glm4_moe_groups", "64"}};
    static const char *const types[] = {"q8_0", "bf16", "f32", "q4_0"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        put_both(models[i][0], models[i][1], types[i % 4]);
        expect_same(TRAIN "--adapter.name lora --train.precision bf16" LOSSES,
                    "step-00000002/adapter_model.safetensors");
        cr_expect_eq(run("cmp a.txt b.txt && test -s a.txt"), 0, "%s: %s", models[i][0], output);
    }
}

Test(cli_gguf, a_checkpoint_of_the_whole_model_is_a_usual_folder)
{
    static const char files[] = "step-00000002/model.safetensors step-00000002/config.json "
                                "step-00000002/tokenizer.json step-00000002/chat_template.jinja "
                                "step-00000002/tokenizer_config.json "
                                "step-00000002/generation_config.json";
    put_both("llama_tied", "128", "q8_0");
    expect_same(TRAIN "--train.precision bf16", files);
    /* layers that do not train are decoded from the file when the model is saved */
    expect_same(TRAIN "--adapter.name freeze --adapter.layers 1 --train.precision bf16", files);
    expect(LATHE "generate a --prompt the --max-new-tokens 2 2>&1", 0, "the");
    /* the second step again, from the first checkpoint */
    expect_same(TRAIN "--adapter.name freeze --adapter.layers 1 && rm -rf $OUT/step-00000002 && "
                      "echo step-00000001 >$OUT/latest && cp -r $OUT $OUT.first && " TRAIN
                      "--adapter.name freeze --adapter.layers 1",
                files);
}

Test(cli_gguf, an_adapter_names_the_file_and_is_used_with_it)
{
    put_both("llama_tied", "128", "q8_0");
    expect_same(TRAIN "--adapter.name lora", "step-00000002/adapter_model.safetensors");
    expect("cat a/step-00000002/adapter_config.json", 0, "/m.gguf\"");
    cr_expect_eq(run("for x in a b; do " LATHE "generate $x --prompt the --temperature 0 "
                     "--max-new-tokens 4 2>/dev/null >$x.text && " LATHE
                     "eval $x --data text.txt --json 2>/dev/null >$x.json || exit 1; done; "
                     "test -s a.text && test -s a.json && cmp a.text b.text && cmp a.json b.json"),
                 0, "%s", output);
    expect(LATHE "lineage a 2>&1", 0, "<- model: ");
    expect(LATHE "lineage a 2>&1", 0, "/m.gguf\n      file      m.gguf  ");
    cr_expect_not_null(strstr(output, "  unchanged\n      begins    here: "), "%s", output);
    /* the record has the hash of the file */
    expect("grep -o \"$(sha256sum m.gguf | cut -c1-64)\" a/step-00000002/manifest.json", 0, "");
    /* the file under another name is found by its content; another one is refused */
    cr_assert_eq(
        run("cp m.gguf n.gguf; head -c -1 m.gguf >cut; cat cut >o.gguf; printf z >>o.gguf"), 0);
    expect("MODEL=n.gguf; OUT=a; " TRAIN "--adapter.name lora --train.max_steps 3 2>&1", 0,
           "step-00000003");
    expect("MODEL=o.gguf; OUT=a; " TRAIN "--adapter.name lora --train.max_steps 4 2>&1", 2,
           "its content changed");
}

/* The file alone, as the parent of a run shows it. */
Test(cli_gguf, has_a_lineage_of_its_own_hash)
{
    put_both("llama_tied", "128", "q8_0");
    expect(LATHE "lineage m.gguf 2>&1", 0, "/m.gguf\n  file      m.gguf  ");
    cr_expect_not_null(strstr(output, "begins    here: "), "%s", output);
    expect(LATHE "lineage m.gguf | grep -o \"$(sha256sum m.gguf | cut -c1-64)\"", 0, "");
    expect("echo '[model]' >run.toml; " LATHE "lineage run.toml 2>&1", 2,
           "run.toml: nothing was trained yet: its folder out (checkpoint.dir) is not there");
    expect("touch file.txt; " LATHE "lineage file.txt 2>&1", 2,
           "file.txt: this file is no model; expected a checkpoint, the folder of a run, a model's "
           "folder, or a GGUF file");
    expect(": >e.gguf; " LATHE "lineage e.gguf 2>&1", 1,
           "it has the name of a GGUF file, but does not begin as one");
}

Test(cli_gguf, an_adapter_is_merged_into_the_file)
{
    put_both("llama_tied", "128", "q8_0");
    cr_assert_eq(run("MODEL=m.gguf; OUT=run; " TRAIN "--adapter.name lora 2>&1"), 0, "%s", output);
    expect_same(LATHE "merge $MODEL run -o $OUT", "model.safetensors config.json tokenizer.json");
    expect_same(LATHE "merge $MODEL run -o $OUT --checkpoint.save_dtype bf16", "model.safetensors");
    expect("grep dtype a/config.json", 0, "bfloat16");
    expect_same(LATHE "merge $MODEL run --quant.name int8 -o $OUT",
                "model.safetensors config.json");
    expect_same(LATHE "quantize $MODEL --quant.name int8 -o $OUT", "model.safetensors");
    expect(LATHE "merge m.gguf run --quant.name gptq -o c 2>&1", 2, "calibrated");
    cr_expect_neq(run("ls -d c c.*"), 0, "%s", output);
}

Test(cli_gguf, commands_read_the_file_as_the_folder)
{
    put_both("qwen2", "120", "q8_0");
    expect_same(LATHE "generate $MODEL --prompt the --temperature 0 --max-new-tokens 8", "");
    cr_expect_eq(run("test -s a.txt && cmp a.txt b.txt"), 0);
    expect_same(LATHE "eval $MODEL --data text.txt --json", "");
    cr_expect_eq(run("test -s a.txt && cmp a.txt b.txt"), 0);
    expect_same(LATHE "plan run.toml --model.path $MODEL", "");
    cr_expect_eq(run("grep -v 'free in\\|fits' a.txt >a2; grep -v 'free in\\|fits' b.txt >b2; "
                     "test -s a2 && cmp a2 b2"),
                 0);
    expect_same("printf 'the wheel' | " LATHE "tokenizer encode $MODEL", "");
    cr_expect_eq(run("test -s a.txt && cmp a.txt b.txt"), 0);
    expect_same(LATHE "validate run.toml --model.path $MODEL", "");
    expect_same(
        "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"the wheel\"}]}' >c.jsonl; " LATHE
        "generate $MODEL --prompts c.jsonl --output $OUT.jsonl --temperature 0 --max-new-tokens 2",
        "");
    expect(LATHE "tokenizer check m.gguf", 0, "m.gguf (tokenizer.json)");
    expect(LATHE "chat-template m.gguf 2>&1", 0, "chat template of m.gguf");
    /* without the name's end, as Ollama stores files */
    expect("cp m.gguf blob && " LATHE "generate blob --prompt the --max-new-tokens 1 2>&1", 0,
           "the");
}

/* The keys are those of llama.cpp's converter (gguf-py, add_chat_template): the default template
 * alone, one key for each further one, whose name has letters, digits and _, and their list. */
Test(cli_gguf, several_chat_templates_become_keys_and_files_again)
{
    put_both("llama_tied", "128", "q8_0");
    cr_assert_eq(run("rm llama_tied/chat_template.jinja m.gguf && rm -r back"), 0);
    put("llama_tied/tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages[0].content "
        "}}\"}, "
        "{\"name\": \"tool_use\", \"template\": \"T{{ messages[0].content }}\"}, "
        "{\"name\": \"my-rag\", \"template\": \"R\"}]}");
    expect(LATHE "convert llama_tied -o m.gguf --type q8_0 2>&1", 0, "");
    for (int i = 0; i < 2; i++) {
        expect("grep -a -c -e tokenizer.chat_templates m.gguf", 0, "1");
        expect("grep -a -o -e 'tokenizer.chat_template.tool_use' m.gguf", 0, "tool_use");
        expect("grep -a -o -e 'tokenizer.chat_template.my_rag' m.gguf", 0, "my_rag");
        expect(LATHE "convert m.gguf -o back 2>&1", 0, "");
        expect("cat back/chat_template.jinja", 0, "{{ messages[0].content }}");
        expect("cat back/additional_chat_templates/tool_use.jinja", 0,
               "T{{ messages[0].content }}");
        expect("cat back/additional_chat_templates/my_rag.jinja", 0, "R");
        expect("rm m.gguf; " LATHE "convert back -o m.gguf --type q8_0 2>&1; rm -r back", 0, "");
    }
    put("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"the wheel\"}], \"tools\": "
                   "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}\n");
    expect(LATHE "chat-template m.gguf --show c.jsonl 2>&1", 0, "Tthe wheel");
}

Test(cli_gguf, a_teacher_may_be_a_file)
{
    put_both("llama_tied", "128", "q8_0");
    put_times("rows.jsonl", "{\"prompt\": \"the wheel\", \"completion\": \" turns\"}\n", 20);
    expect_same(LATHE "train run.toml --model.path llama_tied --checkpoint.dir $OUT --stage.name "
                      "distill --teacher.path $MODEL "
                      "'--data.datasets=[{ path = \"rows.jsonl\" }]'",
                "step-00000002/model.safetensors");
}

/* A file that cannot be a model is refused before a run, with its name and what is missing. */
static void expect_refused(const char *make, const char *text)
{
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "rm -f bad.gguf; %s; " LATHE "validate run.toml --model.path bad.gguf 2>&1",
                   make);
    const int code = run(command);
    cr_expect(code == 1 || code == 2, "%s: exit %d: %s", make, code, output);
    cr_expect_not_null(strstr(output, text), "%s: no '%s' in %s", make, text, output);
    cr_expect_not_null(strstr(output, "bad.gguf"), "%s", output);
}

Test(cli_gguf, files_that_are_no_model_are_refused_before_the_run)
{
    put_both("llama_tied", "128", "f32");
    expect_refused("head -c 3000 m.gguf >bad.gguf", "cut short");
    expect_refused("printf GGUF >bad.gguf", "header");
    expect_refused(": >bad.gguf", "is empty");
    expect_refused("LC_ALL=C sed 's/architecture\\(.\\{12\\}\\)llama/architecture\\1mamba/' m.gguf "
                   ">bad.gguf",
                   "the architecture is \"mamba\"");
    expect_refused("LC_ALL=C sed 's/blk.1.ffn_up/blk.1.ffn_xx/' m.gguf >bad.gguf",
                   "tensor blk.1.ffn_xx.weight is not part of a model of type llama");
    expect_refused("LC_ALL=C sed 's/blk.1.ffn_up/blk.7.ffn_up/' m.gguf >bad.gguf",
                   "no tensor model.layers.1.mlp.up_proj.weight");
    expect_refused("LC_ALL=C sed 's/\\(llama.embedding_length....\\)..../\\1\\x40\\x00\\x00\\x00/' "
                   "m.gguf >bad.gguf",
                   "the configuration expects");
    expect_refused(
        "LC_ALL=C sed 's/tokenizer.ggml.model\\(.\\{12\\}\\)gpt2/tokenizer.ggml.model\\1bert/' "
        "m.gguf >bad.gguf",
        "tokenizer.ggml.model is \"bert\"");
    expect_refused("LC_ALL=C sed 's/tokenizer.ggml.merges/tokenizer.ggml.m_rges/' m.gguf >bad.gguf",
                   "the key tokenizer.ggml.merges is missing");
    expect_refused("LC_ALL=C sed 's/tokenizer.ggml.model/tokenizer.ggml.m_del/' m.gguf >bad.gguf",
                   "bad.gguf: the key tokenizer.ggml.model is missing");
    expect_refused("cp " DATA "gguf/spm_llama.gguf bad.gguf", "no tensors");
}
