/* Words from other programs, and Lathe's names for the same things. */
#ifndef LATHE_PLUG_SYNONYMS_H
#define LATHE_PLUG_SYNONYMS_H

#include <stdint.h>

/** The k-th of Lathe's names for `word` (case, '-' and '_' do not matter); NULL if there are no
 *  more. *out_section: the section of run.toml that has the key, or NULL for a value or a plugin's
 *  name. */
const char *lathe_synonym(const char *word, int32_t k, const char **out_section);

/** Whether two words are equal except for case, '-', '_', '.' and spaces. */
int lathe_same_word(const char *a, const char *b);

#endif
