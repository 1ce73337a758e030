/* Warns of settings of the caller that only a training reads. */
#include "session/idle_overrides.h"

#include <stdio.h>
#include <string.h>

#include "base/log_once.h"

/* Keys, and sections, which end with a dot. */
static const char *const of_training[] = {"optimizer.",
                                          "scheduler.",
                                          "train.loss_scale_init",
                                          "train.loss_scale_growth_interval",
                                          "train.on_nonfinite",
                                          "train.on_spike",
                                          "train.spike_threshold",
                                          "train.spike_window",
                                          "train.gradient_accumulation_steps",
                                          "train.max_steps",
                                          "train.epochs",
                                          "train.stop_after",
                                          "train.max_grad_norm",
                                          "train.max_grad_value",
                                          "train.grad_dtype",
                                          "train.eval_every",
                                          "train.early_stopping_patience",
                                          "train.early_stopping_threshold",
                                          "train.weight_average",
                                          "train.weight_average_decay",
                                          "train.weight_average_start",
                                          "train.weight_average_every",
                                          "train.offload_optimizer",
                                          "train.offload_buffer",
                                          "checkpoint.every",
                                          "checkpoint.every_minutes",
                                          "checkpoint.every_epochs",
                                          "checkpoint.keep_last",
                                          "checkpoint.keep_best"};

static int is_of_training(const char *key)
{
    for (size_t i = 0; i < sizeof of_training / sizeof of_training[0]; i++) {
        const size_t n = strlen(of_training[i]);
        const int is_section = of_training[i][n - 1] == '.';
        if (is_section ? strncmp(key, of_training[i], n) == 0 : strcmp(key, of_training[i]) == 0)
            return 1;
    }
    return 0;
}

void lathe_session_warn_idle(const lathe_model_request *ask)
{
    char text[512];
    for (int32_t i = 0; i < ask->edits->n; i++) {
        const char *key = ask->edits->list[i].key;
        if (!is_of_training(key))
            continue;
        (void)snprintf(text, sizeof text, "%s has no effect: nothing is trained", key);
        lathe_log_once(LATHE_LOG_WARN, text); /* a command may open several models */
    }
}
