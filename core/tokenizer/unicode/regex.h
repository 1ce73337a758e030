/* Regular expressions of tokenizer.json: Oniguruma's dialect (Ruby syntax), matched by PCRE2. */
#ifndef LATHE_TOKENIZER_REGEX_H
#define LATHE_TOKENIZER_REGEX_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lathe/status.h"

/** Translates an expression to PCRE2's dialect; *out is malloc'ed. Copies syntax that means the
 *  same in both engines, and rewrites syntax that means something else (\s \w \b \h ^ $ \p{Script}
 *  {n,m}+, nested classes and "&&"). LATHE_E_UNSUPPORTED: other syntax; the message begins with
 *  `place`, which names file and key. */
lathe_status lathe__regex_translate(const char *place, const char *pattern, char **out);

/** Compiles an expression, to machine code if PCRE2 has a JIT for this machine (*out_jit = 1). */
lathe_status lathe__regex_compile(const char *place, const char *pattern, pcre2_code **out,
                                  int *out_jit);

/** Returns 1 if the expression can match the empty text. */
int lathe__regex_may_be_empty(const pcre2_code *code);

#endif
