/* Lists the names of the figures in metrics.jsonl. */
#include "metrics/figure_names.h"

#include <stdio.h>
#include <string.h>

#include "plug/suggest.h"

/* In the order of training_figures.c, training_save.c and training_eval.c. */
static const char *const names[] = {
    "loss",
    "perplexity",
    "grad_norm",
    "param_norm",
    "update_ratio",
    "lr",
    "loss_scale",
    "quant_noise",
    "skipped_steps",
    "loss_zscore",
    "spikes",
    "tokens_per_s",
    "tokens",
    "epoch",
    "flops_per_s",
    "share_of_peak",
    "memory_bytes",
    "memory_peak_bytes",
    "step_seconds",
    "elapsed_seconds",
    "data_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimizer_seconds",
    "ranks_bytes_sent",
    "diloco_bytes_sent",
    "ranks_exposed_seconds",
    "ranks_slowest",
    "ranks_slowest_seconds",
    "ranks_fastest_seconds",
    "offload_bytes",
    "offload_wait_seconds",
    "checkpoint_stall_seconds",
    "eval_loss",
    "eval_perplexity",
    "eval_count",
    "eval_token_accuracy",
    "eval_bits_per_byte",
    "eval_ece",
};

enum { N_NAMES = sizeof names / sizeof names[0] };

/* Returns the stage's part of a figure's name, in a step or in an evaluation. */
static const char *stage_part(const char *name)
{
    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

int32_t lathe_figure_is_known(const lathe_param_groups *groups, const lathe_stage_loss *stage,
                              const char *name)
{
    for (int32_t i = 0; i < N_NAMES; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    for (int32_t g = 0; groups->n > 1 && g < groups->n; g++)
        if (strcmp(groups->keys[g], name) == 0)
            return 1;
    for (int32_t i = 0; i < stage->n_metrics; i++)
        if (stage->metrics[i].name && strcmp(stage->metrics[i].name, stage_part(name)) == 0)
            return 1;
    return 0;
}

const char *lathe_figure_nearest(const lathe_param_groups *groups, const lathe_stage_loss *stage,
                                 const char *name)
{
    const char *list[N_NAMES + LATHE_MAX_GROUPS + 2 * LATHE_MAX_STAGE_METRICS];
    static _Thread_local char evaluated[LATHE_MAX_STAGE_METRICS][96];
    int32_t n = 0;
    for (; n < N_NAMES; n++)
        list[n] = names[n];
    for (int32_t g = 0; groups->n > 1 && g < groups->n; g++)
        list[n++] = groups->keys[g];
    for (int32_t i = 0; i < stage->n_metrics && i < LATHE_MAX_STAGE_METRICS; i++) {
        if (stage->metrics[i].name == NULL)
            continue;
        (void)snprintf(evaluated[i], sizeof evaluated[i], "eval_%s", stage->metrics[i].name);
        list[n++] = stage->metrics[i].name;
        list[n++] = evaluated[i];
    }
    return lathe_suggest(name, list, n);
}
