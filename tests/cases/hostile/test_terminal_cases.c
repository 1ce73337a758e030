/* No byte of a foreign file controls the terminal: names and words with escape sequences in every
 * kind of file that Lathe reads and quotes in a message, table or note. */
#include <stdint.h>

#include "base/buffer.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "cli/cli_case.h"
#include "support/terminal.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* Colour, title, 8-bit CSI as a character and as a byte, carriage return, backspace, bell, bidi
 * override and isolate, DEL. JSON and TOML escapes of the same characters, without the lone byte.
 */
#define RAW "\033[31mRED\033]0;PWN\007\302\2332J\233\r\b\342\200\256\342\201\246\177"
#define ESCAPED "\\u001b[31mRED\\u001b]0;PWN\\u0007\\u009b2J\\r\\b\\u202e\\u2066\\u007f"
/* The part of it that a file name, a line of CSV or a template can hold. */
#define NAME "\033[31mRED\033]0;PWN\007\302\233\342\200\256"

static const char run_file[] =
    "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
    "[tokenizer]\ntrain = { vocab_size = 264 }\n[data]\ndatasets = [{ path = \"text.txt\" "
    "}]\nseq_len = 16\n"
    "[optimizer]\nlr = 0.01\n[train]\nmax_steps = 2\nthreads = 1\n[checkpoint]\ndir = \"out\"\n";

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"single_word\": "
    "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}], "
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"a+\"}, \"behavior\": \"Isolated\", \"invert\": false}, \"post_processor\": null, "
    "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<e>\": 3}, \"merges\": [\"a b\"]}}";

static void setup(void)
{
    make_folder();
    put("run.toml", run_file);
    put_times("text.txt", "the wheel turns and the tool holds\n", 40);
    put("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi " ESCAPED "\"}, "
                      "{\"role\": \"assistant\", \"content\": \"yes\"}]}\n");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000002");
    expect(LATHE " train run.toml --checkpoint.dir lora --adapter.name lora 2>&1", 0, "checkpoint");
    cr_assert_eq(run("cp -r out/step-00000002 base && cp -r lora/step-00000002 ad && "
                     "rm -r base/state base/manifest.json ad/state ad/manifest.json "
                     "ad/model.safetensors ad/config.json && "
                     "cp base/model.safetensors whole.safetensors"),
                 0, "%s", output);
    put("tokenizer.json", tokenizer);
}

TestSuite(terminal_cases, .init = setup, .fini = remove_folder, .timeout = 200);

