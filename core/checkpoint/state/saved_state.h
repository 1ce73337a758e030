/* The state that checkpoints save and load: pointers to the parts of a run, so that
 * core/checkpoint/state does not depend on core/run.
 *
 * The run fills it in (run/state/run_saved.h). For writing there are also copies in which some
 * pointers are replaced: by those of the averages' store, or of the image of an asynchronous
 * checkpoint.
 */
#ifndef LATHE_CHECKPOINT_SAVED_STATE_H
#define LATHE_CHECKPOINT_SAVED_STATE_H

#include "checkpoint/state/checkpoints.h"
#include "checkpoint/state/counters.h"
#include "checkpoint/state/stage_state.h"
#include "config/config.h"
#include "data/rows/run_data.h"
#include "exec/program/programs.h"
#include "optim/average_rows.h"
#include "optim/optimization.h"
#include "plug/components.h"

/** State of a room above this one, in files of its own. */
typedef struct lathe_extra_state {
    void *arg;
    lathe_status (*write)(void *arg, const char *state); /* into the folder state/ */
    lathe_status (*read)(void *arg, const char *dir);    /* of a checkpoint, after all else */
} lathe_extra_state;

typedef struct lathe_saved_state {
    lathe_arena *arena;         /* for paths and strings that are valid as long as the run */
    const lathe_config *config; /* for the manifest */
    /* settings */
    const lathe_checkpoint_settings *set;
    const char *model_path; /* NULL: random weights from model_seed */
    uint64_t model_seed, seed;
    int64_t max_steps;
    int32_t precision, compute_dtype, fp8; /* requested, and used */
    double loss_scale_init;
    int32_t spike_window;
    int32_t average; /* LATHE_AVERAGE_* */
    /* 1: the run is open for training and has state besides its weights */
    int32_t trains;
    int32_t merges; /* 1: its adapter is merged into the model's weights during the run */
    int32_t plans;  /* 1: the run trains, or plans a training */
    /* 1: the caller may pass in batches, so that no loop writes checkpoints */
    int32_t data_is_optional;
    /* parts->adapter has frozen rows, and this before their names; NULL: it is the run's own */
    const char *frozen_prefix;
    /* parts */
    const lathe_components *parts;
    const lathe_model_config *model;
    lathe_params *params;
    lathe_machine *machine;
    lathe_store *store;
    lathe_programs *programs;
    lathe_optimization *opt;
    lathe_run_data *data;
    lathe_counters *at;
    lathe_accumulated *sum;
    const lathe_expert_loads *loads;
    lathe_stage_state *stage_state;
    lathe_checkpoints *checkpoints;
    const lathe_extra_state *extra; /* NULL: none, and only then a checkpoint may be written
                                     * asynchronously */
} lathe_saved_state;

#endif
