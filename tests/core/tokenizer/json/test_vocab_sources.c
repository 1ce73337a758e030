/* Folders whose vocabulary has another form than tokenizer.json, compared with what transformers
 * makes of them (tests/golden/vocab_sources.py), and files of these forms that are wrong. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "files/gguf/model_files.h"
#include "files/vocab/vocab_class.h"
#include "files/vocab/vocab_source.h"
#include "tokenizer/json/tokenizer_file.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/vocab_sources/"

static char folder[64];

static void setup(void)
{
    lathe_log_set_level(LATHE_LOG_ERROR + 1);
    (void)snprintf(folder, sizeof folder, "/tmp/lathe-vocab-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void clean(void)
{
    (void)lathe_dir_remove(folder);
}

TestSuite(vocab_sources, .init = setup, .fini = clean);

static json_t *load_golden(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    return root;
}

static void check_ids(const char *name, const char *what, size_t text, const lathe_ids *ids,
                      const json_t *want)
{
    int same = ids->n == (int64_t)json_array_size(want);
    for (int64_t i = 0; i < ids->n && same; i++)
        same = ids->data[i] == json_integer_value(json_array_get(want, (size_t)i));
    cr_expect(same, "%s, %s of text %zu: %lld ids and %zu wanted, or others", name, what, text,
              (long long)ids->n, json_array_size(want));
}

static void check_text(const char *name, const lathe_tokenizer *tok, const json_t *ids,
                       int32_t flags, size_t text, const json_t *want)
{
    lathe_ids list = {NULL, 0, 0};
    lathe_buffer shown = LATHE_BUFFER_INIT;
    char *got = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_ids_reserve(&list, (int64_t)json_array_size(ids) + 1), LATHE_OK);
    for (size_t i = 0; i < json_array_size(ids); i++)
        list.data[list.n++] = (int32_t)json_integer_value(json_array_get(ids, i));
    cr_assert_eq(lathe_tokenizer_decode(tok, list.data, list.n, flags, &got, &n), LATHE_OK,
                 "%s: %s", name, lathe_error_message());
    lathe_buffer_puts(&shown, "");
    lathe_buffer_utf8(&shown, got, n);
    cr_expect(shown.len == (int64_t)json_string_length(want) &&
                  memcmp(shown.data, json_string_value(want), (size_t)shown.len) == 0,
              "%s, text %zu, flags %d: '%s', wanted '%s'", name, text, flags, shown.data,
              json_string_value(want));
    lathe_buffer_fini(&shown);
    lathe_ids_fini(&list);
    free(got);
}

static void check_tokenizer(const char *name, const lathe_tokenizer *tok, const json_t *golden)
{
    const json_t *texts = json_object_get(golden, "texts");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        const json_t *ids = json_array_get(json_object_get(golden, "ids"), i);
        for (int special = 0; special < 2; special++) {
            const char *key = special ? "ids" : "plain";
            lathe_ids got = {NULL, 0, 0};
            cr_assert_eq(lathe_tokenizer_encode(tok, json_string_value(text),
                                                (int64_t)json_string_length(text),
                                                special ? LATHE_ENCODE_ADD_SPECIAL : 0, &got),
                         LATHE_OK, "%s", lathe_error_message());
            check_ids(name, key, i, &got, json_array_get(json_object_get(golden, key), i));
            lathe_ids_fini(&got);
        }
        check_text(name, tok, ids, 0, i, json_array_get(json_object_get(golden, "decoded"), i));
        check_text(name, tok, ids, LATHE_DECODE_SKIP_SPECIAL, i,
                   json_array_get(json_object_get(golden, "kept"), i));
    }
    const struct {
        const char *key;
        int32_t id;
    } named[] = {{"bos_token", lathe_tokenizer_bos(tok)},
                 {"eos_token", lathe_tokenizer_eos(tok)},
                 {"pad_token", lathe_tokenizer_pad(tok)},
                 {"mask_token", lathe_tokenizer_mask(tok)}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        const json_t *id = json_object_get(json_object_get(golden, "named"), named[i].key);
        if (id)
            cr_expect_eq(named[i].id, json_integer_value(id), "%s: %s", name, named[i].key);
    }
}

/* Each folder as it is, and the folder that is copied of it, which has a tokenizer.json. */
Test(vocab_sources, ids_and_texts_are_those_of_transformers)
{
    DIR *dir = opendir(GOLDEN);
    int n = 0;
    cr_assert_not_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512], copy[160];
        lathe_tokenizer *tok = NULL, *again = NULL;
        struct stat st;
        snprintf(path, sizeof path, GOLDEN "%s", entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
            continue;
        json_t *golden = load_golden(entry->d_name);
        cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
        check_tokenizer(entry->d_name, tok, golden);
        snprintf(copy, sizeof copy, "%s/%.60s", folder, entry->d_name);
        cr_assert_eq(mkdir(copy, 0755), 0);
        cr_assert_eq(lathe_model_copy(path, "tokenizer.json", copy), LATHE_OK, "%s",
                     lathe_error_message());
        cr_assert_eq(lathe_model_copy(path, "tokenizer_config.json", copy), LATHE_OK);
        cr_assert_eq(lathe_tokenizer_load(copy, &again), LATHE_OK, "%s", lathe_error_message());
        check_tokenizer(entry->d_name, again, golden);
        lathe_tokenizer_destroy(tok);
        lathe_tokenizer_destroy(again);
        json_decref(golden);
        n++;
    }
    cr_expect_gt(n, 20);
    (void)closedir(dir);
}

