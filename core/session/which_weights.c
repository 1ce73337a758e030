/* Finds the weights of a folder, and says which they are. */
#include "session/which_weights.h"

#include <stdio.h>

#include "base/error.h"
#include "base/log_once.h"
#include "session/model_request.h"

lathe_status lathe_which_weights_find(const char *word, int32_t which, lathe_arena *arena,
                                      lathe_model_folder *out)
{
    const lathe_status status = lathe_model_folder_find(word, which, arena, out);
    if (status != LATHE_E_CONFIG || which != LATHE_WEIGHTS_AVERAGE)
        return status;
    (void)lathe_error_context(status, "weights \"average\"");
    return lathe_error_about(status, LATHE_SESSION_SECTION, "weights");
}

/* A command may open a model several times. */
void lathe_which_weights_say(const lathe_model_folder *folder)
{
    char text[4500];
    if (folder->is_average) {
        (void)snprintf(text, sizeof text,
                       "averaged weights, of %s/average (weights \"training\": the others)",
                       folder->dir);
        lathe_log_once(LATHE_LOG_INFO, text);
    }
    if (folder->is_no_model) {
        (void)snprintf(
            text, sizeof text,
            "weights \"training\": %s was trained by an optimizer whose average is the "
            "model; its training weights are only the points at which it takes gradients",
            folder->dir);
        lathe_log_once(LATHE_LOG_WARN, text);
    }
}
