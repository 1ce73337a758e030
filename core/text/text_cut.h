/* Where a text may be cut so that its parts, tokenised one by one, give the ids of the whole. */
#ifndef LATHE_TEXT_TEXT_CUT_H
#define LATHE_TEXT_TEXT_CUT_H

#include "text/tokenizer.h"

enum {
    LATHE_CUT_NONE = 0, /* nowhere, as far as is known */
    LATHE_CUT_ANYWHERE, /* between any two bytes */
    LATHE_CUT_LINES     /* between a line end and a letter a-z or A-Z */
};

/** LATHE_CUT_* of a tokenizer, for encoding without ADD_SPECIAL: what its template puts before and
 *  after a text belongs to the first and the last part. */
int32_t lathe__cuts_of(const lathe_tokenizer *tok);

/** The first place at or after `at` where text[0, n), valid UTF-8, may be cut; n when there is
 *  none. */
int64_t lathe__cut_behind(int32_t cuts, const char *text, int64_t n, int64_t at);

#endif
