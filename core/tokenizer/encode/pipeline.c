/* The general route from text to ids: added tokens, normalizer steps, pre-tokenizer steps, then the
 * model. */
#include "tokenizer/encode/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"

enum { CACHE_BITS = 13, CACHE_TEXT = 46, CACHE_IDS = 12 };

/* A piece seen before, with its ids. The cache is direct-mapped: a collision replaces the entry. */
typedef struct cached_piece {
    uint8_t text[CACHE_TEXT];
    uint8_t len, n_ids; /* len 0: empty */
    int32_t ids[CACHE_IDS];
} cached_piece;

struct lathe_runner {
    const lathe_tokenizer *tok;
    lathe_matcher matcher;
    lathe_text normal[2];
    lathe_buffer stage[LATHE_MAX_STEPS]; /* text that each pre-tokenizer step has rewritten */
    lathe_buffer repaired;               /* the input with U+FFFD where it is not UTF-8 */
    lathe_model_scratch scratch;
    cached_piece *cache;
    lathe_ids *ids;          /* of the call in progress */
    int plain;               /* LATHE_ENCODE_NO_ADDED */
    const lathe_trie *added; /* added tokens to find in the normalized text, NULL: none */
};

void lathe__pipeline_destroy(lathe_pipeline *pipeline)
{
    if (pipeline == NULL)
        return;
    for (int32_t i = 0; i < pipeline->n_normal; i++)
        lathe__normal_step_fini(&pipeline->normal[i]);
    for (int32_t i = 0; i < pipeline->n_pre; i++)
        lathe__pre_step_fini(&pipeline->pre[i]);
    for (int32_t i = 0; i < pipeline->n_decode; i++)
        lathe__decode_step_fini(&pipeline->decode[i]);
    lathe__unigram_destroy(pipeline->unigram);
    free(pipeline->scores);
    free(pipeline->subword.text);
    free(pipeline->is_control);
    free(pipeline);
}

lathe_status lathe__runner_create(const lathe_tokenizer *tok, lathe_text_loss *loss,
                                  lathe_runner **out)
{
    lathe_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL)
        return lathe_error(LATHE_E_NOMEM, "encoder");
    runner->tok = tok;
    runner->scratch.loss = loss;
    runner->cache = calloc((size_t)1 << CACHE_BITS, sizeof *runner->cache);
    if (runner->cache == NULL) {
        lathe__runner_destroy(runner);
        return lathe_error(LATHE_E_NOMEM, "encoder cache");
    }
    *out = runner;
    return LATHE_OK;
}

void lathe__runner_destroy(lathe_runner *runner)
{
    if (runner == NULL)
        return;
    lathe__matcher_fini(&runner->matcher);
    for (int i = 0; i < 2; i++)
        lathe_buffer_fini(&runner->normal[i].buffer);
    for (int i = 0; i < LATHE_MAX_STEPS; i++)
        lathe_buffer_fini(&runner->stage[i]);
    lathe_buffer_fini(&runner->repaired);
    lathe__model_scratch_fini(&runner->scratch);
    free(runner->cache);
    free(runner);
}

static lathe_status put_id(lathe_ids *ids, int32_t id)
{
    LATHE_TRY(lathe_ids_reserve(ids, 1));
    ids->data[ids->n++] = id;
    return LATHE_OK;
}

/* ---- model ---- */

static lathe_status encode_piece(lathe_runner *r, const uint8_t *piece, int64_t n)
{
    switch (r->tok->pipeline->model) {
    case LATHE_MODEL_UNIGRAM:
        return lathe__unigram_encode(r->tok, &r->scratch, piece, n, r->plain, r->ids);
    case LATHE_MODEL_WORD_PIECE:
        return lathe__word_piece_encode(r->tok, &r->scratch, piece, n, r->plain, r->ids);
    case LATHE_MODEL_WORD_LEVEL:
        return lathe__word_level_encode(r->tok, &r->scratch, piece, n, r->plain, r->ids);
    default:
        return lathe__char_bpe_encode(r->tok, &r->scratch, piece, n, r->plain, r->ids);
    }
}

static lathe_status encode_cached(lathe_runner *r, const uint8_t *piece, int64_t n)
{
    if (n > CACHE_TEXT || r->plain)
        return encode_piece(r, piece, n);
    cached_piece *hit = &r->cache[lathe_hash64(piece, n) >> (64 - CACHE_BITS)];
    if (hit->len == n && !memcmp(hit->text, piece, (size_t)n)) {
        LATHE_TRY(lathe_ids_reserve(r->ids, hit->n_ids + 1)); /* at least 1, so that data is not
                                                               * NULL */
        memcpy(r->ids->data + r->ids->n, hit->ids, hit->n_ids * sizeof *hit->ids);
        r->ids->n += hit->n_ids;
        return LATHE_OK;
    }
    const int64_t before = r->ids->n, lost = lathe_text_loss_total(r->scratch.loss);
    LATHE_TRY(encode_piece(r, piece, n));
    const int64_t n_ids = r->ids->n - before;
    /* A piece that lost bytes is encoded each time, so that they are counted each time. */
    if (n_ids <= CACHE_IDS && lost == lathe_text_loss_total(r->scratch.loss)) {
        memcpy(hit->text, piece, (size_t)n);
        hit->len = (uint8_t)n;
        hit->n_ids = (uint8_t)n_ids;
        for (int64_t i = 0; i < n_ids; i++)
            hit->ids[i] = r->ids->data[before + i];
    }
    return LATHE_OK;
}