/* Describes the first character of `output` that a terminal would obey; NULL: none. */
static const char *unsafe(void)
{
    static char text[80];
    const uint8_t *at = (const uint8_t *)output;
    for (int64_t n = (int64_t)strlen(output), i = 0; i < n;) {
        int32_t length;
        const int32_t c = lathe_utf8_at(at + i, n - i, &length);
        const int is_control = c < 0 || (c < 0x20 && c != '\n' && c != '\t') ||
                               (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
                               (c >= 0x2066 && c <= 0x2069);
        if (is_control) {
            (void)snprintf(text, sizeof text, "byte %lld: %02x, character %d", (long long)i, at[i],
                           (int)c);
            return text;
        }
        i += length;
    }
    return NULL;
}

/* Runs a command that reads a foreign text; `seen` must be in its output, mostly the text's word.
 */
static void check(const char *name, const char *command, const char *seen)
{
    char both[4096];
    (void)snprintf(both, sizeof both, "</dev/null %s 2>&1", command);
    (void)run(both);
    const char *bad = unsafe();
    cr_expect_null(bad, "%s: %s in\n%s", name, bad ? bad : "", output);
    cr_expect_not_null(strstr(output, seen), "%s: no %s in\n%s", name, seen, output);
}

static char *read_whole(const char *path, int64_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    *out_n = (int64_t)fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    return text;
}

static void write_whole(const char *path, const char *text, int64_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq((int64_t)fwrite(text, 1, (size_t)n, file), n);
    cr_assert_eq(fclose(file), 0);
}

/* Replaces the first `from` of a file; a safetensors header keeps its count of bytes right. */
static void edit(const char *path, const char *from, const char *to)
{
    int64_t n;
    char *text = read_whole(path, &n);
    char *at = memmem(text, (size_t)n, from, strlen(from));
    cr_assert_not_null(at, "%s has no %s", path, from);
    const int64_t before = at - text, cut = (int64_t)strlen(from), added = (int64_t)strlen(to);
    char *made = calloc(1, (size_t)(n + added));
    memcpy(made, text, (size_t)before);
    memcpy(made + before, to, (size_t)added);
    memcpy(made + before + added, at + cut, (size_t)(n - before - cut));
    if (strstr(path, ".safetensors") && !strstr(path, ".json")) {
        uint64_t header;
        memcpy(&header, made, 8);
        header += (uint64_t)(added - cut);
        memcpy(made, &header, 8);
    }
    write_whole(path, made, n + added - cut);
    free(text);
    free(made);
}

typedef struct edited {
    const char *file, *from, *to; /* in a copy of the folder; from NULL: `to` is the file */
    const char *command;          /* with "m", the copy */
    const char *seen;             /* in its output; NULL: the text's own word */
} edited;

static void check_edits(const char *folder_name, const edited *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[256], command[512], name[400];
        (void)snprintf(command, sizeof command, "rm -rf m && cp -r %s m", folder_name);
        cr_assert_eq(run(command), 0, "%s", output);
        (void)snprintf(path, sizeof path, "m/%s", cases[i].file);
        if (cases[i].from)
            edit(path, cases[i].from, cases[i].to);
        else
            put(path, cases[i].to);
        (void)snprintf(name, sizeof name, "%zu, %s", i, cases[i].file);
        check(name, cases[i].command, cases[i].seen ? cases[i].seen : "RED");
    }
}

#define GENERATE LATHE " generate m --prompt a --max-new-tokens 1"

Test(terminal_cases, files_of_a_model)
{
    static const edited cases[] = {
        {"config.json", "\"llama\"", "\"" ESCAPED "\"", GENERATE, NULL},
        {"config.json", "\"silu\"", "\"" ESCAPED "\"", GENERATE, NULL},
        {"config.json", "\"vocab_size\": 2",
         "\"rope_scaling\": {\"rope_type\": \"" ESCAPED "\", \"factor\": 2}, \"vocab_size\": 2",
         GENERATE, NULL},
        {"config.json", "\"vocab_size\": 2",
         "\"quantization_config\": {\"quant_method\": \"" ESCAPED "\"}, \"vocab_size\": 2",
         GENERATE, NULL},
        {"config.json", "\"hidden_size\": 32", "\"hidden_size\": \"" ESCAPED "\"", GENERATE, NULL},
        {"config.json", "{", "{\"" ESCAPED "\": 1, \"" ESCAPED "\": 2,", GENERATE, "duplicate"},
        {"config.json", "{", "{ " RAW, GENERATE, "json"},
        {"generation_config.json", NULL, "{\"do_sample\": true, \"top_k\": \"" ESCAPED "\"}",
         GENERATE, "top_k"},
        {"model.safetensors", "model.norm.weight", "t" ESCAPED, GENERATE, "norm"},
        {"model.safetensors", "\"dtype\":\"F32\"", "\"dtype\":\"" ESCAPED "\"", GENERATE, NULL},
        {"model.safetensors", "\"dtype\"", "\"" ESCAPED "\"", GENERATE, "safetensors"},
        {"chat_template.jinja", NULL, "{{ raise_exception('" NAME "') }}",
         LATHE " chat-template m --show chat.jsonl", NULL},
        {"chat_template.jinja", NULL,
         "{% for m in messages %}{{ raise_exception(m.content) }}"
         "{% endfor %}",
         LATHE " chat-template m --show chat.jsonl", NULL},
        {"chat_template.jinja", NULL, "{{ 'a'|f" NAME " }}", LATHE " chat-template m", "U+001B"},
        {"chat_template.jinja", NULL, "{{ 'RED' | " NAME " }}", LATHE " chat-template m", "U+001B"},
        {"chat_template.jinja", NULL, "{% RED" NAME " %}", LATHE " chat-template m", "U+001B"},
        {"chat_template.jinja", NULL, "{{ messages[0]['" NAME "'] + 1 }}",
         LATHE " chat-template m --show chat.jsonl", NULL},
        {"chat_template.jinja", NULL, "{{ messages[0].content.RED" NAME "() }}",
         LATHE " chat-template m --show chat.jsonl", "U+001B"},
        {"chat_template.jinja", NULL, "{% for m in messages %}{{ m.content }}{% endfor %}",
         LATHE " chat-template m --show chat.jsonl", NULL},
        {"chat_template.jinja", NULL, "{% for m in messages %}{{ m.content }}{% endfor %}",
         LATHE " chat-template m --show chat.jsonl --json", NULL},
        {"chat_template.jinja", NULL, "{{ raise_exception('" NAME "') }}",
         LATHE " chat m <text.txt", NULL},
        {"tokenizer.json", NULL, "{\"model\": {\"type\": \"" ESCAPED "\"}}",
         LATHE " tokenizer check m", NULL},
        {"tokenizer.json", NULL, "{\"" ESCAPED "\": \"" ESCAPED, LATHE " tokenizer check m",
         "end of input"}};
    check_edits("base", cases, sizeof cases / sizeof *cases);
}

