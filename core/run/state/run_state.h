/* The state of a run: everything that the opaque lathe_run of the C API contains. */
#ifndef LATHE_RUN_RUN_STATE_H
#define LATHE_RUN_RUN_STATE_H

#include "base/arena.h"
#include "checkpoint/state/saved_state.h"
#include "lathe/lathe.h"
#include "model/family/generation_config.h"
#include "model/family/grown_rows.h"
#include "model/family/sample.h"
#include "run/state/iteration_memory.h"
#include "run/state/run_inputs.h"
#include "run/state/settings.h"

/* Purposes of a run: each command has one. Nothing else decides which stages of opening are done;
 * code asks the questions below. */
enum {
    LATHE_OPEN_PLAN = 0,  /* configuration, plugins, graphs and plan; no weights, no data */
    LATHE_OPEN_TRAIN = 1, /* as PLAN, with memory, weights, data, optimizer and the other ranks */
    LATHE_OPEN_INFER =
        2, /* memory and weights for generation: no gradients, no optimizer, no data */
    LATHE_OPEN_EVALUATE = 3, /* INFER with data */
    LATHE_OPEN_BATCHES = 4,  /* TRAIN, but the run needs no data: the caller may pass batches */
    LATHE_OPEN_DATA = 5,     /* configuration, tokenizer and data alone: no model, no plan */
    LATHE_OPEN_WEIGHTS = 6,  /* INFER for a command that reads weights and computes nothing */
    LATHE_OPEN_DRY_RUN = 7,  /* TRAIN of a few steps: the first part of the data, none of it
                                kept, and no checkpoint (run/decide/dry_run.h) */
    LATHE_OPEN_CHECK = 8,    /* TRAIN up to the allocation of memory, without other ranks */
    LATHE_OPEN_CHECK_ELSEWHERE = 9, /* CHECK without what needs the machine or the data */
    LATHE_OPEN_CHECK_UNMADE = 10,   /* CHECK_ELSEWHERE before the files that it reads are made */
    LATHE_OPEN_LOGPROBS = 11,       /* EVALUATE of the teacher alone, for lathe logprobs */
    LATHE_OPEN_QUANTIZE = 12        /* PLAN of a model that lathe quantize writes: formats that need
                                       calibration data are accepted */
};

/** Products of other runs that are not made yet when this one is checked. */
typedef struct lathe_awaited {
    const char *adapter; /* settings of the run that makes the adapter in model.path, JSON; NULL */
    const char *what;    /* that adapter in messages: "the checkpoints of step \"sft\"" */
    int32_t reward;      /* 1: reward.model is what the reward model will be made of */
} lathe_awaited;

/** How the run is opened. */
typedef struct lathe_opening {
    const char *path; /* of the run file; NULL: none */
    int32_t wants;    /* LATHE_OPEN_* */
    int32_t is_trial; /* 1: planned with the edits of a run that is open, and others */
    int32_t as_ranks; /* planned as rank 0 of so many ranks, which are not there; 0: alone */
    /* LOGPROBS: number of tokens to store per target, and the temperature of their
     * log-probabilities. */
    int32_t top_k;
    double top_temperature;
    lathe_awaited awaits;
    lathe_diags *diags; /* collects errors and warnings; NULL: the thread's message and the log */
} lathe_opening;

/** The tokens of tokenizer.add_tokens in this run (run/decide/new_tokens.h). */
typedef struct lathe_new_tokens {
    const int32_t *ids;      /* [n] of the tokens; in the run's arena */
    int64_t n;               /* 0: none, or the tokenizer is not read */
    int64_t n_before;        /* tokens of the tokenizer without them */
    int64_t n_after;         /* and with them */
    lathe_row_growth growth; /* of model.path: run->model.growth points here if there is one */
} lathe_new_tokens;

