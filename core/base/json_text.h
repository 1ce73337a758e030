/* JSON as it stands in a text: strings, numbers and words, checked in place and unescaped only
 * where they are wanted. For files too large for a tree of values.
 *
 * A walk goes forward from `at`; a function that fails leaves `at` at the byte that is wrong, and
 * says what in `what`.
 */
#ifndef LATHE_BASE_JSON_TEXT_H
#define LATHE_BASE_JSON_TEXT_H

#include <stdint.h>

typedef struct lathe_json_walk {
    const char *at, *end; /* nothing behind `end` is read */
    char what[64];        /* what is wrong; set by a failure */
} lathe_json_walk;

/** A string between its quotes: raw bytes of the text, and its length without escapes. */
typedef struct lathe_json_string {
    const char *text;
    int64_t n_raw, n;
    int32_t escaped; /* 1: the text has escapes: lathe_json_unescape */
    int32_t has_nul; /* an escaped NUL */
} lathe_json_string;

static inline void lathe_json_pass_blank(lathe_json_walk *walk)
{
    while (walk->at < walk->end &&
           (*walk->at == ' ' || *walk->at == '\n' || *walk->at == '\r' || *walk->at == '\t'))
        walk->at++;
}

/** 0, with `what` as printf makes it. */
__attribute__((format(printf, 2, 3))) int lathe_json_wrong(lathe_json_walk *walk,
                                                           const char *format, ...);

/** Past the string that begins at `at`: UTF-8, no control characters, known escapes, surrogates
 *  in pairs. 1, or 0 when it is none. */
int lathe_json_pass_string(lathe_json_walk *walk, lathe_json_string *out);

/** Past the number, true, false or null at `at`; numbers by their grammar, of any size. 1 or 0. */
int lathe_json_pass_scalar(lathe_json_walk *walk);

/** The text of a checked string, n_raw bytes at raw, into out; returns its length, at most
 *  n_raw. */
int64_t lathe_json_unescape(const char *raw, int64_t n_raw, char *out);

/** 1 when a checked string is text[0, n). */
int lathe_json_is(const lathe_json_string *string, const char *text, int64_t n);

/** Compares two checked strings by their characters, from behind their opening quotes: < 0, 0, >
 *  0. */
int lathe_json_compare(const char *a, const char *b);

#endif
