/* Runs the normalizer steps of the general route. Each rewrites a whole text. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"
#include "tokenizer/unicode/normal_form.h"

void lathe__normal_step_fini(lathe_normal_step *step)
{
    lathe__pattern_fini(&step->pattern);
    free(step->content.text);
    lathe__charsmap_destroy(step->map);
    memset(step, 0, sizeof *step);
}

static void put_char(lathe_buffer *out, int32_t c)
{
    uint8_t bytes[4];
    lathe_buffer_append(out, bytes, lathe_utf8_put(bytes, c));
}

/* Returns the size of the first character in bytes. */
static int64_t first_char(const lathe_buffer *text)
{
    int32_t len = 0;
    if (text->len > 0)
        lathe_utf8_at((const uint8_t *)text->data, text->len, &len);
    return len;
}

/* ---- steps that map characters ---- */

/* Full lower case, as in Rust. utf8proc has simple lower case, which differs only for U+0130. */
static void lower(lathe_buffer *out, int32_t c)
{
    if (c == 0x130)
        lathe_buffer_append(out, "i\xcc\x87", 3);
    else
        put_char(out, utf8proc_tolower(c));
}

/* SentencePiece's nmt: removes control characters (-1) and turns other blanks into spaces. */
static int32_t nmt(int32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f)
        return -1;
    if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd)
        return ' ';
    return c;
}

/* Steps that map characters one by one: lower case, nmt, accents, byte-level characters. */
static void map_chars(lathe_normal_kind kind, const uint8_t *text, int64_t n, lathe_text *out,
                      int64_t origin)
{
    lathe_buffer *to = &out->buffer;
    int32_t len;
    for (int64_t i = 0; i < n && to->status == LATHE_OK; i += len) {
        const int32_t c = lathe_utf8_at(text + i, n - i, &len);
        if (kind == LATHE_NORMAL_LOWERCASE) {
            lower(to, c);
        } else if (kind == LATHE_NORMAL_BYTE_LEVEL) {
            for (int32_t k = 0; k < len; k++)
                put_char(to, lathe_byte_char(text[i + k]));
        } else if (kind == LATHE_NORMAL_STRIP_ACCENTS) {
            if (!lathe__is_mark(c))
                put_char(to, c);
        } else if (nmt(c) >= 0) {
            put_char(to, nmt(c));
        }
        if (i < origin)
            out->origin = to->len;
    }
}

static lathe_status normal_form(lathe_form form, const uint8_t *text, int64_t n, lathe_text *out,
                                int64_t origin)
{
    uint8_t *normal = NULL;
    int64_t n_normal = 0;
    LATHE_TRY(lathe__normal_form(text, n, form, &normal, &n_normal));
    if (normal)
        lathe_buffer_append(&out->buffer, normal, n_normal);
    else
        lathe_buffer_append(&out->buffer, text, n);
    free(normal);
    out->origin = 0;
    if (origin == 0)
        return LATHE_OK;
    LATHE_TRY(lathe__normal_form(text, origin, form, &normal, &out->origin));
    if (normal == NULL)
        out->origin = origin;
    free(normal);
    return LATHE_OK;
}

/* ---- BertNormalizer ---- */

/* Characters that the library takes for control characters: Cc except \\t \\n \\r, Cf and Co of the
 * Unicode that it knows, which is older than utf8proc's (tokenizers 0.23, all characters tried). */
static int is_bert_control(int32_t c)
{
    static const int32_t ranges[][2] = {
        {0x0, 0x8},          {0xb, 0xc},         {0xe, 0x1f},        {0x7f, 0x9f},
        {0xad, 0xad},        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
        {0x70f, 0x70f},      {0x180e, 0x180e},   {0x200b, 0x200f},   {0x202a, 0x202e},
        {0x2060, 0x2064},    {0x2066, 0x206f},   {0xe000, 0xf8ff},   {0xfeff, 0xfeff},
        {0xfff9, 0xfffb},    {0xfffd, 0xfffd},   {0x110bd, 0x110bd}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a},  {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffd},
        {0x100000, 0x10fffd}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return 1;
    return 0;
}

