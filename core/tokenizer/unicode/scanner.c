/* Splits text as the pre-tokenizers of GPT-2, Llama 3 and Qwen2 do, without a regular
 * expression. Each tries the alternatives of its expression in order; a comment names the
 * alternative that the code below it implements. */
#include "tokenizer/unicode/scanner.h"

#include <string.h>

#include "tokenizer/unicode/char_class.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const patterns[LATHE_N_SCANS] = {
    NULL,
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL,
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL,
};

const char *lathe__scan_pattern(int32_t scan)
{
    return patterns[scan];
}

int32_t lathe__scan_of(const char *pattern)
{
    for (int32_t i = 1; i < LATHE_N_SCANS; i++)
        if (!strcmp(pattern, patterns[i]))
            return i;
    return LATHE_SCAN_NONE;
}

enum { ANY_SPACE = LATHE_CHAR_SPACE | LATHE_CHAR_NEWLINE, END = 64 };

typedef struct view {
    const uint8_t *classes, *text;
    int64_t n;
} view;

/* Returns class and length of the character at i < n. */
static inline int32_t class_at(const view *v, int64_t i, int64_t *len)
{
    const uint8_t *p = v->text + i;
    if (p[0] < 0x80) {
        *len = 1;
        return v->classes[p[0]];
    }
    if (p[0] < 0xe0) {
        *len = 2;
        return v->classes[(p[0] & 0x1f) << 6 | (p[1] & 0x3f)];
    }
    if (p[0] < 0xf0) {
        *len = 3;
        return v->classes[(p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f)];
    }
    *len = 4;
    const int32_t c =
        (p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
    return c < LATHE_CHAR_CLASSED ? v->classes[c] : LATHE_CHAR_OTHER;
}

/* Returns the class of the character at i, or END after the text. */
static inline int32_t peek(const view *v, int64_t i, int64_t *len)
{
    if (i < v->n)
        return class_at(v, i, len);
    *len = 0;
    return END;
}

/* Returns the end of the run of characters of one class that includes i. */
static inline int64_t run(const view *v, int64_t i, int32_t class)
{
    while (i < v->n) {
        int64_t len;
        if (class_at(v, i, &len) != class)
            break;
        i += len;
    }
    return i;
}

/* Returns the length of 's 't 're 've 'm 'll 'd at the apostrophe `at`; 0: none. With `fold`,
 * letters of either case match, and so does U+017F, which folds to s. */
static inline int64_t contraction(const view *v, int64_t at, int fold)
{
    const int64_t left = v->n - at;
    const uint8_t *p = v->text + at + 1;
    if (left < 2)
        return 0;
    const uint8_t bit = fold ? 0x20 : 0, a = p[0] | bit;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (left < 3)
        return 0;
    const uint8_t b = p[1] | bit;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l'))
        return 3;
    return fold && p[0] == 0xc5 && p[1] == 0xbf ? 3 : 0;
}

/* \s+(?!\S)|\s+ from `at`, the run of spaces ending at `end`, its last character at `last`. */
static inline int64_t spaces(const view *v, int64_t at, int64_t last, int64_t end)
{
    return end < v->n && last > at ? last : end;
}

static int64_t scan_gpt2(const view *v, int64_t at)
{
    int64_t len, next_len;
    int32_t class = class_at(v, at, &len);
    if (v->text[at] == '\'') {
        const int64_t n = contraction(v, at, 0);
        if (n)
            return at + n;
    }
    if (class & ANY_SPACE) {
        const int32_t next = peek(v, at + len, &next_len);
        if (v->text[at] == ' ' && !(next & (ANY_SPACE | END))) /* " ?" of the three runs */
            return run(v, at + 1 + next_len, next);
        int64_t end = at + len, last = at;
        while (peek(v, end, &len) & ANY_SPACE) {
            last = end;
            end += len;
        }
        return spaces(v, at, last, end);
    }
    return run(v, at + len, class); /* \p{L}+ \p{N}+ [^\s\p{L}\p{N}]+ */
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static int64_t scan_spaces(const view *v, int64_t at)
{
    int64_t end = at, last = at, newline = -1, len;
    for (int32_t class; (class = peek(v, end, &len)) & ANY_SPACE; end += len) {
        last = end;
        if (class == LATHE_CHAR_NEWLINE)
            newline = end + len;
    }
    return newline >= 0 ? newline : spaces(v, at, last, end);
}

static inline int64_t scan_llama3(const view *v, int64_t at, int32_t max_digits)
{
    int64_t len, next_len;
    const int32_t class = class_at(v, at, &len);
    if (class == LATHE_CHAR_LETTER)
        return run(v, at + len, LATHE_CHAR_LETTER);
    if (v->text[at] == '\'') {
        const int64_t n = contraction(v, at, 1);
        if (n)
            return at + n;
    }
    if (class == LATHE_CHAR_NUMBER) { /* \p{N}{1,3} */
        int64_t end = at + len;
        for (int32_t i = 1; i < max_digits && peek(v, end, &len) == LATHE_CHAR_NUMBER; i++)
            end += len;
        return end;
    }
    const int32_t next = peek(v, at + len, &next_len);
    if (next == LATHE_CHAR_LETTER && class != LATHE_CHAR_NEWLINE) /* [^\r\n\p{L}\p{N}]?\p{L}+ */
        return run(v, at + len + next_len, LATHE_CHAR_LETTER);
    int64_t end = -1; /* " ?[^\s\p{L}\p{N}]+[\r\n]*" */
    if (class == LATHE_CHAR_OTHER)
        end = run(v, at + len, LATHE_CHAR_OTHER);
    else if (v->text[at] == ' ' && next == LATHE_CHAR_OTHER)
        end = run(v, at + 1 + next_len, LATHE_CHAR_OTHER);
    return end >= 0 ? run(v, end, LATHE_CHAR_NEWLINE) : scan_spaces(v, at);
}

int64_t lathe__scan(int32_t scan, const uint8_t *classes, const uint8_t *text, int64_t n,
                    int64_t at)
{
    const view v = {classes, text, n};
    if (scan == LATHE_SCAN_GPT2)
        return scan_gpt2(&v, at);
    return scan_llama3(&v, at, scan == LATHE_SCAN_LLAMA3 ? 3 : 1);
}
