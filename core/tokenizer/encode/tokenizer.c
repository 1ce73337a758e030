/* Makes, reads and frees a tokenizer, and decodes ids. */
#include "tokenizer/encode/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

lathe_status lathe_tokenizer_bytes(lathe_tokenizer **out)
{
    static const char end_of_text[] = "<|endoftext|>";
    lathe_tokenizer *tok = calloc(1, sizeof *tok);
    if (!tok)
        return lathe_error(LATHE_E_NOMEM, "tokenizer");
    tok->kind = LATHE_TOKENIZER_BYTES;
    tok->bos = tok->mask = -1;
    tok->eos = tok->pad = 256;
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < 256 && status == LATHE_OK; i++) {
        const uint8_t byte = (uint8_t)i;
        status = lathe__vocab_put(&tok->vocab, i, &byte, 1, 1);
        tok->byte_id[i] = i;
    }
    if (status == LATHE_OK)
        status = lathe__vocab_put(&tok->vocab, 256, end_of_text, sizeof end_of_text - 1, 0);
    if (status == LATHE_OK)
        status = lathe__tokenizer_seal(tok);
    if (status != LATHE_OK) {
        lathe_tokenizer_destroy(tok);
        return status;
    }
    *out = tok;
    return LATHE_OK;
}

lathe_status lathe__tokenizer_seal(lathe_tokenizer *tok)
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    char special[96];
    const int n = snprintf(special, sizeof special, "%s bos %d eos %d pad %d\n",
                           tok->kind == LATHE_TOKENIZER_BYTES ? "bytes" : "json", tok->bos,
                           tok->eos, tok->pad);
    lathe_sha256_update(hash, special, n);
    lathe_sha256_update(hash, tok->json, tok->json_bytes);
    char *beside = tok->beside ? json_dumps(tok->beside, JSON_COMPACT) : NULL;
    if (beside)
        lathe_sha256_update(hash, beside, (int64_t)strlen(beside));
    free(beside);
    lathe_sha256_finish(hash, tok->hash);
    return LATHE_OK;
}

void lathe_tokenizer_destroy(lathe_tokenizer *tok)
{
    if (!tok)
        return;
    lathe__pipeline_destroy(tok->pipeline);
    lathe__vocab_fini(&tok->vocab);
    free(tok->merges.slots);
    for (int32_t i = 0; i < tok->n_splits; i++)
        pcre2_code_free(tok->splits[i]);
    for (int64_t i = 0; i < tok->n_added; i++)
        free(tok->added[i].content);
    free(tok->added);
    free(tok->added_at);
    free(tok->raw.nodes);
    free(tok->normalized.nodes);
    free(tok->json);
    json_decref(tok->beside);
    free(tok);
}

int lathe_tokenizer_is_special(const lathe_tokenizer *tok, int32_t id)
{
    if (tok->kind == LATHE_TOKENIZER_BYTES)
        return id == 256;
    if (tok->pipeline)
        return id >= 0 && id < tok->vocab.n && tok->pipeline->is_control[id];
    const lathe_added_token *added = lathe__added_of(tok, id);
    return added && added->special;
}

const json_t *lathe_tokenizer_beside(const lathe_tokenizer *tok)
{
    return tok->beside;
}

void lathe_tokenizer_take_specials(lathe_tokenizer *tok, const lathe_tokenizer *from)
{
    tok->bos = tok->bos >= 0 ? tok->bos : from->bos;
    tok->eos = tok->eos >= 0 ? tok->eos : from->eos;
    tok->pad = tok->pad >= 0 ? tok->pad : from->pad;
}

lathe_status lathe_tokenizer_take_out_pad(lathe_tokenizer *tok)
{
    const int32_t id = tok->pad;
    const lathe_added_token *added = lathe__added_of(tok, id);
    if (!added || id != tok->vocab.n - 1)
        return lathe_error(LATHE_E_STATE, "the padding token is not the last added token");
    LATHE_TRY(lathe__trie_put(added->normalized ? &tok->normalized : &tok->raw, added->content,
                              added->bytes, -1));
    tok->vocab.len[id] = -1;
    tok->vocab.n--;
    tok->pad = -1;
    return lathe__tokenizer_seal(tok);
}

int lathe_tokenizer_is_added(const lathe_tokenizer *tok, int32_t id)
{
    return tok->kind == LATHE_TOKENIZER_BYTES ? id == 256 : lathe__added_of(tok, id) != NULL;
}

const char *lathe_tokenizer_token(const lathe_tokenizer *tok, int32_t id, int64_t *out_bytes)
{
    if (id < 0 || id >= tok->vocab.n || tok->vocab.len[id] < 0)
        return NULL;
    *out_bytes = tok->vocab.len[id];
    return (const char *)tok->vocab.pool + tok->vocab.at[id];
}

lathe_status lathe_tokenizer_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes)
{
    if (tok->kind == LATHE_TOKENIZER_GENERAL)
        return lathe__pipeline_decode(tok, ids, n, flags, out_text, out_bytes);
    int64_t total = 0;
    for (int pass = 0;; pass++) {
        int64_t at = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t bytes = 0;
            const char *text = lathe_tokenizer_token(tok, ids[i], &bytes);
            if (!text) {
                if (pass)
                    free(*out_text);
                return lathe_error(LATHE_E_ARG, "id %d at %lld is no token of a vocabulary of %lld",
                                   ids[i], (long long)i, (long long)tok->vocab.n);
            }
            if ((flags & LATHE_DECODE_SKIP_SPECIAL) && lathe_tokenizer_is_special(tok, ids[i]))
                continue;
            if (pass)
                memcpy(*out_text + at, text, (size_t)bytes);
            at += bytes;
        }
        if (pass)
            break;
        total = at;
        *out_text = malloc((size_t)total + 1);
        if (!*out_text)
            return lathe_error(LATHE_E_NOMEM, "%lld bytes of text", (long long)total);
    }
    (*out_text)[total] = 0;
    *out_bytes = total;
    return LATHE_OK;
}

