/* Finds positions at which a text may be cut, so that its parts, encoded one by one, give the ids
 * of the whole text. */
#ifndef LATHE_TOKENIZER_TEXT_CUT_H
#define LATHE_TOKENIZER_TEXT_CUT_H

#include "tokenizer/encode/tokenizer.h"

enum {
    LATHE_CUT_NONE = 0, /* no position is known */
    LATHE_CUT_ANYWHERE, /* between any two bytes */
    LATHE_CUT_LINES     /* between a line end and a letter a-z or A-Z */
};

/** LATHE_CUT_* of a tokenizer, for encoding without ADD_SPECIAL: the caller adds the template's
 *  tokens to the first and the last part. */
int32_t lathe__cuts_of(const lathe_tokenizer *tok);

/** Returns the first position at or after `at` where text[0, n), valid UTF-8, may be cut; n if
 *  there is none. */
int64_t lathe__cut_after(int32_t cuts, const char *text, int64_t n, int64_t at);

#endif
