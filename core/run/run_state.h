/* The state of a run: everything that the opaque lathe_run of the C API contains. */
#ifndef LATHE_RUN_RUN_STATE_H
#define LATHE_RUN_RUN_STATE_H

#include "base/arena.h"
#include "checkpoint/saved_state.h"
#include "lathe/lathe.h"
#include "model/generation_config.h"
#include "model/sample.h"
#include "run/iteration_memory.h"
#include "run/run_inputs.h"
#include "run/settings.h"

/* Purposes for which a run is opened. They decide which stages of opening are done. */
enum {
    LATHE_OPEN_PLAN = 0,  /* configuration, plugins, graphs and plan; no weights, no data */
    LATHE_OPEN_TRAIN = 1, /* as PLAN, with memory, weights, data and optimizer */
    LATHE_OPEN_INFER =
        2, /* memory and weights for generation: no gradients, no optimizer, no data */
    LATHE_OPEN_EVALUATE = 3, /* INFER with data */
    LATHE_OPEN_BATCHES = 4,  /* TRAIN, but the run needs no data: the caller may pass batches */
    LATHE_OPEN_DATA = 5,     /* configuration, tokenizer and data alone: no model, no plan */
    LATHE_OPEN_WEIGHTS = 6   /* INFER for a command that reads weights and computes nothing */
};

/** How the run is opened, and how far it is. */
typedef struct lathe_opening {
    const char *path;        /* of the run file; NULL: none */
    lathe_edits edits;       /* what opening decided beside the file: by a folder, auto, a trial */
    int32_t is_trial;        /* 1: planned with the edits of a run that is open, and others */
    int32_t is_other_method; /* 1: the edits replace the fine-tuning method of the file */
    int32_t mode;            /* LATHE_OPEN_*; BATCHES is stored as TRAIN, WEIGHTS as INFER */
    int32_t data_is_optional;
    int32_t computes_nothing; /* 1: it was opened for WEIGHTS */
    const char *base_warning; /* how model.path differs from the adapter's base; NULL: in nothing */
    int32_t base_is_exact;    /* 1: model.path is what an adapter names, average or not */
    int32_t keeps_renderer;   /* 1: [renderer] is that of the model's folder, not of the run file */
    int32_t is_offline;       /* 1: checked without the machine and the data */
    int32_t is_unmade;        /* 1: checked before the files that it reads are made */
    int32_t reward_is_unmade; /* 1: reward.model is what the reward model will be made of */
    /* The product of another run, with which this one is checked to begin: its settings, JSON, and
     * its name in messages; NULL: nothing. */
    const char *begins_settings, *begins_what;
    int32_t calibrates; /* 1: opened by lathe quantize, which brings calibration data */
    /* Opened by lathe logprobs: number of tokens to store per target, and the temperature of their
     * log-probabilities; 0: not opened by it. */
    int32_t top_k;
    double top_temperature;
    int32_t is_dry;      /* a dry run (core/opening) */
    const char *dry_dir; /* folder of its prepared data; NULL: none */
    lathe_diags *diags;  /* collects errors and warnings; NULL: the thread's message and the log */
    int32_t placed;      /* memory is allocated */
    int32_t joins;       /* 1: the run joins the ranks that were started with it */
    int32_t as_ranks;    /* planned as rank 0 of so many ranks, which are not there; 0: alone */
} lathe_opening;

/** Steps whose nodes are traced (run_trace.h). */
typedef struct lathe_trace_range {
    int64_t first, last; /* 0: the default */
    int32_t is_on;       /* 1: the current step is in the range */
} lathe_trace_range;

/** A run consists of parts. Each part is declared in the folder that owns it
 * (docs/design/017-parts-of-a-run.md). */
struct lathe_run {
    lathe_arena arena;
    lathe_run_inputs *inputs;
    lathe_registry *registry; /* of the inputs */
    lathe_config *config;
    lathe_settings set;
    lathe_opening open;
    lathe_components parts;
    lathe_model_config model;
    /* from the model's folder; read if the run may generate text */
    lathe_generation_config generation;
    lathe_params params;
    lathe_machine machine;
    lathe_store store;
    lathe_mem_bytes planned;
    lathe_programs programs;
    lathe_optimization opt;
    lathe_run_data data;
    lathe_counters at;
    lathe_accumulated sum;
    lathe_iteration iteration; /* of a stage that makes its own batches */
    lathe_checkpoints checkpoints;
    lathe_saved_state saved; /* pointers to these parts, for core/checkpoint (run_saved.h) */
    lathe_trace_range trace;
    struct lathe_rewards *rewards;           /* reward/rewards.h; NULL: the file names none */
    struct lathe_generator *generator;       /* generate/generator.h; NULL: none yet */
    struct lathe_draft *draft;               /* generate/draft_model.h; NULL: none */
    struct lathe_quant_source *quant_source; /* model/quant_source.h; NULL: the model's folder is
                                              * not quantized */
    struct lathe_teacher *teacher;           /* teacher.h; NULL: none */
    struct lathe_stored_teacher *stored;     /* stored_teacher.h; NULL: none */
    struct lathe_ranks *ranks;               /* ranks/ranks.h; NULL: one rank */
    struct lathe_rank_layout *layout;        /* ranks/rank_layout.h; NULL: before the plan */
    struct lathe_grad_buckets *buckets;      /* ranks/grad_buckets.h; NULL: one rank */
    struct lathe_extents *extents;           /* ranks/extents.h; NULL: ranks divide nothing */
    struct lathe_outer *outer;               /* islands/island_files.h; NULL: no islands */
    /* Settings of rank 0 that the other ranks do not have: checkpoint.dir (NULL: no checkpoints),
     * checkpoint.keep_best and generate.every. */
    const char *saves_in;
    int32_t saves_best;
    int64_t samples_every;
    struct lathe_scorer *reward;           /* reward_model.h; NULL: none */
    struct lathe_config *reference_config; /* settings of parts.reference_adapter; NULL: none */
    struct lathe_named_adapters *named;    /* named_adapters.h; NULL: none */
};

