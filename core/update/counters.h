/* The counters of a training, and what it has accumulated since the last step. Plain data, part of
 * a run's state. */
#ifndef LATHE_UPDATE_COUNTERS_H
#define LATHE_UPDATE_COUNTERS_H

#include "data/loader.h"
#include "exec/precision.h"
#include "lathe/scheduler.h"
#include "lathe/stage.h"
#include "update/early_stop.h"
#include "update/loss_spike.h"
#include "update/update.h"

/** What is accumulated since the last step. */
typedef struct lathe_accumulated {
    double loss_sum, count;
    double metric_sums[LATHE_MAX_STAGE_METRICS];
    int64_t tokens;      /* all tokens seen, targets or not */
    double data_seconds; /* waited for batches */
    int32_t backwards;   /* since zero_grad: 0 means that the next one overwrites */
    int32_t n_losses;    /* sums in programs.losses since the last lathe__losses_settle */
    int32_t pending;     /* a forward with LATHE_FORWARD_TRAIN waits for its backward */
} lathe_accumulated;

/** The part of the state that a checkpoint's run.json holds. */
typedef struct lathe_counters {
    int64_t step;           /* steps taken, those without an update too */
    int64_t skipped;        /* steps without an update: overflow, bad numbers or spikes left out */
    int64_t skipped_in_row; /* of them, the last ones without a good step between */
    int64_t averaged;       /* weights taken into their average; 0: it equals them */
    int64_t micro;          /* micro-batches seen: the RNG's step */
    int64_t tokens;         /* tokens seen */
    double scheduler_state[LATHE_MAX_SCHEDULER_STATE];
    lathe_cursor cursor;
    lathe_early_stop early;
    lathe_scaler scaler;
    lathe_loss_spike spike;
} lathe_counters;

/** Sets `sum` to zero, so that the next backward overwrites the gradients. update: NULL without an
 * optimizer. */
void lathe_accumulated_clear(lathe_accumulated *sum, lathe_update *update);

#endif
