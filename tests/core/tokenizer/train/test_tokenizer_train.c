/* Training: the vocabulary and merges equal those of Hugging Face's trainer
 * (tests/golden/tokenizer.py). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokenizer/train/tokenizer_train.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer/"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                     \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct texts {
    const char *at, *separator;
} texts;

static lathe_status next_text(void *arg, const char **out, int64_t *out_n)
{
    texts *t = arg;
    *out = t->at;
    if (!t->at)
        return LATHE_OK;
    const char *end = t->separator ? strstr(t->at, t->separator) : NULL;
    *out_n = end ? end - t->at : (int64_t)strlen(t->at);
    t->at = end ? end + strlen(t->separator) : NULL;
    return LATHE_OK;
}

/* Trains on corpus.txt and compares the saved model with the golden file's. */
static void compare_with_golden(const char *name, const char *pattern, const char *const *specials,
                                int64_t n_specials)
{
    char *corpus, path[256], golden[512];
    int64_t n;
    cr_assert_eq(lathe_file_read(GOLDEN "corpus.txt", 0, &corpus, &n), LATHE_OK);
    texts source = {corpus, "\n\n"};
    const lathe_tokenizer_training settings = {
        .vocab_size = 512, .pattern = pattern, .specials = specials, .n_specials = n_specials};
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &source, &tok), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_eq(lathe_tokenizer_eos(tok), 0);
    snprintf(path, sizeof path, "/tmp/lathe_train_%s_%ld.json", name, (long)getpid());
    cr_assert_eq(lathe_tokenizer_save(tok, path), LATHE_OK);
    json_t *got, *want;
    cr_assert_eq(lathe_json_load_file(path, &got), LATHE_OK);
    snprintf(golden, sizeof golden, GOLDEN "%s.json", name);
    cr_assert_eq(lathe_json_load_file(golden, &want), LATHE_OK);
    json_t *got_model = json_object_get(got, "model"), *want_model = json_object_get(want, "model");
    json_object_del(json_object_get(want_model, "vocab"), "Hello"); /* added by the script */
    cr_assert_gt(json_array_size(json_object_get(want_model, "merges")), 100);
    cr_expect(
        json_equal(json_object_get(got_model, "merges"), json_object_get(want_model, "merges")));
    cr_expect(
        json_equal(json_object_get(got_model, "vocab"), json_object_get(want_model, "vocab")));
    json_decref(got);
    json_decref(want);
    unlink(path);
    free(corpus);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_train, gpt2_pattern_as_hugging_face)
{
    compare_with_golden("gpt2", NULL, NULL, 0);
}

Test(tokenizer_train, llama3_pattern_and_two_specials_as_hugging_face)
{
    static const char *const specials[2] = {"<|begin_of_text|>", "<|endoftext|>"};
    compare_with_golden("llama3", LLAMA3, specials, 2);
}

static int64_t number(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static lathe_tokenizer *train_case(const json_t *wanted)
{
    const char *specials[8], *text = json_string_value(json_object_get(wanted, "text"));
    const json_t *list = json_object_get(wanted, "specials");
    char *corpus;
    int64_t n;
    cr_assert_eq(lathe_file_read(GOLDEN "corpus.txt", 0, &corpus, &n), LATHE_OK);
    cr_assert_leq(json_array_size(list), 8);
    for (size_t i = 0; i < json_array_size(list); i++)
        specials[i] = json_string_value(json_array_get(list, i));
    texts source = {text ? text : corpus, NULL};
    const lathe_tokenizer_training settings = {
        .kind = strcmp(json_string_value(json_object_get(wanted, "kind")), "metaspace")
                    ? LATHE_TRAIN_BYTE_LEVEL
                    : LATHE_TRAIN_METASPACE,
        .byte_fallback = json_is_true(json_object_get(wanted, "byte_fallback")),
        .vocab_size = number(wanted, "vocab_size"),
        .min_frequency = number(wanted, "min_frequency"),
        .max_token_length = number(wanted, "max_token_length"),
        .pattern = json_string_value(json_object_get(wanted, "pattern")),
        .specials = specials,
        .n_specials = (int64_t)json_array_size(list)};
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &source, &tok), LATHE_OK, "%s",
                 lathe_error_message());
    free(corpus);
    return tok;
}

