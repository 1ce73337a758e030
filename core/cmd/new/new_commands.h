/* The commands that write a run file. */
#ifndef LATHE_CMD_NEW_COMMANDS_H
#define LATHE_CMD_NEW_COMMANDS_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_new, lathe_cmd_import;

#endif
