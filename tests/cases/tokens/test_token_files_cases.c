/* The files beside tokenizer.json are read like transformers reads them
 * (tests/golden/token_files.py), and told; the tokens that the tokenizer puts around a text are
 * there once; GGUF keeps the first token. */
#include "base/error.h"
#include "files/vocab/token_names.h"
#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokens_case.h"

#define DATA LATHE_TEST_DATA "/golden/data/"

TestSuite(token_files_cases, .init = setup, .fini = remove_folder);

static int32_t id_or_none(const json_t *value)
{
    return json_is_integer(value) ? (int32_t)json_integer_value(value) : -1;
}

static void compare(const json_t *row, const char *name)
{
    lathe_tokenizer *tok = NULL;
    lathe_ids ids = {0};
    const json_t *want = json_object_get(row, "ids"), *text = json_object_get(row, "text");
    cr_assert_eq(lathe_tokenizer_load("t", &tok), LATHE_OK, "%s: %s", name, lathe_error_message());
    cr_assert_eq(lathe_tokenizer_encode(tok, json_string_value(text),
                                        (int64_t)json_string_length(text), 0, &ids),
                 LATHE_OK);
    cr_expect_eq((size_t)ids.n, json_array_size(want), "%s: %lld ids", name, (long long)ids.n);
    for (int64_t i = 0; i < ids.n && (size_t)i < json_array_size(want); i++)
        cr_expect_eq(ids.data[i], json_integer_value(json_array_get(want, (size_t)i)),
                     "%s: id %lld is %d", name, (long long)i, ids.data[i]);
    cr_expect_eq(lathe_tokenizer_vocab_size(tok),
                 json_integer_value(json_object_get(row, "n_tokens")), "%s", name);
    cr_expect_eq(lathe_tokenizer_bos(tok), id_or_none(json_object_get(row, "bos")), "%s", name);
    cr_expect_eq(lathe_tokenizer_eos(tok), id_or_none(json_object_get(row, "eos")), "%s", name);
    cr_expect_eq(lathe_tokenizer_pad(tok), id_or_none(json_object_get(row, "pad")), "%s", name);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

Test(token_files_cases, files_beside_tokenizer_json_are_read_as_by_transformers)
{
    json_t *all = json_load_file(DATA "token_files.json", 0, NULL), *row, *content;
    const char *file;
    size_t i;
    cr_assert_gt(json_array_size(all), 35);
    json_array_foreach(all, i, row)
    {
        char name[32], path[64];
        (void)snprintf(name, sizeof name, "case %zu", i);
        cr_assert_eq(run("rm -rf t && mkdir t"), 0);
        put_tokenizer("t/tokenizer.json", "null", "null", chatml_tokens);
        json_object_foreach(json_object_get(row, "files"), file, content)
        {
            (void)snprintf(path, sizeof path, "t/%s", file);
            cr_assert_eq(json_dump_file(content, path, 0), 0);
        }
        compare(row, name);
    }
    json_decref(all);
}

/* A new version's key must get its place in the table. */
Test(token_files_cases, every_key_of_transformers_has_its_place)
{
    json_t *all = json_load_file(DATA "config_keys.json", 0, NULL), *key;
    size_t i;
    cr_assert_gt(json_array_size(json_object_get(all, "tokenizer_config")), 25);
    json_array_foreach(json_object_get(all, "tokenizer_config"), i, key)
    {
        cr_expect_neq(lathe_token_key(json_string_value(key)), LATHE_TOKEN_KEY_UNKNOWN, "%s",
                      json_string_value(key));
    }
    json_array_foreach(json_object_get(all, "tokenizer_arguments"), i, key)
    {
        cr_expect_neq(lathe_token_key(json_string_value(key)), LATHE_TOKEN_KEY_UNKNOWN, "%s",
                      json_string_value(key));
    }
    cr_expect_gt(i, 15);
    json_decref(all);
    put("m/tokenizer_config.json", "{\"split_special_tokens\": true}");
    expect(LATHE " tokenizer check m 2>&1", 1, "split_special_tokens is true");
}

static int count(const char *text)
{
    int n = 0;
    for (const char *at = output; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

/* Once, in one line, by each command; keys that say nothing, or are usual, are not named. */
Test(token_files_cases, keys_that_nothing_reads_are_named)
{
    static const char *const commands[] = {
        LATHE " tokenizer check m 2>&1", LATHE " train run.toml 2>&1",
        "printf '{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}' | " LATHE
        " chat-template m --show - 2>&1",
        "echo a | " LATHE " generate m --prompt a --max-new-tokens 1 2>&1"};
    put("run.toml", "[model]\npath = \"m\"\n[data]\n"
                    "datasets = [{ path = \"words.txt\", type = \"text\" }]\nseq_len = 16\n"
                    "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n[checkpoint]\n"
                    "dir = \"out\"\n");
    put("m/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"legacy\": true, \"sp_model_kwargs\": {\"a\": 1}, "
        "\"do_lower_case\": true, \"strip_accents\": null, \"add_eod_token\": true, "
        "\"image_token\": {\"__type\": \"AddedToken\", \"content\": \"<|im_start|>\"}, "
        "\"audio_token\": {\"content\": \"<|im_start|>\"}, \"zz\": [1]}");
    put("m/special_tokens_map.json", "{\"eos_token\": \"<|endoftext|>\", \"zzz\": \"x\"}");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        expect(commands[i], 0,
               "m/tokenizer_config.json: keys that nothing reads, since tokenizer.json says how a "
               "text becomes tokens: do_lower_case, add_eod_token, audio_token, zz\n");
        cr_expect_not_null(strstr(output, "m/special_tokens_map.json: keys that nothing reads, "
                                          "since tokenizer.json says how a text becomes tokens: "
                                          "zzz\n"),
                           "%s", output);
        cr_expect_eq(count("keys that nothing reads"), 2, "%s", output);
    }
    put("m/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\", \"legacy\": true}");
    cr_assert_eq(unlink("m/special_tokens_map.json"), 0);
    expect(commands[1], 0, "out/step-00000001");
    cr_expect_null(strstr(output, "keys that nothing reads"), "%s", output);
}

Test(token_files_cases, what_they_change_is_told_and_kept)
{
    put("m/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"pad_token\": \"[PAD]\", \"added_tokens_decoder\": "
        "{\"258\": {\"content\": \"<|im_end|>\", \"rstrip\": true, \"special\": true}}}");
    expect(LATHE " tokenizer check m 2>&1", 0, "add the token 259 \"[PAD]\"");
    cr_expect_not_null(strstr(output, "give the token 258 \"<|im_end|>\" other flags"), "%s",
                       output);
    put("run.toml", "[model]\npath = \"m\"\n[data]\n"
                    "datasets = [{ path = \"words.txt\", type = \"text\" }]\nseq_len = 16\n"
                    "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n[checkpoint]\n"
                    "dir = \"out\"\n");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    expect("printf '\"a<|im_end|> b\"\\n' | " LATHE
           " tokenizer encode out/step-00000001 --json-lines",
           0, "[97, 258, 98]");
    /* special_tokens_map.json names another end */
    put("m/tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    put("m/special_tokens_map.json", "{\"eos_token\": \"<|im_end|>\"}");
    expect(LATHE " tokenizer check m 2>&1", 0, "258 <|im_end|>");
}

/* A padding token for which the model has no row pads nothing: transformers trains such a folder.
 */
Test(token_files_cases, a_padding_token_of_its_own_stops_nothing)
{
    cr_assert_eq(run("sed -i 's/\"vocab_size\": 264/\"vocab_size\": 259/' m/config.json"), 0);
    put("make.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 259\nhidden_size = 64\n"
                     "intermediate_size = 96\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                     "[tokenizer]\npath = \"m\"\n[data]\n"
                     "datasets = [{ path = \"words.txt\", type = \"text\" }]\nseq_len = 16\n"
                     "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\n[checkpoint]\n"
                     "dir = \"made\"\n");
    cr_assert_eq(run(LATHE " train make.toml 2>&1"), 0, "%s", output);
    put("made/step-00000001/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"pad_token\": \"[PAD]\"}");
    expect("rm made/step-00000001/manifest.json; " LATHE
           " generate made/step-00000001 --prompt '[PAD]a' --max-new-tokens 2 2>&1",
           0, "pad_token \"[PAD]\" (259) has no row in the model, whose vocab_size is 259");
    expect(LATHE " tokenizer check made/step-00000001 2>&1", 0, "Lathe leaves it out");
    put("made/step-00000001/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"extra_special_tokens\": [\"<image>\"]}");
    expect(LATHE " generate made/step-00000001 --prompt a --max-new-tokens 2 2>&1", 2,
           "model and tokenizer do not belong together");
}

static const char around[] =
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<|im_start|>\", "
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": "
    "{\"id\": "
    "\"<|endoftext|>\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": "
    "0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"<|im_start|>\": "
    "{\"id\": \"<|im_start|>\", \"ids\": [257], \"tokens\": [\"<|im_start|>\"]}, "
    "\"<|endoftext|>\": {\"id\": \"<|endoftext|>\", \"ids\": [256], \"tokens\": "
    "[\"<|endoftext|>\"]}}}";

/* Text that a template wrote has its tokens: they are not put there twice, and the end that the
 * tokenizer appends to a text belongs after the completion, and merges with nothing. */
Test(token_files_cases, what_is_put_around_a_text_is_there_once)
{
    put_tokenizer("m/tokenizer.json", "null", around, chatml_tokens);
    put("run.toml", "[model]\npath = \"m\"\n[data]\ndatasets = [{ path = \"d.jsonl\" }]\n"
                    "seq_len = 8\ncache_dir = \"c\"\n[train]\nprecision = \"fp32\"\n"
                    "max_steps = 1\n[checkpoint]\ndir = \"out\"\n");
    put("d.jsonl", "{\"text\": \"<|im_start|>ab<|endoftext|>\"}\n{\"text\": \"ab\"}\n");
    expect(LATHE " data run.toml 2>&1", 0, "2 documents           8 tokens");
    put("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                   "{\"prompt\": \"<|im_start|>a\", \"completion\": \"b<|endoftext|>\"}\n");
    expect(LATHE " data run.toml --stage.name sft 2>&1", 0, "8 tokens");
    cr_expect_null(strstr(output, "merges"), "%s", output);
}

/* The first token of a text, whatever tokenizer_config.json names as bos_token. */
Test(token_files_cases, gguf_keeps_the_token_that_a_text_begins_with)
{
    put_tokenizer("m/tokenizer.json", "null", around, chatml_tokens);
    expect(LATHE " convert m -o m.gguf 2>&1", 0, "");
    expect("printf '\"a\"\\n' | " LATHE " tokenizer encode m.gguf --add-special --json-lines", 0,
           "[257, 97, 256]");
    put("m/tokenizer_config.json",
        "{\"eos_token\": \"<|endoftext|>\", \"bos_token\": \"<|im_end|>\"}");
    expect(LATHE " convert m -o n.gguf 2>&1", 0, "a text begins with <|im_start|>");
    expect("printf '\"a\"\\n' | " LATHE " tokenizer encode n.gguf --add-special --json-lines", 0,
           "[257, 97, 256]");
}

/* transformers' assistant mask begins at the token of the answer's first character: the line's end
 * before it, which the normalizer takes from a text that ends there, is no part of it. */
Test(token_files_cases, a_normalizer_that_strips_the_end_moves_no_mask)
{
    put_tokenizer("m/tokenizer.json",
                  "{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}", "null",
                  chatml_tokens);
    put("run.toml", "[model]\npath = \"m\"\n[data]\ndatasets = [{ path = \"t.jsonl\" }]\n"
                    "seq_len = 64\ncache_dir = \"c\"\n[stage]\nname = \"sft\"\n[train]\n"
                    "max_steps = 1\n[checkpoint]\ndir = \"out\"\n");
    put("t.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                   "\"assistant\",\"content\":\"ok\"}]}\n");
    expect(LATHE " data run.toml 2>&1", 0, "3 learnt");
    put("t.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                   "\"assistant\",\"content\":\"ok\"},{\"role\":\"user\",\"content\":\"A\"},"
                   "{\"role\":\"assistant\",\"content\":\"7\"}]}\n");
    expect(LATHE " data run.toml 2>&1", 0, "5 learnt");
    put("t.jsonl", "{\"prompt\": \"Q: \", \"completion\": \"ok\"}\n");
    expect(LATHE " data run.toml 2>&1", 0, "3 learnt");
}

/* transformers 5.24 with the class GPT2Tokenizer encodes "hello" as " hello" where
 * tokenizer_config.json says add_prefix_space, whatever tokenizer.json says; with
 * PreTrainedTokenizerFast it follows tokenizer.json. */
Test(token_files_cases, a_space_before_the_text_that_the_files_disagree_on_is_told)
{
    static const struct {
        const char *config;
        int is_told;
    } cases[] = {
        {"{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": true}", 1},
        {"{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": false}", 0},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"add_prefix_space\": true}", 0},
        {"{\"add_prefix_space\": true}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("m/tokenizer_config.json", cases[i].config);
        cr_expect_eq(run(LATHE " tokenizer encode m --text ab 2>&1"), 0, "%s", output);
        cr_expect_eq(count("warning: m: add_prefix_space is false in tokenizer.json and true in "
                           "tokenizer_config.json"),
                     cases[i].is_told, "%s: %s", cases[i].config, output);
    }
}