/* Compares the model of a saved tokenizer with a golden case: every token with its id, every merge
 * in order. */
static void check_case(const lathe_tokenizer *tok, const json_t *wanted, size_t k)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/lathe_train_case_%ld.json", (long)getpid());
    cr_assert_eq(lathe_tokenizer_save(tok, path), LATHE_OK);
    json_t *got;
    cr_assert_eq(lathe_json_load_file(path, &got), LATHE_OK, "%s", lathe_error_message());
    const json_t *model = json_object_get(got, "model"), *item;
    const json_t *vocab = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    const json_t *tokens = json_object_get(wanted, "tokens");
    const int64_t n_first = number(wanted, "n_first");
    cr_expect_eq((int64_t)json_object_size(vocab), n_first + (int64_t)json_array_size(tokens),
                 "case %zu: %zu tokens", k, json_object_size(vocab));
    size_t i;
    json_array_foreach(tokens, i, item)
    {
        const json_t *id = json_object_get(vocab, json_string_value(item));
        cr_assert(id && json_integer_value(id) == n_first + (int64_t)i, "case %zu: token %lld", k,
                  (long long)(n_first + (int64_t)i));
    }
    const json_t *lines = json_object_get(wanted, "merges");
    cr_assert_eq(json_array_size(merges), json_array_size(lines), "case %zu: %zu merges", k,
                 json_array_size(merges));
    json_array_foreach(lines, i, item)
    {
        char text[4096];
        const json_t *pair = json_array_get(merges, i);
        snprintf(text, sizeof text, "%s %s", json_string_value(json_array_get(pair, 0)),
                 json_string_value(json_array_get(pair, 1)));
        cr_assert_str_eq(text, json_string_value(item), "case %zu, merge %zu", k, i);
    }
    json_decref(got);
    unlink(path);
}

Test(tokenizer_train, ties_limits_and_alphabets_as_hugging_face)
{
    json_t *cases;
    cr_assert_eq(lathe_json_load_file(GOLDEN "train.json", &cases), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_geq(json_array_size(cases), 14);
    const json_t *wanted;
    size_t k;
    json_array_foreach(cases, k, wanted)
    {
        lathe_tokenizer *tok = train_case(wanted);
        check_case(tok, wanted, k);
        lathe_tokenizer_destroy(tok);
    }
    json_decref(cases);
}

/* aaaa three times: (a a) occurs in 9 windows, and its merge leaves (aa aa) 3 times. With ab five
 * times in between: (a a) 9, (a b) 5, (aa aa) 3. */
Test(tokenizer_train, small_corpus_by_hand)
{
    texts source = {"aaaa aaaa aaaa", NULL};
    const lathe_tokenizer_training settings = {.vocab_size = 300, .pattern = "[^ ]+"};
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &source, &tok), LATHE_OK);
    cr_expect_eq(lathe_tokenizer_vocab_size(tok), 259);
    cr_expect_eq(lathe_tokenizer_id(tok, "aa", 2), 257);
    cr_expect_eq(lathe_tokenizer_id(tok, "aaaa", 4), 258);
    lathe_tokenizer_destroy(tok);
    texts other = {"aaaa ab ab aaaa ab ab aaaa ab", NULL};
    cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &other, &tok), LATHE_OK);
    cr_expect_eq(lathe_tokenizer_id(tok, "aa", 2), 257);
    cr_expect_eq(lathe_tokenizer_id(tok, "ab", 2), 258);
    cr_expect_eq(lathe_tokenizer_id(tok, "aaaa", 4), 259);
    lathe_tokenizer_destroy(tok);
}

/* With equal counts, the pair with the smaller ids is merged first, whatever came first in the
 * text. */
