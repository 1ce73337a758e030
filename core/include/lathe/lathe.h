/* The C API of a training run: opens a run.toml and offers eight calls on it, from which a training
 * loop is written: forward, backward, step, zero_grad, generate, logprobs, save and load. Messages
 * and documents call them the eight primitives. lathe/session.h opens folders, too.
 *
 * Threads: one thread per run, the one that opened it. Results and texts belong to the run and are
 * valid until the next call on it. A call that fails leaves its message in lathe_last_error().
 */
#ifndef LATHE_LATHE_H
#define LATHE_LATHE_H

#include "status.h"

LATHE_EXTERN_C_BEGIN

typedef struct lathe_run lathe_run;

/** Version of the library: "0.1.0". */
LATHE_EXPORT const char *lathe_version(void);

/** Error message of the calling thread's last failed call; "" if no call failed. */
LATHE_EXPORT const char *lathe_last_error(void);

/** Gets a line of the log. level: LATHE_LOG_* of lathe/host.h, 0 debug to 3 error. message: without
 *  prefix and line end, borrowed during the call. It may come from any thread, and must not call
 *  the library. */
typedef void (*lathe_log_fn)(void *arg, int32_t level, const char *message);

/** Sends the log of the process to fn. NULL, as at first: it is written to stderr, as lines "lathe:
 *  warning: ...". A fn that does nothing turns it off. log.level of the run that was opened last
 *  decides what is logged, by default info and above; what is wrong with a call is in
 *  lathe_last_error(), too. Not while other threads are in the library. */
LATHE_EXPORT void lathe_set_log(lathe_log_fn fn, void *arg);

/** Opens a run: reads and checks the configuration, loads its plugins, builds its graphs, plans
 *  and allocates its memory, and loads or initializes its weights. overrides:
 *  "section.key=value". LATHE_E_CONFIG: the message holds every error of the file, one per line. */
LATHE_EXPORT lathe_status lathe_run_open(const char *config_path, int32_t n_overrides,
                                         const char *const *overrides, lathe_run **out);
/** Closes a run; takes NULL. */
LATHE_EXPORT void lathe_run_close(lathe_run *run);

/** Values of one input of the stage (lathe_stage_input), such as advantages. */
typedef struct lathe_batch_input {
    const char *name;
    /* f32, or i32 where the stage declares it: [n_rows * row_tokens, count], or [n_rows, count] for
     * an input per row */
    const void *values;
} lathe_batch_input;
LATHE_ABI_SIZE(lathe_batch_input, 16);

/** A batch: arrays i32[n_rows * row_tokens].
 *
 *  targets    the token that should follow each token; -1: not counted. NULL: no loss
 *  positions  position of each token in its document. doc_start: index in the row at which its
 *             document begins. Both NULL: every row is one document
 *
 *  For a stage on pairs, the first half of the rows holds the chosen completions and the second
 * half the rejected completions of the same pairs. */
typedef struct lathe_run_batch {
    uint32_t size;
    int32_t n_rows; /* at most train.micro_batch_size (twice that for pairs); the rest is padded */
    int32_t row_tokens; /* at most data.seq_len */
    int32_t reserved;   /* 0 */
    const int32_t *tokens, *targets, *positions, *doc_start;
    /* Inputs of the stage's loss besides the tokens: each input that the stage declares, in any
     * order. NULL: none. logits and logprobs run the model alone and do not read them. */
    const lathe_batch_input *inputs;
    int32_t n_inputs;
    int32_t reserved2; /* 0 */
    /* For a stage whose objective is not causal (lathe/stage.h): the token at index i sees the keys
     * from its doc_start up to, and without, key_end[i]; i < key_end[i] <= row_tokens. NULL: with a
     * masked objective every token sees its whole document; with a prefix objective attention is
     * causal, as without a prefix. */
    const int32_t *key_end;
} lathe_run_batch;
LATHE_ABI_SIZE(lathe_run_batch, 72);

enum {
    LATHE_FORWARD_TRAIN = 1,  /* backward will follow; needs targets */
    LATHE_FORWARD_LOGITS = 2, /* fills in result.logits; not with TRAIN */
};

