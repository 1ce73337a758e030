/* Patterns at which a text is split: a string, a regular expression, or a kind of character. */
#ifndef LATHE_TOKENIZER_PATTERN_H
#define LATHE_TOKENIZER_PATTERN_H

#include "tokenizer/unicode/regex.h"

/** A pattern: one of `text`, `code` and `is_in` is set. Threads may share it. */
typedef struct lathe_pattern {
    char *text; /* a string, not empty */
    int64_t bytes;
    pcre2_code *code; /* a regular expression */
    int32_t jit;
    char *source;            /* the expression as it is written in the file */
    int (*is_in)(int32_t c); /* a kind of character; each such character is one match */
} lathe_pattern;

void lathe__pattern_fini(lathe_pattern *pattern);

/** Scratch memory of matching, one per thread; all zeros at first. */
typedef struct lathe_matcher {
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    int64_t calls; /* searches in this text */
    double begun;  /* when the clock of this text was started; 0: not yet */
} lathe_matcher;

void lathe__matcher_fini(lathe_matcher *matcher);

/** A compiled expression. source: for messages, or NULL. */
typedef struct lathe_expression {
    const pcre2_code *code;
    int32_t jit;
    const char *source;
} lathe_expression;

/** Finds the first match in text[0, n), valid UTF-8, at or after `from`; *begin = *end = -1 if
 * there is none. A search from 0 begins a new text. options: PCRE2's. LATHE_E_UNSUPPORTED: the
 * expression backtracks without end, or the searches of this text take more than two seconds and
 * two microseconds for each byte. */
lathe_status lathe__matcher_find(lathe_matcher *matcher, const lathe_expression *e,
                                 uint32_t options, const uint8_t *text, int64_t n, int64_t from,
                                 int64_t *begin, int64_t *end);

/** Takes a part text[begin, end) that is a match or lies between two matches. */
typedef lathe_status (*lathe_span_fn)(void *arg, int64_t begin, int64_t end, int is_match);

/** Calls `span` for each match in text[0, n), and for each part between matches, in order. A
 *  regular expression is tried on each part that is valid UTF-8, as if it were the whole text;
 *  other bytes match nothing. Matches do not overlap. An empty match is passed too, unless it
 *  directly follows another match. LATHE_E_UNSUPPORTED: an expression backtracks without end. */
lathe_status lathe__pattern_spans(const lathe_pattern *pattern, lathe_matcher *matcher,
                                  const uint8_t *text, int64_t n, lathe_span_fn span, void *arg);

/** Kinds of character, as defined by Rust's char::is_numeric and by Hugging Face's Punctuation. */
int lathe__is_numeric(int32_t c);
int lathe__is_punctuation(int32_t c);
int lathe__is_mark(int32_t c);
/** Mn, as BertNormalizer knows it. */
int lathe__is_nonspacing(int32_t c);

#endif
