/* Computes the learning rate of a run file's schedule, step by step, before anything runs. */
#ifndef LATHE_CMD_SCHEDULE_CURVE_H
#define LATHE_CMD_SCHEDULE_CURVE_H

#include "cmd/line/args.h"
#include "lathe/scheduler.h"
#include "optim/rewarm.h"
#include "plug/select.h"
#include "run/state/run_inputs.h"

/* Limit of the steps that are computed for the figures. Of a longer run, this many evenly spaced
 * steps are computed, and as many at the beginning for the warm-up. */
#define LATHE_SCHEDULE_COMPUTED 10000000

/** An open schedule and the figures of its curve. All zeros: nothing is open. */
typedef struct lathe_schedule_curve {
    lathe_run_inputs *inputs; /* the run file and the plugins, read once */
    lathe_config *config;
    lathe_instance scheduler, optimizer;
    lathe_rewarm rewarm; /* further warm-ups, after each merge of the adapter */
    double base_lr, state[LATHE_MAX_SCHEDULER_STATE]; /* the state before step 0 */
    int64_t total;                                    /* steps of the run */
    int64_t n_computed;                               /* steps whose rate is computed */
    double first, last, peak, least;
    int64_t peak_step, least_step; /* the first step with that rate */
    /* Last step of the warm-up: from step 0 to this one, the rate rises at every step. At most
     * n_computed - 1. */
    int64_t warm_up_end;
    int32_t reads_metrics; /* 1: the rate depends on metrics, such as the validation loss */
} lathe_schedule_curve;

/** Opens scheduler and optimizer of a run file; no data, no weights. steps: length of the run, 0:
 *  train.max_steps. lathe_schedule_curve_fini in every case.
 *  Errors  as lathe_config_make; LATHE_E_CONFIG: the length is not known, or the schedule refuses
 *          it;
 *          LATHE_E_PLUGIN: a rate is not finite. */
lathe_status lathe_schedule_curve_init(lathe_schedule_curve *c, const char *path,
                                       const lathe_edits *edits, int64_t steps);
void lathe_schedule_curve_fini(lathe_schedule_curve *c);

/** The rate of optimizer step `step`, 0 first. */
double lathe_schedule_curve_at(const lathe_schedule_curve *c, int64_t step);

/** The k-th of n evenly spaced steps of `total`, 0 and total - 1 included. 0 <= k < n <= total,
 *  n below 2^31. */
int64_t lathe_schedule_spaced_step(int64_t total, int64_t n, int64_t k);

#endif