/* ---- shared with core/opening and above ---- */

/** Returns LATHE_E_CONFIG with a message that begins with the place of section.key in the run file
 * (run_refuse.c). */
__attribute__((format(printf, 4, 5))) LATHE_MUST_USE lathe_status lathe__run_refuse(
    const lathe_run *run, const char *section, const char *key, const char *format, ...);
/** Like lathe__run_refuse, with the thread's message, at the error's key of the plugin table of
 *  this kind. */
LATHE_MUST_USE lathe_status lathe__run_refuse_part(const lathe_run *run, int32_t kind);
/** Logs a warning at a key of the plugin table of this kind. */
__attribute__((format(printf, 4, 5))) void
lathe__run_warn_part(const lathe_run *run, int32_t kind, const char *key, const char *format, ...);
/** Refuses key `inner` of element `index` of the array `key`, such as "data.datasets", 1,
 * "columns.text". */
__attribute__((format(printf, 5, 6))) LATHE_MUST_USE lathe_status
lathe__run_refuse_in(const lathe_run *run, const char *key, int64_t index, const char *inner,
                     const char *format, ...);
/** Logs the collected warnings. */
void lathe__run_log_warnings(const lathe_diags *diags);
/** Logs a warning at the place of section.key. */
__attribute__((format(printf, 4, 5))) void lathe__run_warn(const lathe_run *run,
                                                           const char *section, const char *key,
                                                           const char *format, ...);

/** Opens the components that the configuration names (run_components.c). */
lathe_status lathe__run_components(lathe_run *run);
/** Opens the components without the machine: enough to check them, not to compute. */
lathe_status lathe__run_parts(lathe_run *run);
/** Checks the settings of precision and gradient dtype, as far as this is possible without a
 * device. */
lathe_status lathe__run_check_precision(const lathe_run *run);
void lathe__run_components_fini(lathe_run *run);

/** Calls the parts' checks of each other and of the run's length, `total` steps; 0: unknown
 * (run_check.c). */
lathe_status lathe__run_check_length(const lathe_run *run, int64_t total);

/** Where to look for the family of the run's model (run_graphs.c). */
lathe_model_source lathe__run_model_source(const lathe_run *run);
/** Make the model, the parameter table, the graphs and the plan (run_graphs.c). */
lathe_status lathe__run_params(lathe_run *run);
/** Whether the adapter trains a parameter of the model, also where the run trains nothing. */
lathe_status lathe__run_is_trained(const lathe_run *run, int32_t index, int32_t *out);
/** Adds the parameters of the frozen models beside the run's: the reference copy, the teacher. */
lathe_status lathe__run_add_models(lathe_run *run);
lathe_status lathe__run_model(lathe_run *run);
lathe_status lathe__run_plan(lathe_run *run);
/** Configuration that all programs of the run share; the caller sets the shape. */
lathe_program_config lathe__run_program_config(lathe_run *run);
/** Prepares another program and allocates its memory, after the run's memory was allocated
 * (run_program.c). */
lathe_status lathe__run_program(lathe_run *run, int32_t kind, lathe_program *out);

/** Bytes of run->programs.losses. */
int64_t lathe__losses_bytes(const lathe_run *run);

/** plan_generator makes run->generator for `batch` sequences at a time, without its memory, which
 * lathe__run_place allocates. run_generator makes it with its memory, unless the run has one for at
 * least `batch` sequences (run_generator.c). */
lathe_status lathe__run_plan_generator(lathe_run *run, int32_t batch);
/** Allocates the generator's memory; before that, if there is a draft model, reads its weights. */
lathe_status lathe__run_place_generator(lathe_run *run);
lathe_status lathe__run_generator(lathe_run *run, int32_t batch);

/** Allocate the memory and fill the weights (run_weights.c). */
lathe_status lathe__run_place(lathe_run *run);
lathe_status lathe__run_weights(lathe_run *run);
/** Gives a row its initial values: random numbers by seed, or row norms. Rows of singular vectors
 *  are left to lathe_singular_rows_fill. */
lathe_status lathe__run_begin_row(lathe_run *run, int32_t index, uint64_t seed);

/** Open the tokenizer, the shards and the loaders (run_data.c). */
lathe_status lathe__run_tokenizer(lathe_run *run);
/** Sets data.tokenizer_dir of a plan, which opens no tokenizer, so that its files are counted. A
 * tokenizer that the run would train is not known. */
void lathe__run_name_tokenizer(lathe_run *run);
lathe_status lathe__run_data(lathe_run *run);
/** Loads the chat template of the tokenizer's or the model's folder, with its renderer, into
 *  run->data.chat; where there is none, run->data.no_chat says why. */
lathe_status lathe__run_chat_template(lathe_run *run);

#endif
