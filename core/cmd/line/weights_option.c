/* Reads --weights. */
#include "cmd/line/weights_option.h"

#include <string.h>

#include "base/error.h"

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