Test(vocab_sources, classes_are_those_of_transformers)
{
    static const char *const names[] = {"other",
                                        "TokenizersBackend",
                                        "LlamaTokenizer",
                                        "GemmaTokenizer",
                                        "T5Tokenizer",
                                        "XLMRobertaTokenizer",
                                        "GPT2Tokenizer",
                                        "Qwen2Tokenizer",
                                        "GPTNeoXTokenizer",
                                        "RobertaTokenizer",
                                        "BertTokenizer"};
    json_t *golden = load_golden("classes"), *value;
    json_t *types = json_object_get(golden, "types");
    const char *type, *name;
    size_t i;
    cr_expect_gt(json_object_size(types), 200);
    json_object_foreach(types, type, value)
    {
        const int32_t which = lathe_vocab_class_of_type(type);
        cr_assert_geq(which, 0, "%s is not listed", type);
        cr_expect_str_eq(names[which], json_string_value(value), "%s", type);
    }
    cr_expect_eq(lathe_vocab_class_of_type("llama"), -1);
    cr_expect_eq(lathe_vocab_class_of_type("qwe"), -1);
    /* of a type whose class on the Hub is wrong, the registered one counts */
    json_array_foreach(json_object_get(golden, "wrong_on_hub"), i, value)
    {
        json_t *config = json_pack("{s:O}", "model_type", value);
        json_t *own = json_pack("{s:s}", "tokenizer_class", "AlbertTokenizer");
        const int32_t of_type = lathe_vocab_class_of_type(json_string_value(value));
        cr_expect_eq(lathe_vocab_class(own, config, &name),
                     of_type >= 0 ? of_type : LATHE_CLASS_OTHER, "%s", json_string_value(value));
        json_decref(own);
        json_decref(config);
    }
    json_decref(golden);
}

