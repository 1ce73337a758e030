/* Reads the vocabulary of a Unigram model in tokenizer.json, texts with scores, from the large
 * tables or from the JSON tree. */
#include "tokenizer/json/tokenizer_json_unigram.h"

#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/json/tokenizer_json_vocab.h"

/* Puts token `id`; show_scored lets lathe__vocab_find return it later. */
static lathe_status put_scored(lathe_tokenizer *tok, const char *file, const char *text, int64_t n,
                               int64_t id)
{
    if (id < tok->vocab.n && tok->vocab.len[id] >= 0)
        return lathe__vocab_check_shared(tok, file, text, n, (int32_t)id);
    return lathe__vocab_put(&tok->vocab, (int32_t)id, text, n, 0);
}

/* Reads [text, score], whose id is its index in the list. */
static lathe_status read_scored(lathe_tokenizer *tok, const char *file, const json_t *entry,
                                int64_t i, double *score)
{
    const json_t *text = json_array_get(entry, 0), *number = json_array_get(entry, 1);
    if (json_array_size(entry) != 2 || !json_is_string(text) || !json_is_number(number))
        return lathe_error(LATHE_E_PARSE, "%s: model.vocab[%lld]: expected [text, score]", file,
                           (long long)i);
    *score = json_number_value(number);
    return put_scored(tok, file, json_string_value(text), (int64_t)json_string_length(text), i);
}

/* Reads the list directly from the text of the file. */
static lathe_status read_table_scored(lathe_tokenizer *tok, const char *file,
                                      const lathe_token_tables *t, double *scores)
{
    const char *at = t->scored, *text;
    char *unescaped = malloc((size_t)t->longest_escaped + 1);
    int32_t n;
    if (unescaped == NULL)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    lathe_status status = lathe__vocab_reserve(&tok->vocab, t->n_scored);
    for (int64_t i = 0; i < t->n_scored && status == LATHE_OK; i++) {
        at = lathe__token_tables_scored(t, at, unescaped, &text, &n, &scores[i]);
        status = at ? put_scored(tok, file, text, n, i)
                    : lathe__tj_unusual(file, "model.vocab has changed");
    }
    free(unescaped);
    return status;
}

/* Runs backwards, so that the last of equal tokens is the one that is found. */
static lathe_status show_scored(lathe_tokenizer *tok, int64_t n)
{
    lathe_vocab *vocab = &tok->vocab;
    uint8_t *is_added = calloc((size_t)vocab->n, 1);
    lathe_status status = is_added ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "vocabulary");
    for (int64_t i = 0; i < tok->n_added && is_added; i++)
        is_added[tok->added[i].id] = 1;
    for (int64_t i = n; i-- > 0 && status == LATHE_OK;)
        if (is_added[i] || lathe__vocab_find(vocab, vocab->pool + vocab->at[i], vocab->len[i]) < 0)
            status = lathe__vocab_show(vocab, (int32_t)i);
    free(is_added);
    return status;
}

lathe_status lathe__read_unigram_vocab(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                                       const lathe_token_tables *t, int64_t n, double *scores)
{
    if (t)
        LATHE_TRY(read_table_scored(tok, file, t, scores));
    for (int64_t i = 0; i < n && t == NULL; i++)
        LATHE_TRY(read_scored(tok, file, json_array_get(vocab, (size_t)i), i, &scores[i]));
    LATHE_TRY(show_scored(tok, n));
    for (int64_t i = 0; i < tok->n_added; i++) {
        const lathe_added_token *added = &tok->added[i];
        const int32_t id = lathe__vocab_find(&tok->vocab, added->content, added->bytes);
        if (id >= 0 && id != added->id)
            return lathe_error(LATHE_E_PARSE,
                               "%s: \"%s\" is %d in model.vocab and %d in "
                               "added_tokens",
                               file, added->content, id, added->id);
    }
    return LATHE_OK;
}
