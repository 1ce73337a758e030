/* WordPiece and WordLevel: tokens of whole words and of their parts, looked up in the vocabulary.
 */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

static lathe_status put(lathe_ids *ids, int32_t id)
{
    LATHE_TRY(lathe_ids_reserve(ids, 1));
    ids->data[ids->n++] = id;
    return LATHE_OK;
}

static lathe_status put_unknown(const lathe_pipeline *p, lathe_model_scratch *scratch,
                                const uint8_t *piece, int64_t n, lathe_ids *ids)
{
    lathe__count_lost(p, piece, n, 1, scratch->loss);
    return put(ids, p->unk);
}

/* In plain text, a special token does not count. */
static int32_t find(const lathe_tokenizer *tok, const uint8_t *text, int64_t n, int plain)
{
    const int32_t id = lathe__vocab_find(&tok->vocab, text, n);
    return id >= 0 && plain && tok->pipeline->is_control[id] ? -1 : id;
}

/* Finds the longest token at text[0], of at most n bytes; returns its length, 0: there is none.
 * inside: the token continues a word and is written with the prefix, which `key` begins with. */
static int64_t longest_at(const lathe_tokenizer *tok, const uint8_t *text, int64_t n, int plain,
                          int inside, lathe_buffer *key, int32_t *out)
{
    const lathe_pipeline *p = tok->pipeline;
    const int64_t prefix = inside ? p->subword.bytes : 0;
    int64_t end = p->longest - prefix < n ? p->longest - prefix : n;
    if (inside) {
        key->len = prefix;
        lathe_buffer_append(key, text, end > 0 ? end : 0);
        if (key->status != LATHE_OK)
            return 0;
    }
    const uint8_t *from = inside ? (const uint8_t *)key->data : text;
    while (end > 0) {
        /* a token ends where a character ends */
        if (end == n || (text[end] & 0xc0) != 0x80) {
            *out = find(tok, from, prefix + end, plain);
            if (*out >= 0)
                return end;
        }
        end--;
    }
    return 0;
}

static int64_t count_chars(const uint8_t *text, int64_t n)
{
    int64_t chars = 0;
    for (int64_t i = 0; i < n; i++)
        chars += (text[i] & 0xc0) != 0x80;
    return chars;
}

lathe_status lathe__word_piece_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                      const uint8_t *piece, int64_t n, int plain, lathe_ids *ids)
{
    const lathe_pipeline *p = tok->pipeline;
    const int64_t before = ids->n;
    if (count_chars(piece, n) > p->max_chars)
        return put_unknown(p, scratch, piece, n, ids);
    lathe_buffer key = LATHE_BUFFER_INIT;
    lathe_buffer_append(&key, p->subword.text, p->subword.bytes);
    lathe_status status = key.status;
    for (int64_t at = 0, bytes; at < n && status == LATHE_OK; at += bytes) {
        int32_t id = -1;
        bytes = longest_at(tok, piece + at, n - at, plain, at > 0, &key, &id);
        status = key.status;
        if (status == LATHE_OK && bytes == 0) { /* one bad part makes the whole word unknown */
            ids->n = before;
            status = put_unknown(p, scratch, piece, n, ids);
            break;
        }
        if (status == LATHE_OK)
            status = put(ids, id);
    }
    lathe_buffer_fini(&key);
    return status;
}

lathe_status lathe__word_level_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                      const uint8_t *piece, int64_t n, int plain, lathe_ids *ids)
{
    const int32_t id = find(tok, piece, n, plain);
    return id >= 0 ? put(ids, id) : put_unknown(tok->pipeline, scratch, piece, n, ids);
}