Test(terminal_cases, tokenizers)
{
    static const edited cases[] = {
        {"tokenizer.json", "\"a+\"", "\"(" ESCAPED "\"", LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"a+\"", "\"\\\\p{" ESCAPED "}\"", LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"Split\"", "\"" ESCAPED "\"", LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"Isolated\"", "\"" ESCAPED "\"", LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"a b\"", "\"" ESCAPED " b\"", LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"normalizer\": null", "\"normalizer\": {\"type\": \"" ESCAPED "\"}",
         LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"decoder\": null", "\"decoder\": {\"type\": \"" ESCAPED "\"}",
         LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"unk_token\": null", "\"unk_token\": \"" ESCAPED "\"",
         LATHE " tokenizer check m", NULL},
        {"tokenizer.json", "\"content\": \"<e>\"", "\"content\": \"<" ESCAPED "\"",
         LATHE " tokenizer encode m --text a", NULL},
        {"tokenizer.json", "\"<e>\": 3", "\"" ESCAPED "\": 3, \"c\": 4",
         LATHE " tokenizer encode m --text c", NULL}};
    cr_assert_eq(run("mkdir tok && cp tokenizer.json tok"), 0);
    check_edits("tok", cases, sizeof cases / sizeof *cases);
}

#define MERGE "rm -rf merged; " LATHE " merge base m -o merged"

Test(terminal_cases, adapters_and_shards)
{
    static const edited cases[] = {
        {"adapter_config.json", "\"LORA\"", "\"" ESCAPED "\"", MERGE, NULL},
        {"adapter_config.json", "\"none\"", "\"" ESCAPED "\"", MERGE, NULL},
        {"adapter_config.json", "\"r\": 32", "\"r\": \"" ESCAPED "\"", MERGE, "adapter.r"},
        {"adapter_config.json", "\"rank_pattern\": {}", "\"rank_pattern\": {\"(" ESCAPED "\": 4}",
         MERGE, NULL},
        {"adapter_config.json", "\"modules_to_save\": null",
         "\"modules_to_save\": [\"" ESCAPED "\"]", MERGE, NULL},
        {"adapter_model.safetensors", "base_model.model.", "base_model." ESCAPED ".", MERGE,
         "base_model"}};
    static const edited shards[] = {
        {"model.safetensors.index.json", NULL,
         "{\"weight_map\": {\"lm_head.weight\": \"" ESCAPED ".safetensors\"}}", GENERATE, NULL},
        {"model.safetensors.index.json", NULL,
         "{\"weight_map\": {\"lm_head.weight\": \"../" ESCAPED "\"}}", GENERATE, NULL},
        {"model.safetensors.index.json", NULL, "{\"weight_map\": {\"" ESCAPED "\": 3}}", GENERATE,
         NULL},
        {"model.safetensors.index.json", NULL,
         "{\"weight_map\": {\"" ESCAPED "\": \"w.safetensors\"}}", GENERATE, NULL}};
    check_edits("ad", cases, sizeof cases / sizeof *cases);
    cr_assert_eq(run("mv base/model.safetensors base/w.safetensors"), 0);
    check_edits("base", shards, sizeof shards / sizeof *shards);
}