/** Decisions of opening beside the run file. */
typedef struct lathe_decided {
    lathe_new_tokens tokens;
    lathe_token_rows token_rows;           /* that train beside a frozen base */
    lathe_token_rows reference_token_rows; /* of parts.reference_adapter */
    lathe_edits edits;                     /* settings of a folder, of auto, of a trial */
    int32_t is_other_method;  /* 1: the edits replace the fine-tuning method of the file */
    int32_t base_is_exact;    /* 1: model.path is what an adapter names, average or not */
    const char *base_warning; /* how model.path differs from the adapter's base; NULL: in nothing */
    int32_t keeps_renderer;   /* 1: [renderer] is that of the model's folder, not of the run file */
} lathe_decided;

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
    lathe_decided decided;
    int32_t placed;      /* memory is allocated */
    const char *dry_dir; /* folder of a dry run's prepared data; NULL: none */
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
    lathe_expert_loads loads;  /* counts: in the run's arena */
    lathe_iteration iteration; /* of a stage that makes its own batches */
    lathe_checkpoints checkpoints;
    lathe_saved_state saved; /* pointers to these parts, for core/checkpoint/state (run_saved.h) */
    lathe_trace_range trace;
    struct lathe_rewards *rewards;           /* reward/rewards.h; NULL: the file names none */
    struct lathe_generator *generator;       /* generate/generator.h; NULL: none yet */
    struct lathe_draft *draft;               /* generate/draft_model.h; NULL: none */
    struct lathe_quant_source *quant_source; /* model/family/quant_source.h; NULL: the model's
                                              * folder is not quantized */
    struct lathe_teacher *teacher;           /* teacher.h; NULL: none */
    struct lathe_stored_teacher *stored;     /* stored_teacher.h; NULL: none */
    struct lathe_ranks *ranks;               /* parallel/ranks/ranks.h; NULL: one rank */
    struct lathe_rank_layout *layout;   /* parallel/ranks/rank_layout.h; NULL: before the plan */
    struct lathe_grad_buckets *buckets; /* parallel/ranks/grad_buckets.h; NULL: one rank */
    struct lathe_extents *extents;      /* parallel/ranks/extents.h; NULL: ranks divide nothing */
    struct lathe_outer *outer;          /* parallel/islands/island_files.h; NULL: no islands */
    /* Settings of rank 0 that the other ranks do not have: checkpoint.dir (NULL: no checkpoints),
     * checkpoint.keep_best and generate.every. */
    const char *saves_in;
    int32_t saves_best;
    int64_t samples_every;
    struct lathe_scorer *reward;           /* reward_model.h; NULL: none */
    struct lathe_config *reference_config; /* settings of parts.reference_adapter; NULL: none */
    struct lathe_named_adapters *named;    /* named_adapters.h; NULL: none */
};

/* ---- shared with the rooms of core/run and above ---- */

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
/** Refuses as lathe__run_refuse_in, with the thread's message and the key that it is about. */
LATHE_MUST_USE lathe_status lathe__run_refuse_said(const lathe_run *run, const char *key,
                                                   int64_t index, const char *inner);
/** Logs the collected warnings. */
void lathe__run_log_warnings(const lathe_diags *diags);
/** Logs a warning at the place of section.key. */
__attribute__((format(printf, 4, 5))) void lathe__run_warn(const lathe_run *run,
                                                           const char *section, const char *key,
                                                           const char *format, ...);

/* ---- questions (run_state.c) ---- */

/** Whether the run's stage makes its own batches. */
int32_t lathe__run_iterates(const lathe_run *run);

/** Whether it trains, or is checked as if it did. */
int32_t lathe__run_trains(const lathe_run *run);
/** Whether it ends with the plan: no memory, no weights, no data. */
int32_t lathe__run_only_plans(const lathe_run *run);
/** Whether it has an optimizer step: it trains, or its training is planned. */
int32_t lathe__run_has_step(const lathe_run *run);
/** Whether it computes with the weights as they are, or reads them, without data. */
int32_t lathe__run_infers(const lathe_run *run);
/** Whether it generates text, which is the reason to infer for all but one command. */
int32_t lathe__run_generates(const lathe_run *run);
/** Whether it reads weights and computes nothing with them. */
int32_t lathe__run_only_reads_weights(const lathe_run *run);
/** Whether it evaluates data with the weights as they are. */
int32_t lathe__run_evaluates(const lathe_run *run);
/** Whether it evaluates with the teacher, for lathe logprobs. */
int32_t lathe__run_makes_logprobs(const lathe_run *run);
/** Whether it has data and no model. */
int32_t lathe__run_only_reads_data(const lathe_run *run);
/** Whether its caller may bring the batches, so that it needs no data. */
int32_t lathe__run_takes_batches(const lathe_run *run);
int32_t lathe__run_is_dry(const lathe_run *run);
/** Whether it is checked for another machine, without data. */
int32_t lathe__run_is_offline(const lathe_run *run);
/** Whether it is checked before the files that it reads are made. */
int32_t lathe__run_is_unmade(const lathe_run *run);
/** Whether lathe quantize writes its model. */
int32_t lathe__run_calibrates(const lathe_run *run);
/** Whether it reads data.datasets: an evaluation with data of its own (data.validation) does not,
 *  except that lathe logprobs stores both. */
int32_t lathe__run_reads_datasets(const lathe_run *run);
/** Whether it joins the ranks that were started with it. */
int32_t lathe__run_joins(const lathe_run *run);
/** Whether its settings are a run file's. A folder on the command line is opened by the command,
 *  which has read what the folder remembers. */
int32_t lathe__run_is_of_file(const lathe_run *run);

#endif
