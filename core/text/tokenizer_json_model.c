/* tokenizer.json's model: the vocabulary, the merges of BPE, the scores of Unigram. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/token_tables.h"
#include "text/tokenizer_json.h"

/* ---- the vocabulary: bytes on the short route, else the text that the file has ---- */

/* An id of the model that added_tokens has given already: with this text. */
static lathe_status check_shared(const lathe_tokenizer *tok, const char *file, const char *key,
                                 int64_t n_key, int32_t id)
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
    LATHE_TRY(check_shared(tok, file, key, n, id));
    for (int64_t i = 0; i < n && tok->kind == LATHE_TOKENIZER_BPE; i++)
        if (key[i] <= ' ' || key[i] >= 0x7f) /* byte-level text would write it otherwise */
            return LATHE_OK;
    return lathe__vocab_show(&tok->vocab, id);
}

static lathe_status put_token(lathe_tokenizer *tok, const char *key, int64_t n, int32_t id)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return lathe__vocab_put(&tok->vocab, id, key, n, 1);
    uint8_t small[256];
    uint8_t *bytes = n < (int64_t)sizeof small ? small : malloc((size_t)n + 1);
    if (!bytes)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    const int64_t n_bytes = lathe__bytes_of_chars(key, n, bytes);
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

/* ---- the same from tables: an error only means that the ordinary way has to tell ---- */

static lathe_status unusual(const char *file, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s: %s", file, what);
}

/* No text may come twice, nor an id, nor an added token under another id. `taken`: a flag per id;
 * `others`: texts that are not byte-level on the short route, which are for decoding alone. */
static lathe_status take_table(lathe_tokenizer *tok, const char *file, const lathe_vocab *added,
                               lathe_vocab *others, uint8_t *taken)
{
    const lathe_token_tables *t = tok->tables;
    for (int64_t i = 0; i < t->n_tokens; i++) {
        const lathe_table_token *token = &t->tokens[i];
        const int32_t which = lathe__vocab_find(added, token->text, token->n);
        const int64_t n_used = tok->vocab.n_used;
        if (taken[token->id]++ || (which >= 0 && tok->added[which].id != token->id))
            return unusual(file, "model.vocab: an id or a text comes twice");
        LATHE_TRY(take_token(tok, file, token->text, token->n, token->id));
        if (tok->vocab.n_used == n_used && which < 0)
            LATHE_TRY(lathe__vocab_put(others, (int32_t)others->n, token->text, token->n, 1));
    }
    return tok->vocab.n_repeated || others->n_repeated
               ? unusual(file, "model.vocab: a text comes twice")
               : LATHE_OK;
}

static lathe_status read_table_vocab(lathe_tokenizer *tok, const char *file)
{
    const lathe_token_tables *t = tok->tables;
    lathe_vocab added, others;
    int32_t most = 0;
    memset(&added, 0, sizeof added);
    memset(&others, 0, sizeof others);
    for (int64_t i = 0; i < t->n_tokens; i++)
        most = t->tokens[i].id > most ? t->tokens[i].id : most;
    uint8_t *taken = calloc((size_t)most + 1, 1);
    lathe_status status =
        taken ? lathe__vocab_reserve(&tok->vocab, t->n_tokens) : unusual(file, "out of memory");
    for (int64_t i = 0; i < tok->n_added && status == LATHE_OK; i++)
        status =
            lathe__vocab_put(&added, (int32_t)i, tok->added[i].content, tok->added[i].bytes, 1);
    if (status == LATHE_OK && added.n_repeated)
        status = unusual(file, "added_tokens: a text comes twice");
    if (status == LATHE_OK)
        status = take_table(tok, file, &added, &others, taken);
    lathe__vocab_fini(&added);
    lathe__vocab_fini(&others);
    free(taken);
    return status;
}

