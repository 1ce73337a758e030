/* Tokenizers compared with Hugging Face's ids (tests/golden/tokenizer.py), and their own rules. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "tokenizer/json/tokenizer_file.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer/"

static lathe_tokenizer *load(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    lathe_tokenizer *tok = NULL;
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
    return tok;
}

static void check_ids(const lathe_ids *ids, const json_t *want, const char *name, const char *text)
{
    int same = ids->n == (int64_t)json_array_size(want);
    for (int64_t i = 0; i < ids->n && same; i++)
        same = ids->data[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (same)
        return;
    char *expected = json_dumps(want, JSON_COMPACT);
    fprintf(stderr, "%s: %s\n  want %s\n  got  [", name, text, expected);
    for (int64_t i = 0; i < ids->n; i++)
        fprintf(stderr, "%d,", ids->data[i]);
    fprintf(stderr, "]\n");
    free(expected);
    cr_expect(0, "%s: other ids for \"%s\"", name, text);
}

static void compare_with_golden(const char *name)
{
    lathe_tokenizer *tok = load(name);
    lathe_encoder *enc;
    cr_assert_eq(lathe_encoder_create(tok, &enc), LATHE_OK);
    json_t *cases;
    cr_assert_eq(lathe_json_load_file(GOLDEN "cases.json", &cases), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_geq(json_array_size(cases), 150);
    lathe_ids ids = {NULL, 0, 0};
    for (int pass = 0; pass < 2; pass++) /* again with a warm cache */
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *entry = json_array_get(cases, i);
            const char *text = json_string_value(json_object_get(entry, "text"));
            ids.n = 0;
            cr_assert_eq(lathe_encoder_run(enc, text, (int64_t)strlen(text), 0, &ids), LATHE_OK);
            check_ids(&ids, json_object_get(entry, name), name, text);
        }
    json_t *special;
    cr_assert_eq(lathe_json_load_file(GOLDEN "special.json", &special), LATHE_OK);
    ids.n = 0;
    cr_assert_eq(lathe_encoder_run(enc, "Hello world", 11, LATHE_ENCODE_ADD_SPECIAL, &ids),
                 LATHE_OK);
    check_ids(&ids, json_object_get(special, name), name, "Hello world, with special tokens");
    json_decref(special);
    json_decref(cases);
    lathe_ids_fini(&ids);
    lathe_encoder_destroy(enc);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer, gpt2_splits_as_hugging_face)
{
    compare_with_golden("gpt2");
}
Test(tokenizer, prefix_space_as_hugging_face)
{
    compare_with_golden("prefix");
}
Test(tokenizer, llama3_splits_as_hugging_face)
{
    compare_with_golden("llama3");
}
Test(tokenizer, qwen2_splits_and_nfc_as_hugging_face)
{
    compare_with_golden("qwen2");
}
Test(tokenizer, two_splits_as_hugging_face)
{
    compare_with_golden("twice");
}
Test(tokenizer, added_token_flags_as_hugging_face)
{
    compare_with_golden("flags");
}

Test(tokenizer, special_ids_and_names)
{
    lathe_tokenizer *tok = load("llama3");
    cr_expect_eq(lathe_tokenizer_eos(tok), 1); /* without a config beside it: "<|endoftext|>" */
    cr_expect_eq(lathe_tokenizer_bos(tok), -1);
    cr_expect_eq(lathe_tokenizer_id(tok, "<|begin_of_text|>", 17), 0);
    cr_expect_eq(lathe_tokenizer_id(tok, "no such token", 13), -1);
    cr_expect(lathe_tokenizer_is_special(tok, 1));
    cr_expect_not(lathe_tokenizer_is_special(tok, 2));
    int64_t n = 0;
    const int32_t space_t = lathe_tokenizer_id(tok, " t", 2); /* "Ġt" in the file */
    cr_assert_geq(space_t, 0);
    cr_expect_str_eq(lathe_tokenizer_token(tok, space_t, &n), " t");
    cr_expect_eq(n, 2);
    cr_expect_null(lathe_tokenizer_token(tok, (int32_t)lathe_tokenizer_vocab_size(tok), &n));
    cr_expect_eq(strlen(lathe_tokenizer_hash(tok)), 64);
    lathe_tokenizer_destroy(tok);
}

