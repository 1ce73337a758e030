/* Reads the vocabulary of a BPE model in tokenizer.json: as bytes for the short route, otherwise
 * as the text in the file. Read from the large tables where they have the usual form, else from
 * the JSON tree. */
#include "tokenizer/json/tokenizer_json_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/json/tokenizer_json_members.h"

lathe_status lathe__tj_unusual(const char *file, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s: %s", file, what);
}

lathe_status lathe__vocab_check_shared(const lathe_tokenizer *tok, const char *file,
                                       const char *key, int64_t n_key, int32_t id)
{
    const char *content = (const char *)tok->vocab.pool + tok->vocab.at[id];
    if (n_key == tok->vocab.len[id] && memcmp(key, content, (size_t)n_key) == 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_PARSE, "%s: id %d is \"%.*s\" in model.vocab and \"%s\" before",
                       file, id, (int)n_key, key, content);
}

static lathe_status share_token(lathe_tokenizer *tok, const char *file, const char *key, int64_t n,
                                int32_t id)
{
    LATHE_TRY(lathe__vocab_check_shared(tok, file, key, n, id));
    for (int64_t i = 0; i < n && tok->kind == LATHE_TOKENIZER_BPE; i++)
        if (key[i] <= ' ' || key[i] >= 0x7f) /* byte-level text has another character for it */
            return LATHE_OK;
    return lathe__vocab_show(&tok->vocab, id);
}

static lathe_status put_token(lathe_tokenizer *tok, const char *key, int64_t n, int32_t id)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return lathe__vocab_put(&tok->vocab, id, key, n, 1);
    uint8_t small[256];
    uint8_t *bytes = n < (int64_t)sizeof small ? small : malloc((size_t)n + 1);
    if (bytes == NULL)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    const int64_t n_bytes = lathe_bytes_of_chars(key, n, bytes);
    const lathe_status status = n_bytes < 0 ? lathe__vocab_put(&tok->vocab, id, key, n, 0)
                                            : lathe__vocab_put(&tok->vocab, id, bytes, n_bytes, 1);
    if (bytes != small)
        free(bytes);
    return status;
}

static lathe_status take_token(lathe_tokenizer *tok, const char *file, const char *key, int64_t n,
                               int32_t id)
{
    if (id < tok->vocab.n && tok->vocab.len[id] >= 0)
        return share_token(tok, file, key, n, id);
    const lathe_status status = put_token(tok, key, n, id);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_error_context(status, "%s: model.vocab[\"%.*s\"]", file, (int)n, key);
}

static lathe_status read_token(lathe_tokenizer *tok, const char *file, const char *key,
                               const json_t *value)
{
    const int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= LATHE_MAX_ID)
        return lathe_error(LATHE_E_PARSE, "%s: model.vocab[\"%s\"]: expected an id", file, key);
    return take_token(tok, file, key, (int64_t)strlen(key), (int32_t)id);
}

/* ---- from the tables: an error only means that the JSON tree is read instead ---- */

/* Puts the tokens of the table. No text and no id may come twice, and an added token must have its
 * own id. `taken`: a flag per id; `others`: texts that are not byte-level on the short route, which
 * only decoding uses. */
static lathe_status take_table(lathe_tokenizer *tok, const char *file, const lathe_token_tables *t,
                               const lathe_vocab *added, lathe_vocab *others, uint8_t *taken)
{
    for (int64_t i = 0; i < t->n_tokens; i++) {
        const lathe_table_token *token = &t->tokens[i];
        const int32_t which = lathe__vocab_find(added, token->text, token->n);
        const int64_t n_used = tok->vocab.n_used;
        if (taken[token->id]++ || (which >= 0 && tok->added[which].id != token->id))
            return lathe__tj_unusual(file, "model.vocab: an id or a text comes twice");
        LATHE_TRY(take_token(tok, file, token->text, token->n, token->id));
        if (tok->vocab.n_used == n_used && which < 0)
            LATHE_TRY(lathe__vocab_put(others, (int32_t)others->n, token->text, token->n, 1));
    }
    return tok->vocab.n_repeated || others->n_repeated
               ? lathe__tj_unusual(file, "model.vocab: a text comes twice")
               : LATHE_OK;
}

static lathe_status read_table_vocab(lathe_tokenizer *tok, const char *file,
                                     const lathe_token_tables *t)
{
    lathe_vocab added, others;
    int32_t max = 0;
    memset(&added, 0, sizeof added);
    memset(&others, 0, sizeof others);
    for (int64_t i = 0; i < t->n_tokens; i++)
        max = t->tokens[i].id > max ? t->tokens[i].id : max;
    uint8_t *taken = calloc((size_t)max + 1, 1);
    lathe_status status = taken ? lathe__vocab_reserve(&tok->vocab, t->n_tokens)
                                : lathe__tj_unusual(file, "out of memory");
    for (int64_t i = 0; i < tok->n_added && status == LATHE_OK; i++)
        status =
            lathe__vocab_put(&added, (int32_t)i, tok->added[i].content, tok->added[i].bytes, 1);
    if (status == LATHE_OK && added.n_repeated)
        status = lathe__tj_unusual(file, "added_tokens: a text comes twice");
    if (status == LATHE_OK)
        status = take_table(tok, file, t, &added, &others, taken);
    lathe__vocab_fini(&added);
    lathe__vocab_fini(&others);
    free(taken);
    return status;
}

/* ---- from the JSON tree ---- */

static lathe_status read_json_vocab(lathe_tokenizer *tok, const char *file, json_t *vocab)
{
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        LATHE_TRY(read_token(tok, file, key, value));
    }
    for (int64_t i = 0; i < tok->n_added; i++) {
        const lathe_added_token *added = &tok->added[i];
        const json_t *id = json_object_get(vocab, added->content);
        if (id && json_integer_value(id) != added->id)
            return lathe_error(LATHE_E_PARSE,
                               "%s: \"%s\" is %lld in model.vocab and %d in added_tokens", file,
                               added->content, (long long)json_integer_value(id), added->id);
    }
    return LATHE_OK;
}

lathe_status lathe__read_vocab(lathe_tokenizer *tok, const char *file, json_t *vocab,
                               const lathe_token_tables *t)
{
    return t ? read_table_vocab(tok, file, t) : read_json_vocab(tok, file, vocab);
}

/* ---- single bytes ---- */

void lathe__byte_key(int32_t byte, char out[4])
{
    out[lathe_utf8_put((uint8_t *)out, lathe_byte_char(byte))] = 0;
}

/* Whether the table has the character of every byte; counts texts of one byte-level character. */
static int table_has_all_bytes(const lathe_token_tables *t)
{
    uint8_t bytes[2], seen[256] = {0};
    int32_t n = 0;
    for (int64_t i = 0; i < t->n_tokens; i++)
        if (t->tokens[i].n <= 2 && t->tokens[i].n > 0 &&
            lathe_bytes_of_chars(t->tokens[i].text, t->tokens[i].n, bytes) == 1)
            n += !seen[bytes[0]]++;
    return n == 256;
}

int lathe__has_all_bytes(const json_t *model, const lathe_token_tables *tables)
{
    char key[4];
    const json_t *vocab = json_object_get(model, "vocab");
    if (tables)
        return table_has_all_bytes(tables);
    for (int32_t byte = 0; byte < 256; byte++) {
        lathe__byte_key(byte, key);
        if (json_object_get(vocab, key) == NULL)
            return 0;
    }
    return 1;
}
