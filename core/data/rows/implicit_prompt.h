/* The prompt of a pair that has no column for it. */
#ifndef LATHE_DATA_IMPLICIT_PROMPT_H
#define LATHE_DATA_IMPLICIT_PROMPT_H

#include <stdint.h>

/** The length of the common beginning of both completions, without a space at its end, as in TRL's
 *  extract_prompt. Cuts only between characters. */
int64_t lathe__implicit_prompt(const char *a, int64_t n_a, const char *b, int64_t n_b);

#endif
