/* Runs the decoder steps of the general route, which convert tokens to text. */
#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "lathe/kit/hex.h"
#include "tokenizer/encode/pipeline.h"
#include "tokenizer/encode/tokenizer.h"

void lathe__decode_step_fini(lathe_decode_step *step)
{
    lathe__pattern_fini(&step->pattern);
    free(step->content.text);
    memset(step, 0, sizeof *step);
}

/* The texts of tokens, concatenated; token i ends at ends[i]. */
typedef struct strings {
    lathe_buffer text;
    int64_t *ends;
    int64_t n, capacity;
} strings;

static lathe_status end_token(strings *s)
{
    if (s->n == s->capacity) {
        const int64_t capacity = s->capacity * 2 + 256;
        int64_t *ends = realloc(s->ends, (size_t)capacity * sizeof *ends);
        if (ends == NULL)
            return lathe_error(LATHE_E_NOMEM, "decoding %lld tokens", (long long)capacity);
        s->ends = ends;
        s->capacity = capacity;
    }
    s->ends[s->n++] = s->text.len;
    return s->text.status;
}

static void strings_fini(strings *s)
{
    lathe_buffer_fini(&s->text);
    free(s->ends);
}

/* ---- one token ---- */

typedef struct replacing {
    const lathe_decode_step *step;
    const uint8_t *text;
    lathe_buffer *out;
    int64_t n_first; /* bytes of all tokens before all steps */
} replacing;

static lathe_status replace_span(void *arg, int64_t begin, int64_t end, int is_match)
{
    const replacing *r = arg;
    if (is_match)
        lathe_buffer_append(r->out, r->step->content.text, r->step->content.bytes);
    else
        lathe_buffer_append(r->out, r->text + begin, end - begin);
    if (r->out->status != LATHE_OK || r->out->len <= lathe__max_rewritten(r->n_first))
        return r->out->status;
    return lathe_error(
        LATHE_E_UNSUPPORTED,
        "the tokenizer's decoder makes more than %lld bytes of tokens of %lld, which "
        "is the most that is allowed",
        (long long)lathe__max_rewritten(r->n_first), (long long)r->n_first);
}

static int is_char(const uint8_t *text, int64_t n, const lathe_piece *c)
{
    return n >= c->bytes && !memcmp(text, c->text, (size_t)c->bytes);
}

static void strip(const lathe_decode_step *step, const uint8_t *text, int64_t n, lathe_buffer *out)
{
    const int64_t width = step->content.bytes;
    for (int64_t i = 0; i < step->start && is_char(text, n, &step->content); i++) {
        text += width;
        n -= width;
    }
    for (int64_t i = 0;
         i < step->stop && n >= width && is_char(text + n - width, width, &step->content); i++)
        n -= width;
    lathe_buffer_append(out, text, n);
}

/* Replaces the replacement character by a space, or by nothing in the first token. */
static void metaspace(const lathe_decode_step *step, const uint8_t *text, int64_t n, int is_first,
                      lathe_buffer *out)
{
    for (int64_t i = 0; i < n;) {
        int32_t len;
        if (!is_char(text + i, n - i, &step->content)) {
            lathe_utf8_at(text + i, n - i, &len);
            lathe_buffer_append(out, text + i, len);
        } else {
            len = (int32_t)step->content.bytes;
            if (!is_first || step->keeps_first)
                lathe_buffer_append(out, " ", 1);
        }
        i += len;
    }
}

/* Replaces byte-level characters by the bytes that they stand for; a token with any other character
 * stays unchanged. */
static lathe_status byte_level(const uint8_t *text, int64_t n, lathe_buffer *out)
{
    uint8_t small[256], *bytes = n <= (int64_t)sizeof small ? small : malloc((size_t)n);
    if (bytes == NULL)
        return lathe_error(LATHE_E_NOMEM, "decoding a token of %lld bytes", (long long)n);
    const int64_t n_bytes = lathe_bytes_of_chars((const char *)text, n, bytes);
    if (n_bytes >= 0)
        lathe_buffer_append(out, bytes, n_bytes);
    else
        lathe_buffer_append(out, text, n);
    if (bytes != small)
        free(bytes);
    return out->status;
}

