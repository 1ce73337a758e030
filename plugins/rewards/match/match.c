/* A verifiable reward: the answer in a completion is compared with a column of the record. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/kit/instance.h"
#include "lathe/kit/record.h"
#include "lathe/reward.h"

#define WHICH "last|first"
#define COMPARE "auto|number|text"

enum { COMPARE_AUTO, COMPARE_NUMBER, COMPARE_TEXT };

typedef struct match {
    const lathe_host *host;
    const char *column;
    void *pattern, *column_pattern; /* NULL: the whole text */
    int32_t first, compare;
    double right, wrong, missing;
} match;

enum {
    FIELD_COLUMN,
    FIELD_PATTERN,
    FIELD_COLUMN_PATTERN,
    FIELD_WHICH,
    FIELD_COMPARE,
    FIELD_RIGHT,
    FIELD_WRONG,
    FIELD_MISSING
};

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("column", "\"answer\"", NULL, "column of the data with the right answer"),
    LATHE_FIELD_STRING(
        "pattern", NULL, NULL,
        "regular expression (PCRE2) that finds the answer in a completion: its first "
        "group, or the whole match; unset: the whole completion"),
    LATHE_FIELD_STRING("column_pattern", NULL, NULL,
                       "the same for the column; unset: the whole column"),
    LATHE_FIELD_STRING("which", "\"last\"", WHICH, "which match of several counts"),
    LATHE_FIELD_STRING(
        "compare", "\"auto\"", COMPARE,
        "number: by value, 1,000 = 1000.0 = $1000; text: byte by byte, without white space "
        "at both ends; auto: by value where both are numbers"),
    LATHE_FIELD_FLOAT("right", "1.0", -1e6, 1e6, "1", "score of a right answer"),
    LATHE_FIELD_FLOAT("wrong", "0.0", -1e6, 1e6, "1", "score of a wrong answer"),
    LATHE_FIELD_FLOAT("missing", "0.0", -1e6, 1e6, "1",
                      "score of a completion in which `pattern` finds nothing"),
};

/* ---- settings ---- */

static lathe_status compile(const lathe_host *host, const lathe_value *value, const char *key,
                            void **out)
{
    *out = NULL;
    if (!value->is_set)
        return LATHE_OK;
    if (!LATHE_HAS(host, pattern_create))
        return lathe_fail_at(host, LATHE_E_UNSUPPORTED, key,
                             "%s: this Lathe has no regular expressions", key);
    if (value->s[0] == '\0')
        return lathe_fail_at(host, LATHE_E_CONFIG, key,
                             "%s is empty; expected a regular expression", key);
    return host->pattern_create(key, value->s, out);
}

static lathe_status match_read(const lathe_host *host, match *out, const lathe_value *values)
{
    out->column = values[FIELD_COLUMN].s;
    out->first = lathe_choice(WHICH, values[FIELD_WHICH].s);
    out->compare = lathe_choice(COMPARE, values[FIELD_COMPARE].s);
    out->right = values[FIELD_RIGHT].f;
    out->wrong = values[FIELD_WRONG].f;
    out->missing = values[FIELD_MISSING].f;
    const int has_pattern = values[FIELD_PATTERN].is_set;
    if (!has_pattern && values[FIELD_MISSING].is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "missing",
                             "missing has no effect without pattern: set pattern, or take it out");
    if (!has_pattern && !values[FIELD_COLUMN_PATTERN].is_set && values[FIELD_WHICH].is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "which",
                             "which has no effect without pattern: set pattern, or take it out");
    if (out->right == out->wrong && (!has_pattern || out->right == out->missing))
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "right",
            "right is %g, and so is every other score: the reward would be the same "
            "for every completion",
            out->right);
    LATHE_TRY(compile(host, &values[FIELD_PATTERN], "pattern", &out->pattern));
    const lathe_status status =
        compile(host, &values[FIELD_COLUMN_PATTERN], "column_pattern", &out->column_pattern);
    if (status != LATHE_OK && out->pattern != NULL)
        host->pattern_free(out->pattern);
    return status;
}

LATHE_INSTANCE_MADE(match, match_read)

static void match_destroy(void *self)
{
    match *x = self;
    if (x == NULL)
        return;
    if (LATHE_HAS(x->host, pattern_free)) {
        x->host->pattern_free(x->pattern);
        x->host->pattern_free(x->column_pattern);
    }
    x->host->free(x);
}

/* ---- texts ---- */

