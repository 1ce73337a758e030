/* Words that people bring from other programs, and what Lathe calls the same thing. */
#ifndef LATHE_PLUG_SYNONYMS_H
#define LATHE_PLUG_SYNONYMS_H

#include <stdint.h>

/** The k-th name that Lathe has for `word` (upper and lower case, '-' and '_' do not matter); NULL
 *  when there are no more. *out_section: the section of run.toml that the key belongs to, or NULL
 *  for a value or a plugin's name. */
const char *lathe_synonym(const char *word, int32_t k, const char **out_section);

/** Whether two words differ in upper and lower case, '-', '_', '.' and spaces alone. */
int lathe_same_word(const char *a, const char *b);

#endif
