/* The C API of a run: the eight primitives forward, backward, step, zero_grad, generate, logprobs,
 * save and load, around one opened run.toml.
 *
 * Threads: one thread per run, the one that opened it. Results and texts are borrowed until the
 * next call on the run. Every failing call leaves its message in lathe_last_error().
 */
#ifndef LATHE_LATHE_H
#define LATHE_LATHE_H

#include "status.h"

LATHE_EXTERN_C_BEGIN

typedef struct lathe_run lathe_run;

/** Version of the library: "0.1.0". */
LATHE_EXPORT const char *lathe_version(void);

/** What the calling thread's last failed call had to say; "" when nothing failed. */
LATHE_EXPORT const char *lathe_last_error(void);

/** Opens a run: reads and checks the configuration, loads its plugins, builds and plans its graphs,
 *  places its memory, loads or makes its weights. overrides: "section.key=value".
 *  LATHE_E_CONFIG: the message holds every error of the file, one per line. */
LATHE_EXPORT lathe_status lathe_run_open(const char *config_path, int32_t n_overrides,
                                         const char *const *overrides, lathe_run **out);
/** Closes a run; takes NULL. */
LATHE_EXPORT void lathe_run_close(lathe_run *run);

/** Rows of the batch: arrays i32[n_rows * row_tokens]. targets may be NULL (no loss); -1 is
 *  ignored. positions and doc_start may be NULL: every row is one document. For a stage on pairs
 *  the first half of the rows are the chosen completions and the second half the rejected ones
 *  of the same pairs. */
typedef struct lathe_run_batch {
    uint32_t size;
    int32_t n_rows; /* at most train.micro_batch_size (twice that for pairs); the rest is padded */
    int32_t row_tokens; /* at most data.seq_len */
    int32_t reserved;   /* 0 */
    const int32_t *tokens, *targets, *positions, *doc_start;
} lathe_run_batch;
LATHE_ABI_SIZE(lathe_run_batch, 48);

enum {
    LATHE_FORWARD_TRAIN = 1,  /* backward will follow; needs targets */
    LATHE_FORWARD_LOGITS = 2, /* result.logits wanted; not with TRAIN */
};

typedef struct lathe_forward_result {
    uint32_t size;
    int32_t reserved;    /* 0 */
    double loss_sum;     /* summed over what is counted; 0 without targets */
    double count;        /* targets, or pairs */
    const float *logits; /* [n_rows * row_tokens, vocab] with LATHE_FORWARD_LOGITS, else NULL */
    int64_t vocab_size;
} lathe_forward_result;
LATHE_ABI_SIZE(lathe_forward_result, 40);

/** The model on a batch. batch NULL: the next one of the run's own data (with TRAIN: training
 *  data and its cursor moves; else validation data). LATHE_E_SHAPE: the batch does not fit the
 *  run's shape. */
LATHE_EXPORT lathe_status lathe_forward(lathe_run *run, const lathe_run_batch *batch,
                                        uint32_t flags, lathe_forward_result *out);

typedef struct lathe_backward_result {
    uint32_t size;
    int32_t overflow; /* 1: a gradient is not finite */
    double grad_norm; /* of the summed gradient, divided by the count so far */
} lathe_backward_result;
LATHE_ABI_SIZE(lathe_backward_result, 16);

/** Adds the gradients of the last forward (made with LATHE_FORWARD_TRAIN). out may be NULL: the
 *  norm costs a pass over the gradients. LATHE_E_STATE: no such forward. */
LATHE_EXPORT lathe_status lathe_backward(lathe_run *run, lathe_backward_result *out);

typedef struct lathe_step_result {
    uint32_t size;
    int32_t skipped; /* 1: gradients overflowed, parameters and schedule are as before */
    int64_t step;    /* steps taken so far, those left out too */
    double loss;     /* loss_sum / count over the step's batches */
    double count;
    double grad_norm;  /* before clipping */
    double param_norm; /* after the update, of the trainable parameters */
    double lr;
    double loss_scale; /* of this step's backward passes; 1 but in fp16 */
} lathe_step_result;
LATHE_ABI_SIZE(lathe_step_result, 64);

/** Normalises once by the step's count, clips, updates, and moves the schedule. Then the next
 *  backward overwrites the gradients. LATHE_E_STATE: nothing was accumulated. */
LATHE_EXPORT lathe_status lathe_step(lathe_run *run, lathe_step_result *out);

/** Forgets what was accumulated: the next backward overwrites. No memory is touched. */
LATHE_EXPORT lathe_status lathe_zero_grad(lathe_run *run);

typedef struct lathe_sampling {
    uint32_t size;
    int32_t max_new_tokens; /* >= 1 */
    double temperature;     /* 0: greedy */
    double top_p;           /* 1: off */
    int32_t top_k;          /* 0: off */
    int32_t stop_at_eos;
    uint64_t seed;
    double min_p; /* drops tokens less likely than this share of the likeliest; 0: off */
    double repetition_penalty; /* divides positive and multiplies negative logits of tokens that are
                                  in the prompt or were generated; 0, 1: off */
    int32_t max_length;        /* of prompt and continuation; 0: no limit but the context's */
    int32_t reserved;          /* 0 */
} lathe_sampling;
LATHE_ABI_SIZE(lathe_sampling, 64);

typedef struct lathe_generation {
    uint32_t size;
    int32_t n_tokens; /* new ones */
    const int32_t *tokens;
    const float *logprobs; /* of each new token under the model at temperature 1 */
    const char *text;      /* decoded, NUL-terminated */
    int64_t text_bytes;
} lathe_generation;
LATHE_ABI_SIZE(lathe_generation, 40);

/** The run's own sampling: [generate] of the run file where it says something, else the model's
 *  generation_config.json as transformers' generate reads it, else the defaults of [generate]. */
LATHE_EXPORT lathe_status lathe_default_sampling(const lathe_run *run, lathe_sampling *out);

/** Continues a prompt, with a KV cache and the ops of training. What the tokenizer's template
 *  puts before a text (BOS) comes first, unless the prompt begins with it. stop_at_eos: at each
 *  end of text that generation_config.json lists; without a list, at config.json's and the
 *  tokenizer's. LATHE_E_NUMERIC: the logits are not finite; the message names the first
 *  parameter that is not. */
LATHE_EXPORT lathe_status lathe_generate(lathe_run *run, const char *prompt,
                                         const lathe_sampling *sampling, lathe_generation *out);

/** Log-probability of each target, f32[n_rows * row_tokens] into out; 0 where the target is -1. */
LATHE_EXPORT lathe_status lathe_logprobs(lathe_run *run, const lathe_run_batch *batch, float *out);

/** Writes the whole state as a checkpoint folder that transformers loads as it stands; between
 *  two backward passes also the gradients summed so far. LATHE_E_STATE: a forward waits for its
 *  backward. */
LATHE_EXPORT lathe_status lathe_save(lathe_run *run, const char *dir);

/** Restores a checkpoint's whole state; the run's configuration must fit it. A damaged file is
 *  refused by name (LATHE_E_CORRUPT) and the run keeps the state it had before the call's first
 *  write. */
LATHE_EXPORT lathe_status lathe_load(lathe_run *run, const char *dir);

LATHE_EXTERN_C_END

#endif