static void round_trip(const lathe_tokenizer *tok, const char *text, int64_t n)
{
    lathe_ids ids = {NULL, 0, 0};
    char *back = NULL;
    int64_t n_back = 0;
    cr_assert_eq(lathe_tokenizer_encode(tok, text, n, 0, &ids), LATHE_OK, "%s",
                 lathe_error_message());
    cr_assert_eq(lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back), LATHE_OK);
    cr_assert_eq(n_back, n);
    cr_assert_arr_eq(back, text, (size_t)n);
    free(back);
    lathe_ids_fini(&ids);
}

Test(tokenizer, any_bytes_come_back)
{
    lathe_tokenizer *raw;
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
    lathe_tokenizer *const toks[3] = {load("gpt2"), load("llama3"), raw};
    uint32_t state = 1;
    char text[777];
    for (int k = 0; k < 50; k++) {
        const int64_t n = k * 15;
        for (int64_t i = 0; i < n; i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = (char)(state >> 24);
        }
        for (int t = 0; t < 3; t++)
            round_trip(toks[t], text, n);
    }
    /* A character cut in two, an overlong form, a surrogate, a value beyond the last plane, stray
     * continuation bytes. */
    static const char bad[] = "ok \xe2\x82 \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \x80\x80 a\xcc";
    for (int t = 0; t < 3; t++) {
        round_trip(toks[t], bad, sizeof bad - 1);
        lathe_tokenizer_destroy(toks[t]);
    }
}

Test(tokenizer, invalid_bytes_are_single_pieces)
{
    lathe_tokenizer *tok = load("gpt2");
    lathe_ids ids = {NULL, 0, 0}, part = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, "the\xff\xfe tool", 10, 0, &ids), LATHE_OK);
    cr_assert_eq(lathe_tokenizer_encode(tok, "the", 3, 0, &part), LATHE_OK);
    const int64_t n_the = part.n;
    cr_assert_eq(lathe_tokenizer_encode(tok, " tool", 5, 0, &part), LATHE_OK);
    cr_assert_eq(ids.n, part.n + 2);
    cr_expect_eq(ids.data[n_the], lathe_tokenizer_id(tok, "\xff", 1));
    cr_expect_eq(ids.data[n_the + 1], lathe_tokenizer_id(tok, "\xfe", 1));
    cr_expect_arr_eq(ids.data + n_the + 2, part.data + n_the,
                     (size_t)(part.n - n_the) * sizeof(int32_t));
    lathe_ids_fini(&ids);
    lathe_ids_fini(&part);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer, raw_bytes_are_their_own_ids)
{
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_bytes(&tok), LATHE_OK);
    cr_expect_eq(lathe_tokenizer_vocab_size(tok), 257);
    cr_expect_eq(lathe_tokenizer_eos(tok), 256);
    lathe_ids ids = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, "A\0\xff", 3, 0, &ids), LATHE_OK);
    const int32_t want[3] = {65, 0, 255};
    cr_expect_eq(ids.n, 3);
    cr_expect_arr_eq(ids.data, want, sizeof want);
    const int32_t bad = 257;
    char *text;
    int64_t n;
    cr_expect_eq(lathe_tokenizer_decode(tok, &bad, 1, 0, &text, &n), LATHE_E_ARG);
    const int32_t end[2] = {65, 256};
    cr_assert_eq(lathe_tokenizer_decode(tok, end, 2, LATHE_DECODE_SKIP_SPECIAL, &text, &n),
                 LATHE_OK);
    cr_expect_str_eq(text, "A");
    free(text);
    cr_expect_eq(lathe_tokenizer_save(tok, "/tmp/never"), LATHE_E_UNSUPPORTED);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

