/* The run's settings: the core sections of run.toml as plain typed fields. */
#ifndef LATHE_RUN_SETTINGS_H
#define LATHE_RUN_SETTINGS_H

#include "checkpoint/checkpoints.h"
#include "lathe/lathe.h"
#include "plug/config.h"
#include "update/average_rows.h"

/* What happens after a bad step: a number that is not finite, or a loss spike. */
enum {
    LATHE_POLICY_STOP = 0,
    LATHE_POLICY_SKIP = 1,
    LATHE_POLICY_REWIND = 2,
    LATHE_POLICY_IGNORE = 3
};

enum { LATHE_CAPTURE_AUTO = 0, LATHE_CAPTURE_ON = 1, LATHE_CAPTURE_OFF = 2 };

typedef struct lathe_settings {
    /* [data] */
    int32_t seq_len;
    int32_t shuffle, prefetch;
    uint64_t data_seed;
    double validation_split;
    int64_t validation_count; /* 0: by validation_split */
    int32_t packing;          /* LATHE_PACK_* */
    const char *cache_dir;
    const char *datasets; /* JSON text */
    /* [train] */
    int32_t precision;     /* value of train.precision: LATHE_F32, BF16, F16, F8_E4M3 */
    int32_t compute_dtype; /* dtype the device uses for it: F32, BF16, F16; BF16 also with fp8 */
    int32_t fp8_asked;     /* LATHE_FP8_* of train.fp8_recipe; NONE: auto */
    int32_t fp8;           /* the recipe in use; NONE: no fp8 */
    int32_t grad_dtype;    /* of the layers' matrices: F32, BF16 */
    double loss_scale_init;
    int32_t loss_scale_growth_interval;
    int32_t on_nonfinite, on_spike; /* LATHE_POLICY_* */
    double spike_threshold;
    int32_t spike_window; /* 2 .. LATHE_MAX_SPIKE_WINDOW */
    int32_t micro_batch_size, gradient_accumulation_steps;
    /* max_steps 0: computed from epochs once the data are known */
    int64_t max_steps, epochs;
    int64_t stop_after;                   /* 0: off */
    double max_grad_norm, max_grad_value; /* 0: off */
    uint64_t seed;
    int32_t deterministic, threads, recompute; /* LATHE_RECOMPUTE_* */
    int32_t capture;                           /* LATHE_CAPTURE_* */
    int32_t log_every, eval_every, eval_batches;
    int64_t early_stopping_patience; /* evaluations; 0: off */
    double early_stopping_threshold;
    int32_t weight_average; /* LATHE_AVERAGE_* */
    double weight_average_decay;
    int64_t weight_average_start, weight_average_every; /* steps */
    int64_t head_chunk_rows;
    int64_t memory_limit; /* bytes; 0: what the machine has */
    int32_t offload_optimizer, offload_activations;
    int64_t offload_buffer; /* bytes of each of the two buffers */
    /* [checkpoint] */
    lathe_checkpoint_settings checkpoint;
    /* [log] */
    int32_t progress;  /* LATHE_PROGRESS_* */
    int32_t log_level; /* LATHE_LOG_* */
    int32_t tensorboard;
    /* [generate] */
    int64_t sample_every; /* steps; 0: never */
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
