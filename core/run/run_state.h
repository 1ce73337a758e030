/* The run: everything that lives behind the opaque lathe_run of the C API. */
#ifndef LATHE_RUN_RUN_STATE_H
#define LATHE_RUN_RUN_STATE_H

#include "base/arena.h"
#include "checkpoint/saved_state.h"
#include "lathe/lathe.h"
#include "model/generation_config.h"
#include "model/sample.h"
#include "run/settings.h"

/* How far a run is opened. */
enum {
    LATHE_OPEN_PLAN = 0,  /* configuration, plugins, graphs and plan: no weights, no data */
    LATHE_OPEN_TRAIN = 1, /* and memory, weights, data, optimizer */
    LATHE_OPEN_INFER =
        2, /* memory and weights for generation: no gradients, no optimizer, no data */
    LATHE_OPEN_EVALUATE = 3, /* INFER with data */
    LATHE_OPEN_BATCHES = 4,  /* TRAIN, but data of its own is optional: batches may be given */
    LATHE_OPEN_DATA = 5      /* configuration, tokenizer and data alone: no model, no plan */
};

/** How the run is opened, and how far it is. */
typedef struct lathe_opening {
    int32_t mode; /* LATHE_OPEN_*, BATCHES being TRAIN from here on */
    int32_t data_is_optional;
    int32_t is_offline;  /* checked without the machine and without the data */
    int32_t is_dry;      /* a dry run (dry_run.h) */
    const char *dry_dir; /* its prepared data; NULL: none */
    lathe_diags *diags;  /* gathers errors and warnings; NULL: the thread's message and the log */
    int32_t placed;      /* memory is allocated */
} lathe_opening;

/** Steps whose nodes go into the trace (run_trace.h). */
typedef struct lathe_trace_range {
    int64_t first, last; /* 0: the default */
    int32_t is_on;       /* the step at hand is in the range */
} lathe_trace_range;

/** A run: parts, each declared in the room that owns it (docs/design/015-parts-of-a-run.md). */
struct lathe_run {
    lathe_arena arena;
    lathe_registry *registry;
    lathe_config *config;
    lathe_settings set;
    lathe_opening open;
    lathe_components parts;
    lathe_model_config model;
    lathe_generation_config generation; /* of the model's folder; read where texts may be made */
    lathe_params params;
    lathe_machine machine;
    lathe_store store;
    lathe_mem_bytes planned;
    lathe_programs programs;
    lathe_optimization opt;
    lathe_run_data data;
    lathe_counters at;
    lathe_accumulated sum;
    lathe_checkpoints checkpoints;
    lathe_saved_state saved; /* pointers to these parts, for core/checkpoint (run_saved.h) */
    lathe_trace_range trace;
    struct lathe_generator *generator; /* made by the first lathe_generate */
};

/** Opens up to `mode`. Configuration errors: all of them are the thread's message, one per line. */
lathe_status lathe_run_open_mode(const char *config_path, const lathe_override *overrides,
                                 int32_t n_overrides, int32_t mode, lathe_run **out);

/* ---- shared inside the floor ---- */

/** As lathe_run_open_mode, but only up to the plan of that mode: no memory placed, no weights, no
 * data. */
lathe_status lathe__run_open_planned(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t mode, lathe_run **out);

/** LATHE_E_CONFIG with a message at the place of section.key (run_refuse.c). */
__attribute__((format(printf, 4, 5))) LATHE_MUST_USE lathe_status lathe__run_refuse(
    const lathe_run *run, const char *section, const char *key, const char *format, ...);
/** The same of the thread's message, at the key of the kind's table that it begins with. */
LATHE_MUST_USE lathe_status lathe__run_refuse_part(const lathe_run *run, int32_t kind);
/** A warning at the key of the kind's table that the text begins with. */
__attribute__((format(printf, 3, 4))) void lathe__run_warn_part(const lathe_run *run, int32_t kind,
                                                                const char *format, ...);
/** The same at `inner` of element `index` of the array `key`, such as "data.datasets", 1,
 * "columns.text". */
