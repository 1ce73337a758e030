/* Reads the merges of a BPE model in tokenizer.json, from the large tables or from the JSON
 * tree. */
#include "tokenizer/json/tokenizer_json_merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "tokenizer/json/tokenizer_json_vocab.h"

/* ---- from the tables ---- */

/* Finds the id of `bytes`, first by a guess, because the results of merges often have ids in order.
 * An added token is not accepted as a guess, since lathe__vocab_find may not return it. */
static int32_t find_guessed(const lathe_vocab *vocab, const uint8_t *is_added, const void *bytes,
                            int64_t n, int32_t guess)
{
    if (guess < vocab->n && vocab->len[guess] == n && !is_added[guess] &&
        !memcmp(vocab->pool + vocab->at[guess], bytes, (size_t)n))
        return guess;
    return lathe__vocab_find(vocab, bytes, n);
}

static lathe_status unusual_merge(const char *file, int64_t i, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s: model.merges[%lld]: %s", file, (long long)i, what);
}

static lathe_status take_table_merges(lathe_tokenizer *tok, const char *file,
                                      const lathe_token_tables *t, const uint8_t *is_added)
{
    const int general = tok->kind == LATHE_TOKENIZER_GENERAL;
    uint8_t bytes[1024];
    int32_t result = -1;
    for (int64_t i = 0; i < t->n_merges; i++) {
        const lathe_table_merge *m = &t->merges[i];
        int64_t a = m->n_left, b = m->n_right;
        if (a + b > (int64_t)sizeof bytes)
            return unusual_merge(file, i, "a long one");
        if (general) {
            memcpy(bytes, m->left, (size_t)a);
            memcpy(bytes + a, m->right, (size_t)b);
        } else {
            a = lathe_bytes_of_chars(m->left, a, bytes);
            b = a < 0 ? -1 : lathe_bytes_of_chars(m->right, b, bytes + a);
        }
        if (b < 0)
            return unusual_merge(file, i, "a text that is not byte-level");
        const int32_t left = lathe__vocab_find(&tok->vocab, bytes, a);
        const int32_t right = lathe__vocab_find(&tok->vocab, bytes + a, b);
        result = find_guessed(&tok->vocab, is_added, bytes, a + b, result + 1);
        if (left < 0 || right < 0 || result < 0)
            return unusual_merge(file, i, "not in model.vocab");
        lathe__merges_put(&tok->merges, left, right, (uint32_t)i, (uint32_t)result);
    }
    return LATHE_OK;
}

static lathe_status read_table_merges(lathe_tokenizer *tok, const char *file,
                                      const lathe_token_tables *t)
{
    uint8_t *is_added = calloc((size_t)tok->vocab.n + 1, 1);
    if (is_added == NULL)
        return lathe__tj_unusual(file, "out of memory");
    for (int64_t i = 0; i < tok->n_added; i++)
        is_added[tok->added[i].id] = 1;
    const lathe_status status = take_table_merges(tok, file, t, is_added);
    free(is_added);
    return status;
}

/* ---- from the JSON tree ---- */

/* The two sides of a merge: ["a", "b"] or "a b". */
static int merge_sides(const json_t *entry, const char *side[2], int64_t n[2])
{
    if (json_is_array(entry) && json_array_size(entry) == 2) {
        for (size_t i = 0; i < 2; i++) {
            side[i] = json_string_value(json_array_get(entry, i));
            n[i] = (int64_t)json_string_length(json_array_get(entry, i));
        }
        return side[0] && side[1];
    }
    const char *text = json_string_value(entry), *space = text ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' '))
        return 0;
    side[0] = text;
    n[0] = space - text;
    side[1] = space + 1;
    n[1] = (int64_t)strlen(space + 1);
    return 1;
}

/* Finds the id of a token by its text in the file; bytes is scratch of at least n bytes. */
static int32_t find_token(const lathe_tokenizer *tok, const char *text, int64_t n, uint8_t *bytes)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return lathe__vocab_find(&tok->vocab, text, n);
    const int64_t n_bytes = lathe_bytes_of_chars(text, n, bytes);
    return n_bytes < 0 ? -1 : lathe__vocab_find(&tok->vocab, bytes, n_bytes);
}

/* On the short route: whether no bytes encode to the text of a merge, so that it never happens. */
static int is_idle(const lathe_tokenizer *tok, const json_t *vocab, const char *side[2],
                   const int64_t n[2], uint8_t *bytes)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return 0;
    for (int i = 0; i < 2; i++)
        if (json_object_getn(vocab, side[i], (size_t)n[i]) == NULL)
            return 0;
    return lathe_bytes_of_chars(side[0], n[0], bytes) < 0 ||
           lathe_bytes_of_chars(side[1], n[1], bytes) < 0;
}

static lathe_status read_merge(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                               const json_t *entry, size_t i)
{
    const char *side[2];
    int64_t n[2];
    if (!merge_sides(entry, side, n))
        return lathe_error(LATHE_E_PARSE,
                           "%s: model.merges[%zu]: expected [\"a\", \"b\"] or \"a b\"", file, i);
    uint8_t *bytes = malloc((size_t)(n[0] + n[1]) * 2 + 1);
    if (bytes == NULL)
        return lathe_error(LATHE_E_NOMEM, "merges");
    char *both = (char *)bytes + n[0] + n[1];
    memcpy(both, side[0], (size_t)n[0]);
    memcpy(both + n[0], side[1], (size_t)n[1]);
    const int32_t left = find_token(tok, side[0], n[0], bytes);
    const int32_t right = find_token(tok, side[1], n[1], bytes);
    const int32_t result = find_token(tok, both, n[0] + n[1], bytes);
    const int idle = is_idle(tok, vocab, side, n, bytes);
    free(bytes);
    if (idle)
        return LATHE_OK;
    if (left < 0 || right < 0 || result < 0)
        return lathe_error(LATHE_E_PARSE,
                           "%s: model.merges[%zu]: \"%.*s\" + \"%.*s\" %s not in "
                           "model.vocab",
                           file, i, (int)n[0], side[0], (int)n[1], side[1],
                           left < 0 || right < 0 ? "are" : "gives what is");
    lathe__merges_put(&tok->merges, left, right, (uint32_t)i, (uint32_t)result);
    return LATHE_OK;
}

lathe_status lathe__read_merges(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                                const json_t *merges, const lathe_token_tables *t)
{
    LATHE_TRY(lathe__merges_init(&tok->merges, t ? t->n_merges : (int64_t)json_array_size(merges)));
    if (t)
        LATHE_TRY(read_table_merges(tok, file, t));
    for (size_t i = 0; i < json_array_size(merges); i++)
        LATHE_TRY(read_merge(tok, file, vocab, json_array_get(merges, i), i));
    return LATHE_OK;
}