Test(terminal_cases, files_of_a_run)
{
    static const edited cases[] = {
        {"run.json", "\"family\": \"llama\"", "\"family\": \"" ESCAPED "\"",
         LATHE " watch m --once", "loss"},
        {"run.json", "\"asked\": \"bf16\"", "\"asked\": \"" ESCAPED "\"", LATHE " watch m --once",
         "loss"},
        {"metrics.jsonl", "{\"step\": 1", "{\"" ESCAPED "\": 1, \"step\": 1",
         LATHE " watch m --once", "loss"},
        {"latest", NULL, "step-" RAW, LATHE " checkpoint ls m", "latest"},
        {"latest", NULL, "step-" RAW, LATHE " generate m --prompt a", "lathe"},
        {"lock", NULL, RAW, LATHE " watch m --once", "loss"},
        {"step-00000002/manifest.json", "\"version\": \"1.0.0\"", "\"version\": \"" ESCAPED "\"",
         LATHE " lineage m", "damaged"},
        {"step-00000002/manifest.json", "\"version\": \"1.0.0\"", "\"version\": \"" ESCAPED "\"",
         LATHE " lineage m --json", "damaged"},
        {"step-00000002/manifest.json", "\"config.json\": {\"bytes\"",
         "\"" ESCAPED "\": {\"bytes\"", LATHE " checkpoint verify m", "damaged"},
        {"step-00000002/manifest.json", "\"lathe\": \"0.1.0\"", "\"lathe\": \"" ESCAPED "\"",
         LATHE " lineage m", "damaged"},
        {"step-00000002/config.json", "\"llama\"", "\"" ESCAPED "\"",
         LATHE " train run.toml --checkpoint.dir m --train.max_steps 3", "config"}};
    check_edits("out", cases, sizeof cases / sizeof *cases);
    cr_assert_eq(run("cp -r out two && cp -r out/step-00000002 'two/step-00000003" NAME "'"), 0);
    check("a checkpoint's name", LATHE " checkpoint ls two", "step");
    check("diff",
          "cp -r out/step-00000002 'd" NAME "'; " LATHE " checkpoint diff out/step-00000002 'd" NAME
          "'",
          "RED");
}

#define VALIDATE LATHE " validate run.toml --data.datasets '[{path = \"%s\"}]' --stage.name %s"

typedef struct written {
    const char *file, *text, *stage;
} written;

