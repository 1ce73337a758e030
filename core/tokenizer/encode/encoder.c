/* The encoder of one thread: added tokens, normalizer, splits and merges. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/encode/bpe.h"
#include "tokenizer/encode/pipeline.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/unicode/normal_form.h"

struct lathe_encoder {
    const lathe_tokenizer *tok;
    lathe_splitter splitter;
    lathe_bpe *bpe;
    lathe_runner *runner;             /* for a GENERAL tokenizer, else NULL */
    lathe_ids *ids;                   /* of the call in progress */
    const lathe_token_places *places; /* of the call in progress; NULL: anywhere */
    lathe_text_loss loss;             /* of all calls */
};

static lathe_status encode_piece(void *arg, const uint8_t *piece, int64_t n)
{
    lathe_encoder *enc = arg;
    return lathe__bpe_encode(enc->bpe, piece, n, enc->ids);
}

lathe_status lathe_encoder_create(const lathe_tokenizer *tok, lathe_encoder **out)
{
    lathe_encoder *enc = calloc(1, sizeof *enc);
    if (enc == NULL)
        return lathe_error(LATHE_E_NOMEM, "encoder");
    enc->tok = tok;
    lathe_status status = LATHE_OK;
    if (tok->kind == LATHE_TOKENIZER_BPE) {
        lathe__splitter_init(&enc->splitter, tok, encode_piece, enc);
        status = lathe__bpe_create(tok, &enc->loss, &enc->bpe);
    } else if (tok->kind == LATHE_TOKENIZER_GENERAL) {
        status = lathe__runner_create(tok, &enc->loss, &enc->runner);
    }
    if (status != LATHE_OK) {
        lathe_encoder_destroy(enc);
        return status;
    }
    *out = enc;
    return LATHE_OK;
}

void lathe_encoder_destroy(lathe_encoder *enc)
{
    if (enc == NULL)
        return;
    lathe__splitter_fini(&enc->splitter);
    lathe__bpe_destroy(enc->bpe);
    lathe__runner_destroy(enc->runner);
    free(enc);
}

/* Splits the text at the added tokens of a trie and passes each part between them to `plain`. */
static lathe_status cut(lathe_encoder *enc, const lathe_trie *trie, const uint8_t *text, int64_t n,
                        lathe_status (*plain)(lathe_encoder *, const uint8_t *, int64_t))
{
    lathe_added_match match;
    lathe_added_cursor cursor = {.places = trie == &enc->tok->raw ? enc->places : NULL};
    int64_t at = 0;
    while (lathe__added_find(enc->tok->added, trie, text, n, &cursor, at, &match)) {
        if (match.begin > at)
            LATHE_TRY(plain(enc, text + at, match.begin - at));
        LATHE_TRY(lathe_ids_append(enc->ids, &enc->tok->added[match.token].id, 1));
        at = match.end;
    }
    return at < n ? plain(enc, text + at, n - at) : LATHE_OK;
}

static lathe_status encode_normalized(lathe_encoder *enc, const uint8_t *text, int64_t n)
{
    lathe__bpe_forget(enc->bpe); /* drops pieces of a text that failed */
    LATHE_TRY(lathe__splitter_run(&enc->splitter, text, n));
    return lathe__bpe_finish(enc->bpe, enc->ids);
}

static lathe_status encode_normalized_added(lathe_encoder *enc, const uint8_t *text, int64_t n)
{
    return cut(enc, &enc->tok->normalized, text, n, encode_normalized);
}

static lathe_status normalize_then(lathe_encoder *enc, const uint8_t *text, int64_t n,
                                   lathe_status (*then)(lathe_encoder *, const uint8_t *, int64_t))
{
    uint8_t *normal = NULL;
    int64_t n_normal = 0;
    if (enc->tok->nfc)
        LATHE_TRY(lathe__nfc(text, n, &normal, &n_normal));
    const lathe_status status = normal ? then(enc, normal, n_normal) : then(enc, text, n);
    free(normal);
    return status;
}

static lathe_status encode_raw(lathe_encoder *enc, const uint8_t *text, int64_t n)
{
    return normalize_then(enc, text, n, encode_normalized_added);
}

static lathe_status encode_text(lathe_encoder *enc, const uint8_t *text, int64_t n, int32_t flags)
{
    if (enc->tok->kind == LATHE_TOKENIZER_BYTES) {
        LATHE_TRY(lathe_ids_reserve(enc->ids, n));
        int32_t *out = enc->ids->data + enc->ids->n;
        for (int64_t i = 0; i < n; i++)
            out[i] = text[i];
        enc->ids->n += n;
        return LATHE_OK;
    }
    if (enc->runner)
        return lathe__runner_encode(enc->runner, text, n, flags, enc->places, enc->ids);
    if (flags & LATHE_ENCODE_NO_ADDED)
        return normalize_then(enc, text, n, encode_normalized);
    return cut(enc, &enc->tok->raw, text, n, encode_raw);
}

