/* Reads [checkpoint] of the run file. */
#include "checkpoint/state/checkpoint_settings.h"

#include <string.h>

#include "config/config.h"
#include "config/config_fill.h"
#include "exec/program/precision.h"

/* The last word of a metric's name: "accuracies" of "eval_rewards/accuracies". */
static const char *last_word(const char *metric)
{
    const char *word = metric;
    for (const char *at; (at = strpbrk(word, "_/")) != NULL;)
        word = at + 1;
    return word;
}

/* Sets whether a higher metric is better. With best_mode "auto", the last word of the metric's name
 * decides. */
static void read_best_mode(const lathe_config *config, const lathe_value *value, void *out)
{
    static const char *const higher[] = {"accuracy", "accuracies", "reward", "rewards",
                                         "margin",   "margins",    "score",  "scores",
                                         "chosen",   "explained",  "f1",     "bleu"};
    const char *metric = lathe_config_string(config, "checkpoint", "best_metric");
    int32_t higher_is_better = strcmp(value->s, "max") == 0;
    for (size_t i = 0; metric && i < sizeof higher / sizeof higher[0]; i++)
        if (strcmp(value->s, "auto") == 0 && strcmp(last_word(metric), higher[i]) == 0)
            higher_is_better = 1;
    *(int32_t *)out = higher_is_better;
}

static void save_dtype(const lathe_config *config, const lathe_value *value, void *out)
{
    (void)config;
    *(int32_t *)out =
        strcmp(value->s, "auto") == 0 ? LATHE_SAVE_AUTO : lathe_precision_dtype(value->s);
}

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_checkpoint_settings, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key keys[] = {
#include "plug/keys_checkpoint.inc"
};

void lathe_checkpoint_settings_read(const lathe_config *config, lathe_checkpoint_settings *out)
{
    memset(out, 0, sizeof *out);
    lathe_config_fill(config, "checkpoint", keys, (int32_t)(sizeof keys / sizeof keys[0]), out);
}

int32_t lathe_resume_moves_aside(const char *resume)
{
    return resume != NULL && strcmp(resume, "restart") == 0;
}

int32_t lathe_resume_begins_anew(const char *resume)
{
    return resume == NULL || strcmp(resume, "never") == 0 || lathe_resume_moves_aside(resume);
}