/* 10 MB of one character: linear time, or this test does not finish. Sanitizers are ten times
 * slower and only look for overruns: a tenth of the text. */
#ifdef __SANITIZE_ADDRESS__
enum { LONG_BYTES = 1000000 };
#else
enum { LONG_BYTES = 10000000 };
#endif

static void long_run(const char *name, const char *unit)
{
    lathe_tokenizer *tok = load(name);
    const int64_t n_unit = (int64_t)strlen(unit), n = LONG_BYTES / n_unit * n_unit;
    char *text = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        text[i] = unit[i % n_unit];
    lathe_ids ids = {NULL, 0, 0};
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    cr_assert_eq(lathe_tokenizer_encode(tok, text, n, 0, &ids), LATHE_OK, "%s %s: %s", name, unit,
                 lathe_error_message());
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    cr_expect_lt(seconds, 30.0, "%s: %d bytes of \"%s\" took %g s", name, LONG_BYTES, unit,
                 seconds);
    int64_t bytes = 0, total = 0;
    for (int64_t i = 0; i < ids.n; i++) {
        lathe_tokenizer_token(tok, ids.data[i], &bytes);
        total += bytes;
    }
    cr_expect_eq(total, n);
    free(text);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer, ten_megabytes_of_one_character, .timeout = 240)
{
    long_run("gpt2", "e");
    long_run("gpt2", "\xc3\xa9");
    long_run("gpt2", "1");
    long_run("llama3", " ");
    long_run("llama3", "=");
    long_run("llama3", "\xe8\xbb\x8a");
    long_run("qwen2", "\n");
    long_run("qwen2", "!");
    long_run("qwen2", "\xf0\x9f\x98\x80");
}

Test(tokenizer, ten_megabytes_of_two_marks_normalize, .timeout = 120)
{
    long_run("qwen2", "\xcc\x95\xcc\x95"); /* U+0315 */
    lathe_tokenizer *tok = load("qwen2");  /* U+0315 U+0300: each pair is out of order */
    char *text = malloc(4000000);
    for (int i = 0; i < 4000000; i++)
        text[i] = "\xcc\x95\xcc\x80"[i % 4];
    lathe_ids ids = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, text, 4000000, 0, &ids), LATHE_OK);
    cr_expect_gt(ids.n, 0);
    free(text);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

static char root[64];

static const char *write_file(const char *name, const char *text)
{
    static char path[128];
    strcpy(root, "/tmp/lathe_tok_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/%s", root, name);
    cr_assert_eq(lathe_file_write_atomic(path, text, (int64_t)strlen(text)), LATHE_OK);
    return path;
}

/* Checks that the golden gpt2.json with one part replaced is refused with a message that contains
 * `says`. */
