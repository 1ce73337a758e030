/* The commands as a list: finding one by what the user typed, the overview, and answers to unknown
 * words. */
#ifndef LATHE_APP_COMMAND_TABLE_H
#define LATHE_APP_COMMAND_TABLE_H

#include <stdio.h>

#include "app/args.h"

/** All commands, in the order of the overview. */
const lathe_command *const *lathe_commands(int32_t *out_n);

/** The command that argv begins with; *out_words: how many words its name has. NULL: none. */
const lathe_command *lathe_command_match(int argc, char *const *argv, int *out_words);

/** 1: commands of two words begin with this one ("plugin"). */
int lathe_command_is_group(const char *word);

/** The overview: every command with its summary. */
void lathe_commands_help(FILE *to);

/** Answers words that name no command: the commands that begin with the first of them ("plugin"),
 *  what to use instead, or a near name. Returns the exit code. argc is at least 1. */
int lathe_command_unknown(int argc, char *const *argv);

#endif
