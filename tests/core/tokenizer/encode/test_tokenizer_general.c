/* Rules of the general tokenizer: text that is not UTF-8, long runs, special tokens in plain text,
 * and one message for each malformed member of tokenizer.json. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "tokenizer/encode/pipeline.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokenizer/json/tokenizer_json.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer_equality/"

static lathe_tokenizer *load(const char *name)
{
    char path[512];
    lathe_tokenizer *tok = NULL;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
    return tok;
}

static lathe_status parse(const char *text, lathe_tokenizer **out)
{
    char *json = strdup(text);
    cr_assert_not_null(json);
    *out = NULL;
    const lathe_status status = lathe__tokenizer_parse("f.json", json, (int64_t)strlen(json), out);
    if (status != LATHE_OK)
        free(json);
    return status;
}

static void expect_same(const lathe_tokenizer *tok, const char *a, int64_t n_a, const char *b)
{
    lathe_ids x = {NULL, 0, 0}, y = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, a, n_a, 0, &x), LATHE_OK);
    cr_assert_eq(lathe_tokenizer_encode(tok, b, (int64_t)strlen(b), 0, &y), LATHE_OK);
    cr_expect_eq(x.n, y.n, "as \"%s\"", b);
    if (x.n == y.n && x.n > 0)
        cr_expect_arr_eq(x.data, y.data, (size_t)x.n * sizeof *x.data, "as \"%s\"", b);
    lathe_ids_fini(&x);
    lathe_ids_fini(&y);
}

/* Unicode 15, tables 3-8 to 3-11, and both ends of a text. */
Test(tokenizer_general, each_part_that_is_no_utf8_is_one_replacement_character)
{
#define R "\xef\xbf\xbd"
    static const struct {
        const char *bad, *good;
    } cases[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
         "A",
         R R R R R R R R "A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
         "A",
         R R R R R R R R "A"},
        {"\xf4\x91\x92\x93\xff"
         "A\x80\xbf"
         "B",
         R R R R R "A" R R "B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
         "A",
         R R R R "A"},
        {"\xff", R},
        {"\xe2\x82", R},
        {"a \xf0\x9f\x98", "a " R},
        {"\xe2\x82\xac\xe2\x82", "\xe2\x82\xac" R},
    };
    lathe_tokenizer *const toks[3] = {load("llama2"), load("unigram"), load("odd")};
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            expect_same(toks[t], cases[i].bad, (int64_t)strlen(cases[i].bad), cases[i].good);
        lathe_tokenizer_destroy(toks[t]);
    }
}

/* Byte-level characters for all bytes, after more than a plain split, so that the general code is
 * used. */
