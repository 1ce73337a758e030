/* The commands about plugins and the machine that runs them. */
#ifndef LATHE_CMD_PLUG_COMMANDS_H
#define LATHE_CMD_PLUG_COMMANDS_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_ls;
extern const lathe_command lathe_cmd_show;
extern const lathe_command lathe_cmd_plugin_new;
extern const lathe_command lathe_cmd_plugin_check;
extern const lathe_command lathe_cmd_doctor;

#endif
