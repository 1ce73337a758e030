/* Every section and switch of tokenizer.json alone, compared with Hugging Face's ids and decodings
 * (tests/golden/tokenizer_features.py). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "tokenizer/json/tokenizer_json.h"

static json_t *golden;

static void open_golden(void)
{
    cr_assert_eq(
        lathe_json_load_file(LATHE_TEST_DATA "/golden/data/tokenizer_features.json", &golden),
        LATHE_OK, "%s", lathe_error_message());
}

static void close_golden(void)
{
    json_decref(golden);
}

TestSuite(tokenizer_features, .init = open_golden, .fini = close_golden);

/* The model of a feature: a base with some members replaced; merges "text" writes them as "a b". */
static json_t *model_of(const json_t *feature)
{
    const char *use = json_string_value(json_object_get(feature, "use"));
    json_t *model = json_copy(json_object_get(json_object_get(golden, "models"), use));
    json_t *changes = json_object_get(feature, "model"), *value;
    const char *key;
    cr_assert_not_null(model, "no model %s", use);
    json_object_foreach(changes, key, value)
    {
        if (strcmp(key, "merges") != 0) {
            json_object_set(model, key, value);
            continue;
        }
        json_t *texts = json_array();
        for (size_t i = 0; i < json_array_size(json_object_get(model, key)); i++) {
            const json_t *pair = json_array_get(json_object_get(model, key), i);
            json_array_append_new(texts,
                                  json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                               json_string_value(json_array_get(pair, 1))));
        }
        json_object_set_new(model, key, texts);
    }
    return model;
}

static lathe_tokenizer *tokenizer_of(const json_t *feature)
{
    static const char *const sections[] = {"added_tokens", "normalizer", "pre_tokenizer",
                                           "post_processor", "decoder"};
    json_t *root = json_object();
    for (int i = 0; i < 5; i++)
        json_object_set(root, sections[i], json_object_get(feature, sections[i]));
    json_object_set_new(root, "model", model_of(feature));
    char *text = json_dumps(root, JSON_COMPACT);
    lathe_tokenizer *tok = NULL;
    cr_assert_eq(lathe__tokenizer_parse("feature", text, (int64_t)strlen(text), &tok), LATHE_OK,
                 "%s: %s", json_string_value(json_object_get(feature, "name")),
                 lathe_error_message());
    json_decref(root);
    return tok;
}

static void check_ids(const char *name, const char *text, const lathe_ids *ids, const json_t *want)
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

static void check_decoded(const char *name, const lathe_tokenizer *tok, const lathe_ids *ids,
                          int32_t flags, const json_t *want)
{
    if (!json_is_string(want))
        return;
    char *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_tokenizer_decode(tok, ids->data, ids->n, flags, &text, &n), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_str_eq(text, json_string_value(want), "%s", name);
    free(text);
}

Test(tokenizer_features, each_gives_the_ids_and_texts_of_hugging_face)
{
    const json_t *features = json_object_get(golden, "features");
    const json_t *texts = json_object_get(golden, "texts");
    lathe_ids ids = {NULL, 0, 0};
    int64_t n_decoded = 0;
    cr_assert_geq(json_array_size(features), 100);
    for (size_t k = 0; k < json_array_size(features); k++) {
        const json_t *feature = json_array_get(features, k);
        const char *name = json_string_value(json_object_get(feature, "name"));
        lathe_tokenizer *tok = tokenizer_of(feature);
        lathe_encoder *enc;
        cr_assert_eq(lathe_encoder_create(tok, &enc), LATHE_OK);
        for (size_t i = 0; i < 2 * json_array_size(texts); i++) { /* again with a warm cache */
            const size_t at = i % json_array_size(texts);
            const char *text = json_string_value(json_array_get(texts, at));
            ids.n = 0;
            cr_assert_eq(
                lathe_encoder_run(enc, text, (int64_t)strlen(text), LATHE_ENCODE_ADD_SPECIAL, &ids),
                LATHE_OK, "%s: %s", name, lathe_error_message());
            check_ids(name, text, &ids, json_array_get(json_object_get(feature, "ids"), at));
            const json_t *kept = json_array_get(json_object_get(feature, "kept"), at);
            n_decoded += json_is_string(kept);
            check_decoded(name, tok, &ids, 0, kept);
            check_decoded(name, tok, &ids, LATHE_DECODE_SKIP_SPECIAL,
                          json_array_get(json_object_get(feature, "skipped"), at));
        }
        lathe_encoder_destroy(enc);
        lathe_tokenizer_destroy(tok);
    }
    cr_expect_geq(n_decoded, 500);
    lathe_ids_fini(&ids);
}