static lathe_tokenizer *byte_level(void)
{
    char json[8192];
    int at =
        snprintf(json, sizeof json,
                 "{\"added_tokens\": [], \"pre_tokenizer\": {\"type\": \"Sequence\", "
                 "\"pretokenizers\": [{\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
                 "{\"type\": \"Digits\"}]}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
                 "{\"type\": \"BPE\", \"vocab\": {");
    for (int32_t byte = 0; byte < 256; byte++) {
        uint8_t c[2];
        const uint8_t b = (uint8_t)byte;
        const int n = (int)(lathe_chars_of_bytes(&b, 1, c) - c);
        at += snprintf(json + at, sizeof json - (size_t)at, "%s\"%s%.*s\": %d", byte ? "," : "",
                       byte == '"' || byte == '\\' ? "\\" : "", n, (const char *)c, byte);
    }
    snprintf(json + at, sizeof json - (size_t)at, "}, \"merges\": []}}");
    lathe_tokenizer *tok;
    cr_assert_eq(parse(json, &tok), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(tok->kind, LATHE_TOKENIZER_GENERAL);
    return tok;
}

/* An expression sees only the parts of a decoder's text that are UTF-8. PCRE2 trusts what it is
 * given: of bytes that begin no character it read megabytes beyond its tables. */
Test(tokenizer_general, an_expression_of_a_decoder_does_not_see_bytes_that_are_no_characters)
{
    lathe_tokenizer *tok;
    char *back = NULL;
    int64_t n_back = 0;
    cr_assert_eq(parse("{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, "
                       "\"post_processor\": null, \"decoder\": {\"type\": \"Sequence\", "
                       "\"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Replace\", "
                       "\"pattern\": {\"Regex\": \"(\\\\p{L}|\\\\p{Lu}|\\\\p{Ll})\"}, "
                       "\"content\": \"x\"}]}, "
                       "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, "
                       "\"vocab\": {\"<0xFF>\": 0, \"<0xE2>\": 1, \"<0x82>\": 2, \"<0x61>\": 3, "
                       "\"7\": 4}, \"merges\": []}}",
                       &tok),
                 LATHE_OK, "%s", lathe_error_message());
    const int32_t ids[] = {3, 0, 0, 1, 2, 3, 3, 1, 4, 3, 1};
    cr_assert_eq(lathe_tokenizer_decode(tok, ids, sizeof ids / sizeof *ids, 0, &back, &n_back),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(back, "x\xff\xff\xe2\x82xx\xe2"
                           "7x\xe2");
    free(back);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_general, byte_level_gives_any_bytes_back)
{
    lathe_tokenizer *tok = byte_level();
    char text[600], *back = NULL;
    uint32_t state = 1;
    lathe_ids ids = {NULL, 0, 0};
    for (int k = 0; k < 40; k++) {
        const int64_t n = k * 15;
        int64_t n_back = 0;
        for (int64_t i = 0; i < n; i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = (char)(state >> 24);
        }
        ids.n = 0;
        cr_assert_eq(lathe_tokenizer_encode(tok, text, n, 0, &ids), LATHE_OK);
        cr_assert_eq(ids.n, n);
        for (int64_t i = 0; i < n; i++) /* no merges: id = byte */
            cr_assert_eq(ids.data[i], (uint8_t)text[i]);
        cr_assert_eq(lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back), LATHE_OK);
        cr_assert_eq(n_back, n);
        cr_assert_arr_eq(back, text, (size_t)n);
        free(back);
    }
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_general, plain_text_gives_no_special_token)
{
    static const char text[] = "</s><s> <unk> <mask> a</s>";
    lathe_tokenizer *const toks[3] = {load("llama2"), load("unigram"), load("odd")};
    for (int t = 0; t < 3; t++) {
        lathe_ids ids = {NULL, 0, 0};
        int n_special = 0;
        cr_assert_eq(lathe_tokenizer_encode(toks[t], text, sizeof text - 1, 0, &ids), LATHE_OK);
        for (int64_t i = 0; i < ids.n; i++)
            n_special += lathe_tokenizer_is_special(toks[t], ids.data[i]);
        cr_expect_geq(n_special, 4);
        ids.n = 0;
        cr_assert_eq(
            lathe_tokenizer_encode(toks[t], text, sizeof text - 1, LATHE_ENCODE_NO_ADDED, &ids),
            LATHE_OK);
        const int32_t unk = toks[t]->pipeline->unk;
        for (int64_t i = 0; i < ids.n; i++) /* unk represents text that is in no token */
            cr_expect(ids.data[i] == unk || !lathe_tokenizer_is_special(toks[t], ids.data[i]));
        lathe_ids_fini(&ids);
        lathe_tokenizer_destroy(toks[t]);
    }
}

/* ---- long runs ---- */

#ifdef __SANITIZE_ADDRESS__
enum { LONG_BYTES = 1000000 };
#else
enum { LONG_BYTES = 10000000 };
#endif

/* Encodes and decodes the given number of bytes of a unit; quadratic code would not finish in
 * time. */
static void long_run(const lathe_tokenizer *tok, const char *name, const char *unit, int64_t bytes)
{
    const int64_t n_unit = (int64_t)strlen(unit), n = bytes / n_unit * n_unit;
    char *text = malloc((size_t)n), *back = NULL;
    for (int64_t i = 0; i < n; i++)
        text[i] = unit[i % n_unit];
    lathe_ids ids = {NULL, 0, 0};
    int64_t n_back = 0;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    cr_assert_eq(lathe_tokenizer_encode(tok, text, n, 0, &ids), LATHE_OK, "%s %s: %s", name, unit,
                 lathe_error_message());
    cr_assert_eq(lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back), LATHE_OK);
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    cr_expect_lt(seconds, 30.0, "%s: %lld bytes of \"%s\" took %g s", name, (long long)n, unit,
                 seconds);
    free(back);
    free(text);
    lathe_ids_fini(&ids);
}

