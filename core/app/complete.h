/* Candidates for the word that a shell completes. */
#ifndef LATHE_APP_COMPLETE_H
#define LATHE_APP_COMPLETE_H

#include "lathe/status.h"

/** Prints to stdout, one per line, what the last of the words may become: commands, options,
 *  `--section.key`, values of keys with choices, kinds, plugins. A line ":files PATTERN" stands for
 *  the files that match and for folders. words: those after "lathe"; the last is what has been
 *  typed of the word so far, maybe nothing. */
lathe_status lathe_complete(int n_words, char *const *words);

#endif