static void refused(const char *from, const char *to, lathe_status code, const char *says)
{
    char *text;
    int64_t n;
    cr_assert_eq(lathe_file_read(GOLDEN "gpt2.json", 0, &text, &n), LATHE_OK);
    char *at = strstr(text, from);
    cr_assert_not_null(at, "golden has no %s", from);
    char *changed = malloc((size_t)n + strlen(to) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    const char *path = write_file("tokenizer.json", changed);
    lathe_tokenizer *tok = NULL;
    cr_expect_eq(lathe_tokenizer_load(path, &tok), code, "%s -> %s", from, to);
    cr_expect(strstr(lathe_error_message(), says), "\"%s\" lacks \"%s\"", lathe_error_message(),
              says);
    cr_expect(strstr(lathe_error_message(), path), "\"%s\" does not name the file",
              lathe_error_message());
    lathe_tokenizer_destroy(tok);
    cr_expect_eq(lathe_dir_remove(root), LATHE_OK);
    free(changed);
    free(text);
}

Test(tokenizer, what_is_not_read_is_refused_by_key)
{
    refused("\"normalizer\": null", "\"normalizer\": {\"type\": \"BertOther\"}",
            LATHE_E_UNSUPPORTED, "normalizer.type");
    refused("\"type\": \"BPE\"", "\"type\": \"WordBytes\"", LATHE_E_UNSUPPORTED, "model.type");
    refused("\"type\": \"BPE\"", "\"type\": \"Unigram\"", LATHE_E_PARSE, "model.vocab");
    refused("\"dropout\": null", "\"dropout\": 0.1", LATHE_E_UNSUPPORTED, "model.dropout");
    refused("\"pre_tokenizer\": {",
            "\"pre_tokenizer\": {\"type\": \"CharDelimiterSplit\"}, \"x\": {", LATHE_E_UNSUPPORTED,
            "pre_tokenizer.type");
    refused("\"decoder\": {", "\"decoder\": {\"type\": \"BPEDecoder\"}, \"x\": {",
            LATHE_E_UNSUPPORTED, "decoder.type");
    refused("\"!\": 1,", "\"!\": 2,", LATHE_E_PARSE, "id 2");
    refused("\"!\": 1,", "\"!\": -1,", LATHE_E_PARSE, "model.vocab[\"!\"]");
    refused("\"!\": 1,", "\"!\": 99999999999,", LATHE_E_PARSE, "model.vocab[\"!\"]");
    refused("\"merges\": [", "\"merges\": [\"a b c\",", LATHE_E_PARSE, "model.merges[0]");
    refused("\"merges\": [", "\"merges\": [[\"zq\", \"b\"],", LATHE_E_PARSE, "model.merges[0]");
    refused("\"id\": 0", "\"id\": \"0\"", LATHE_E_PARSE, "added_tokens[0]");
    refused("{", "[", LATHE_E_PARSE, ":");
}

Test(tokenizer, folder_with_config_names_the_special_tokens)
{
    char *text, path[160];
    int64_t n;
    cr_assert_eq(lathe_file_read(GOLDEN "llama3.json", 0, &text, &n), LATHE_OK);
    write_file("tokenizer.json", text);
    free(text);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", root);
    static const char config[] =
        "{\"eos_token\": {\"content\": \"<|begin_of_text|>\"}, \"pad_token\": \"!\", "
        "\"mask_token\": {\"content\": \"?\"}}";
    cr_assert_eq(lathe_file_write_atomic(path, config, sizeof config - 1), LATHE_OK);
    snprintf(path, sizeof path, "%s/config.json", root);
    static const char model[] = "{\"eos_token_id\": [5], \"bos_token_id\": 1}";
    cr_assert_eq(lathe_file_write_atomic(path, model, sizeof model - 1), LATHE_OK);
    lathe_tokenizer *tok, *again;
    cr_assert_eq(lathe_tokenizer_load(root, &tok), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(lathe_tokenizer_eos(tok), 0);
    cr_expect_eq(lathe_tokenizer_bos(tok), 1);
    cr_expect_eq(lathe_tokenizer_pad(tok), lathe_tokenizer_id(tok, "!", 1));
    snprintf(path, sizeof path, "%s/copy/", root);
    cr_assert_eq(lathe_tokenizer_save(tok, path), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_tokenizer_load(path, &again), LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(lathe_tokenizer_hash(tok), lathe_tokenizer_hash(again));
    cr_expect_geq(lathe_tokenizer_mask(tok), 0);
    cr_expect_eq(lathe_tokenizer_mask(tok), lathe_tokenizer_id(tok, "?", 1));
    cr_expect_eq(lathe_tokenizer_mask(tok), lathe_tokenizer_mask(again));
    lathe_tokenizer_destroy(tok);
    lathe_tokenizer_destroy(again);
    cr_expect_eq(lathe_dir_remove(root), LATHE_OK);
}
