/* Converts text to Unicode's normal forms. Characters are decomposed one by one, and a counting
 * sort orders their marks, so that a run of marks takes linear time; utf8proc composes. */
#include "tokenizer/unicode/normal_form.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/settled.h"

typedef struct points {
    utf8proc_int32_t *data;
    int64_t n, capacity;
} points;

static lathe_status points_reserve(points *p, int64_t more)
{
    if (p->n + more <= p->capacity)
        return LATHE_OK;
    const int64_t capacity = p->capacity * 2 + more + 64;
    utf8proc_int32_t *data = realloc(p->data, (size_t)capacity * sizeof *data);
    if (data == NULL)
        return lathe_error(LATHE_E_NOMEM, "normalizing a text");
    p->data = data;
    p->capacity = capacity;
    return LATHE_OK;
}

static int32_t combining_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Sorts the n marks at c by combining class; the sort is stable. */
static lathe_status sort_marks(utf8proc_int32_t *c, int64_t n)
{
    if (n < 2)
        return LATHE_OK;
    int64_t start[257] = {0};
    for (int64_t i = 0; i < n; i++)
        start[combining_class(c[i]) + 1]++;
    for (int32_t k = 0; k < 256; k++)
        start[k + 1] += start[k];
    utf8proc_int32_t *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL)
        return lathe_error(LATHE_E_NOMEM, "normalizing a text");
    for (int64_t i = 0; i < n; i++)
        sorted[start[combining_class(c[i])]++] = c[i];
    memcpy(c, sorted, (size_t)n * sizeof *c);
    free(sorted);
    return LATHE_OK;
}

static lathe_status decompose(const uint8_t *text, int64_t n, lathe_form form, points *out)
{
    const utf8proc_option_t options = (utf8proc_option_t)(form == LATHE_NFKC || form == LATHE_NFKD
                                                              ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                                                              : UTF8PROC_DECOMPOSE);
    int64_t marks = 0; /* begin of the current run of marks */
    out->n = 0;
    for (int64_t i = 0; i < n;) {
        int32_t len;
        const int32_t c = lathe_utf8_at(text + i, n - i, &len);
        i += len;
        LATHE_TRY(points_reserve(out, 32));
        int last_class = 0;
        const int64_t from = out->n;
        const utf8proc_ssize_t k =
            utf8proc_decompose_char(c, out->data + out->n, 32, options, &last_class);
        if (k < 0 || k > 32)
            return lathe_error(LATHE_E_PARSE, "normalizing U+%04X: %s", (unsigned)c,
                               utf8proc_errmsg(k));
        out->n += k;
        for (int64_t j = from; j < out->n; j++)
            if (combining_class(out->data[j]) == 0) {
                LATHE_TRY(sort_marks(out->data + marks, j - marks));
                marks = j + 1;
            }
    }
    return sort_marks(out->data + marks, out->n - marks);
}

static lathe_status make_room(int64_t more, uint8_t **out, int64_t at, int64_t *capacity)
{
    if (at + more <= *capacity)
        return LATHE_OK;
    const int64_t wanted = at + more + *capacity / 2;
    uint8_t *grown = realloc(*out, (size_t)wanted);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "normalizing a text");
    *out = grown;
    *capacity = wanted;
    return LATHE_OK;
}

