/* Files like those of real models, compared with Hugging Face's ids and texts: vocabularies without
 * some bytes (tests/golden/missing_bytes.py), Unigram scores with equal sums (unigram_ties.py),
 * U+0000 in the file (nul_tokens.py). */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/score.h"
#include "base/log.h"
#include "base/utf8.h"
#include "tokenizer/json/tokenizer_json.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/"

static json_t *load_golden(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s%s", GOLDEN, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    return root;
}

static lathe_tokenizer *parse(const char *name, const char *text)
{
    char *copy = strdup(text);
    lathe_tokenizer *tok = NULL;
    cr_assert_eq(lathe__tokenizer_parse(name, copy, (int64_t)strlen(copy), &tok), LATHE_OK, "%s",
                 lathe_error_message());
    return tok;
}

static void check_ids(const char *name, size_t text, const lathe_ids *ids, const json_t *want)
{
    int same = ids->n == (int64_t)json_array_size(want);
    for (int64_t i = 0; i < ids->n && same; i++)
        same = ids->data[i] == json_integer_value(json_array_get(want, (size_t)i));
    cr_expect(same, "%s, text %zu: %lld ids, and %zu wanted, or others", name, text,
              (long long)ids->n, json_array_size(want));
}

/* Checks the bytes as text, with U+FFFD for each part that is not UTF-8, as Hugging Face
 * decodes. */
static void check_decoded(const char *name, size_t text, const char *got, int64_t n,
                          const json_t *want)
{
    char *shown = malloc((size_t)n * 3 + 1);
    int64_t n_shown = 0;
    for (int64_t i = 0; i < n;) {
        const uint8_t *at = (const uint8_t *)got + i;
        int32_t len;
        const int valid = lathe_utf8_at(at, n - i, &len) >= 0;
        memcpy(shown + n_shown, valid ? (const char *)at : "\xef\xbf\xbd", valid ? (size_t)len : 3);
        n_shown += valid ? len : 3;
        i += valid ? len : lathe_utf8_bad(at, n - i);
    }
    cr_expect(n_shown == (int64_t)json_string_length(want) &&
                  !memcmp(shown, json_string_value(want), (size_t)n_shown),
              "%s, text %zu: \"%.*s\" and not \"%s\"", name, text, (int)n_shown, shown,
              json_string_value(want));
    free(shown);
}

static void check_file(const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *texts = json_object_get(entry, "texts"),
                 *decoded = json_object_get(entry, "decoded");
    if (!name)
        name = "file";
    lathe_tokenizer *tok = parse(name, json_string_value(json_object_get(entry, "file")));
    lathe_encoder *enc;
    lathe_ids ids = {NULL, 0, 0};
    cr_assert_eq(lathe_encoder_create(tok, &enc), LATHE_OK);
    for (size_t i = 0; i < 2 * json_array_size(texts); i++) { /* again with a warm cache */
        const size_t at = i % json_array_size(texts);
        const json_t *text = json_array_get(texts, at);
        ids.n = 0;
        cr_assert_eq(lathe_encoder_run(enc, json_string_value(text),
                                       (int64_t)json_string_length(text), 0, &ids),
                     LATHE_OK, "%s", lathe_error_message());
        check_ids(name, at, &ids, json_array_get(json_object_get(entry, "ids"), at));
        if (!decoded)
            continue;
        char *back;
        int64_t n_back;
        cr_assert_eq(lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &back, &n_back), LATHE_OK);
        check_decoded(name, at, back, n_back, json_array_get(decoded, at));
        free(back);
    }
    lathe_ids_fini(&ids);
    lathe_encoder_destroy(enc);
    lathe_tokenizer_destroy(tok);
}

static size_t check_golden(const char *name)
{
    json_t *root = load_golden(name), *entry;
    size_t i;
    json_array_foreach(root, i, entry) check_file(entry);
    json_decref(root);
    return i;
}

/* ---- bytes without a token ---- */

Test(missing_bytes, are_dropped_or_unknown_as_in_hugging_face)
{
    cr_expect_geq(check_golden("missing_bytes.json"), 9);
}

static lathe_tokenizer *load_missing(const char *name)
{
    json_t *root = load_golden("missing_bytes.json"), *entry;
    lathe_tokenizer *tok = NULL;
    size_t i;
    json_array_foreach(root, i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            tok = parse(name, json_string_value(json_object_get(entry, "file")));
    }
    json_decref(root);
    cr_assert_not_null(tok, "no %s", name);
    return tok;
}