/* Bytes of somebody else's text; text NULL: nothing was found. */
typedef struct span {
    const char *text;
    int64_t n;
} span;

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static span trimmed(span s)
{
    while (s.n > 0 && is_blank(s.text[0])) {
        s.text++;
        s.n--;
    }
    while (s.n > 0 && is_blank(s.text[s.n - 1]))
        s.n--;
    return s;
}

/* The first or the last match of a pattern; pattern NULL: the whole text. */
static lathe_status extract(const match *x, const void *pattern, span from, span *out)
{
    int64_t ends[4], at = 0;
    *out = from;
    if (pattern == NULL)
        return LATHE_OK;
    *out = (span){NULL, 0};
    while (at <= from.n) {
        const int32_t n = x->host->pattern_find(pattern, from.text, from.n, at, ends, 4);
        if (n < 0)
            return n;
        if (n == 0)
            return LATHE_OK;
        const int group = n > 1 && ends[2] >= 0;
        *out = (span){from.text + ends[2 * group], ends[2 * group + 1] - ends[2 * group]};
        if (x->first)
            return LATHE_OK;
        for (at = ends[1] > at ? ends[1] : at + 1;
             at < from.n && ((unsigned char)from.text[at] & 0xc0) == 0x80;)
            at++; /* not inside a character */
    }
    return LATHE_OK;
}

enum { MAX_NUMBER = 64 };

static int is_digit_at(span s, int64_t at)
{
    return at < s.n && s.text[at] >= '0' && s.text[at] <= '9';
}

/* Whether exactly three digits follow, as after a comma between thousands. */
static int is_group(span s, int64_t at)
{
    return is_digit_at(s, at) && is_digit_at(s, at + 1) && is_digit_at(s, at + 2) &&
           !is_digit_at(s, at + 3);
}

static int is_one_of(const char *list, char c)
{
    return c != '\0' && strchr(list, c) != NULL;
}

/* Takes away what is written around a number and is no part of it: emphasis of Markdown, dollars of
 * TeX on both sides, and one mark of punctuation after it. */
static span bare(span s)
{
    for (int has_mark = 0;;) {
        s = trimmed(s);
        if (s.n < 2)
            return s;
        const char first = s.text[0], last = s.text[s.n - 1];
        const int both = s.n > 2 && first == '$' && last == '$';
        const int is_mark = !has_mark && is_one_of(".,;:!?", last);
        if (!both && !is_one_of("*_`", first) && !is_one_of("*_`", last) && !is_mark)
            return s;
        has_mark |= is_mark;
        const int cut_first = both || is_one_of("*_`", first);
        s.text += cut_first;
        s.n -= cut_first + (both || is_mark || is_one_of("*_`", last));
    }
}

static int64_t begins_with(span s, int64_t at, const char *text)
{
    const size_t n = strlen(text);
    return (int64_t)n <= s.n - at && memcmp(s.text + at, text, n) == 0 ? (int64_t)n : 0;
}

/* Bytes of a separator of thousands at s.text[at]: a comma, a blank, a no-break, thin or narrow
 * no-break blank; 0: there is none, or no group of three digits follows. */
static int64_t separator(span s, int64_t at)
{
    static const char *const all[] = {",", " ", "\xc2\xa0", "\xe2\x80\x89", "\xe2\x80\xaf"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t n = begins_with(s, at, all[i]);
        if (n > 0)
            return is_group(s, at + n) ? n : 0;
    }
    return 0;
}

/* Bytes at s.text[at] that mean nothing for the value: a `$` before the digits, a `%` at the end,
 * the backslash that TeX needs before them. */
static int64_t unit(span s, int64_t at, int n_digits)
{
    const int64_t escaped = s.text[at] == '\\';
    const char c = at + escaped < s.n ? s.text[at + escaped] : '\0';
    if ((c == '$' && n_digits == 0) || (c == '%' && n_digits > 0 && at + escaped + 1 == s.n))
        return escaped + 1;
    return 0;
}