typedef struct lathe_forward_result {
    uint32_t size;
    int32_t reserved;    /* 0 */
    double loss_sum;     /* summed over the `count` items; 0 without targets */
    double count;        /* number of targets, or of pairs */
    const float *logits; /* [n_rows * row_tokens, vocab] with LATHE_FORWARD_LOGITS, else NULL */
    int64_t vocab_size;
} lathe_forward_result;
LATHE_ABI_SIZE(lathe_forward_result, 40);

/** Runs the model on a batch. batch NULL: takes the next batch of the run's own data. With TRAIN
 *  this is training data, and the data cursor advances; otherwise it is validation data.
 *
 *  Errors  LATHE_E_SHAPE: the batch does not fit the run's shape.
 *          LATHE_E_STATE: TRAIN, and the run was not opened for training; or it was opened to
 *          generate, and has logits alone: no loss, and no data. */
LATHE_EXPORT lathe_status lathe_forward(lathe_run *run, const lathe_run_batch *batch,
                                        uint32_t flags, lathe_forward_result *out);

typedef struct lathe_backward_result {
    uint32_t size;
    int32_t overflow; /* 1: a gradient is not finite */
    double grad_norm; /* of the summed gradient, divided by the count so far */
} lathe_backward_result;
LATHE_ABI_SIZE(lathe_backward_result, 16);

/** Computes the gradients of the last forward, which must have used LATHE_FORWARD_TRAIN, and
 *  adds them to the accumulated gradients. out may be NULL, which saves the pass over the
 *  gradients that the norm needs. LATHE_E_STATE: there is no such forward. With parallel.shard all
 *  ranks call it, and out is NULL (LATHE_E_UNSUPPORTED). */
LATHE_EXPORT lathe_status lathe_backward(lathe_run *run, lathe_backward_result *out);

typedef struct lathe_step_result {
    uint32_t size;
    int32_t skipped;   /* 1: gradients overflowed; parameters and schedule are unchanged */
    int64_t step;      /* steps so far, skipped ones included */
    double loss;       /* loss_sum / count over the step's batches */
    double count;      /* targets, or pairs, of the step */
    double grad_norm;  /* before clipping */
    double param_norm; /* after the update, of the trainable parameters */
    double lr;
    double loss_scale; /* of this step's backward passes; 1 except in fp16 */
} lathe_step_result;
LATHE_ABI_SIZE(lathe_step_result, 64);

/** Divides the gradients once by the step's count, clips them, updates the parameters and
 *  advances the schedule. The next backward overwrites the gradients. If adapter.merge_every is
 * due, merges the adapter. LATHE_E_STATE: no gradients were accumulated. */
LATHE_EXPORT lathe_status lathe_step(lathe_run *run, lathe_step_result *out);

/** Discards the accumulated gradients: the next backward overwrites them. Writes no memory. */
LATHE_EXPORT lathe_status lathe_zero_grad(lathe_run *run);

typedef struct lathe_sampling {
    uint32_t size;
    int32_t max_new_tokens; /* >= 1 */
    double temperature;     /* >= 0; 0: greedy */
    double top_p;           /* above 0, at most 1; 1: off */
    int32_t top_k;          /* 0: off */
    int32_t stop_at_eos;
    uint64_t seed;
    double min_p; /* drops tokens below min_p * the highest probability; 0: off */
    /* For tokens that occur in the prompt or in the generated text: divides positive logits and
     * multiplies negative logits by this factor; 0 or 1: off. */
    double repetition_penalty;
    int32_t max_length; /* of prompt and continuation; 0: limited by the context only */
    int32_t n_stop;
    const char *const *stop; /* [n_stop] texts: generation ends with the token that completes one */
    const int32_t *stop_tokens; /* [n_stop_tokens] end tokens, also without stop_at_eos */
    int32_t n_stop_tokens;
    int32_t reserved; /* 0 */
} lathe_sampling;
LATHE_ABI_SIZE(lathe_sampling, 88);

