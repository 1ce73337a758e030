/* The option --weights of every command that takes the folder of a model. */
#ifndef LATHE_CMD_WEIGHTS_OPTION_H
#define LATHE_CMD_WEIGHTS_OPTION_H

#include "checkpoint/state/model_folder.h"
#include "cmd/line/args.h"

#define LATHE_WEIGHTS_OPTION                                                                       \
    {                                                                                              \
        "--weights", "WHICH", "training or average weights (default: average, if there is one)"    \
    }

/** Reads --weights, or --model.weights, which means the same where a folder is named: *out is
 *  LATHE_WEIGHTS_*. LATHE_E_ARG: another word. */
lathe_status lathe_cli_weights(const lathe_args *args, int32_t *out);

#endif