/* Encodes one text twice: a piece that lost bytes is counted each time, cached or not. */
static void check_counts(const char *name, int64_t dropped, int64_t unknown)
{
    static const char text[] = "ab\x01 \x13\x01zz\xf1\xff!"; /* two bytes that are not UTF-8 */
    lathe_tokenizer *tok = load_missing(name);
    lathe_encoder *enc;
    lathe_ids ids = {NULL, 0, 0};
    cr_assert_eq(lathe_encoder_create(tok, &enc), LATHE_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(lathe_encoder_run(enc, text, sizeof text - 1, 0, &ids), LATHE_OK);
    const lathe_text_loss *loss = lathe_encoder_loss(enc);
    cr_expect_eq(loss->n_dropped, 2 * dropped, "%s: %lld", name, (long long)loss->n_dropped);
    cr_expect_eq(loss->n_unknown, 2 * unknown, "%s: %lld", name, (long long)loss->n_unknown);
    cr_expect_eq(loss->of[0x01], dropped + unknown ? 4 : 0, "%s", name);
    cr_expect_eq(loss->of['a'], 0);
    lathe_ids_fini(&ids);
    lathe_encoder_destroy(enc);
    lathe_tokenizer_destroy(tok);
}

Test(missing_bytes, are_counted_by_value)
{
    check_counts("short route", 5, 0);
    check_counts("Falcon's pre-tokenizers", 5, 0);
    check_counts("unk_token", 0, 5);
    /* U+00F1 stands for 0xf1, and its byte 0xb1 has no token either; the other bytes fall back. */
    lathe_tokenizer *tok = load_missing("byte_fallback");
    uint8_t missing[256];
    cr_expect_eq(lathe_tokenizer_missing_bytes(tok, missing), 1);
    cr_expect_eq(missing[0xf1], 1);
    lathe_tokenizer_destroy(tok);
    tok = load_missing("short route");
    cr_expect_eq(lathe_tokenizer_missing_bytes(tok, missing), 23);
    cr_expect_eq(missing[0x13] + missing[0xff] + missing[0x08], 3);
    cr_expect_eq(missing['a'], 0);
    lathe_tokenizer_destroy(tok);
}

static char warned[1024];
static int n_warned;

static void hear(void *arg, int32_t level, const char *message)
{
    (void)arg;
    n_warned += level == LATHE_LOG_WARN;
    snprintf(warned, sizeof warned, "%s", message);
}

Test(missing_bytes, are_warned_of_with_the_data_and_the_values)
{
    lathe_text_loss loss = {0};
    lathe_log_set_sink(hear, NULL);
    lathe_text_loss_warn(&loss, "data.txt");
    cr_expect_eq(n_warned, 0, "nothing was lost: %s", warned);
    for (uint8_t b = 1; b <= 11; b++)
        for (int k = 0; k <= b; k++)
            lathe_text_loss_count(&loss, &b, 1, 0);
    lathe_text_loss_warn(&loss, "data.txt");
    cr_expect_eq(n_warned, 1);
    cr_expect_str_eq(warned, "data.txt: the tokenizer has no token for 77 bytes of the text, which "
                             "were left out: 0x0b (12), 0x0a (11), 0x09 (10), 0x08 (9), 0x07 (8), "
                             "0x06 (7), 0x05 (6), 0x04 (5) and 3 other values");
    lathe_text_loss_count(&loss, (const uint8_t *)"\xf1", 1, 1);
    lathe_text_loss_warn(&loss, "data.txt");
    cr_expect(strstr(warned, "78 bytes of the text: 77 were left out, 1 became"), "%s", warned);
    lathe_log_set_sink(NULL, NULL);
}

/* ---- Unigram ---- */

Test(unigram, ties_are_broken_as_in_hugging_face)
{
    json_t *root = load_golden("unigram_ties.json"), *entry;
    int64_t sharp = 0;
    size_t i;
    json_array_foreach(root, i, entry) sharp +=
        json_integer_value(json_object_get(entry, "nearest"));
    json_decref(root);
    cr_assert_gt(sharp, 50, "the golden file has cases that depend on the rounding of scores");
    cr_expect_geq(check_golden("unigram_ties.json"), 8);
}

Test(unigram, scores_are_rounded_as_serde_json_rounds_them)
{
    /* Results of tokenizers 0.23.3 for these texts; strtod differs in each of the first three. */
    static const struct {
        const char *text;
        double want;
    } cases[] = {{"-0.43561181362301915", -0x1.be1105f50c67bp-2},
                 {"-12.563669634938593", -0x1.920994e6f9e78p+3},
                 {"-9.634415443986683", -0x1.344d219e00011p+3},
                 {"-0", -0.0},
                 {"0.0", 0.0},
                 {"-3.5", -3.5},
                 {"1e-400", 0.0},
                 {"12E2", 1200.0},
                 {"18446744073709551616", 18446744073709551616.0},
                 {"1.25e+1", 12.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double got = lathe_score_read(cases[i].text, (int64_t)strlen(cases[i].text));
        cr_expect(memcmp(&got, &cases[i].want, sizeof got) == 0, "%s: %a and not %a", cases[i].text,
                  got, cases[i].want);
    }
}

/* ---- U+0000 ---- */

Test(nul, may_stand_in_every_text_of_a_tokenizer_file)
{
    cr_expect_geq(check_golden("nul_tokens.json"), 16);
}
