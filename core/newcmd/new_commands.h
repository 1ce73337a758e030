/* The commands that write a run file. */
#ifndef LATHE_NEWCMD_NEW_COMMANDS_H
#define LATHE_NEWCMD_NEW_COMMANDS_H

#include "cli/args.h"

extern const lathe_command lathe_cmd_new, lathe_cmd_import;

#endif
