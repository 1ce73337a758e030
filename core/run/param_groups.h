/* Parameter groups: what each parameter's learning rate and weight decay are multiplied by.
 *
 * A parameter belongs to the first entry of optimizer.groups whose pattern covers its name, else to
 * group 0. Norms and biases take no decay, nor do those that no_decay_modules and no_decay_params
 * name, unless a group gives them one.
 */
#ifndef LATHE_RUN_PARAM_GROUPS_H
#define LATHE_RUN_PARAM_GROUPS_H

#include "base/arena.h"
#include "ir/params.h"
#include "plug/config.h"

#define LATHE_MAX_GROUPS 16

typedef struct lathe_param_groups {
    int32_t n;                           /* groups, 0 ("default") among them; 1 without any */
    const char *names[LATHE_MAX_GROUPS]; /* in the metrics */
    const char *keys[LATHE_MAX_GROUPS];  /* "grad_norm/NAME" */
    double *lr_mult, *decay_mult;        /* [params] */
    int32_t *group;                      /* [params] */
} lathe_param_groups;

/** Reads the groups for the trainable parameters of a table; arrays live in the arena. base_lr: what
 *  a group's lr is divided by. LATHE_E_CONFIG names place and pattern: one that matches no trainable
 *  parameter, a weight_decay that the optimizer does not have, a group's lr beside a base of 0. */
lathe_status lathe_param_groups_read(const lathe_config *config, const lathe_params *params,
                                     double base_lr, lathe_arena *arena, lathe_param_groups *out);

#endif