static void long_runs(const char *name)
{
    static const char *const units[] = {
        "e", " ", "\xcc\x95\xcc\x80", "\xe2\x96\x81", "<mask> ", "\xf0\x9f\x98\x80"};
    lathe_tokenizer *tok = load(name);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        long_run(tok, name, units[i], i < 2 ? LONG_BYTES : LONG_BYTES / 5);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_general, ten_megabytes_of_one_thing_through_sentencepiece_bpe, .timeout = 180)
{
    long_runs("llama2");
}
Test(tokenizer_general, ten_megabytes_of_one_thing_through_unigram, .timeout = 180)
{
    long_runs("unigram");
}
Test(tokenizer_general, ten_megabytes_of_one_thing_through_metaspace_bpe, .timeout = 180)
{
    long_runs("odd");
}

/* ---- malformed files ---- */

#define TOKEN "{\"id\": 0, \"content\": \"a\"}"
#define MODEL                                                                                      \
    "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"
#define FILE_OF(key, value, model) "{\"" key "\": " value ", \"model\": " model "}"

static void refused(const char *json, lathe_status code, const char *says)
{
    lathe_tokenizer *tok;
    cr_expect_eq(parse(json, &tok), code, "%s", json);
    cr_expect(strstr(lathe_error_message(), "f.json: "), "\"%s\" names no file",
              lathe_error_message());
    cr_expect(strstr(lathe_error_message(), says), "\"%s\" lacks \"%s\"", lathe_error_message(),
              says);
    lathe_tokenizer_destroy(tok);
}

