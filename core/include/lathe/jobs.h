/* Jobs: long pieces of work on models and data, which the commands of the same names do: convert,
 * merge, quantize, calibrate, logprobs, evaluate.
 *
 * A job takes a config, tells how far it is, and ends when it is done or when its caller says so.
 * Its output appears under its name when it is complete: after an error, and after a
 * cancellation, nothing of it is left. (lathe_job_logprobs keeps finished files, with which the
 * next call goes on; texts that were tokenised stay in data.cache_dir.)
 *
 *   lathe_job_convert_config config = {.size = sizeof config, .model = "out/run",
 *                                      .output = "model.gguf", .type = "q8_0"};
 *   if (lathe_job_convert(&config) != LATHE_OK)
 *       puts(lathe_last_error());
 *
 * Threads: a job belongs to the thread that calls it, on which it also tells its progress; jobs and
 * sessions may run side by side in threads of one process, and share the pool that computes. Every
 * failing call leaves its message in the calling thread's lathe_last_error().
 *
 * Models: the words of lathe_session_config.model, but no run file unless that is said. settings:
 * "section.key=value" as in a run file.
 *
 * Errors of all jobs: LATHE_E_ARG: the config contradicts itself, or a setting has no effect.
 * LATHE_E_CONFIG: a folder, a file or a setting is not what was expected. LATHE_E_INTERRUPTED: the
 * caller ended it. LATHE_E_CORRUPT, LATHE_E_IO, LATHE_E_NOMEM, LATHE_E_NUMERIC.
 */
#ifndef LATHE_JOBS_H
#define LATHE_JOBS_H

#include "quant.h"
#include "session.h"

LATHE_EXTERN_C_BEGIN

/* ---- progress ---- */

typedef struct lathe_job_progress {
    uint32_t size;
    int32_t reserved; /* 0 */
    /* Share of the whole job in [0, 1]. It never falls; a job that succeeds ends with 1. */
    double done;
    const char *part; /* what the job is doing: "convert", "merge", "quantize", "evaluate", ... */
    int64_t n_done, n_all; /* of this part, in its own unit: weights, micro-batches, records */
} lathe_job_progress;
LATHE_ABI_SIZE(lathe_job_progress, 40);

/** Takes how far a job is: first 0 of the first part, then between any two pieces of work. A result
 *  other than 0 ends the job. It may not begin another job on the same session. */
typedef int32_t (*lathe_job_progress_fn)(void *arg, const lathe_job_progress *progress);

/* ---- convert ---- */

typedef struct lathe_job_convert_config {
    uint32_t size;
    int32_t weights;    /* LATHE_SESSION_WEIGHTS_* */
    const char *model;  /* a folder, or a GGUF file, which becomes a folder */
    const char *output; /* NAME.gguf, or the folder; it must not exist yet */
    /* Type of the matrices. Of a GGUF file: "f32" "f16" "bf16" "q8_0" "q4_0" "q4_k" "q6_k"; of a
     * folder: "f32" "f16" "bf16"; of an adapter: these three. NULL: bf16; that of the GGUF file;
     * f32
     */
    const char *type;
    const char *base; /* the model of an adapter; NULL: the one that the adapter names */
    lathe_job_progress_fn progress; /* NULL: nobody watches */
    void *arg;
} lathe_job_convert_config;
LATHE_ABI_SIZE(lathe_job_convert_config, 56);

/** Converts a model's folder to a GGUF file, a GGUF file to a folder, or a LoRA adapter to a GGUF
 *  adapter. Memory: a part of one tensor. */
LATHE_EXPORT lathe_status lathe_job_convert(const lathe_job_convert_config *config);

/* ---- merge ---- */

enum { LATHE_JOB_MAX_ADAPTERS = 8 };

/** How several adapters are combined. */
enum {
    LATHE_JOB_COMBINE_CAT = 0,    /* W + the sum of factor_k (W_k - W) */
    LATHE_JOB_COMBINE_LINEAR = 1, /* LoRA: the A are added, and the B, as PEFT's "linear" */
};

typedef struct lathe_job_merge_config {
    uint32_t size;
    int32_t weights;             /* LATHE_SESSION_WEIGHTS_* */
    const char *model;           /* NULL: the one that the only adapter names */
    const char *const *adapters; /* [n_adapters] their folders, or those of their runs */
    const double *factors;       /* [n_adapters] of what each changes, not 0; NULL: 1 */
    int32_t n_adapters;          /* 1 to LATHE_JOB_MAX_ADAPTERS */
    int32_t combination;         /* LATHE_JOB_COMBINE_* */
    const char *output;          /* the new folder */
    /* [n_settings] checkpoint.save_dtype, checkpoint.shard_size; quant.name and its settings: the
     * result is quantized; plugins.*; model.path: the model, in place of `model` */
    const char *const *settings;
    int32_t n_settings;
    int32_t reserved; /* 0 */
    lathe_job_progress_fn progress;
    void *arg;
} lathe_job_merge_config;
LATHE_ABI_SIZE(lathe_job_merge_config, 80);

