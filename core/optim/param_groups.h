/* Reads the parameter groups, which set factors for the learning rate and the weight decay of each
 * parameter.
 *
 * The lr or weight_decay of a group is the value that its parameters get. The factor is this value
 * divided by the one that the optimizer would use for the parameter (lathe_optimizer_v1.rates),
 * which may differ between parameters, as in muon.
 *
 * A parameter belongs to the first entry of optimizer.groups whose pattern matches its name,
 * otherwise to group 0. Norms, biases and the parameters named by no_decay_modules and
 * no_decay_params have no weight decay, unless their group sets one.
 */
#ifndef LATHE_OPTIM_PARAM_GROUPS_H
#define LATHE_OPTIM_PARAM_GROUPS_H

#include "base/arena.h"
#include "config/config.h"
#include "graph/ir/params.h"
#include "lathe/optimizer.h"
#include "optim/group_settings.h"
#include "plug/select.h"

typedef struct lathe_param_groups {
    /* groups, with group 0 ("default"); 1 if none are configured */
    int32_t n;
    const char *names[LATHE_MAX_GROUPS]; /* in the metrics */
    const char *keys[LATHE_MAX_GROUPS];  /* "grad_norm/NAME" */
    double *lr_mult, *decay_mult;        /* [params] */
    int32_t *group;                      /* [params] */
    /* [params] the optimizer's own values, before the factors */
    lathe_optimizer_rates *rates;
} lathe_param_groups;

/** Reads the groups for the trainable parameters of a table; the arrays are in the arena. base_lr:
 * the answer of the optimizer's base_lr(). The adapter's rate() multiplies it, unless a group has
 * an lr.
 * LATHE_E_CONFIG, with place and pattern: a pattern matches no trainable parameter, the optimizer
 * has no weight_decay, or a group sets lr or weight_decay although the base value is 0. The errors
 * are also added to diags, unless it is NULL. */
lathe_status lathe_param_groups_read(const lathe_config *config, const lathe_params *params,
                                     const lathe_instance *optimizer, const lathe_instance *adapter,
                                     double base_lr, lathe_arena *arena, lathe_diags *diags,
                                     lathe_param_groups *out);

/** Trained parameters with the same group, the same part of the optimizer and the same numbers. */
typedef struct lathe_group_row {
    const char *name, *part; /* part NULL: the optimizer has only one part */
    double lr, weight_decay; /* before the schedule */
    int64_t n_tensors, n_params;
} lathe_group_row;

/** Lists all such rows by group, in the order of the table; they are in the arena. */
lathe_status lathe_param_groups_rows(const lathe_param_groups *groups, const lathe_params *params,
                                     lathe_arena *arena, lathe_group_row **out, int32_t *out_n);

#endif
