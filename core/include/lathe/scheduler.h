/* The interface of learning-rate schedule plugins: functions of the step and a few doubles of
 * state. */
#ifndef LATHE_SCHEDULER_H
#define LATHE_SCHEDULER_H

#include "host.h"

#define LATHE_SCHEDULER_REVISION 1
#define LATHE_MAX_SCHEDULER_STATE 16

typedef struct lathe_scheduler_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Number of doubles of state, <= LATHE_MAX_SCHEDULER_STATE; the core stores and
     *  checkpoints them. NULL: 0. */
    int32_t (*n_state)(void *self);
    /** [open] Sets the state before step 0. NULL: zeros. */
    void (*init)(void *self, double base_lr, double *state);
    /** [open] Checks the settings against the length of the run; refuses, for example, a longer
     *  warm-up. NULL: no check. */
    lathe_status (*check)(void *self, int64_t total_steps);
    /** [pure] Learning rate of optimizer step `step` (0 is the first) of `total` steps (0:
     *  unknown). */
    double (*at)(void *self, int64_t step, int64_t total, double base_lr, const double *state);
    /** [between] Updates the state from a metric just measured: the evaluation loss, or the
     *  training loss if there is no evaluation. NULL: the schedule uses no metric. */
    void (*observe)(void *self, double metric, double base_lr, double *state);
} lathe_scheduler_v1;
LATHE_ABI_SIZE(lathe_scheduler_v1, 48);

#endif