/* Removes the template's prefix if the text begins with it. */
static void begin_once(const lathe_tokenizer *tok, lathe_ids *ids, int64_t before)
{
    const int64_t n = tok->n_prefix;
    if (n == 0 || ids->n - before < 2 * n) /* without ids there may be no data */
        return;
    int32_t *const added = ids->data + before;
    if (memcmp(added, added + n, (size_t)n * sizeof *added) != 0)
        return;
    memmove(added, added + n, (size_t)(ids->n - before - n) * sizeof *added);
    ids->n -= n;
}

lathe_status lathe_encoder_run(lathe_encoder *enc, const char *text, int64_t n_bytes, int32_t flags,
                               lathe_ids *ids)
{
    if (n_bytes < 0 || (n_bytes > 0 && text == NULL))
        return lathe_error(LATHE_E_ARG, "text of %lld bytes", (long long)n_bytes);
    const int64_t before = ids->n;
    const lathe_tokenizer *tok = enc->tok;
    enc->ids = ids;
    lathe_status status = LATHE_OK;
    if (flags & (LATHE_ENCODE_ADD_SPECIAL | LATHE_ENCODE_BEGIN))
        status = lathe_ids_append(ids, tok->prefix, tok->n_prefix);
    if (status != LATHE_OK)
        goto out;
    if (n_bytes > 0)
        status = encode_text(enc, (const uint8_t *)text, n_bytes, flags);
    if (status != LATHE_OK)
        goto out;
    if (flags & LATHE_ENCODE_BEGIN)
        begin_once(tok, ids, before);
    if (flags & LATHE_ENCODE_ADD_SPECIAL)
        status = flags & LATHE_ENCODE_BEGIN ? lathe_tokenizer_put_suffix(tok, ids, before)
                                            : lathe_ids_append(ids, tok->suffix, tok->n_suffix);
out:
    enc->ids = NULL;
    if (status != LATHE_OK)
        ids->n = before;
    return status;
}

lathe_status lathe_encoder_run_placed(lathe_encoder *enc, const char *text, int64_t n_bytes,
                                      const lathe_token_places *places, lathe_ids *ids)
{
    enc->places = places;
    const lathe_status status = lathe_encoder_run(enc, text, n_bytes, 0, ids);
    enc->places = NULL;
    return status;
}

/* Whether a text loses space at its end before it is split. */
static int strips_end(const lathe_tokenizer *tok)
{
    const lathe_pipeline *p = tok->pipeline;
    for (int32_t i = 0; p && i < p->n_normal; i++)
        if (p->normal[i].kind == LATHE_NORMAL_STRIP && p->normal[i].right)
            return 1;
    return 0;
}

int lathe_encoder_strips_end(const lathe_encoder *enc)
{
    return strips_end(enc->tok);
}

lathe_status lathe_encoder_run_open(lathe_encoder *enc, const char *text, int64_t n_bytes,
                                    int32_t flags, const lathe_token_places *places, lathe_ids *ids)
{
    enc->places = places;
    if (!strips_end(enc->tok)) {
        const lathe_status status = lathe_encoder_run(enc, text, n_bytes, flags, ids);
        enc->places = NULL;
        return status;
    }
    const int64_t before = ids->n;
    lathe_ids other = {0};
    char *more = malloc((size_t)n_bytes + 1);
    lathe_status status =
        more ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "a text of %lld bytes", (long long)n_bytes);
    if (status == LATHE_OK) {
        if (n_bytes > 0)
            memcpy(more, text, (size_t)n_bytes);
        more[n_bytes] = 'A'; /* no token that begins the one begins the other */
        status = lathe_encoder_run(enc, more, n_bytes + 1, flags, ids);
    }
    if (status == LATHE_OK) {
        more[n_bytes] = '7';
        status = lathe_encoder_run(enc, more, n_bytes + 1, flags, &other);
    }
    int64_t n = 0;
    while (status == LATHE_OK && n < other.n && before + n < ids->n &&
           ids->data[before + n] == other.data[n])
        n++;
    ids->n = before + n;
    enc->places = NULL;
    lathe_ids_fini(&other);
    free(more);
    return status;
}

const lathe_text_loss *lathe_encoder_loss(const lathe_encoder *enc)
{
    return &enc->loss;
}