/* Reads "-1,234.50", "$7", "42.", "1e3", "1 000", "50%", "**42**" and a minus of Unicode. */
static int number(span s, double *out)
{
    char digits[MAX_NUMBER + 1], *end = NULL;
    int n = 0, n_digits = 0, has_point = 0;
    s = bare(s);
    for (int64_t i = 0; i < s.n;) {
        const int64_t minus = begins_with(s, i, "\xe2\x88\x92"); /* U+2212 */
        const char c = minus > 0 ? '-' : s.text[i];
        const int is_digit = is_digit_at(s, i);
        const int64_t skipped = n_digits > 0 && !has_point && separator(s, i) > 0
                                    ? separator(s, i)
                                    : unit(s, i, n_digits);
        if (skipped > 0) {
            i += skipped;
            continue;
        }
        if (n == MAX_NUMBER || (!is_digit && !is_one_of("+-.eE", c)))
            return 0;
        n_digits += is_digit;
        has_point |= c == '.';
        digits[n++] = c;
        i += minus > 0 ? minus : 1;
    }
    digits[n] = '\0';
    if (n_digits == 0 || digits[0] == 'e' || digits[0] == 'E')
        return 0;
    *out = strtod(digits, &end);
    return *end == '\0' && isfinite(*out);
}

static int are_equal(const match *x, span a, span b)
{
    double u, v;
    a = trimmed(a);
    b = trimmed(b);
    const int numbers = x->compare != COMPARE_TEXT && number(a, &u) && number(b, &v);
    if (numbers)
        return u == v;
    return x->compare != COMPARE_NUMBER && a.n == b.n &&
           (a.n == 0 || memcmp(a.text, b.text, (size_t)a.n) == 0);
}

/* ---- scoring ---- */

/* The right answer of a record, in *buffer, which the caller frees. */
static lathe_status wanted(const match *x, span record, char **buffer, span *out)
{
    const lathe_record_value value = lathe_record_find(record.text, record.n, x->column);
    double ignored;
    if (value.json == NULL)
        return lathe_fail(x->host, LATHE_E_CONFIG,
                          "the record has no column \"%s\"; set reward.column to the column of the "
                          "right answer",
                          x->column);
    if (value.json[0] == '{' || value.json[0] == '[' || value.json[0] == 'n')
        return lathe_fail_at(x->host, LATHE_E_CONFIG, "column",
                             "column \"%s\" is %s; expected a string, a number or a truth value",
                             x->column,
                             value.json[0] == '{'   ? "an object"
                             : value.json[0] == '[' ? "an array"
                                                    : "null");
    *buffer = malloc((size_t)value.bytes + 1);
    if (*buffer == NULL)
        return lathe_fail(x->host, LATHE_E_NOMEM, "no memory for an answer of %lld bytes",
                          (long long)value.bytes);
    const span whole = {*buffer, lathe_record_text(value, *buffer)};
    LATHE_TRY(extract(x, x->column_pattern, whole, out));
    if (out->text == NULL)
        return lathe_fail_at(x->host, LATHE_E_CONFIG, "column_pattern",
                             "column_pattern finds nothing in column \"%s\"", x->column);
    if (x->compare == COMPARE_NUMBER && !number(*out, &ignored))
        return lathe_fail(
            x->host, LATHE_E_CONFIG,
            "the right answer '%.*s' in column \"%s\" is no number, as reward.compare "
            "= \"number\" expects",
            (int)(out->n < 60 ? out->n : 60), out->text, x->column);
    return LATHE_OK;
}

static lathe_status score_one(const match *x, const lathe_reward_item *item, double *out)
{
    char *buffer = NULL;
    span right = {NULL, 0}, found = {NULL, 0};
    const span whole = {item->completion, item->completion_bytes};
    const span record = {item->record, item->record_bytes};
    lathe_status status = wanted(x, record, &buffer, &right);
    if (status == LATHE_OK)
        status = extract(x, x->pattern, whole, &found);
    if (status == LATHE_OK)
        *out = found.text == NULL ? x->missing : are_equal(x, found, right) ? x->right : x->wrong;
    free(buffer);
    return status;
}

static lathe_status match_score(void *self, const lathe_reward_item *items, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++)
        LATHE_TRY(score_one(self, &items[i], &out[i]));
    return LATHE_OK;
}

static lathe_status match_check_record(void *self, const char *record, int64_t bytes)
{
    char *buffer = NULL;
    span right;
    const lathe_status status = wanted(self, (span){record, bytes}, &buffer, &right);
    free(buffer);
    return status;
}

static const lathe_reward_v1 match_table = {
    .size = (uint32_t)sizeof match_table,
    .revision = LATHE_REWARD_REVISION,
    .score = match_score,
    .check_record = match_check_record,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(match),
    .kind = LATHE_KIND_REWARD,
    .revision = LATHE_REWARD_REVISION,
    .version = "1.0.0",
    .summary = "compares the answer in a completion with a column of the data",
    .source = "ours",
    .license = "Apache-2.0",
};
