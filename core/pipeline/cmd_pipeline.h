/* The command `lathe pipeline`. */
#ifndef LATHE_PIPELINE_CMD_PIPELINE_H
#define LATHE_PIPELINE_CMD_PIPELINE_H

#include "cli/args.h"

extern const lathe_command lathe_cmd_pipeline;

#endif