static void put(const char *name, const void *data, size_t n)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(data, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

static void refuse(const char *name, const void *data, size_t n, const char *want)
{
    lathe_tokenizer *tok = NULL;
    put(name, data, n);
    cr_assert_neq(lathe_tokenizer_load(folder, &tok), LATHE_OK, "%s: nothing refused, wanted '%s'",
                  name, want);
    cr_expect_not_null(strstr(lathe_error_message(), want), "%s, wanted '%s'",
                       lathe_error_message(), want);
}

#define REFUSE(name, text, want) refuse(name, text, sizeof(text) - 1, want)

Test(vocab_sources, damaged_models_of_sentencepiece_name_the_place)
{
    REFUSE("tokenizer.model", "", "tokenizer.model: a SentencePiece model without pieces");
    REFUSE("tokenizer.model", "\x0a", "tokenizer.model: byte 1: a number is cut off");
    REFUSE("tokenizer.model",
           "\x0a\x7f"
           "abc",
           "byte 2: a field reaches beyond its end");
    REFUSE("tokenizer.model", "\x0b\x01", "byte 1: an unknown kind of field");
    REFUSE("tokenizer.model", "\x02\x01", "byte 1: no number of a field");
    REFUSE("tokenizer.model", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
           "a number of more than 64 bits");
    REFUSE("tokenizer.model", "\x0a\x03\x0a\x01\xff", "piece 0 is not UTF-8");
    REFUSE("tokenizer.model",
           "\x0a\x08\x0a\x01"
           "a\x15\x00\x00\xc0\x7f",
           "piece 0 has a score that");
    REFUSE("tokenizer.model",
           "\x0a\x03\x0a\x01"
           "a\x12\x02\x18\x03",
           "model_type is 3 (word)");
    REFUSE("tokenizer.model",
           "\x0a\x03\x0a\x01"
           "a\x12\x03\xc0\x01\x01",
           "treat_whitespace_as_suffix");
}

Test(vocab_sources, damaged_byte_ranks_name_the_place)
{
    REFUSE("tokenizer.model", "YQ== 0\nYg== 0\n", "tokenizer.model:2:1");
    REFUSE("tokenizer.model", "YQ== 0\nYg== 7\n", "rank of its own from 0 to 1");
    REFUSE("tokenizer.model", "YQ== 0\nY!== 1\n", "token 1 is not base64 of 1 to 1024 bytes");
    REFUSE("tekken.json", "{}", "tekken.json: config.pattern: expected an expression");
    REFUSE("tekken.json",
           "{\"config\": {\"pattern\": \"a\"}, \"vocab\": [{\"token_bytes\": \"YQ==\"}]}",
           "special_tokens is missing");
    REFUSE("tekken.json",
           "{\"config\": {\"pattern\": \"a\"}, \"vocab\": [{\"token_bytes\": \"YQ==\"}], "
           "\"special_tokens\": [{\"rank\": 1, \"token_str\": \"a\"}]}",
           "special_tokens[0]: expected token_str and a rank of its own from 0 to 0");
    REFUSE("tekken.json", "{\"config\": [", "tekken.json:1:");
}

Test(vocab_sources, files_without_a_class_say_what_to_do)
{
    put("vocab.json", "{\"a\": 0}", 8);
    put("config.json", "{\"model_type\": \"llama\"}", 23);
    REFUSE("merges.txt", "",
           "does not say how a text is split, and neither does tokenizer_class "
           "(llama): make it with transformers");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"AlbertTokenizer\"}", 38);
    REFUSE("merges.txt", "",
           "is read by a class of transformers that Lathe does not convert "
           "(AlbertTokenizer)");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\"}", 36);
    REFUSE("merges.txt", "#version: 0.2\na b c\n", "merges.txt:2:1");
    REFUSE("merges.txt", "\xff\n", "merges.txt: not UTF-8");
    REFUSE("merges.txt", "a b\n", "merges[0]");
    REFUSE("vocab.json", "[]", "vocab.json: not a JSON object");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizer\"}", 36);
    cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
    cr_assert_eq(mkdir(folder, 0755), 0);
    put("tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizer\"}", 36);
    REFUSE("vocab.txt", "", "vocab.txt: 0 tokens");
    REFUSE("vocab.txt", "a\n\xc3\n", "vocab.txt: not UTF-8");
    REFUSE("vocab.txt", "a\nb\n", "\"[UNK]\" is not in model.vocab");
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

#define TEKKEN(n)                                                                                  \
    "{\"config\": {\"pattern\": \"a\", \"default_num_special_tokens\": " n                         \
    "}, \"vocab\": [{\"token_bytes\": \"YQ==\"}], \"special_tokens\": [{\"rank\": 0, "             \
    "\"token_str\": \"<s>\"}]}"
#define PIECE_OF_BPE                                                                               \
    "\x0a\x03\x0a\x01"                                                                             \
    "a\x12\x02\x18\x02"

