/* Reads JSON strings, numbers and literals in place, without a tree of values, for very large
 * files. Strings are checked, and unescaped only on request.
 *
 * A walk moves forward from `at`. A function that fails leaves `at` at the wrong byte and writes
 * the reason into `what`.
 */
#ifndef LATHE_JSON_WALK_H
#define LATHE_JSON_WALK_H

#include <stdint.h>

typedef struct lathe_json_walk {
    const char *at, *end; /* nothing from `end` on is read */
    char what[64];        /* what is wrong; set by a failure */
    int32_t takes_nan;    /* 1: NaN, Infinity and -Infinity are scalars, as Python writes them */
    int32_t n_nan;        /* number of those that were passed */
} lathe_json_walk;

/** A string without its quotes: the raw bytes in the text, and the length when unescaped. */
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

/** Sets walk->what, the message, as printf would print it. Returns 0, the result of a failure. */
__attribute__((format(printf, 2, 3))) int lathe_json_wrong(lathe_json_walk *walk,
                                                           const char *format, ...);

/** Checks the string that begins at `at` and moves past it. It must be UTF-8 without control
 *  characters, with known escapes and paired surrogates. Returns 1, or 0 if it is not valid. */
int lathe_json_pass_string(lathe_json_walk *walk, lathe_json_string *out);

/** Moves past the number, true, false or null at `at`. Numbers are checked by grammar and may
 *  have any size. Returns 1, or 0 if it is not valid. */
int lathe_json_pass_scalar(lathe_json_walk *walk);

/** Counts the words NaN, Infinity and -Infinity outside strings. Python's json module writes them
 *  as numbers, which JSON does not allow; the rest of such a text is JSON. */
int64_t lathe_json_count_nan(const char *text, int64_t n);

/** Copies a text, and writes null instead of each word that lathe_json_count_nan counts, so that
 *  the copy is valid JSON. out: room for n bytes and one more per such word, because null is longer
 *  than NaN; NULL: only measures. Returns the number of bytes of the copy. */
int64_t lathe_json_nulls_for_nan(const char *text, int64_t n, char *out);

/** Unescapes a checked string, n_raw bytes at raw, into out; returns its length, at most n_raw. */
int64_t lathe_json_unescape(const char *raw, int64_t n_raw, char *out);

/** 1 when a checked string is text[0, n). */
int lathe_json_is(const lathe_json_string *string, const char *text, int64_t n);

/** Compares two checked strings by their characters; a and b point after the opening quotes.
 *  Returns < 0, 0 or > 0. */
int lathe_json_compare(const char *a, const char *b);

#endif
