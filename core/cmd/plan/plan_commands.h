/* The commands about what a run will need and do. */
#ifndef LATHE_CMD_PLAN_COMMANDS_H
#define LATHE_CMD_PLAN_COMMANDS_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_plan;
extern const lathe_command lathe_cmd_plot_schedule;

#endif