typedef struct lathe_job_merge_result {
    uint32_t size;
    int32_t n_changed;     /* weights that the adapters change */
    int32_t n_quantized;   /* weights that were quantized afterwards; 0: none */
    int32_t reserved;      /* 0 */
    double bits;           /* per number of these */
    double relative_error; /* |W' - W| / |W| of these */
} lathe_job_merge_result;
LATHE_ABI_SIZE(lathe_job_merge_result, 32);

/** Merges adapters into the weights of their model. Every tensor keeps its dtype, and those that no
 *  adapter changes keep their bytes. Memory: the adapters, and one weight. result: its size is set;
 *  it may be NULL. */
LATHE_EXPORT lathe_status lathe_job_merge(const lathe_job_merge_config *config,
                                          lathe_job_merge_result *result);

/* ---- quantize ---- */

/** A weight that was quantized. */
typedef struct lathe_job_weight {
    uint32_t size;
    int32_t reserved;      /* 0 */
    const char *name;      /* as in Hugging Face folders */
    const char *format;    /* the plugin's name */
    int64_t rows, cols;    /* [out, in] */
    int64_t bytes;         /* of its planes and metadata in the file */
    double relative_error; /* |W' - W| / |W|, Euclidean norms, of the decoded W' in f32 */
} lathe_job_weight;
LATHE_ABI_SIZE(lathe_job_weight, 56);

typedef struct lathe_job_quantize_result {
    uint32_t size;
    int32_t n_quantized;   /* weights */
    int32_t n_plain;       /* linear layers that were left as they are */
    int32_t n_scaled;      /* inputs of layers whose scales moved to the op before */
    int64_t bytes;         /* of the quantized weights in the new folder */
    int64_t bytes_before;  /* of these in the model */
    double bits;           /* per number */
    double relative_error; /* over all quantized weights */
    /* exp(loss) on `text` of the model and of the new folder; NAN: there is no text */
    double perplexity_before, perplexity;
} lathe_job_quantize_result;
LATHE_ABI_SIZE(lathe_job_quantize_result, 64);

/** Takes a weight when it is quantized. */
typedef void (*lathe_job_weight_fn)(void *arg, const lathe_job_weight *weight);

/** Hears that the folder is complete, before it is evaluated. */
typedef void (*lathe_job_written_fn)(void *arg, const lathe_job_quantize_result *so_far);

typedef struct lathe_job_quantize_config {
    uint32_t size;
    int32_t weights;    /* LATHE_SESSION_WEIGHTS_* */
    const char *model;  /* plain weights */
    const char *output; /* the new folder */
    /* [n_settings] quant.name and its settings, plugins.*, model.name, checkpoint.shard_size; with
     * texts [data], [train], [device], [attention] and [tokenizer] too */
    const char *const *settings;
    int32_t n_settings;
    int32_t n_rows; /* of calibration data, data.seq_len tokens each; 0: 128, or all */
    /* File or folder of texts on which gptq, awq, ... are calibrated; NULL: none. */
    const char *calibration;
    /* Texts on which the model is evaluated before and after; NULL: none. */
    const char *text;
    /* Tables in TOML of both texts, as in data.datasets: "{text = \"body\"}"; NULL: none. */
    const char *columns, *format;
    lathe_job_weight_fn weight;   /* NULL: not called */
    lathe_job_written_fn written; /* NULL: not called */
    lathe_job_progress_fn progress;
    void *arg; /* of all three */
} lathe_job_quantize_config;
LATHE_ABI_SIZE(lathe_job_quantize_config, 104);

/** Writes a model with its linear layers, except the head, quantized in the layout of the library
 *  that the format comes from. Memory: one weight, and with calibration the model. result: its size
 *  is set; it may be NULL. A job that is cancelled in the evaluation after the folder is complete
 *  leaves it. */
LATHE_EXPORT lathe_status lathe_job_quantize(const lathe_job_quantize_config *config,
                                             lathe_job_quantize_result *result);

/* ---- calibrate ---- */

/** The inputs of a linear layer over the data. */
typedef struct lathe_job_inputs {
    uint32_t size;
    int32_t reserved;                 /* 0 */
    const char *weight;               /* the layer's, as in Hugging Face folders */
    int64_t rows, cols;               /* of the weight, [out, in] */
    const lathe_quant_inputs *inputs; /* means of x x^T and of |x|; borrowed during the call */
} lathe_job_inputs;
LATHE_ABI_SIZE(lathe_job_inputs, 40);