Test(terminal_cases, data)
{
    static const written cases[] = {
        {"bad.jsonl", "{\"prompt" ESCAPED "\": \"RED\"}\n", "sft"},
        {"bad.jsonl", "{\"prompt" ESCAPED "\": \"RED\"}\n", "dpo"},
        {"raw.jsonl", RAW " not json\n", "sft"},
        {"roles.jsonl",
         "{\"messages\": [{\"role\": \"RED" ESCAPED "\", \"content\": \"x\"}, {\"role\": "
         "\"assistant\", \"content\": \"y\"}]}\n",
         "dpo"},
        {"kinds.jsonl", "{\"messages\": {\"" ESCAPED "\": \"RED\"}}\n", "sft"},
        {"twice.jsonl", "{\"" ESCAPED "\": 1, \"" ESCAPED "\": 2}\n", "pretrain"},
        {"bad.csv", NAME ",b\n1,2,3\n", "sft"},
        {"columns.csv", NAME ",b\n1,2\n", "sft"},
        {"columns.tsv", NAME "\tb\n1\t2\n", "dpo"},
    };
    expect("sed -i 's/^train = .*/path = \"bytes\"/' run.toml", 0, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        put(cases[i].file, cases[i].text);
        (void)snprintf(command, sizeof command, VALIDATE, cases[i].file, cases[i].stage);
        check(cases[i].file, command, cases[i].file);
    }
    put("sets.jsonl", "{\"text\": \"the wheel " ESCAPED " turns and the tool holds\"}\n");
    check("data", LATHE " data run.toml --data.datasets '[{path = \"sets.jsonl\"}]' --n 9", "x1b");
    check("data --json",
          LATHE " data run.toml --data.datasets '[{path = \"sets.jsonl\"}]' --json "
                "",
          "sets");
    cr_assert_eq(run("mkdir texts && cp text.txt 'texts/a" NAME ".txt' && cp text.txt texts/b.md"),
                 0);
    check("names of files", LATHE " data run.toml --data.datasets '[{path = \"texts\"}]'", "texts");
    cr_assert_eq(run("printf 'a\\0b' > 'texts/c" NAME ".txt'"), 0);
    check("a file that is no text", LATHE " data run.toml --data.datasets '[{path = \"texts\"}]'",
          "RED");
    put("p.jsonl", "{\"prompt\": 3, \"" ESCAPED "\": \"RED\"}\n");
    check("prompts", LATHE " generate base --prompts p.jsonl -o o", "jsonl");
    put("m.jsonl", "{\"messages\": [{\"role\": \"" ESCAPED "\", \"content\": \"RED\"}]}\n");
    check("messages", LATHE " generate base --messages m.jsonl", "lathe");
}

Test(terminal_cases, words_of_the_user_and_of_programs)
{
    static const char *const tables[] = {
        "[model]\n\"" ESCAPED "\" = 1\n",
        "[model]\nmodel_type = \"" ESCAPED "\"\n",
        "[model]\npath = \"" ESCAPED "\"\n",
        "[model]\npath = \"" RAW "\"\n",
        "[\"" ESCAPED "\"]\na = 1\n",
        "[optimizer]\nname = \"" ESCAPED "\"\n",
        "[train]\nmax_steps = \"" ESCAPED "\"\n",
        "[data]\ndatasets = [{ path = \"x\", \"" ESCAPED "\" = 1 }]\n",
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        put("t.toml", tables[i]);
        check(tables[i], LATHE " validate t.toml", "t.toml");
        check(tables[i], LATHE " validate t.toml --json", "t.toml");
    }
    check("a value", LATHE " validate run.toml --optimizer.name '" NAME "'", "RED");
    check("a file", LATHE " validate '" NAME "'", "RED");
    check("a command", LATHE " '" NAME "'", "RED");
    check("an option", LATHE " train --'" NAME "'", "RED");
    check("a plugin", LATHE " show 'optimizer/" NAME "'", "RED");
    check("a file of a plugin", "cp text.txt '" NAME ".so'; " LATHE " plugin check './" NAME ".so'",
          "RED");
    put("prompts.jsonl", "{\"prompt\": \"the wheel\"}\n{\"prompt\": \"the tool\"}\n");
    put("says.sh", "while read line; do printf '\\033[31mRED\\033]0;PWN\\007\\n'; done\n");
    put("dies.sh", "printf '\\033[31mRED\\033]0;PWN\\007\\n' >&2; exit 3\n");
    put("ppo.toml", "[model]\npath = \"base\"\n[data]\ndatasets = [{ path = \"prompts.jsonl\" }]\n"
                    "seq_len = 16\n[stage]\nname = \"ppo\"\nmax_new_tokens = 2\n[reward]\n"
                    "name = \"command\"\n[train]\nmax_steps = 1\nthreads = 1\n"
                    "[checkpoint]\ndir = \"ppo\"\n");
    check("what a reward program prints",
          LATHE " train ppo.toml --reward.command '[\"sh\", \"says.sh\"]'", "RED");
    check("what a reward program complains of",
          LATHE " train ppo.toml --reward.command '[\"sh\", \"dies.sh\"]'", "RED");
}

