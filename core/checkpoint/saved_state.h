/* The state that checkpoints save and load: pointers to the parts of a run, so that this room needs no run.
 *
 * The run fills one in (run/run_saved.h). A view for writing is a copy in which some pointers lead elsewhere: to
 * the store of the averages, or to the image of an asynchronous checkpoint.
 */
#ifndef LATHE_CHECKPOINT_SAVED_STATE_H
#define LATHE_CHECKPOINT_SAVED_STATE_H

#include "checkpoint/checkpoints.h"
#include "data/run_data.h"
#include "exec/programs.h"
#include "plug/components.h"
#include "plug/config.h"
#include "update/average_rows.h"
#include "update/counters.h"
#include "update/optimization.h"

typedef struct lathe_saved_state {
    lathe_arena *arena;         /* for paths and texts that live as long as the run */
    const lathe_config *config; /* for the manifest */
    /* settings */
    const lathe_checkpoint_settings *set;
    const char *model_path; /* NULL: random weights from model_seed */
    uint64_t model_seed, seed;
    int64_t max_steps;
    int32_t precision, compute_dtype, fp8; /* asked for, and used */
    double loss_scale_init;
    int32_t spike_window;
    int32_t average;          /* LATHE_AVERAGE_* */
    int32_t trains;           /* the run is open for training: it has a state besides its weights */
    int32_t plans;            /* it trains, or plans a training */
    int32_t data_is_optional; /* batches may be given, so that no loop writes checkpoints */
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
    lathe_checkpoints *checkpoints;
} lathe_saved_state;

#endif