/* Appends the normal form of a part that is valid UTF-8 at (*out)[*at]. */
static lathe_status stretch(const uint8_t *text, int64_t n, lathe_form form, points *scratch,
                            uint8_t **out, int64_t *at, int64_t *capacity)
{
    LATHE_TRY(decompose(text, n, form, scratch));
    utf8proc_ssize_t k = scratch->n;
    if (form == LATHE_NFC || form == LATHE_NFKC)
        k = utf8proc_normalize_utf32(scratch->data, k, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (k < 0)
        return lathe_error(LATHE_E_PARSE, "normalizing a text: %s", utf8proc_errmsg(k));
    LATHE_TRY(make_room(k * 4, out, *at, capacity));
    for (utf8proc_ssize_t i = 0; scratch->data && i < k; i++)
        *at += lathe_utf8_put(*out + *at, scratch->data[i]);
    return LATHE_OK;
}

/* Appends the NFC of a part that is valid UTF-8. A settled character followed by another one does
 * not change, so only runs of the other characters are composed, each together with the settled
 * character before it. */
static lathe_status compose(const uint8_t *text, int64_t n, points *scratch, uint8_t **out,
                            int64_t *at, int64_t *capacity)
{
    int64_t done = 0, begin = 0;
    for (int64_t i = 0; i < n;) {
        int32_t len;
        if (lathe__is_settled(lathe_utf8_at(text + i, n - i, &len))) {
            begin = i;
            i += len;
            continue;
        }
        while (i < n && !lathe__is_settled(lathe_utf8_at(text + i, n - i, &len)))
            i += len;
        LATHE_TRY(make_room(begin - done, out, *at, capacity));
        memcpy(*out + *at, text + done, (size_t)(begin - done));
        *at += begin - done;
        LATHE_TRY(stretch(text + begin, i - begin, LATHE_NFC, scratch, out, at, capacity));
        done = begin = i;
    }
    LATHE_TRY(make_room(n - done, out, *at, capacity));
    memcpy(*out + *at, text + done, (size_t)(n - done));
    *at += n - done;
    return LATHE_OK;
}

/* Returns 1 if all characters of a text are settled, so that it is in NFC. */
static int is_settled_text(const uint8_t *text, int64_t n)
{
    int32_t len;
    for (int64_t i = 0; i < n; i += len) {
        const int32_t c =
            text[i] < 0x80 ? (len = 1, text[i]) : lathe_utf8_at(text + i, n - i, &len);
        if (c >= 0x300 && !lathe__is_settled(c))
            return 0;
    }
    return 1;
}

/* Characters below U+0300 (lead byte 0xcc) are in NFC, those below U+00C0 in NFD, and those below
 * U+00A0 in the other forms. */
static int may_change(const uint8_t *text, int64_t n, lathe_form form)
{
    const uint8_t from = form == LATHE_NFC ? 0xcc : form == LATHE_NFD ? 0xc3 : 0xc2;
    for (int64_t i = 0; i < n; i++)
        if (text[i] >= from)
            return 1;
    return 0;
}

lathe_status lathe__normal_form(const uint8_t *text, int64_t n, lathe_form form, uint8_t **out,
                                int64_t *out_n)
{
    *out = NULL;
    *out_n = 0;
    if (!may_change(text, n, form) || (form == LATHE_NFC && is_settled_text(text, n)))
        return LATHE_OK;
    points scratch = {NULL, 0, 0};
    int64_t at = 0, capacity = n + 16;
    uint8_t *buffer = malloc((size_t)capacity);
    lathe_status status =
        buffer ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "normalizing a text of %lld", (long long)n);
    for (int64_t i = 0; i < n && status == LATHE_OK;) {
        const int64_t valid = lathe_utf8_prefix(text + i, n - i);
        if (valid > 0)
            status = form == LATHE_NFC
                         ? compose(text + i, valid, &scratch, &buffer, &at, &capacity)
                         : stretch(text + i, valid, form, &scratch, &buffer, &at, &capacity);
        i += valid;
        if (i < n && status == LATHE_OK) {
            if (at == capacity) {
                uint8_t *grown = realloc(buffer, (size_t)(capacity += n));
                if (grown == NULL)
                    status = lathe_error(LATHE_E_NOMEM, "normalizing a text");
                else
                    buffer = grown;
            }
            if (status == LATHE_OK)
                buffer[at++] = text[i++];
        }
    }
    free(scratch.data);
    if (status != LATHE_OK) {
        free(buffer);
        return status;
    }
    *out = buffer;
    *out_n = at;
    return LATHE_OK;
}

lathe_status lathe__nfc(const uint8_t *text, int64_t n, uint8_t **out, int64_t *out_n)
{
    return lathe__normal_form(text, n, LATHE_NFC, out, out_n);
}