int64_t lathe_tokenizer_vocab_size(const lathe_tokenizer *tok)
{
    return tok->vocab.n;
}

int32_t lathe_tokenizer_bos(const lathe_tokenizer *tok)
{
    return tok->bos;
}

int32_t lathe_tokenizer_eos(const lathe_tokenizer *tok)
{
    return tok->eos;
}

int32_t lathe_tokenizer_pad(const lathe_tokenizer *tok)
{
    return tok->pad;
}

int32_t lathe_tokenizer_mask(const lathe_tokenizer *tok)
{
    return tok->mask;
}

int32_t lathe_tokenizer_id(const lathe_tokenizer *tok, const char *text, int64_t n_bytes)
{
    for (int64_t i = 0; i < tok->n_added; i++)
        if (tok->vocab.len[tok->added[i].id] == n_bytes &&
            !memcmp(tok->vocab.pool + tok->vocab.at[tok->added[i].id], text, (size_t)n_bytes))
            return tok->added[i].id;
    return lathe__vocab_find(&tok->vocab, text, n_bytes);
}

/* Returns 1 if byte_fallback has a token for each UTF-8 byte of the character that stands for
 * `byte`. */
static int falls_back(const lathe_pipeline *p, int32_t byte)
{
    uint8_t text[4];
    const int32_t n = lathe_utf8_put(text, lathe_byte_char(byte));
    for (int32_t i = 0; i < n; i++)
        if (p->byte_token[text[i]] < 0)
            return 0;
    return 1;
}

int32_t lathe_tokenizer_missing_bytes(const lathe_tokenizer *tok, uint8_t missing[256])
{
    const lathe_pipeline *p = tok->pipeline;
    int32_t n = 0;
    memset(missing, 0, 256);
    for (int32_t byte = 0; byte < 256 && (!p || p->byte_level); byte++) {
        missing[byte] = p ? p->byte_char[byte] < 0 && !falls_back(p, byte) : tok->byte_id[byte] < 0;
        n += missing[byte];
    }
    return n;
}

lathe_status lathe_tokenizer_check_text(const lathe_tokenizer *tok, const char *what,
                                        const char *text, int64_t n_bytes)
{
    const uint8_t *const bytes = (const uint8_t *)text;
    /* in a vocabulary of characters, bytes that are none of them become U+FFFD */
    const int keeps_bytes = tok->pipeline == NULL || tok->pipeline->byte_level;
    uint8_t missing[256];
    (void)lathe_tokenizer_missing_bytes(tok, missing);
    for (int64_t i = 0; i < n_bytes; i++) {
        int32_t len = 0;
        i += lathe_utf8_prefix(bytes + i, n_bytes - i);
        if (i == n_bytes)
            break;
        len = lathe_utf8_bad(bytes + i, n_bytes - i);
        for (int32_t k = 0; k < len; k++)
            if (!keeps_bytes || missing[bytes[i + k]])
                return lathe_error(LATHE_E_ARG,
                                   "%s is not UTF-8: byte %lld is 0x%02x, for which the tokenizer "
                                   "has no token; expected text in UTF-8",
                                   what, (long long)(i + k), (unsigned)bytes[i + k]);
        i += len - 1;
    }
    return LATHE_OK;
}

const char *lathe_tokenizer_hash(const lathe_tokenizer *tok)
{
    return tok->hash;
}

int lathe_tokenizer_is_bytes(const lathe_tokenizer *tok)
{
    return tok->kind == LATHE_TOKENIZER_BYTES;
}

lathe_status lathe_tokenizer_put_suffix(const lathe_tokenizer *tok, lathe_ids *ids, int64_t from)
{
    const int64_t n = tok->n_suffix;
    if (n == 0) /* without ids there may be no data */
        return LATHE_OK;
    if (ids->n - from >= n &&
        memcmp(ids->data + ids->n - n, tok->suffix, (size_t)n * sizeof *ids->data) == 0)
        return LATHE_OK;
    return lathe_ids_append(ids, tok->suffix, n);
}

lathe_status lathe_tokenizer_encode(const lathe_tokenizer *tok, const char *text, int64_t n_bytes,
                                    int32_t flags, lathe_ids *ids)
{
    lathe_text_loss loss = {0};
    return lathe_tokenizer_encode_counting(tok, text, n_bytes, flags, ids, &loss);
}

lathe_status lathe_tokenizer_encode_counting(const lathe_tokenizer *tok, const char *text,
                                             int64_t n_bytes, int32_t flags, lathe_ids *ids,
                                             lathe_text_loss *loss)
{
    lathe_encoder *enc;
    LATHE_TRY(lathe_encoder_create(tok, &enc));
    const lathe_status status = lathe_encoder_run(enc, text, n_bytes, flags, ids);
    lathe_text_loss_add(loss, lathe_encoder_loss(enc));
    lathe_encoder_destroy(enc);
    return status;
}