/* The id of `bytes`, by a guess or by the table: what merges make often follows in order. An added
 * token is no guess: it may be one that is not found. */
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
                                      const uint8_t *is_added)
{
    const lathe_token_tables *t = tok->tables;
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
            a = lathe__bytes_of_chars(m->left, a, bytes);
            b = a < 0 ? -1 : lathe__bytes_of_chars(m->right, b, bytes + a);
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

static lathe_status read_table_merges(lathe_tokenizer *tok, const char *file)
{
    uint8_t *is_added = calloc((size_t)tok->vocab.n + 1, 1);
    if (!is_added)
        return unusual(file, "out of memory");
    for (int64_t i = 0; i < tok->n_added; i++)
        is_added[tok->added[i].id] = 1;
    const lathe_status status = take_table_merges(tok, file, is_added);
    free(is_added);
    return status;
}

/* ---- and from JSON ---- */

static lathe_status read_vocab(lathe_tokenizer *tok, const char *file, json_t *vocab)
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

/* The byte-level character of a byte, as text with a NUL. */
static void byte_key(int32_t byte, char out[4])
{
    out[lathe_utf8_put((uint8_t *)out, lathe__byte_char(byte))] = 0;
}

/* Texts of one byte-level character, each of which a table has once. */
static int table_has_all_bytes(const lathe_token_tables *t)
{
    uint8_t bytes[2], seen[256] = {0};
    int32_t n = 0;
    for (int64_t i = 0; i < t->n_tokens; i++)
        if (t->tokens[i].n <= 2 && t->tokens[i].n > 0 &&
            lathe__bytes_of_chars(t->tokens[i].text, t->tokens[i].n, bytes) == 1)
            n += !seen[bytes[0]]++;
    return n == 256;
}

int lathe__has_all_bytes(const lathe_tokenizer *tok, const json_t *model)
{
    char key[4];
    const json_t *vocab = json_object_get(model, "vocab");
    if (tok->tables)
        return table_has_all_bytes(tok->tables);
    for (int32_t byte = 0; byte < 256; byte++) {
        byte_key(byte, key);
        if (!json_object_get(vocab, key))
            return 0;
    }
    return 1;
}

static void find_byte_ids(lathe_tokenizer *tok)
{
    for (int32_t byte = 0; byte < 256; byte++) {
        const uint8_t b = (uint8_t)byte;
        tok->byte_id[byte] = lathe__vocab_find(&tok->vocab, &b, 1);
    }
}

/* ---- merges ---- */

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
    if (!space || strchr(space + 1, ' '))
        return 0;
    side[0] = text;
    n[0] = space - text;
    side[1] = space + 1;
    n[1] = (int64_t)strlen(space + 1);
    return 1;
}

/* Id of a token by its text in the file; bytes is scratch of at least n. */
static int32_t find_token(const lathe_tokenizer *tok, const char *text, int64_t n, uint8_t *bytes)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return lathe__vocab_find(&tok->vocab, text, n);
    const int64_t n_bytes = lathe__bytes_of_chars(text, n, bytes);
    return n_bytes < 0 ? -1 : lathe__vocab_find(&tok->vocab, bytes, n_bytes);
}

/* On the short route: a merge of text that no bytes make, which therefore never comes to pass. */
static int is_idle(const lathe_tokenizer *tok, const json_t *vocab, const char *side[2],
                   const int64_t n[2], uint8_t *bytes)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return 0;
    for (int i = 0; i < 2; i++)
        if (!json_object_getn(vocab, side[i], (size_t)n[i]))
            return 0;
    return lathe__bytes_of_chars(side[0], n[0], bytes) < 0 ||
           lathe__bytes_of_chars(side[1], n[1], bytes) < 0;
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
    if (!bytes)
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

/* ---- the general route's tables ---- */

static int32_t find_text(const lathe_tokenizer *tok, const char *text)
{
    return lathe__vocab_find(&tok->vocab, text, (int64_t)strlen(text));
}

static int has_byte_level(const lathe_pipeline *p)
{
    for (int32_t i = 0; i < p->n_normal; i++)
        if (p->normal[i].kind == LATHE_NORMAL_BYTE_LEVEL)
            return 1;
    for (int32_t i = 0; i < p->n_pre; i++)
        if (p->pre[i].kind == LATHE_PRE_BYTE_LEVEL)
            return 1;
    return 0;
}

/* The tokens of single bytes: their characters where a step makes those, and "<0x00>" ...
 * "<0xFF>". */