Test(vocab_sources, made_up_names_take_linear_time_and_are_bounded)
{
    char *text = NULL;
    int64_t n = 0;
    const clock_t begun = clock();
    put_text("tekken.json", TEKKEN("40000"));
    cr_assert_eq(lathe_model_read(folder, "tokenizer.json", 0, &text, &n), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_lt((double)(clock() - begun) / CLOCKS_PER_SEC, 5.0);
    cr_expect_not_null(strstr(text, "{\"id\": 39999, \"content\": \"<SPECIAL_39999>\""));
    free(text);
    REFUSE("tekken.json", TEKKEN("16777216"),
           "tekken.json: config.default_num_special_tokens: expected at most 65536 more");
    cr_assert_eq(lathe_dir_remove(folder), LATHE_OK);
    cr_assert_eq(mkdir(folder, 0755), 0);
    put_text("tokenizer_config.json",
             "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 100000}");
    REFUSE("tokenizer.model", PIECE_OF_BPE,
           "tokenizer_config.json: extra_ids is 100000; expected 0 to 65536");
    put_text("tokenizer_config.json",
             "{\"added_tokens_decoder\": {\"70000\": {\"content\": \"x\"}}}");
    REFUSE("tokenizer.model", "YQ== 0\n", "added_tokens_decoder.70000: expected an id below 65537");
}

Test(vocab_sources, tokens_have_at_most_1024_bytes)
{
    char line[1400];
    memset(line, 'A', 1367);
    memcpy(line + 1367, "= 0\n", 5); /* 1025 bytes */
    refuse("tokenizer.model", line, strlen(line), "token 0 is not base64 of 1 to 1024 bytes");
    put_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"0\": {\"content\": \"\"}}}");
    REFUSE("tokenizer.model", PIECE_OF_BPE,
           "tokenizer_config.json: added_tokens_decoder.0: expected a text of 1 to 1024 bytes");
}

Test(vocab_sources, a_class_that_reads_another_file_is_named)
{
    put_text("tokenizer_config.json", "{\"tokenizer_class\": \"LlamaTokenizer\"}");
    REFUSE("tekken.json", TEKKEN("1"),
           "is not the file that tokenizer_class reads (LlamaTokenizer)");
}

/* A chat template, say, is read of a folder whose vocabulary is not. */
Test(vocab_sources, the_config_of_a_vocabulary_that_is_not_converted_is_read)
{
    static const char config[] =
        "{\"tokenizer_class\": \"AlbertTokenizer\", \"chat_template\": \"x\"}";
    char *text = NULL;
    int64_t n = 0;
    put_text("tokenizer_config.json", config);
    put_text("vocab.txt", "a\n");
    cr_assert_eq(lathe_model_read(folder, "tokenizer_config.json", 0, &text, &n), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_str_eq(text, config);
    free(text);
    cr_expect_eq(lathe_model_read(folder, "tokenizer.json", 0, &text, &n), LATHE_E_UNSUPPORTED);
}

/* Repeated characters have crashed tokenizers, and made them slow. */
Test(vocab_sources, long_runs_take_linear_time)
{
    static const char *const names[] = {"bert",    "pieces",     "tekken",
                                        "unigram", "word_level", "gemma"};
    static char text[43000];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        char path[512];
        lathe_tokenizer *tok = NULL;
        snprintf(path, sizeof path, GOLDEN "%s", names[k]);
        cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
        for (int c = 0; c < 4; c++) {
            lathe_ids ids = {NULL, 0, 0};
            const clock_t begun = clock();
            memset(text, "a .\x01"[c], sizeof text);
            cr_assert_eq(lathe_tokenizer_encode(tok, text, sizeof text, 0, &ids), LATHE_OK, "%s",
                         lathe_error_message());
            cr_expect_lt((double)(clock() - begun) / CLOCKS_PER_SEC, 2.0, "%s, '%c'", names[k],
                         text[0]);
            lathe_ids_fini(&ids);
        }
        lathe_tokenizer_destroy(tok);
    }
}
