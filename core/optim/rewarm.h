/* The learning rate of a run that merges its adapter: it rises anew after each merge. */
#ifndef LATHE_OPTIM_REWARM_H
#define LATHE_OPTIM_REWARM_H

#include "plug/plugin_instance.h"

/** Merges after every `every` steps, and the steps that the rate then takes to rise. */
typedef struct lathe_rewarm {
    int64_t every, steps; /* 0: none */
} lathe_rewarm;

/** The rate of update `update` (0 is the first; skipped steps make none), which is step `step` of
 *  the run:
 *
 *    k = step mod every
 *    k >= steps, or before the first merge   at(update)
 *    else                                    k/steps at(update + steps - k)
 *
 *  so the rate rises to what the schedule has at the end of the rise ("jagged" schedule).
 *  total, base_lr, state: of the scheduler's at(). Source: arXiv:2307.05695, section 3. */
double lathe_rewarm_rate(const lathe_rewarm *rewarm, const lathe_instance *scheduler, int64_t step,
                         int64_t update, int64_t total, double base_lr, const double *state);

#endif
