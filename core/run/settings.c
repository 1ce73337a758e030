/* The run's settings. */
#include "run/settings.h"

#include <string.h>

#include "ir/passes.h"
#include "run/progress.h"

/* NULL when unset or empty. */
static const char *text(const lathe_config *c, const char *section, const char *key)
{
    const char *value = lathe_config_string(c, section, key);
    return value && value[0] ? value : NULL;
}

/* Index of a text in a NULL-terminated list; 0 when it is in none. */
static int32_t choice(const char *value, const char *const *list)
{
    for (int32_t i = 0; value && list[i]; i++)
        if (strcmp(value, list[i]) == 0)
            return i;
    return 0;
}

void lathe_settings_read(const lathe_config *c, lathe_settings *s)
{
    static const char *const recompute[] = {"none", "layer", "attention", "mlp", "pointwise", NULL};
    static const char *const progress[] = {"auto", "plain", "off", NULL};
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    const char *precision = text(c, "train", "precision");
    memset(s, 0, sizeof *s);
    s->seq_len = (int32_t)lathe_config_int(c, "data", "seq_len");
    s->shuffle = (int32_t)lathe_config_int(c, "data", "shuffle");
    s->prefetch = (int32_t)lathe_config_int(c, "data", "prefetch");
    s->data_seed = lathe_config_seed(c, "data");
    s->validation_split = lathe_config_float(c, "data", "validation_split");
    s->cache_dir = text(c, "data", "cache_dir");
    s->datasets = text(c, "data", "datasets");
    s->compute_dtype = precision && strcmp(precision, "bf16") == 0 ? LATHE_BF16 : LATHE_F32;
    s->micro_batch_size = (int32_t)lathe_config_int(c, "train", "micro_batch_size");
    s->gradient_accumulation_steps =
        (int32_t)lathe_config_int(c, "train", "gradient_accumulation_steps");
    s->epochs = lathe_config_int(c, "train", "epochs");
    s->max_steps = lathe_config_int(c, "train", "max_steps");
    s->stop_after = lathe_config_int(c, "train", "stop_after");
    s->max_grad_norm = lathe_config_float(c, "train", "max_grad_norm");
    s->seed = lathe_config_seed(c, "train");
    s->deterministic = (int32_t)lathe_config_int(c, "train", "deterministic");
    s->threads = (int32_t)lathe_config_int(c, "train", "threads");
    s->recompute = choice(text(c, "train", "recompute"), recompute);
    const lathe_value *log_every = lathe_config_get(c, "train", "log_every");
    s->log_every = log_every && log_every->is_explicit ? (int32_t)log_every->i : 0;
    s->eval_every = (int32_t)lathe_config_int(c, "train", "eval_every");
    s->eval_batches = (int32_t)lathe_config_int(c, "train", "eval_batches");
    s->head_chunk_rows = lathe_config_int(c, "train", "head_chunk_rows");
    s->checkpoint_dir = text(c, "checkpoint", "dir");
    s->checkpoint_every = lathe_config_int(c, "checkpoint", "every");
    s->resume = text(c, "checkpoint", "resume");
    s->keep_last = (int32_t)lathe_config_int(c, "checkpoint", "keep_last");
    s->progress = choice(text(c, "log", "progress"), progress);
    s->log_level = choice(text(c, "log", "level"), levels);
    s->tokenizer_path = text(c, "tokenizer", "path");
    s->tokenizer_train = text(c, "tokenizer", "train");
    s->model_path = text(c, "model", "path");
    s->model_seed = lathe_config_seed(c, "model");
}
