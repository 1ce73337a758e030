/* Parameter groups: what each parameter's learning rate and weight decay are multiplied by.
 *
 * A group's number is the number used: it is divided by what the optimizer would give that very
 * parameter (lathe_optimizer_v1.rates), which may differ from one to the next, as with muon.
 *
 * A parameter belongs to the first entry of optimizer.groups whose pattern covers its name, else to
 * group 0. Norms and biases take no decay, nor do those that no_decay_modules and no_decay_params
 * name, unless a group gives them one.
 */
#ifndef LATHE_UPDATE_PARAM_GROUPS_H
#define LATHE_UPDATE_PARAM_GROUPS_H

#include "base/arena.h"
#include "ir/params.h"
#include "lathe/optimizer.h"
#include "plug/config.h"
#include "plug/select.h"

#define LATHE_MAX_GROUPS 16

typedef struct lathe_param_groups {
    int32_t n;                           /* groups, 0 ("default") among them; 1 without any */
    const char *names[LATHE_MAX_GROUPS]; /* in the metrics */
    const char *keys[LATHE_MAX_GROUPS];  /* "grad_norm/NAME" */
    double *lr_mult, *decay_mult;        /* [params] */
    int32_t *group;                      /* [params] */
    lathe_optimizer_rates *rates;        /* [params] of the optimizer, before the multipliers */
} lathe_param_groups;

/** Reads the groups for the trainable parameters of a table; arrays live in the arena.
 * LATHE_E_CONFIG names place and pattern: one that matches no trainable parameter, a weight_decay
 * that the optimizer does not have, a group's lr or weight_decay beside a base of 0; diags has them
 * too, unless it is NULL. */
lathe_status lathe_param_groups_read(const lathe_config *config, const lathe_params *params,
                                     const lathe_instance *optimizer, lathe_arena *arena,
                                     lathe_diags *diags, lathe_param_groups *out);

/** Trained parameters that share a group, a part of the optimizer and all numbers. */
typedef struct lathe_group_row {
    const char *name, *part; /* part NULL: the optimizer has one only */
    double lr, weight_decay; /* before the schedule */
    int64_t n_tensors, n_params;
} lathe_group_row;

/** All such rows, by group, in the order of the table; in the arena. */
lathe_status lathe_param_groups_rows(const lathe_param_groups *groups, const lathe_params *params,
                                     lathe_arena *arena, lathe_group_row **out, int32_t *out_n);

#endif