static void find_byte_tokens(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    char key[8];
    p->byte_level = has_byte_level(p);
    for (int32_t byte = 0; byte < 256; byte++) {
        byte_key(byte, key);
        p->byte_char[byte] = p->byte_level ? find_text(tok, key) : -1;
        snprintf(key, sizeof key, "<0x%02X>", (unsigned)byte);
        p->byte_token[byte] = p->byte_fallback ? find_text(tok, key) : -1;
    }
}

static lathe_status finish_general(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    find_byte_tokens(tok);
    p->is_control = calloc((size_t)tok->vocab.n + 1, 1);
    return p->is_control ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "vocabulary");
}

/* ---- BPE ---- */

static lathe_status read_bpe(lathe_tokenizer *tok, const char *file, const char *place,
                             const json_t *model)
{
    const char *prefix, *suffix;
    const json_t *merges = json_object_get(model, "merges");
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *dropout = json_object_get(model, "dropout");
    int32_t fuse_unk, byte_fallback;
    if (!json_is_object(vocab))
        return lathe__tj_expected(place, "vocab", vocab, "an object");
    if (!json_is_array(merges))
        return lathe__tj_expected(place, "merges", merges, "a list");
    if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
        return lathe__tj_expected(place, "dropout", dropout, "a number or null");
    if (json_number_value(dropout) != 0.0)
        return lathe__tj_unsupported(place, "dropout", "not 0", "null");
    LATHE_TRY(lathe__tj_text(place, model, "continuing_subword_prefix", &prefix));
    LATHE_TRY(lathe__tj_text(place, model, "end_of_word_suffix", &suffix));
    if (prefix && *prefix)
        return lathe__tj_unsupported(place, "continuing_subword_prefix", prefix, "null");
    if (suffix && *suffix)
        return lathe__tj_unsupported(place, "end_of_word_suffix", suffix, "null");
    const json_t *unk = json_object_get(model, "unk_token");
    if (unk && !json_is_null(unk) && !json_is_string(unk))
        return lathe__tj_expected(place, "unk_token", unk, "a string");
    LATHE_TRY(lathe__tj_flag(place, model, "fuse_unk", 0, &fuse_unk));
    LATHE_TRY(lathe__tj_flag(place, model, "byte_fallback", 0, &byte_fallback));
    LATHE_TRY(lathe__tj_flag(place, model, "ignore_merges", 0, &tok->ignore_merges));
    const lathe_token_tables *t = tok->tables;
    LATHE_TRY(t ? read_table_vocab(tok, file) : read_vocab(tok, file, vocab));
    if (tok->kind == LATHE_TOKENIZER_BPE)
        find_byte_ids(tok);
    LATHE_TRY(lathe__merges_init(&tok->merges, t ? t->n_merges : (int64_t)json_array_size(merges)));
    if (t)
        LATHE_TRY(read_table_merges(tok, file));
    for (size_t i = 0; i < json_array_size(merges); i++)
        LATHE_TRY(read_merge(tok, file, vocab, json_array_get(merges, i), i));
    if (tok->kind == LATHE_TOKENIZER_BPE)
        return LATHE_OK;
    tok->pipeline->fuse_unk = fuse_unk;
    tok->pipeline->byte_fallback = byte_fallback;
    tok->pipeline->unk = -1;
    if (json_is_string(unk)) {
        tok->pipeline->unk = lathe__vocab_find(&tok->vocab, json_string_value(unk),
                                               (int64_t)json_string_length(unk));
        if (tok->pipeline->unk < 0)
            return lathe_error(LATHE_E_PARSE, "%s.unk_token \"%s\" is not in model.vocab", place,
                               json_string_value(unk));
    }
    return finish_general(tok);
}

/* ---- Unigram ---- */

/* Token `id`; show_scored lets it be found. */
static lathe_status put_scored(lathe_tokenizer *tok, const char *file, const char *text, int64_t n,
                               int64_t id)
{
    if (id < tok->vocab.n && tok->vocab.len[id] >= 0)
        return check_shared(tok, file, text, n, (int32_t)id);
    return lathe__vocab_put(&tok->vocab, (int32_t)id, text, n, 0);
}

