/* The nearest of some words to a misspelt one. */
#ifndef LATHE_PLUG_SUGGEST_H
#define LATHE_PLUG_SUGGEST_H

#include <stdint.h>

/** Edits that turn a into b: insert, delete, replace, swap of neighbours (optimal string
 *  alignment). Words longer than 63 bytes count as 1000 apart. */
int32_t lathe_edit_distance(const char *a, const char *b);

/** The word that `word` is another spelling of or a synonym for (plug/synonyms.h); else the one
 *  nearest to it, if it is near enough to be meant (a third of its letters, at least one edit, or
 *  one word is the beginning of the other); NULL otherwise. NULL words are skipped. */
const char *lathe_suggest(const char *word, const char *const *words, int64_t n);

#endif
