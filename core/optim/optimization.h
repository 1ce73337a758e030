/* Holds what a run needs to update its weights: parameter groups, the optimizer step, and
 * figures of the last step. */
#ifndef LATHE_OPTIM_OPTIMIZATION_H
#define LATHE_OPTIM_OPTIMIZATION_H

#include "exec/store/row_kernels.h"
#include "optim/update.h"

typedef struct lathe_optimization {
    lathe_param_groups groups;
    lathe_update *update;                 /* NULL: nothing is trained */
    lathe_row_kernels row_kernels;        /* for the averages, on a device with its own memory */
    double base_lr;                       /* before the schedule */
    double group_norms[LATHE_MAX_GROUPS]; /* of the last step */
    double update_norm;                   /* |w_new - w_old| of the last step */
} lathe_optimization;

#endif