/* Writes a golden GGUF file with other bytes at the first `from`, which has the length of `to`. */
static void put_gguf(const char *golden, const char *from, const char *to)
{
    char path[512];
    int64_t n;
    (void)snprintf(path, sizeof path, LATHE_TEST_DATA "/golden/data/gguf/%s", golden);
    char *text = read_whole(path, &n);
    char *at = memmem(text, (size_t)n, from, strlen(from));
    cr_assert_not_null(at, "%s has no %s", golden, from);
    memcpy(at, to, strlen(from));
    write_whole("m.gguf", text, n);
    free(text);
}

Test(terminal_cases, gguf)
{
    put_gguf("codecs.gguf", "llama", "RED\033\007");
    check("an architecture", LATHE " convert m.gguf -o made", "RED");
    put_gguf("codecs.gguf", "decode.BF16", "decode\033[31m");
    check("a tensor's name", LATHE " convert m.gguf -o made", "gguf");
    put_gguf("spm_llama.gguf", "tokenizer.ggml.pre", "tokenizer\033[31mRED\007");
    check("a key", LATHE " tokenizer check m.gguf", "gguf");
}

/* A generated text is for programs in a pipe, and for eyes on a terminal. */
Test(terminal_cases, output_that_was_asked_for)
{
    expect(LATHE
           " generate base --prompt 'a\033[31mRED' --max-new-tokens 1 2>/dev/null | head -c 9",
           0, "a\033[31mRED");
    static const char *const generate[] = {LATHE,          "generate",         "base", "--prompt",
                                           "a\033[31mRED", "--max-new-tokens", "1",    NULL};
    static terminal tty;
    terminal_start(&tty, 24, 100, generate);
    cr_expect_eq(terminal_wait(&tty), 0, "%s", tty.text);
    terminal_close(&tty);
    size_t n = 0;
    for (const char *at = tty.text; *at; at++) /* the terminal turns a line's end into \r\n */
        if (*at != '\r')
            output[n++] = *at;
    output[n] = '\0';
    cr_expect_null(unsafe(), "%s", output);
    cr_expect_not_null(strstr(output, "a\\x1b[31mRED"), "%s", output);
}

Test(printable, form_and_rooms)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"plain\ttext\n", "plain\ttext\n"},
                 {"\033[0m\r\177", "\\x1b[0m\\x0d\\u007f"},
                 {"\302\233\342\200\256\363\240\201\201", "\\u009b\\u202e\\udb40\\udc41"},
                 {"\233\377", "\\x9b\\xff"},
                 {"\303\251\342\200\215\360\237\230\200", "\303\251\342\200\215\360\237\230\200"},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char copy[64];
        lathe_buffer out = LATHE_BUFFER_INIT;
        lathe_printable_copy(copy, sizeof copy, cases[i].text);
        cr_expect_str_eq(copy, cases[i].want);
        (void)lathe_buffer_printable(&out, cases[i].text, (int64_t)strlen(cases[i].text),
                                     INT64_MAX);
        cr_expect_str_eq(out.data ? out.data : "", cases[i].want);
        lathe_buffer_fini(&out);
    }
    char small[6]; /* an escape is never cut in two */
    lathe_printable_copy(small, sizeof small, "ab\033");
    cr_expect_str_eq(small, "ab");
    lathe_printable_copy(small, sizeof small,
                         "a\033"
                         "b");
    cr_expect_str_eq(small, "a\\x1b");
    lathe_buffer out = LATHE_BUFFER_INIT;
    cr_expect_eq(lathe_buffer_printable(&out,
                                        "a\033"
                                        "bc",
                                        4, 2),
                 2);
    cr_expect_str_eq(out.data, "a\\x1b");
    lathe_buffer_fini(&out);
}
