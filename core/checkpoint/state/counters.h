/* Counters of a training run, and sums since its last optimizer step. Plain data, part of the
 * state of a run. */
#ifndef LATHE_CHECKPOINT_COUNTERS_H
#define LATHE_CHECKPOINT_COUNTERS_H

#include "data/rows/loader.h"
#include "lathe/scheduler.h"
#include "lathe/stage.h"
#include "optim/early_stop.h"
#include "optim/loss_scale.h"
#include "optim/loss_spike.h"
#include "optim/update.h"

/** Sums since the last step. */
typedef struct lathe_accumulated {
    double loss_sum, count;
    double metric_sums[LATHE_MAX_STAGE_METRICS];
    int64_t tokens;      /* all tokens seen, targets or not */
    double flops;        /* of the forwards and their backwards; not part of a checkpoint */
    double data_seconds; /* time spent waiting for batches */
    double wait_seconds; /* after a backward, for sums of gradients over ranks */
    int32_t backwards;   /* since zero_grad; 0: the next one overwrites the gradients */
    int32_t n_losses;    /* sums in programs.losses since the last lathe__losses_settle */
    int32_t is_agreed;   /* 1: these are the sums of all ranks */
    int32_t pending;     /* a forward with LATHE_FORWARD_TRAIN waits for its backward */
    int32_t is_reduced;  /* 1: the last backward has made the gradients those of all ranks */
    /* 1: the weights are being changed: after an error now they are those of no step */
    int32_t is_updating;
} lathe_accumulated;

/** How many tokens chose each expert since the last step, for the routers whose corrections move by
 *  it: E numbers for each router, in the order of lathe_program.loads. */
typedef struct lathe_expert_loads {
    double *counts; /* [n] */
    float *values;  /* room for the correction of the router with the most experts */
    int64_t n;      /* 0: nothing is moved */
} lathe_expert_loads;

/** Counters that run.json of a checkpoint holds. */
typedef struct lathe_counters {
    int64_t step; /* steps taken, with those that updated nothing */
    /* steps without an update: overflow, numbers that are not finite, skipped spikes */
    int64_t skipped;
    int64_t skipped_in_row; /* skipped steps since the last good step */
    /* steps included in the average of the weights; 0: the average equals the weights */
    int64_t averaged;
    int64_t micro;  /* micro-batches so far; the step of the RNG */
    int64_t tokens; /* tokens seen */
    /* 1: the evaluation after `step` was stopped; the run makes it before it goes on */
    int64_t evaluation_due;
    double scheduler_state[LATHE_MAX_SCHEDULER_STATE];
    lathe_cursor cursor;
    lathe_early_stop early;
    lathe_scaler scaler;
    lathe_loss_spike spike;
} lathe_counters;

/** Sets `sum` to zero, so that the next backward overwrites the gradients. update: NULL without an
 * optimizer. */
void lathe_accumulated_clear(lathe_accumulated *sum, lathe_update *update);
void lathe_expert_loads_clear(const lathe_expert_loads *loads);

#endif
