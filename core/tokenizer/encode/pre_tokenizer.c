/* Runs the pre-tokenizer steps of the general route. Each splits a piece of text into parts. */
#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

void lathe__pre_step_fini(lathe_pre_step *step)
{
    lathe__pattern_fini(&step->pattern);
    free(step->replacement.text);
    memset(step, 0, sizeof *step);
}

/* ---- splitting by a pattern ---- */

typedef struct splitting {
    const uint8_t *text;
    int64_t origin;
    lathe_behavior behavior;
    int32_t invert;
    lathe_part_fn part;
    void *arg;
    int64_t begin, end; /* a pending part, which the next span may join */
    int32_t is_held, was_match;
} splitting;

static lathe_status give(const splitting *s, int64_t begin, int64_t end)
{
    if (end <= begin)
        return LATHE_OK;
    return s->part(s->arg, s->text + begin, end - begin, s->origin > begin ? s->origin - begin : 0);
}

static lathe_status release(splitting *s)
{
    const int held = s->is_held;
    s->is_held = 0;
    return held ? give(s, s->begin, s->end) : LATHE_OK;
}

/* Whether a span joins the pending part. A match joins the text before it (previous), a text joins
 * the match before it (next), or a match joins a match (contiguous). */
static int joins(const splitting *s, int is_match)
{
    if (!s->is_held)
        return 0;
    switch (s->behavior) {
    case LATHE_MERGED_WITH_PREVIOUS:
        return is_match && !s->was_match;
    case LATHE_MERGED_WITH_NEXT:
        return !is_match && s->was_match;
    case LATHE_CONTIGUOUS:
        return is_match == s->was_match;
    default:
        return 0;
    }
}

static lathe_status split_span(void *arg, int64_t begin, int64_t end, int is_match)
{
    splitting *s = arg;
    is_match ^= s->invert;
    if (s->behavior == LATHE_REMOVED)
        return is_match ? LATHE_OK : give(s, begin, end);
    if (s->behavior == LATHE_ISOLATED)
        return give(s, begin, end);
    if (joins(s, is_match)) {
        s->end = end;
    } else {
        LATHE_TRY(release(s));
        s->begin = begin;
        s->end = end;
        s->is_held = 1;
    }
    s->was_match = is_match;
    return LATHE_OK;
}

static lathe_status split(const lathe_pattern *pattern, lathe_behavior behavior, int32_t invert,
                          lathe_matcher *matcher, const uint8_t *text, int64_t n, int64_t origin,
                          lathe_part_fn part, void *arg)
{
    splitting s = {text, origin, behavior, invert, part, arg, 0, 0, 0, 0};
    LATHE_TRY(lathe__pattern_spans(pattern, matcher, text, n, split_span, &s));
    return release(&s);
}

/* ---- Metaspace ---- */

static int starts_with(const uint8_t *text, int64_t n, const lathe_piece *piece)
{
    return n >= piece->bytes && !memcmp(text, piece->text, (size_t)piece->bytes);
}

/* Replaces spaces by the replacement, and puts one before the text if the scheme says so. */
static lathe_status metaspace(const lathe_pre_step *step, lathe_buffer *out, const uint8_t *text,
                              int64_t n, int64_t *origin)
{
    const lathe_piece *mark = &step->replacement;
    const int marked = text[0] == ' ' || starts_with(text, n, mark);
    const int wanted = step->scheme == LATHE_ALWAYS || (step->scheme == LATHE_FIRST && *origin > 0);
    int64_t new_origin = 0;
    if (wanted && !marked)
        lathe_buffer_append(out, mark->text, mark->bytes);
    for (int64_t i = 0; i < n;) {
        const uint8_t *space = memchr(text + i, ' ', (size_t)(n - i));
        const int64_t end = space ? space - text : n;
        if (i < *origin)
            new_origin = out->len + (end < *origin ? end : *origin) - i;
        lathe_buffer_append(out, text + i, end - i);
        if (space) {
            lathe_buffer_append(out, mark->text, mark->bytes);
            if (end < *origin)
                new_origin = out->len;
        }
        i = end + (space != NULL);
    }
    *origin = new_origin;
    return out->status;
}

/* ---- ByteLevel ---- */

typedef struct byte_leveling {
    lathe_buffer *out;
    lathe_part_fn part;
    void *arg;
} byte_leveling;

static lathe_status to_chars(void *arg, const uint8_t *text, int64_t n, int64_t origin)
{
    const byte_leveling *b = arg;
    b->out->len = 0;
    for (int64_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        lathe_buffer_append(b->out, bytes, lathe_utf8_put(bytes, lathe_byte_char(text[i])));
    }
    LATHE_TRY(b->out->status);
    return b->part(b->arg, (const uint8_t *)b->out->data, b->out->len, origin);
}

static lathe_status byte_level(const lathe_pre_step *step, lathe_matcher *matcher,
                               lathe_buffer *buffer, const uint8_t *text, int64_t n, int64_t origin,
                               lathe_part_fn part, void *arg)
{
    lathe_buffer prefixed = LATHE_BUFFER_INIT;
    if (step->prefix_space && text[0] != ' ') {
        lathe_buffer_puts(&prefixed, " ");
        lathe_buffer_append(&prefixed, text, n);
        if (prefixed.status != LATHE_OK) {
            const lathe_status failed = prefixed.status;
            lathe_buffer_fini(&prefixed);
            return failed;
        }
        text = (const uint8_t *)prefixed.data;
        n++;
        origin += origin > 0;
    }
    byte_leveling b = {buffer, part, arg};
    const lathe_status status = step->pattern.code ? split(&step->pattern, LATHE_ISOLATED, 0,
                                                           matcher, text, n, origin, to_chars, &b)
                                                   : to_chars(&b, text, n, origin);
    lathe_buffer_fini(&prefixed);
    return status;
}

lathe_status lathe__pre_tokenize(const lathe_pre_step *step, lathe_matcher *matcher,
                                 lathe_buffer *buffer, const uint8_t *text, int64_t n,
                                 int64_t origin, lathe_part_fn part, void *arg)
{
    if (step->kind == LATHE_PRE_SPLIT)
        return split(&step->pattern, step->behavior, step->invert, matcher, text, n, origin, part,
                     arg);
    buffer->len = 0;
    if (step->kind == LATHE_PRE_BYTE_LEVEL)
        return byte_level(step, matcher, buffer, text, n, origin, part, arg);
    LATHE_TRY(metaspace(step, buffer, text, n, &origin));
    text = (const uint8_t *)buffer->data;
    if (step->pattern.text == NULL)
        return part(arg, text, buffer->len, origin);
    return split(&step->pattern, LATHE_MERGED_WITH_NEXT, 0, matcher, text, buffer->len, origin,
                 part, arg);
}