Test(tokenizer_train, ties_go_to_smaller_ids)
{
    texts source = {"zy zy cd cd ca ca", NULL};
    const lathe_tokenizer_training settings = {.vocab_size = 300, .pattern = "[^ ]+"};
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &source, &tok), LATHE_OK);
    cr_expect_eq(lathe_tokenizer_id(tok, "ca", 2), 257);
    cr_expect_eq(lathe_tokenizer_id(tok, "cd", 2), 258);
    cr_expect_eq(lathe_tokenizer_id(tok, "zy", 2), 259);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_train, an_empty_corpus_is_refused)
{
    static const int32_t kinds[] = {LATHE_TRAIN_BYTE_LEVEL, LATHE_TRAIN_METASPACE};
    for (int i = 0; i < 2; i++) {
        texts source = {NULL, NULL};
        const lathe_tokenizer_training settings = {.vocab_size = 257, .kind = kinds[i]};
        lathe_tokenizer *tok;
        cr_assert_eq(lathe_tokenizer_train(&settings, next_text, &source, &tok), LATHE_E_CONFIG);
        cr_expect_str_eq(lathe_error_message(),
                         "there is no text to train a tokenizer on: all files "
                         "are empty or hold no UTF-8 text");
    }
}

static lathe_status failing(void *arg, const char **out, int64_t *out_n)
{
    (void)arg;
    (void)out;
    (void)out_n;
    return lathe_error(LATHE_E_IO, "the disk is gone");
}

Test(tokenizer_train, bad_settings_and_failing_sources_are_refused)
{
    static const char *const twice[2] = {"<a>", "<a>"}, *const byte[1] = {"!"};
    lathe_tokenizer *tok;
    texts source = {"a text", NULL};
    lathe_tokenizer_training s = {.vocab_size = 256};
    cr_expect_eq(lathe_tokenizer_train(&s, next_text, &source, &tok), LATHE_E_ARG);
    s = (lathe_tokenizer_training){.vocab_size = 300, .specials = twice, .n_specials = 2};
    source.at = "a text";
    cr_expect_eq(lathe_tokenizer_train(&s, next_text, &source, &tok), LATHE_E_ARG);
    s = (lathe_tokenizer_training){.vocab_size = 300, .specials = byte, .n_specials = 1};
    source.at = "a text";
    cr_expect_eq(lathe_tokenizer_train(&s, next_text, &source, &tok), LATHE_E_ARG);
    s = (lathe_tokenizer_training){.vocab_size = 300, .pattern = "(["};
    cr_expect_eq(lathe_tokenizer_train(&s, next_text, &source, &tok), LATHE_E_PARSE);
    s = (lathe_tokenizer_training){.vocab_size = 300, .pattern = "\\G+"};
    cr_expect_eq(lathe_tokenizer_train(&s, next_text, &source, &tok), LATHE_E_UNSUPPORTED);
    s = (lathe_tokenizer_training){.vocab_size = 300};
    cr_expect_eq(lathe_tokenizer_train(&s, failing, NULL, &tok), LATHE_E_IO);
}

Test(tokenizer_train, files_and_folders_are_one_text_each)
{
    char root[64], path[128];
    strcpy(root, "/tmp/lathe_train_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    static const char *const names[5] = {"a", "b", "c", "binary", "latin1"};
    static const char *const parts[5] = {"xy xy", "", "zz xy", "a\0b", "caf\xe9"};
    static const int64_t bytes[5] = {5, 0, 5, 3, 4};
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        cr_assert_eq(lathe_file_write_atomic(path, parts[i], bytes[i]), LATHE_OK);
    }
    snprintf(path, sizeof path, "%s/c", root);
    /* c is listed twice: (z z) counts twice, (x y) four times */
    const char *const paths[2] = {root, path};
    const lathe_tokenizer_training settings = {.vocab_size = 300, .pattern = "[^ ]+"};
    lathe_tokenizer *tok;
    int64_t skipped = 0;
    cr_assert_eq(lathe_tokenizer_train_files(&settings, paths, 2, &skipped, &tok), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_eq(skipped, 2);
    cr_expect_eq(lathe_tokenizer_vocab_size(tok), 259);
    cr_expect_eq(lathe_tokenizer_id(tok, "xy", 2), 257);
    cr_expect_eq(lathe_tokenizer_id(tok, "zz", 2), 258);
    lathe_tokenizer_destroy(tok);
    const char *const missing[1] = {"/tmp/lathe_no_such_file"};
    cr_expect_neq(lathe_tokenizer_train_files(&settings, missing, 1, NULL, &tok), LATHE_OK);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
}
