/* Finds the word that is nearest to a misspelt one. */
#ifndef LATHE_PLUG_SUGGEST_H
#define LATHE_PLUG_SUGGEST_H

#include <stdint.h>

/** Number of edits that turn a into b: insert, delete, replace, swap of neighbours (optimal string
 *  alignment). For words longer than 63 bytes it is 1000. */
int32_t lathe_edit_distance(const char *a, const char *b);

/** The word that `word` is another spelling of or a synonym for (plug/synonyms.h). Else the nearest
 *  one, if it is near enough (a third of its letters, at least one edit, or one word begins with
 *  the other). NULL otherwise. NULL words are skipped. */
const char *lathe_suggest(const char *word, const char *const *words, int64_t n);

#endif