/** Reasons for the end of a text. */
enum {
    LATHE_FINISH_LENGTH = 0,   /* max_new_tokens, max_length or the context is reached */
    LATHE_FINISH_EOS = 1,      /* an end token */
    LATHE_FINISH_STOP = 2,     /* a stop string */
    LATHE_FINISH_CANCELLED = 3 /* the caller ended it (lathe/session.h) */
};

typedef struct lathe_generation {
    uint32_t size;
    int32_t n_tokens; /* new ones */
    const int32_t *tokens;
    const float *logprobs; /* of each new token under the model at temperature 1 */
    const char *text;      /* decoded, NUL-terminated, up to the first stop string */
    int64_t text_bytes;
    const int32_t *prompt_tokens; /* [n_prompt_tokens] the prompt, as the model read it */
    int32_t n_prompt_tokens;
    int32_t finish; /* LATHE_FINISH_* */
} lathe_generation;
LATHE_ABI_SIZE(lathe_generation, 56);

/** Returns the run's own sampling settings. Each comes from [generate] of the run file if set
 *  there, else from the model's generation_config.json (read as transformers' generate does),
 *  else from the defaults of [generate]. */
LATHE_EXPORT lathe_status lathe_default_sampling(const lathe_run *run, lathe_sampling *out);

/* Errors of calls that generate: LATHE_E_ARG for a value of the sampling settings that is out of
 * range or not a number (NaN), and for a prompt that is not UTF-8 where the tokenizer has no tokens
 * for its bytes. */

/** Continues a prompt, with a KV cache and the same ops as training. Tokens that the tokenizer's
 *  template puts before a text (BOS) are added unless the prompt begins with them. stop_at_eos:
 *  stops at the end tokens listed in generation_config.json; without such a list, at those of
 *  config.json and the tokenizer. LATHE_E_NUMERIC: the logits are not finite; the message names
 *  the first parameter that is not finite. */
LATHE_EXPORT lathe_status lathe_generate(lathe_run *run, const char *prompt,
                                         const lathe_sampling *sampling, lathe_generation *out);

typedef struct lathe_prompt {
    uint32_t size;
    int32_t n_tokens;
    const int32_t *tokens; /* [n_tokens], used as they are; NULL: the text is encoded */
    const char *text;      /* as in lathe_generate; NULL: "" */
    uint64_t seed;         /* of this prompt's samples; sampling->seed is not used */
} lathe_prompt;
LATHE_ABI_SIZE(lathe_prompt, 32);

/** Continues n prompts. prompts[n], out[n]: every element has the size of the first. out[i] is
 *  what prompts[i] gives alone: the order and the number of prompts do not change it. What the
 *  results point to is borrowed until the next call that generates. If a call fails, the message
 *  names the prompt by its index, and no result may be read. */
LATHE_EXPORT lathe_status lathe_generate_many(lathe_run *run, const lathe_prompt *prompts,
                                              int32_t n, const lathe_sampling *sampling,
                                              lathe_generation *out);

/** Writes the log-probability of each target into out f32[n_rows * row_tokens]; 0 where the
 *  target is -1. LATHE_E_STATE: the run was opened to generate. */
LATHE_EXPORT lathe_status lathe_logprobs(lathe_run *run, const lathe_run_batch *batch, float *out);

/** Writes the whole state as a checkpoint folder, which transformers can load directly. If
 *  gradients are accumulated, the checkpoint includes them. LATHE_E_STATE: the run was not opened
 *  for training; or a training forward has not had its backward yet. All ranks call it, and rank 0
 * alone writes; with parallel.shard, accumulated gradients are LATHE_E_STATE. */
LATHE_EXPORT lathe_status lathe_save(lathe_run *run, const char *dir);

/** Restores the whole state of a checkpoint; the run's configuration must fit it.
 *  LATHE_E_CORRUPT: a file is damaged; the message names it, and the run keeps the state it had
 *  before the call. */
LATHE_EXPORT lathe_status lathe_load(lathe_run *run, const char *dir);

LATHE_EXTERN_C_END

#endif