__attribute__((format(printf, 5, 6))) LATHE_MUST_USE lathe_status
lathe__run_refuse_in(const lathe_run *run, const char *key, int64_t index, const char *inner,
                     const char *format, ...);
/** Writes the warnings that were gathered to the log. */
void lathe__run_log_warnings(const lathe_diags *diags);
/** A warning there. */
__attribute__((format(printf, 4, 5))) void lathe__run_warn(const lathe_run *run,
                                                           const char *section, const char *key,
                                                           const char *format, ...);

/** Components of the configuration (run_components.c). */
lathe_status lathe__run_components(lathe_run *run);
/** Those that hold no machine: of no use to compute, enough to check. */
lathe_status lathe__run_parts(lathe_run *run);
/** The precisions and gradients that the settings ask for, as far as no device is needed to judge
 * them. */
lathe_status lathe__run_check_precision(const lathe_run *run);
void lathe__run_components_fini(lathe_run *run);

/** What the parts say of each other and of a run of `total` steps, 0: not known (run_check.c). */
lathe_status lathe__run_check_length(const lathe_run *run, int64_t total);

/** Everything that decides whether a run opened for training starts, up to the memory that it would
 * take: with run->open.diags all errors and warnings are gathered there; without, the first error
 * ends it (run_prepare.c). */
lathe_status lathe__run_prepare(lathe_run *run, const char *path, const lathe_override *overrides,
                                int32_t n_overrides);
/** Reads the configuration and the settings (run_open.c). */
lathe_status lathe__run_configure(lathe_run *run, const char *path, const lathe_override *overrides,
                                  int32_t n_overrides);
/** The length of the run, from the data where train.max_steps is unset (run_open.c). */
lathe_status lathe__run_settle_length(lathe_run *run);

/** Where the family of the run's model is looked for (run_graphs.c). */
lathe_model_source lathe__run_model_source(const lathe_run *run);
/** Model, parameter table, graphs, plan (run_graphs.c). */
lathe_status lathe__run_params(lathe_run *run);
lathe_status lathe__run_add_reference(lathe_run *run);
lathe_status lathe__run_model(lathe_run *run);
lathe_status lathe__run_plan(lathe_run *run);
/** What every program of the run is built from; the caller sets the shape. */
lathe_program_config lathe__run_program_config(lathe_run *run);
/** Prepares and places a further program after the run was placed. */
lathe_status lathe__run_program(lathe_run *run, int32_t kind, lathe_program *out);

/** Counts a step, with or without an update, and moves the loss scale (primitives.c). */
void lathe__run_stepped(lathe_run *run, int32_t skipped);

/** A training forward on the run's own data whose loss is not waited for; at most
 *  train.gradient_accumulation_steps of them before lathe__losses_settle, which waits, adds their
 * sums to run->sum, brings the gradients' norm along for the update, and tells the first loss that
 * is not finite: *out_bad counts the step's micro-batches from 1, 0: none. On devices that the host
 * does not share memory with. */
lathe_status lathe__forward_later(lathe_run *run);
lathe_status lathe__losses_settle(lathe_run *run, int32_t *out_bad, double *out_loss);
/** Bytes of run->programs.losses. */
int64_t lathe__losses_bytes(const lathe_run *run);

/** A step left out without lathe_step: counts it, and fills what can be told of it. */
lathe_status lathe__run_left_out(lathe_run *run, lathe_step_result *out);

/** Memory and weights (run_weights.c). */
lathe_status lathe__run_place(lathe_run *run);
lathe_status lathe__run_weights(lathe_run *run);

/** Tokenizer, shards, loaders (run_data.c). */
lathe_status lathe__run_tokenizer(lathe_run *run);
lathe_status lathe__run_data(lathe_run *run);
/** Whether the run evaluates; and on datasets of their own (run_data.c). */
int lathe__run_has_validation(const lathe_run *run);
int lathe__run_has_validation_data(const lathe_run *run);

#endif
