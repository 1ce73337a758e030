/* Learning-rate schedules: pure functions of the step and a few doubles of state. */
#ifndef LATHE_SCHEDULER_H
#define LATHE_SCHEDULER_H

#include "host.h"

#define LATHE_SCHEDULER_REVISION 1
#define LATHE_MAX_SCHEDULER_STATE 16

typedef struct lathe_scheduler_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Doubles of state, <= LATHE_MAX_SCHEDULER_STATE; the core keeps and checkpoints
     *  them. NULL: 0. */
    int32_t (*n_state)(void *self);
    /** [open] Sets the state before step 0. NULL: zeros. */
    void (*init)(void *self, double base_lr, double *state);
    /** [open] Checks the instance against the length of the run (e.g. warm-up longer than it).
     *  NULL: fine.
     */
    lathe_status (*check)(void *self, int64_t total_steps);
    /** [pure] Learning rate of optimizer step `step` (0 first) of `total`; total 0: unknown.
     *  Pure. */
    double (*at)(void *self, int64_t step, int64_t total, double base_lr, const double *state);
    /** [between] Sees a metric (evaluation loss, or training loss where there is none) after it
     *  was measured and updates the state. NULL: the schedule does not look. */
    void (*observe)(void *self, double metric, double base_lr, double *state);
} lathe_scheduler_v1;
LATHE_ABI_SIZE(lathe_scheduler_v1, 48);

#endif