/* Returns the byte of a token such as "<0x0A>", -1 for another token. */
static int byte_of(const uint8_t *text, int64_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const int high = lathe_hex_digit((char)text[3]), low = lathe_hex_digit((char)text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Replaces `from` by `to` wherever it is in the buffer, which does not grow by it. */
static void replace_all(lathe_buffer *text, int64_t begin, const char *from, const char *to)
{
    const int64_t n_from = (int64_t)strlen(from), n_to = (int64_t)strlen(to);
    int64_t at = begin, end = begin;
    while (at < text->len) {
        if (text->len - at >= n_from && memcmp(text->data + at, from, (size_t)n_from) == 0) {
            memcpy(text->data + end, to, (size_t)n_to);
            at += n_from;
            end += n_to;
        } else {
            text->data[end++] = text->data[at++];
        }
    }
    text->len = end;
    text->data[end] = '\0';
}

/* Takes the prefix off a token that continues a word and puts a space before any other but the
 * first; then, in this token, spaces before punctuation and contractions go.
 * Source: tokenizers 0.23, decoders/wordpiece.rs. */
static void word_piece(const lathe_decode_step *step, const uint8_t *text, int64_t n, int is_first,
                       lathe_buffer *out)
{
    static const char *const clean[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    const int64_t begin = out->len;
    if (!is_first && is_char(text, n, &step->content)) {
        text += step->content.bytes;
        n -= step->content.bytes;
    } else if (!is_first) {
        lathe_buffer_append(out, " ", 1);
    }
    lathe_buffer_append(out, text, n);
    for (size_t i = 0; step->cleans_up && i < sizeof clean / sizeof clean[0]; i++)
        if (out->status == LATHE_OK && out->len > begin)
            replace_all(out, begin, clean[i][0], clean[i][1]);
}

/* ---- all tokens ---- */

/* Applies one step to all tokens, which had n_first bytes before all steps. A run of byte tokens
 * becomes one token; after Fuse and ByteLevel there is only one token. */
static lathe_status one_step(const lathe_decode_step *step, lathe_matcher *matcher,
                             const strings *in, int64_t n_first, strings *out)
{
    int in_bytes = 0;
    out->n = out->text.len = 0;
    for (int64_t i = 0, begin = 0; i < in->n; begin = in->ends[i++]) {
        const uint8_t *text = (const uint8_t *)in->text.data + begin;
        const int64_t n = in->ends[i] - begin;
        switch (step->kind) {
        case LATHE_DECODE_REPLACE: {
            replacing r = {step, text, &out->text, n_first};
            LATHE_TRY(lathe__pattern_spans(&step->pattern, matcher, text, n, replace_span, &r));
            break;
        }
        case LATHE_DECODE_STRIP:
            strip(step, text, n, &out->text);
            break;
        case LATHE_DECODE_METASPACE:
            metaspace(step, text, n, i == 0, &out->text);
            break;
        case LATHE_DECODE_WORD_PIECE:
            word_piece(step, text, n, i == 0, &out->text);
            break;
        case LATHE_DECODE_BYTE_LEVEL:
            LATHE_TRY(byte_level(text, n, &out->text));
            continue;
        case LATHE_DECODE_FUSE:
            lathe_buffer_append(&out->text, text, n);
            continue;
        case LATHE_DECODE_BYTE_FALLBACK: {
            const int byte = byte_of(text, n);
            if (in_bytes && byte < 0)
                LATHE_TRY(end_token(out));
            in_bytes = byte >= 0;
            const uint8_t b = (uint8_t)byte;
            lathe_buffer_append(&out->text, in_bytes ? &b : text, in_bytes ? 1 : n);
            if (in_bytes && i + 1 < in->n)
                continue;
            break;
        }
        }
        LATHE_TRY(end_token(out));
    }
    if (step->kind == LATHE_DECODE_FUSE || step->kind == LATHE_DECODE_BYTE_LEVEL)
        LATHE_TRY(end_token(out));
    return out->text.status;
}

/* Returns the token's text, NULL if it is special and special tokens are skipped. An added token
 * whose content was normalized gives its normal form, which then counts as no special token, as in
 * Hugging Face's tokenizers 0.23. */
static const char *token_text(const lathe_tokenizer *tok, int32_t id, int32_t flags, int64_t *n)
{
    const lathe_added_token *added = lathe__added_of(tok, id);
    const char *text = lathe_tokenizer_token(tok, id, n);
    if (added == NULL)
        return (flags & LATHE_DECODE_SKIP_SPECIAL) && tok->pipeline->is_control[id] ? NULL : text;
    const int same = added->bytes == *n && !memcmp(added->content, text, (size_t)*n);
    if ((flags & LATHE_DECODE_SKIP_SPECIAL) && added->special && same)
        return NULL;
    *n = added->bytes;
    return added->content;
}

static lathe_status gather(const lathe_tokenizer *tok, const int32_t *ids, int64_t n, int32_t flags,
                           strings *out)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes = 0;
        if (lathe_tokenizer_token(tok, ids[i], &bytes) == NULL)
            return lathe_error(LATHE_E_ARG, "id %d at %lld is no token of a vocabulary of %lld",
                               ids[i], (long long)i, (long long)tok->vocab.n);
        const char *text = token_text(tok, ids[i], flags, &bytes);
        if (text == NULL)
            continue;
        if (out->n && !tok->pipeline->has_decoder)
            lathe_buffer_append(&out->text, " ", 1);
        lathe_buffer_append(&out->text, text, bytes);
        LATHE_TRY(end_token(out));
    }
    lathe_buffer_append(&out->text, "", 0); /* keeps data from being NULL */
    return out->text.status;
}

lathe_status lathe__pipeline_decode(const lathe_tokenizer *tok, const int32_t *ids, int64_t n,
                                    int32_t flags, char **out_text, int64_t *out_bytes)
{
    const lathe_pipeline *pipeline = tok->pipeline;
    strings lists[2];
    memset(lists, 0, sizeof lists);
    lathe_matcher matcher;
    memset(&matcher, 0, sizeof matcher);
    strings *from = &lists[0], *to = &lists[1];
    lathe_status status = gather(tok, ids, n, flags, from);
    const int64_t n_first = from->text.len;
    for (int32_t i = 0; i < pipeline->n_decode && status == LATHE_OK; i++) {
        status = one_step(&pipeline->decode[i], &matcher, from, n_first, to);
        lathe_buffer_append(&to->text, "", 0);
        strings *swap = from;
        from = to;
        to = swap;
    }
    if (status == LATHE_OK)
        status = from->text.status;
    if (status == LATHE_OK) {
        *out_text = from->text.data;
        *out_bytes = from->text.len;
        from->text.data = NULL;
    }
    strings_fini(&lists[0]);
    strings_fini(&lists[1]);
    lathe__matcher_fini(&matcher);
    return status;
}
