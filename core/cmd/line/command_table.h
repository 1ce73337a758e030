/* A list of commands: finds one by the words that the user typed, prints the overview, and answers
 * unknown words. */
#ifndef LATHE_CMD_COMMAND_TABLE_H
#define LATHE_CMD_COMMAND_TABLE_H

#include <stdio.h>

#include "cmd/line/args.h"

enum { LATHE_MAX_COMMANDS = 64 };

/** A word that users of other tools try, and the advice that Lathe prints for it. */
typedef struct lathe_command_advice {
    const char *word, *advice;
} lathe_command_advice;

/** The commands of a program, in the order of the overview; at most LATHE_MAX_COMMANDS. */
typedef struct lathe_command_list {
    const lathe_command *const *all; /* [n] */
    int32_t n;
    const lathe_command_advice *instead; /* [n_instead] */
    int32_t n_instead;
} lathe_command_list;

/** The command that argv begins with, NULL: none. *out_words: number of words of its name. */
const lathe_command *lathe_command_match(const lathe_command_list *list, int argc,
                                         char *const *argv, int *out_words);

/** Returns 1 if there are commands of two words that begin with this one ("plugin"). */
int lathe_command_is_group(const lathe_command_list *list, const char *word);

/** Prints the overview: every command with its summary. */
void lathe_commands_help(const lathe_command_list *list, FILE *to);

/** Answers words that are not the name of a command: prints the commands that begin with the first
 *  word ("plugin"), what to use instead, or a similar name. Returns the exit code. argc is at least
 *  1. */
int lathe_command_unknown(const lathe_command_list *list, int argc, char *const *argv);

#endif
