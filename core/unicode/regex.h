/* Regular expressions of tokenizer.json: Oniguruma's dialect (Ruby syntax), matched by PCRE2. */
#ifndef LATHE_UNICODE_REGEX_H
#define LATHE_UNICODE_REGEX_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lathe/status.h"

/** The expression in PCRE2's dialect: malloc'ed. What both engines take alike is copied, what they
 *  mean differently is rewritten (\s \w \b \h ^ $ \p{Script} {n,m}+, nested classes and "&&"), the
 *  rest is LATHE_E_UNSUPPORTED with `place`, which names file and key. */
lathe_status lathe__regex_translate(const char *place, const char *pattern, char **out);

/** Compiles an expression, with machine code where the machine has a JIT (*out_jit = 1). */
lathe_status lathe__regex_compile(const char *place, const char *pattern, pcre2_code **out,
                                  int *out_jit);

/** 1 when the expression can match nothing at all between two characters. */
int lathe__regex_may_be_empty(const pcre2_code *code);

#endif
