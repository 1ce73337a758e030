/* Finds the matches of a pattern in a text, span by span, as Hugging Face's find_matches does. */
#include "tokenizer/unicode/pattern.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/char_class.h"

enum { JIT_STACK_MIN = 64 << 10, JIT_STACK_MAX = 16 << 20, HEAP_LIMIT_KIB = 64 << 10 };
/* The clock is read once for this many places of a text, or calls of a search: a reading costs more
 * than either. */
enum { PLACES_PER_CHECK = 256, CALLS_PER_CHECK = 64 };

#define MAX_SECONDS 2.0
#define SECONDS_PER_BYTE 2e-6

void lathe__pattern_fini(lathe_pattern *pattern)
{
    free(pattern->text);
    free(pattern->source);
    pcre2_code_free(pattern->code);
    memset(pattern, 0, sizeof *pattern);
}

/* Makes what PCRE2 needs at the first search, since many texts need none. */
static lathe_status prepare(lathe_matcher *matcher)
{
    if (matcher->data)
        return LATHE_OK;
    matcher->context = pcre2_match_context_create(NULL);
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (matcher->context == NULL || matcher->data == NULL) {
        lathe__matcher_fini(matcher);
        return lathe_error(LATHE_E_NOMEM, "regular expression match data");
    }
    if (matcher->stack) /* NULL if PCRE2 has no JIT */
        pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
    return LATHE_OK;
}

void lathe__matcher_fini(lathe_matcher *matcher)
{
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    memset(matcher, 0, sizeof *matcher);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : now();
}

/* PCRE2's limits count backtracking. What looks ahead without it, or an atomic group, may still
 * read the whole rest of the text at every place: n * n steps, which only a clock sees. The
 * processor's time of this thread decides, so that other programs do not. */
static lathe_status check_time(lathe_matcher *matcher, const lathe_expression *e, int64_t n,
                               int64_t at)
{
    const double max = MAX_SECONDS + SECONDS_PER_BYTE * (double)n;
    const double seconds = processor_seconds();
    if (matcher->begun == 0.0)
        matcher->begun = seconds;
    if (seconds - matcher->begun <= max)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "the tokenizer's regular expression%s%s took more than %.1f s for the first "
                       "%lld bytes of a text of %lld: it reads much of the text again at each "
                       "place",
                       e->source ? " " : "", e->source ? e->source : "", max, (long long)at,
                       (long long)n);
}