/* The blocks of ideographs that BERT's own tokenizer names. */
static int is_chinese(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Cleans the text, and puts spaces around ideographs. */
static void bert_chars(const lathe_normal_step *step, const uint8_t *text, int64_t n,
                       lathe_buffer *out)
{
    int32_t len;
    for (int64_t i = 0; i < n && out->status == LATHE_OK; i += len) {
        int32_t c = lathe_utf8_at(text + i, n - i, &len);
        if (step->cleans && is_bert_control(c))
            continue;
        if (step->cleans && lathe_is_space(c))
            c = ' ';
        const int around = step->chinese && is_chinese(c);
        if (around)
            lathe_buffer_append(out, " ", 1);
        put_char(out, c);
        if (around)
            lathe_buffer_append(out, " ", 1);
    }
}

/* Takes nonspacing marks out of NFD, then lowers; each if the step says so. */
static lathe_status bert(const lathe_normal_step *step, const uint8_t *text, int64_t n,
                         lathe_buffer *out)
{
    lathe_buffer chars = LATHE_BUFFER_INIT;
    uint8_t *normal = NULL;
    bert_chars(step, text, n, &chars);
    const uint8_t *from = (const uint8_t *)chars.data;
    int64_t n_from = chars.len;
    lathe_status status = chars.status;
    if (status == LATHE_OK && step->accents && n_from > 0)
        status = lathe__normal_form(from, n_from, LATHE_NFD, &normal, &n_from);
    if (normal)
        from = normal;
    else
        n_from = chars.len;
    int32_t len;
    for (int64_t i = 0; status == LATHE_OK && i < n_from; i += len) {
        const int32_t c = lathe_utf8_at(from + i, n_from - i, &len);
        if (step->accents && lathe__is_nonspacing(c))
            continue;
        if (step->lowers)
            lower(out, c);
        else
            put_char(out, c);
        status = out->status;
    }
    free(normal);
    lathe_buffer_fini(&chars);
    return status;
}

/* ---- Strip, Replace, Prepend ---- */

static void strip(const lathe_normal_step *step, const uint8_t *text, int64_t n, lathe_text *out,
                  int64_t origin)
{
    int64_t begin = 0, end = n;
    int32_t len;
    while (step->left && begin < end &&
           lathe_is_space(lathe_utf8_at(text + begin, end - begin, &len)))
        begin += len;
    while (step->right && end > begin) {
        int64_t last = end - 1;
        while (last > begin && (text[last] & 0xc0) == 0x80)
            last--;
        if (!lathe_is_space(lathe_utf8_at(text + last, end - last, &len)))
            break;
        end = last;
    }
    lathe_buffer_append(&out->buffer, text + begin, end - begin);
    out->origin = origin > begin ? origin - begin : 0;
}

typedef struct replacing {
    const lathe_piece *content;
    const uint8_t *text;
    lathe_text *out;
    int64_t origin, n, max; /* n: bytes of the text before all steps */
} replacing;

static lathe_status check_length(const lathe_buffer *out, int64_t max, int64_t n)
{
    if (out->status != LATHE_OK || out->len <= max)
        return out->status;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "the tokenizer's normalizer makes more than %lld bytes of a text of %lld, "
                       "which is the most that is allowed",
                       (long long)max, (long long)n);
}

/* The replacement of a match counts as the match's last character. */
static lathe_status replace_span(void *arg, int64_t begin, int64_t end, int is_match)
{
    const replacing *r = arg;
    lathe_buffer *to = &r->out->buffer;
    const int at_origin = r->out->origin == to->len; /* all text so far belongs to the first
                                                      * character */
    if (is_match) {
        lathe_buffer_append(to, r->content->text, r->content->bytes);
        if (at_origin && r->origin > 0 && end <= r->origin)
            r->out->origin = to->len;
    } else {
        lathe_buffer_append(to, r->text + begin, end - begin);
        if (at_origin && begin < r->origin)
            r->out->origin += (end < r->origin ? end : r->origin) - begin;
    }
    return check_length(to, r->max, r->n);
}

/* n_first: bytes of the text before all steps. */
static lathe_status one_step(const lathe_normal_step *step, lathe_matcher *matcher,
                             const uint8_t *text, int64_t n, int64_t origin, int64_t n_first,
                             lathe_text *out)
{
    const int64_t max = lathe__max_rewritten(n_first);
    switch (step->kind) {
    case LATHE_NORMAL_NFC:
        return normal_form(LATHE_NFC, text, n, out, origin);
    case LATHE_NORMAL_NFD:
        return normal_form(LATHE_NFD, text, n, out, origin);
    case LATHE_NORMAL_NFKC:
        return normal_form(LATHE_NFKC, text, n, out, origin);
    case LATHE_NORMAL_NFKD:
        return normal_form(LATHE_NFKD, text, n, out, origin);
    case LATHE_NORMAL_STRIP:
        strip(step, text, n, out, origin);
        break;
    case LATHE_NORMAL_REPLACE: {
        replacing r = {&step->content, text, out, origin, n_first, max};
        return lathe__pattern_spans(&step->pattern, matcher, text, n, replace_span, &r);
    }
    case LATHE_NORMAL_PREPEND:
        if (n > 0)
            lathe_buffer_append(&out->buffer, step->content.text, step->content.bytes);
        lathe_buffer_append(&out->buffer, text, n);
        out->origin = origin > 0 ? origin + step->content.bytes : 0;
        break;
    case LATHE_NORMAL_BERT:
        LATHE_TRY(bert(step, text, n, &out->buffer));
        out->origin = origin > 0 ? first_char(&out->buffer) : 0;
        break;
    case LATHE_NORMAL_PRECOMPILED:
        lathe__charsmap_run(step->map, text, n, max, &out->buffer);
        out->origin = origin > 0 ? first_char(&out->buffer) : 0;
        break;
    default:
        map_chars(step->kind, text, n, out, origin);
    }
    return check_length(&out->buffer, max, n_first);
}

lathe_status lathe__normalize(const lathe_normal_step *steps, int32_t n_steps,
                              lathe_matcher *matcher, const uint8_t *text, int64_t n,
                              int64_t origin, lathe_text scratch[2], lathe_text **out)
{
    lathe_text *from = &scratch[0], *to = &scratch[1];
    from->buffer.len = to->buffer.len = 0;
    from->origin = origin;
    if (n_steps == 0)
        lathe_buffer_append(&from->buffer, text, n);
    for (int32_t i = 0; i < n_steps; i++) {
        to->buffer.len = to->origin = 0;
        LATHE_TRY(i == 0 ? one_step(steps, matcher, text, n, origin, n, to)
                         : one_step(&steps[i], matcher, (const uint8_t *)from->buffer.data,
                                    from->buffer.len, from->origin, n, to));
        lathe_buffer_append(&to->buffer, "", 0); /* keeps data from being NULL */
        lathe_text *swap = from;
        from = to;
        to = swap;
    }
    *out = from;
    return from->buffer.status;
}
