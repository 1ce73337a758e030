/* Tests optimizers as formulas: takes steps with gradients, rates and factors that the check
 * chooses.
 *
 * Parameters that step() updates are updated by it in host memory. For those that build()
 * updates, the graph runs in double precision. So the same rules are checked for both. */
#ifndef LATHE_CHECK_OPTIMIZER_MATH_H
#define LATHE_CHECK_OPTIMIZER_MATH_H

#include "check/harness/graph_exact.h"
#include "check/kinds/optimizer_case.h"

/* How the next steps are taken. */
typedef struct lathe__rule {
    double rate;        /* rate of the steps, relative to the base rate */
    double grad_factor; /* factor of the random gradients; GRAD_SCALE is its reciprocal */
    double lr_mult;
    double decay_mult;
    double sign;   /* sign of the gradients: 1 or -1; 0: zero gradients */
    uint64_t seed; /* seed of the gradients; not used with pull */
    int32_t pull;  /* 1: the gradient is that of |p - 2 p0|^2 / 2 */
} lathe__rule;

typedef struct lathe__laws {
    lathe__optimizer_case c;
    float *start[LATHE__N_TENSORS]; /* the parameters before the first step */
    struct lathe__matrix_update {
        lathe_params params;
        lathe_graph *g;
        lathe__exact exact;
        lathe_val param, grad, scalars, slots[LATHE_MAX_SLOTS];
        double lr_mult, decay_mult;
        int32_t has_params;
    } matrix[LATHE__N_TENSORS];
} lathe__laws;

/** toml: values of keys, or NULL. Call lathe__laws_fini in every case. */
lathe_status lathe__laws_init(lathe__laws *l, lathe__subject *s, const char *toml);
void lathe__laws_fini(lathe__laws *l);

/** Takes one step of all tensors; with small, of those below 2,000 elements that
 *  step() updates. LATHE_E_NUMERIC: a parameter is not finite. LATHE_E_PLUGIN: a
 *  gradient or a scalar was changed. */
lathe_status lathe__laws_step(lathe__laws *l, const lathe__rule *rule, int small);

/** |p - start| of tensor i. */
double lathe__laws_moved(const lathe__laws *l, int i);

/* The checks. */
lathe_status lathe__gradient_scale_is_applied(lathe__subject *s);
lathe_status lathe__rate_is_applied(lathe__subject *s);
lathe_status lathe__multiplier_is_applied(lathe__subject *s);
lathe_status lathe__decay_multiplier_is_applied(lathe__subject *s);
lathe_status lathe__opposite_gradients_step_back(lathe__subject *s);
lathe_status lathe__descends(lathe__subject *s);
lathe_status lathe__instances_are_apart(lathe__subject *s);
lathe_status lathe__base_rate_is_the_key(lathe__subject *s);
lathe_status lathe__shadows_are_in_their_dtype(lathe__subject *s);
lathe_status lathe__unknown_roles_are_survived(lathe__subject *s);

#endif