/* The first place of a character after `at`, where another search may begin. */
static int64_t next_place(const uint8_t *text, int64_t n, int64_t at)
{
    while (at < n && (text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* One search for a match that begins in [from, last]. */
static int find_between(lathe_matcher *matcher, const lathe_expression *e, uint32_t options,
                        const uint8_t *text, int64_t n, int64_t from, int64_t last)
{
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    (void)pcre2_set_offset_limit(matcher->context, last >= n ? PCRE2_UNSET : (PCRE2_SIZE)last);
    if (e->jit)
        rc = pcre2_jit_match(e->code, text, (PCRE2_SIZE)n, (PCRE2_SIZE)from, options, matcher->data,
                             matcher->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(e->code, text, (PCRE2_SIZE)n, (PCRE2_SIZE)from, options | PCRE2_NO_JIT,
                         matcher->data, matcher->context);
    return rc;
}

lathe_status lathe__matcher_find(lathe_matcher *matcher, const lathe_expression *e,
                                 uint32_t options, const uint8_t *text, int64_t n, int64_t from,
                                 int64_t *begin, int64_t *end)
{
    int rc;
    LATHE_TRY(prepare(matcher));
    if (from == 0)
        matcher->calls = 0, matcher->begun = 0.0;
    if (++matcher->calls % CALLS_PER_CHECK == 0)
        LATHE_TRY(check_time(matcher, e, n, from));
    /* A match needs a few steps per byte; one that needs far more backtracks without end. */
    const int64_t steps = n < (INT32_MAX >> 4) ? n * 16 : INT32_MAX;
    pcre2_set_match_limit(matcher->context, (uint32_t)(steps < 10000000 ? 10000000 : steps));
    options |= PCRE2_NO_UTF_CHECK;
    *begin = *end = -1;
    int64_t places = PLACES_PER_CHECK;
    double before = 0.0;
    for (int64_t at = from, last;; at = next_place(text, n, last + 1)) {
        last = at + places;
        rc = find_between(matcher, e, options, text, n, at, last);
        if (rc != PCRE2_ERROR_NOMATCH || last >= n)
            break;
        /* PCRE2 looks for a first byte that must match beyond the limit, up to the end of the text:
         * where that is fast, there are few limits. */
        const double after = processor_seconds();
        if (before > 0.0 && after - before < 5e-3 + 1e-9 * (double)n)
            places = places < n ? 2 * places : places;
        before = after;
        LATHE_TRY(check_time(matcher, e, n, last));
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return LATHE_OK;
    if (rc < 0) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(rc, why, sizeof why);
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "the tokenizer's regular expression%s%s gave up %lld bytes into a text "
                           "of %lld: %s",
                           e->source ? " " : "", e->source ? e->source : "", (long long)from,
                           (long long)n, (const char *)why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(matcher->data);
    *begin = (int64_t)at[0];
    *end = (int64_t)at[1];
    return LATHE_OK;
}

/* ---- kinds of character ---- */

int lathe__is_numeric(int32_t c)
{
    return c >= 0 && c < LATHE_CHAR_CLASSED && lathe__char_classes()[c] == LATHE_CHAR_NUMBER;
}

int lathe__is_mark(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

/* ---- spans ---- */

typedef struct spanner {
    lathe_span_fn span;
    void *arg;
    int64_t done; /* end of the text that spans have covered */
} spanner;

static lathe_status match_at(spanner *s, int64_t begin, int64_t end)
{
    if (begin > s->done)
        LATHE_TRY(s->span(s->arg, s->done, begin, 0));
    s->done = end;
    return s->span(s->arg, begin, end, 1);
}

static lathe_status characters(const lathe_pattern *pattern, const uint8_t *text, int64_t n,
                               spanner *s)
{
    int32_t len;
    for (int64_t i = 0; i < n; i += len)
        if (pattern->is_in(lathe_utf8_at(text + i, n - i, &len)))
            LATHE_TRY(match_at(s, i, i + len));
    return LATHE_OK;
}

static lathe_status strings(const lathe_pattern *pattern, const uint8_t *text, int64_t n,
                            spanner *s)
{
    const uint8_t *at = text;
    while ((at = memmem(at, (size_t)(text + n - at), pattern->text, (size_t)pattern->bytes))) {
        LATHE_TRY(match_at(s, at - text, at - text + pattern->bytes));
        at += pattern->bytes;
    }
    return LATHE_OK;
}

/* The matches in text[first, n), valid UTF-8. Ignores an empty match directly after a match, and
 * continues one character later. */
static lathe_status valid_part(const lathe_pattern *pattern, lathe_matcher *matcher,
                               const uint8_t *text, int64_t first, int64_t n, spanner *s)
{
    int64_t last = -1;
    const lathe_expression e = {pattern->code, pattern->jit, pattern->source};
    for (int64_t from = first; from <= n;) {
        int64_t begin, end;
        LATHE_TRY(lathe__matcher_find(matcher, &e, 0, text + first, n - first, from - first, &begin,
                                      &end));
        if (begin < 0)
            break;
        begin += first;
        end += first;
        if (begin == end && end == last) {
            int32_t len = 1;
            if (from < n)
                lathe_utf8_at(text + from, n - from, &len);
            from += len;
            continue;
        }
        LATHE_TRY(match_at(s, begin, end));
        from = last = end;
    }
    return LATHE_OK;
}

/* PCRE2 trusts the text: of bytes that are not UTF-8 it would look up a character far outside its
 * tables. A decoder's text has such bytes, where a token is one byte of a character. */
static lathe_status expressions(const lathe_pattern *pattern, lathe_matcher *matcher,
                                const uint8_t *text, int64_t n, spanner *s)
{
    for (int64_t first = 0, end; first < n; first = end) {
        end = first + lathe_utf8_prefix(text + first, n - first);
        if (end > first)
            LATHE_TRY(valid_part(pattern, matcher, text, first, end, s));
        if (end < n)
            end += lathe_utf8_bad(text + end, n - end);
    }
    return LATHE_OK;
}

lathe_status lathe__pattern_spans(const lathe_pattern *pattern, lathe_matcher *matcher,
                                  const uint8_t *text, int64_t n, lathe_span_fn span, void *arg)
{
    spanner s = {span, arg, 0};
    if (n == 0)
        return LATHE_OK;
    if (pattern->is_in)
        LATHE_TRY(characters(pattern, text, n, &s));
    else if (pattern->text)
        LATHE_TRY(strings(pattern, text, n, &s));
    else
        LATHE_TRY(expressions(pattern, matcher, text, n, &s));
    return s.done < n ? span(arg, s.done, n, 0) : LATHE_OK;
}
