/* Completes the word that the user is typing in a shell. */
#ifndef LATHE_CMD_COMPLETE_H
#define LATHE_CMD_COMPLETE_H

#include "cmd/line/command_table.h"

/** Prints the completions of the last word to stdout, one per line: commands, options,
 *  `--section.key`, values of keys with choices, kinds, plugins. A line ":files PATTERN" means
 *  folders and matching files. words: the words after "lathe"; the last one may be incomplete or
 *  empty. */
lathe_status lathe_complete(const lathe_command_list *commands, int n_words, char *const *words);

#endif