Test(tokenizer_general, every_malformed_member_is_named)
{
    static const struct {
        const char *value, *says;
    } parse_errors[] = {
        {FILE_OF("added_tokens", "3", MODEL), "added_tokens: expected a list"},
        {FILE_OF("added_tokens", "[4]", MODEL), "added_tokens[0]: expected an object"},
        {FILE_OF("added_tokens", "[{\"id\": -1, \"content\": \"a\"}]", MODEL),
         "added_tokens[0].id: expected an id"},
        {FILE_OF("added_tokens", "[{\"id\": 0, \"content\": 1}]", MODEL),
         "added_tokens[0].content: expected a string"},
        {FILE_OF("added_tokens", "[" TOKEN ", {\"id\": 1, \"content\": \"b\", \"lstrip\": 1}]",
                 MODEL),
         "added_tokens[1].lstrip: expected true or false"},
        {FILE_OF("added_tokens", "[" TOKEN ", " TOKEN "]", MODEL), "added_tokens[1]"},
        {FILE_OF("added_tokens", "[{\"id\": 1, \"content\": \"a\"}]", MODEL), "id 1 is \"b\""},
        {FILE_OF("decoder", "{\"type\": \"WordPiece\"}", MODEL),
         "decoder.prefix: expected a string"},
        {FILE_OF("x", "0", "{\"type\": \"WordLevel\", \"vocab\": {}}"),
         "model.unk_token \"<unk>\" is not in model.vocab"},
        {FILE_OF("x", "0",
                 "{\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0}, "
                 "\"max_input_chars_per_word\": -1}"),
         "model.max_input_chars_per_word: expected a count"},
        {FILE_OF("normalizer", "[]", MODEL), "normalizer: expected an object"},
        {FILE_OF("normalizer", "{\"type\": 3}", MODEL), "normalizer.type: expected a string"},
        {FILE_OF("normalizer", "{\"type\": \"Sequence\"}", MODEL),
         "normalizer.normalizers: expected a list"},
        {FILE_OF("normalizer",
                 "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
                 "\"Replace\", \"pattern\": \"x\"}]}",
                 MODEL),
         "normalizer.normalizers[1].pattern: expected"},
        {FILE_OF("normalizer", "{\"type\": \"Prepend\"}", MODEL), "normalizer.prepend: expected"},
        {FILE_OF("normalizer",
                 "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(a\"}, \"content\": \"\"}",
                 MODEL),
         "normalizer.pattern: the regular expression (a"},
        {FILE_OF("normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAA=\"}",
                 MODEL),
         "normalizer.precompiled_charsmap: expected base64"},
        {FILE_OF("normalizer", /* a trie of one unit, then the bytes FF 00 */
                 "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD/AA==\"}",
                 MODEL),
         "normalizer.precompiled_charsmap: its texts are not UTF-8"},
        {FILE_OF("normalizer", "{\"type\": \"Precompiled\", \"precompiled_charsmap\": null}",
                 MODEL),
         "normalizer.precompiled_charsmap: expected base64"},
        {FILE_OF("pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", MODEL),
         "pre_tokenizer.replacement: expected one character"},
        {FILE_OF("pre_tokenizer",
                 "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\", "
                 "\"add_prefix_space\": false}",
                 MODEL),
         "add_prefix_space is false"},
        {FILE_OF("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}}", MODEL),
         "pre_tokenizer.behavior: expected a string"},
        {FILE_OF(
             "decoder",
             "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \" \", "
             "\"start\": -1, \"stop\": 0}]}",
             MODEL),
         "decoder.decoders[0].start: expected a count"},
        {FILE_OF("post_processor", "{\"type\": \"BertProcessing\", \"sep\": [\"a\", 9]}", MODEL),
         "post_processor.cls: expected"},
        {FILE_OF("post_processor",
                 "{\"type\": \"BertProcessing\", \"cls\": [\"a\", 9], \"sep\": [\"a\", 0]}", MODEL),
         "post_processor: 9 is the id of no token"},
        {FILE_OF("x", "0", "5"), "model: expected an object"},
        {FILE_OF("x", "0", "{\"type\": \"BPE\", \"vocab\": []}"),
         "model.vocab: expected an object"},
        {FILE_OF("x", "0", "{\"type\": \"BPE\", \"vocab\": {}}"), "model.merges: expected a list"},
        {FILE_OF("x", "0", "{\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}"),
         "model.merges[0]: \"a\" + \"a\" gives what is not"},
        {FILE_OF("x", "0",
                 "{\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"unk_token\": \"u\"}"),
         "model.unk_token \"u\" is not in model.vocab"},
        {FILE_OF("x", "0", "{\"type\": \"Unigram\", \"vocab\": []}"), "model.vocab has 0 tokens"},
        {FILE_OF("x", "0", "{\"type\": \"Unigram\", \"vocab\": [[\"a\", 0], [\"b\"]]}"),
         "model.vocab[1]: expected [text, score]"},
        {FILE_OF("x", "0", "{\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]], \"unk_id\": 1}"),
         "model.unk_id: expected an id"},
    };
    for (size_t i = 0; i < sizeof parse_errors / sizeof *parse_errors; i++)
        refused(parse_errors[i].value, LATHE_E_PARSE, parse_errors[i].says);
    static const struct {
        const char *value, *says;
    } unsupported[] = {
        {FILE_OF("normalizer", "{\"type\": \"Upper\"}", MODEL), "normalizer.type is \"Upper\""},
        {FILE_OF("pre_tokenizer",
                 "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"X\"}]}", MODEL),
         "pre_tokenizer.pretokenizers[0].type is \"X\""},
        {FILE_OF("pre_tokenizer",
                 "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\X\"}, \"behavior\": "
                 "\"Removed\"}",
                 MODEL),
         "pre_tokenizer.pattern: \"\\X\""},
        {FILE_OF("decoder", "{\"type\": \"BPEDecoder\"}", MODEL), "decoder.type is \"BPEDecoder\""},
        {FILE_OF("post_processor", "{\"type\": \"X\"}", MODEL), "post_processor.type is \"X\""},
        {FILE_OF("x", "0", "{\"type\": \"WordUnigram\", \"vocab\": {}}"),
         "model.type is \"WordUnigram\""},
        {FILE_OF(
             "x", "0",
             "{\"type\": \"BPE\", \"vocab\": {}, \"merges\": [], \"end_of_word_suffix\": \"w\"}"),
         "model.end_of_word_suffix"},
    };
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        refused(unsupported[i].value, LATHE_E_UNSUPPORTED, unsupported[i].says);
}

Test(tokenizer_general, unknown_text_without_an_unknown_token_is_an_error)
{
    lathe_tokenizer *tok;
    lathe_ids ids = {NULL, 0, 0};
    cr_assert_eq(
        parse("{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", -1], [\"ab\", -3]]}}", &tok),
        LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_tokenizer_encode(tok, "aa", 2, 0, &ids), LATHE_OK);
    cr_expect_eq(ids.n, 2);
    cr_expect_eq(lathe_tokenizer_encode(tok, "a\xc3\xa9", 3, 0, &ids), LATHE_E_UNSUPPORTED);
    cr_expect(strstr(lathe_error_message(), "\"\xc3\xa9\""), "%s", lathe_error_message());
    cr_expect_eq(ids.n, 2); /* as it was */
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
}
