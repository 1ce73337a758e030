/* The part of a run that updates its weights: the groups of parameters, the step, and what the last
 * step told. */
#ifndef LATHE_UPDATE_OPTIMIZATION_H
#define LATHE_UPDATE_OPTIMIZATION_H

#include "exec/row_kernels.h"
#include "update/update.h"

typedef struct lathe_optimization {
    lathe_param_groups groups;
    lathe_update *update;                 /* NULL: nothing is trained */
    lathe_row_kernels row_kernels;        /* of the averages, on a device with memory of its own */
    double base_lr;                       /* before the schedule */
    double group_norms[LATHE_MAX_GROUPS]; /* of the last step */
    double update_norm;                   /* |w_new - w_old| of the last step */
} lathe_optimization;

#endif
