/* Reads --weights, and finds the model that a command names. */
#include "cli/weights_option.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log_once.h"

lathe_status lathe_cli_weights(const lathe_args *args, int32_t *out)
{
    const char *text = lathe_args_value(args, "--weights"), *option = "--weights";
    *out = LATHE_WEIGHTS_AUTO;
    if (!text) {
        option = "--model.weights";
        text = lathe_args_override(args, "model.weights");
    }
    if (!text || (option[2] == 'm' && strcmp(text, "auto") == 0))
        return LATHE_OK;
    *out = strcmp(text, "training") == 0 ? LATHE_WEIGHTS_TRAINING : LATHE_WEIGHTS_AVERAGE;
    if (*out == LATHE_WEIGHTS_AVERAGE && strcmp(text, "average") != 0)
        return lathe_error(LATHE_E_ARG, "%s: expected training or average, seen \"%s\"", option,
                           text);
    return LATHE_OK;
}

lathe_status lathe_cli_find_model(const char *word, int32_t which, lathe_arena *arena,
                                  lathe_model_folder *out)
{
    const lathe_status status = lathe_model_folder_find(word, which, arena, out);
    return status == LATHE_E_CONFIG && which == LATHE_WEIGHTS_AVERAGE
               ? lathe_error_context(status, "--weights average")
               : status;
}

/* A command may open a model several times. */
void lathe_cli_say_weights(const lathe_model_folder *folder)
{
    char text[4500];
    if (folder->is_average) {
        (void)snprintf(text, sizeof text,
                       "averaged weights, of %s/average (--weights training: the others)",
                       folder->dir);
        lathe_log_once(LATHE_LOG_INFO, text);
    }
    if (folder->is_no_model) {
        (void)snprintf(
            text, sizeof text,
            "--weights training: %s was trained by an optimizer whose average is the "
            "model; its training weights are only the points at which it takes gradients",
            folder->dir);
        lathe_log_once(LATHE_LOG_WARN, text);
    }
}
