/* The run's settings: the core sections of run.toml as plain typed fields. */
#ifndef LATHE_RUN_SETTINGS_H
#define LATHE_RUN_SETTINGS_H

#include "lathe/lathe.h"
#include "plug/config.h"

typedef struct lathe_settings {
    /* [data] */
    int32_t seq_len;
    int32_t shuffle, prefetch;
    uint64_t data_seed;
    double validation_split;
    const char *cache_dir;
    const char *datasets; /* JSON text */
    /* [train] */
    int32_t compute_dtype; /* LATHE_F32, LATHE_BF16 */
    int32_t micro_batch_size, gradient_accumulation_steps;
    int64_t max_steps, epochs; /* max_steps 0: from epochs, once the data is known */
    int64_t stop_after;        /* 0: off */
    double max_grad_norm;
    uint64_t seed;
    int32_t deterministic, threads, recompute; /* LATHE_RECOMPUTE_* */
    int32_t log_every, eval_every, eval_batches;
    int64_t head_chunk_rows;
    /* [checkpoint] */
    const char *checkpoint_dir; /* NULL: none */
    int64_t checkpoint_every;
    const char *resume; /* "auto", "never" or a path */
    int32_t keep_last;
    /* [log] */
    int32_t progress;  /* LATHE_PROGRESS_* */
    int32_t log_level; /* LATHE_LOG_* */
    /* [tokenizer] */
    const char *tokenizer_path;  /* NULL: the model's */
    const char *tokenizer_train; /* JSON text of the table, or NULL */
    /* [model] */
    const char *model_path; /* NULL: random weights from the table */
    uint64_t model_seed;
} lathe_settings;

/** Reads the settings from a checked configuration. Texts are borrowed from it. */
void lathe_settings_read(const lathe_config *config, lathe_settings *out);

#endif
