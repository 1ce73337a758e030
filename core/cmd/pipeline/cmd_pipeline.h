/* The command `lathe pipeline`. */
#ifndef LATHE_CMD_CMD_PIPELINE_H
#define LATHE_CMD_CMD_PIPELINE_H

#include "cmd/line/args.h"

extern const lathe_command lathe_cmd_pipeline;

#endif