/** Takes the inputs of a linear layer, in the order of the layers. */
typedef void (*lathe_job_inputs_fn)(void *arg, const lathe_job_inputs *inputs);

typedef struct lathe_job_calibrate_config {
    uint32_t size;
    int32_t weights;   /* LATHE_SESSION_WEIGHTS_* */
    const char *model; /* it stays as it is */
    /* [n_settings] [data], [train], [attention], [tokenizer], plugins.*, model.name */
    const char *const *settings;
    int32_t n_settings;
    int32_t n_rows; /* of data.seq_len tokens each; 0: 128, or all */
    const char *text;
    const char *columns, *format; /* as above */
    lathe_job_inputs_fn layer;
    lathe_job_progress_fn progress;
    void *arg; /* of both */
} lathe_job_calibrate_config;
LATHE_ABI_SIZE(lathe_job_calibrate_config, 80);

/** Runs a model over texts, layer by layer, and gives the sums of its linear layers' inputs: what a
 *  format that is calibrated learns of the data. Writes nothing. Memory: the model, and the inputs
 *  of one layer for all rows. LATHE_E_UNSUPPORTED: a device with memory of its own. */
LATHE_EXPORT lathe_status lathe_job_calibrate(const lathe_job_calibrate_config *config);

/* ---- log-probabilities ---- */

typedef struct lathe_job_logprobs_config {
    uint32_t size;
    int32_t top_k;               /* tokens to store per target; 0: 32 */
    const char *run_file;        /* of the model that will learn */
    const char *const *settings; /* [n_settings] on top of it, such as teacher.path */
    int32_t n_settings;
    int32_t is_f16;     /* 1: numbers are stored in f16, else f32 */
    const char *output; /* the folder: new, or begun by an earlier call */
    double temperature; /* divides the teacher's logits; 0: 1 */
    lathe_job_progress_fn progress;
    void *arg;
} lathe_job_logprobs_config;
LATHE_ABI_SIZE(lathe_job_logprobs_config, 64);

typedef struct lathe_job_logprobs_result {
    uint32_t size;
    int32_t top_k;
    int64_t n_records, n_targets;
    int64_t n_files, n_kept; /* of all; of these, finished by earlier calls */
    int64_t bytes;           /* of all files */
} lathe_job_logprobs_result;
LATHE_ABI_SIZE(lathe_job_logprobs_result, 48);

/** Stores a teacher's most likely tokens at each target of a run's data, for teacher.stored. A
 *  cancelled job leaves the files that it finished and no manifest, without which the folder cannot
 *  be used; the same call again goes on, and its files are those of an uninterrupted one, bit for
 *  bit. result: its size is set; it may be NULL. */
LATHE_EXPORT lathe_status lathe_job_logprobs(const lathe_job_logprobs_config *config,
                                             lathe_job_logprobs_result *result);

/* ---- evaluate ---- */

enum { LATHE_JOB_MAX_METRICS = 16 };

typedef struct lathe_job_evaluate_config {
    uint32_t size;
    int32_t reserved;       /* 0 */
    lathe_session *session; /* opened with LATHE_SESSION_EVALUATE */
    int64_t n_batches;      /* at most so many micro-batches; 0: all */
    lathe_job_progress_fn progress;
    void *arg;
} lathe_job_evaluate_config;
LATHE_ABI_SIZE(lathe_job_evaluate_config, 40);

/** Figures over every target (or pair, or example) of the data. NAN: it has no meaning for the
 *  stage or the data. */
typedef struct lathe_job_evaluation {
    uint32_t size;
    int32_t n_metrics;     /* of the stage */
    double count;          /* targets, pairs or examples */
    const char *unit;      /* "targets", "pairs", "examples" */
    double loss;           /* -sum log p(target) / count in nats, or the stage's loss */
    double perplexity;     /* exp(loss) */
    double token_accuracy; /* share of targets that are the likeliest token */
    double ece;            /* expected calibration error of the likeliest token's probability */
    double bits_per_byte;  /* loss / ln 2 * tokens / bytes of the texts */
    double metrics[LATHE_JOB_MAX_METRICS];
    /* borrowed while the session is open */
    const char *metric_names[LATHE_JOB_MAX_METRICS];
} lathe_job_evaluation;
LATHE_ABI_SIZE(lathe_job_evaluation, 320);

/** Evaluates the data of a session: those of lathe_session_config.data, or the validation data of
 *  its folder. The session is as before, also after a cancellation. result: its size is set. */
LATHE_EXPORT lathe_status lathe_job_evaluate(const lathe_job_evaluate_config *config,
                                             lathe_job_evaluation *result);

LATHE_EXTERN_C_END

#endif