/* [text, score], whose id is its place in the list. */
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

/* The same from where the list stands in the file. */
static lathe_status read_table_scored(lathe_tokenizer *tok, const char *file, double *scores)
{
    const lathe_token_tables *t = tok->tables;
    const char *at = t->scored, *text;
    char *unescaped = malloc((size_t)t->longest_escaped + 1);
    int32_t n;
    if (!unescaped)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    lathe_status status = lathe__vocab_reserve(&tok->vocab, t->n_scored);
    for (int64_t i = 0; i < t->n_scored && status == LATHE_OK; i++) {
        at = lathe__token_tables_scored(t, at, unescaped, &text, &n, &scores[i]);
        status = at ? put_scored(tok, file, text, n, i) : unusual(file, "model.vocab has changed");
    }
    free(unescaped);
    return status;
}

/* Backwards: the last of equal tokens is the one found. */
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

static lathe_status read_unigram_vocab(lathe_tokenizer *tok, const char *file, const json_t *vocab,
                                       int64_t n, double *scores)
{
    if (tok->tables)
        LATHE_TRY(read_table_scored(tok, file, scores));
    for (int64_t i = 0; i < n && !tok->tables; i++)
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

lathe_status lathe__finish_model(lathe_tokenizer *tok)
{
    lathe_pipeline *p = tok->pipeline;
    if (!p || !p->scores)
        return LATHE_OK;
    LATHE_TRY(lathe__unigram_create(&tok->vocab, p->scores, p->n_scores, &p->unigram));
    p->scores = NULL;
    return LATHE_OK;
}

static lathe_status read_unigram(lathe_tokenizer *tok, const char *file, const char *place,
                                 const json_t *model)
{
    const json_t *vocab = json_object_get(model, "vocab"), *unk = json_object_get(model, "unk_id");
    if (!json_is_array(vocab))
        return lathe__tj_expected(place, "vocab", vocab, "a list");
    const int64_t n = tok->tables ? tok->tables->n_scored : (int64_t)json_array_size(vocab);
    if (n == 0 || n > LATHE_MAX_ID)
        return lathe_error(LATHE_E_PARSE, "%s.vocab has %lld tokens; expected 1 to 2^24", place,
                           (long long)n);
    if (unk && !json_is_null(unk) &&
        (!json_is_integer(unk) || json_integer_value(unk) < 0 || json_integer_value(unk) >= n))
        return lathe__tj_expected(place, "unk_id", unk, "an id of the vocabulary or null");
    tok->pipeline->unk = json_is_integer(unk) ? (int32_t)json_integer_value(unk) : -1;
    LATHE_TRY(lathe__tj_flag(place, model, "byte_fallback", 0, &tok->pipeline->byte_fallback));
    tok->pipeline->n_scores = n;
    tok->pipeline->scores = malloc((size_t)n * sizeof *tok->pipeline->scores);
    if (!tok->pipeline->scores)
        return lathe_error(LATHE_E_NOMEM, "vocabulary");
    LATHE_TRY(read_unigram_vocab(tok, file, vocab, n, tok->pipeline->scores));
    return finish_general(tok);
}

lathe_status lathe__read_model(lathe_tokenizer *tok, const char *file, json_t *model)
{
    const char *type;
    char place[LATHE_PLACE];
    snprintf(place, sizeof place, "%s: model", file);
    if (!json_is_object(model))
        return lathe__tj_expected(place, "", model, "an object");
    LATHE_TRY(lathe__tj_text(place, model, "type", &type));
    if (!type) /* files of before 2021 have none */
        type = json_object_get(model, "merges")                 ? "BPE"
               : json_is_array(json_object_get(model, "vocab")) ? "Unigram"
                                                                : "none";
    if (!strcmp(type, "BPE"))
        return read_bpe(tok, file, place, model);
    if (!strcmp(type, "Unigram") && tok->kind == LATHE_TOKENIZER_GENERAL)
        return read_unigram(tok, file, place, model);
    return lathe__tj_unsupported(place, "type", type, "BPE, Unigram");
}