/* ---- pre-tokenizer steps, nested: each passes its parts to the next ---- */

typedef struct stage {
    lathe_runner *runner;
    int32_t k;
} stage;

static lathe_status pre_tokenize_from(void *arg, const uint8_t *text, int64_t n, int64_t origin)
{
    const stage *s = arg;
    lathe_runner *r = s->runner;
    if (n == 0)
        return LATHE_OK;
    if (s->k == r->tok->pipeline->n_pre)
        return encode_cached(r, text, n);
    stage next = {r, s->k + 1};
    return lathe__pre_tokenize(&r->tok->pipeline->pre[s->k], &r->matcher, &r->stage[s->k], text, n,
                               origin, pre_tokenize_from, &next);
}

/* ---- added tokens around the normalizer ---- */

/* Splits a normalized text at the added tokens that are searched in it. */
static lathe_status encode_normalized(lathe_runner *r, const lathe_text *normal)
{
    const uint8_t *text = (const uint8_t *)normal->buffer.data;
    const int64_t n = normal->buffer.len, origin = normal->origin;
    stage first = {r, 0};
    lathe_added_match match;
    lathe_added_cursor cursor = {0};
    int64_t at = 0;
    while (r->added && lathe__added_find(r->tok->added, r->added, text, n, &cursor, at, &match)) {
        if (match.begin > at)
            LATHE_TRY(pre_tokenize_from(&first, text + at, match.begin - at,
                                        origin > at ? origin - at : 0));
        LATHE_TRY(put_id(r->ids, r->tok->added[match.token].id));
        at = match.end;
    }
    return pre_tokenize_from(&first, text + at, n - at, origin > at ? origin - at : 0);
}

static lathe_status encode_valid(lathe_runner *r, const uint8_t *text, int64_t n, int is_first)
{
    const lathe_pipeline *pipeline = r->tok->pipeline;
    int32_t origin = 0;
    lathe_text *normal;
    if (n == 0)
        return LATHE_OK;
    if (is_first)
        lathe_utf8_at(text, n, &origin);
    LATHE_TRY(lathe__normalize(pipeline->normal, pipeline->n_normal, &r->matcher, text, n, origin,
                               r->normal, &normal));
    return encode_normalized(r, normal);
}

/* In a byte-level vocabulary, encodes a byte that is not UTF-8 alone: as its token, or by the model
 * if it has none. */
static lathe_status encode_byte(lathe_runner *r, uint8_t byte)
{
    uint8_t text[4];
    const int32_t id = r->tok->pipeline->byte_char[byte];
    if (id >= 0)
        return put_id(r->ids, id);
    return encode_piece(r, text, lathe_utf8_put(text, lathe_byte_char(byte)));
}

static lathe_status encode_plain(lathe_runner *r, const uint8_t *text, int64_t n, int is_first)
{
    for (int64_t at = 0; at < n; at++) {
        const int64_t valid = lathe_utf8_prefix(text + at, n - at);
        LATHE_TRY(encode_valid(r, text + at, valid, is_first && at == 0));
        at += valid;
        if (at < n)
            LATHE_TRY(encode_byte(r, text[at]));
    }
    return LATHE_OK;
}

/* Replaces each maximal part of a character that is not UTF-8 by U+FFFD. */
static lathe_status repair(lathe_runner *r, const uint8_t **text, int64_t *n)
{
    int64_t valid = lathe_utf8_prefix(*text, *n);
    if (valid == *n)
        return LATHE_OK;
    r->repaired.len = 0;
    for (int64_t at = 0; at < *n;) {
        lathe_buffer_append(&r->repaired, *text + at, valid);
        at += valid;
        if (at < *n) {
            lathe_buffer_append(&r->repaired, "\xef\xbf\xbd", 3);
            at += lathe_utf8_bad(*text + at, *n - at);
        }
        valid = lathe_utf8_prefix(*text + at, *n - at);
    }
    *text = (const uint8_t *)r->repaired.data;
    *n = r->repaired.len;
    return r->repaired.status;
}

lathe_status lathe__runner_encode(lathe_runner *r, const uint8_t *text, int64_t n, int32_t flags,
                                  const lathe_token_places *places, lathe_ids *ids)
{
    const lathe_tokenizer *tok = r->tok;
    r->ids = ids;
    r->plain = (flags & LATHE_ENCODE_NO_ADDED) != 0;
    r->added = r->plain ? NULL : &tok->normalized;
    if (!tok->pipeline->byte_level)
        LATHE_TRY(repair(r, &text, &n));
    lathe_added_match match;
    lathe_added_cursor cursor = {.places = places};
    int64_t at = 0;
    while (!r->plain && lathe__added_find(tok->added, &tok->raw, text, n, &cursor, at, &match)) {
        if (match.begin > at)
            LATHE_TRY(encode_plain(r, text + at, match.begin - at, at == 0));
        LATHE_TRY(put_id(ids, tok->added[match.token].id));
        at = match.end;
    }
    return encode_plain(r, text + at, n - at, at == 0);
}
