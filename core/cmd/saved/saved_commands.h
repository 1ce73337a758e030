/* The commands about what runs have saved. */
#ifndef LATHE_CMD_SAVED_COMMANDS_H
#define LATHE_CMD_SAVED_COMMANDS_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_checkpoint_ls;
extern const lathe_command lathe_cmd_checkpoint_verify;
extern const lathe_command lathe_cmd_checkpoint_diff;
extern const lathe_command lathe_cmd_checkpoint_rm;
extern const lathe_command lathe_cmd_lineage;
extern const lathe_command lathe_cmd_convert;

#endif
