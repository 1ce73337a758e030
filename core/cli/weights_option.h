/* The option --weights of every command that takes the folder of a model. */
#ifndef LATHE_CLI_WEIGHTS_OPTION_H
#define LATHE_CLI_WEIGHTS_OPTION_H

#include "checkpoint/model_folder.h"
#include "cli/args.h"

#define LATHE_WEIGHTS_OPTION                                                                       \
    {                                                                                              \
        "--weights", "WHICH", "training or average weights (default: average, if there is one)"    \
    }

/** Reads --weights, or --model.weights, which means the same where a folder is named: *out is
 *  LATHE_WEIGHTS_*. LATHE_E_ARG: another word. */
lathe_status lathe_cli_weights(const lathe_args *args, int32_t *out);

/** lathe_model_folder_find; its errors name --weights. */
lathe_status lathe_cli_find_model(const char *word, int32_t which, lathe_arena *arena,
                                  lathe_model_folder *out);

/** Logs which weights are used where a folder has two kinds, once. */
void lathe_cli_say_weights(const lathe_model_folder *folder);

#endif
