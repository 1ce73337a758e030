/* Reads the run's settings. */
#include "run/settings.h"

#include <string.h>

#include "exec/precision.h"
#include "ir/passes.h"
#include "record/progress.h"

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

/* best_mode "auto": decided by the name of the metric. */
static int32_t is_higher(const char *mode, const char *metric)
{
    static const char *const higher[] = {"accuracy", "reward", "margin", "score", "f1", "bleu"};
    if (mode && strcmp(mode, "auto") != 0)
        return strcmp(mode, "max") == 0;
    for (size_t i = 0; metric && i < sizeof higher / sizeof higher[0]; i++)
        if (strstr(metric, higher[i]))
            return 1;
    return 0;
}

static int32_t save_dtype(const char *value)
{
    return !value || strcmp(value, "auto") == 0 ? LATHE_SAVE_AUTO : lathe_precision_dtype(value);
}

void lathe_settings_read(const lathe_config *c, lathe_settings *s)
{
    static const char *const recompute[] = {"none", "layer", "attention", "mlp", "pointwise", NULL};
    static const char *const packing[] = {"sequential", "multipack", NULL}; /* LATHE_PACK_* */
    static const char *const progress[] = {"auto", "plain", "off", NULL};
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    static const char *const policies[] = {"stop", "skip", "rewind", "ignore", NULL};
    static const char *const captures[] = {"auto", "on", "off", NULL};  /* LATHE_CAPTURE_* */
    static const char *const averages[] = {"none", "ema", "swa", NULL}; /* LATHE_AVERAGE_* */
    memset(s, 0, sizeof *s);
    s->seq_len = (int32_t)lathe_config_int(c, "data", "seq_len");
    s->shuffle = (int32_t)lathe_config_int(c, "data", "shuffle");
    s->prefetch = (int32_t)lathe_config_int(c, "data", "prefetch");
    s->data_seed = lathe_config_seed(c, "data");
    s->validation_split = lathe_config_float(c, "data", "validation_split");
    s->validation_count = lathe_config_int(c, "data", "validation_count");
    s->packing = choice(text(c, "data", "packing"), packing);
    s->cache_dir = text(c, "data", "cache_dir");
    s->datasets = text(c, "data", "datasets");
    s->precision = s->compute_dtype = lathe_precision_dtype(text(c, "train", "precision"));
    s->grad_dtype = lathe_precision_dtype(text(c, "train", "grad_dtype"));
    s->fp8_asked = lathe_fp8_recipe_find(text(c, "train", "fp8_recipe"));
    s->loss_scale_init = lathe_config_float(c, "train", "loss_scale_init");
    s->loss_scale_growth_interval =
        (int32_t)lathe_config_int(c, "train", "loss_scale_growth_interval");
    s->on_nonfinite = choice(text(c, "train", "on_nonfinite"), policies);
    s->on_spike = choice(text(c, "train", "on_spike"), policies);
    s->spike_threshold = lathe_config_float(c, "train", "spike_threshold");
    s->spike_window = (int32_t)lathe_config_int(c, "train", "spike_window");
    s->micro_batch_size = (int32_t)lathe_config_int(c, "train", "micro_batch_size");
    s->gradient_accumulation_steps =
        (int32_t)lathe_config_int(c, "train", "gradient_accumulation_steps");
    s->epochs = lathe_config_int(c, "train", "epochs");
    s->max_steps = lathe_config_int(c, "train", "max_steps");
    s->stop_after = lathe_config_int(c, "train", "stop_after");
    s->max_grad_norm = lathe_config_float(c, "train", "max_grad_norm");
    s->max_grad_value = lathe_config_float(c, "train", "max_grad_value");
    s->seed = lathe_config_seed(c, "train");
    s->deterministic = (int32_t)lathe_config_int(c, "train", "deterministic");
    s->threads = (int32_t)lathe_config_int(c, "train", "threads");
    s->recompute = choice(text(c, "train", "recompute"), recompute);
    s->capture = choice(text(c, "train", "capture"), captures);
    const lathe_value *log_every = lathe_config_get(c, "train", "log_every");
    s->log_every = log_every && log_every->is_explicit ? (int32_t)log_every->i : 0;
    s->eval_every = (int32_t)lathe_config_int(c, "train", "eval_every");
    s->early_stopping_patience = lathe_config_int(c, "train", "early_stopping_patience");
    s->early_stopping_threshold = lathe_config_float(c, "train", "early_stopping_threshold");
    s->tensorboard = (int32_t)lathe_config_int(c, "log", "tensorboard");
    s->sample_every = lathe_config_int(c, "generate", "every");
    s->eval_batches = (int32_t)lathe_config_int(c, "train", "eval_batches");
    s->weight_average = choice(text(c, "train", "weight_average"), averages);
    s->weight_average_decay = lathe_config_float(c, "train", "weight_average_decay");
    s->weight_average_start = lathe_config_int(c, "train", "weight_average_start");
    s->weight_average_every = lathe_config_int(c, "train", "weight_average_every");
    s->head_chunk_rows = lathe_config_int(c, "train", "head_chunk_rows");
    s->memory_limit = (int64_t)(lathe_config_float(c, "train", "memory_limit") * 1073741824.0);
    s->offload_optimizer = (int32_t)lathe_config_int(c, "train", "offload_optimizer");
    s->offload_activations = (int32_t)lathe_config_int(c, "train", "offload_activations");
    s->offload_buffer = (int64_t)(lathe_config_float(c, "train", "offload_buffer") * 1048576.0);
    s->checkpoint.dir = text(c, "checkpoint", "dir");
    s->checkpoint.every = lathe_config_int(c, "checkpoint", "every");
    s->checkpoint.resume = text(c, "checkpoint", "resume");
    s->checkpoint.keep_last = (int32_t)lathe_config_int(c, "checkpoint", "keep_last");
    s->checkpoint.keep_best = (int32_t)lathe_config_int(c, "checkpoint", "keep_best");
    s->checkpoint.every_minutes = lathe_config_float(c, "checkpoint", "every_minutes");
    s->checkpoint.every_epochs = lathe_config_int(c, "checkpoint", "every_epochs");
    s->checkpoint.best_metric = text(c, "checkpoint", "best_metric");
    s->checkpoint.best_is_higher =
        is_higher(text(c, "checkpoint", "best_mode"), s->checkpoint.best_metric);
    s->checkpoint.async = (int32_t)lathe_config_int(c, "checkpoint", "async");
    s->checkpoint.gate = (int32_t)lathe_config_int(c, "checkpoint", "gate");
    s->checkpoint.save_dtype = save_dtype(text(c, "checkpoint", "save_dtype"));
    s->checkpoint.shard_bytes = (int64_t)(lathe_config_float(c, "checkpoint", "shard_size") * 1e9);
    s->progress = choice(text(c, "log", "progress"), progress);
    s->log_level = choice(text(c, "log", "level"), levels);
    s->tokenizer_path = text(c, "tokenizer", "path");
    s->tokenizer_train = text(c, "tokenizer", "train");
    s->model_path = text(c, "model", "path");
    s->model_seed = lathe_config_seed(c, "model");
}
