/* Patterns that cut a text: a string, a regular expression, or a kind of character. */
#ifndef LATHE_UNICODE_PATTERN_H
#define LATHE_UNICODE_PATTERN_H

#include "unicode/regex.h"

/** One of `text`, `code` and `is_in` is set. Shared by threads. */
typedef struct lathe_pattern {
    char *text; /* a string, not empty */
    int64_t bytes;
    pcre2_code *code; /* an expression */
    int32_t jit;
    char *source;            /* the expression as the file has it */
    int (*is_in)(int32_t c); /* a kind of character: each is a match of its own */
} lathe_pattern;

void lathe__pattern_fini(lathe_pattern *pattern);

/** What matching writes to: one per thread; all zeros at first. */
typedef struct lathe_matcher {
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
} lathe_matcher;

void lathe__matcher_fini(lathe_matcher *matcher);

/** A stretch text[begin, end) that matches, or lies between matches. */
typedef lathe_status (*lathe_span_fn)(void *arg, int64_t begin, int64_t end, int is_match);

/** Covers text[0, n), valid UTF-8, by matches and what lies between, in order. Matches do not
 *  overlap; an empty match is given too, unless it follows a match at once. LATHE_E_UNSUPPORTED
 *  where an expression backtracks without end. */
lathe_status lathe__pattern_spans(const lathe_pattern *pattern, lathe_matcher *matcher,
                                  const uint8_t *text, int64_t n, lathe_span_fn span, void *arg);

/** Kinds of character, as Rust's char::is_numeric and tokenizers' Punctuation have them. */
int lathe__is_numeric(int32_t c);
int lathe__is_punctuation(int32_t c);
int lathe__is_mark(int32_t c);

#endif
