/* Computes the learning rate after merges. */
#include "optim/rewarm.h"

#include "lathe/scheduler.h"

double lathe_rewarm_rate(const lathe_rewarm *rewarm, const lathe_instance *scheduler, int64_t step,
                         int64_t update, int64_t total, double base_lr, const double *state)
{
    const lathe_scheduler_v1 *table = scheduler->table;
    const int64_t k = rewarm->every > 0 ? step % rewarm->every : 0;
    if (rewarm->every == 0 || step < rewarm->every || k >= rewarm->steps)
        return table->at(scheduler->self, update, total, base_lr, state);
    return (double)k / (double)rewarm->steps *
           table->at(scheduler->self, update + rewarm->steps - k, total, base_lr, state);
}
