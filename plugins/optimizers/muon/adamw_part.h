/* The AdamW that Muon uses for everything that is no hidden matrix, one element at a time. Its rates
 * come folded from scalars(), since it has a learning rate of its own that follows the schedule:
 *
 *     p = p*(1 - ratio*DECAY);  m += NEW1*(g - m);  v = BETA2*v + NEW2*g*g
 *     p -= ratio*RATE * m / (sqrt(v)*ROOT_BIAS + EPS)           ratio = lr / base lr of the schedule
 *
 * Source: torch.optim.AdamW, rounding for rounding.
 */
#ifndef LATHE_MUON_ADAMW_PART_H
#define LATHE_MUON_ADAMW_PART_H

#include "lathe/elementwise.h"

/* What scalars() hands over, at LATHE_SCALAR_USER + k. */
enum { NEW1, BETA2, NEW2, EPS, DECAY /* adamw_lr*wd */, RATE /* adamw_lr/(1-b1^t) */, ROOT_BIAS };

typedef struct adamw_part_uniform {
    float keep, rate, new1, beta2, new2, eps, root_bias;
} adamw_part_uniform;

LATHE_HD static inline adamw_part_uniform adamw_part_prepare(const float *scalars, float lr_mult,
                                                             float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    const float ratio = scalars[LATHE_SCALAR_LR_RATIO] * lr_mult;
    adamw_part_uniform u;
    u.keep = fmaf(-ratio, user[DECAY] * weight_decay_mult, 1.0f);
    u.rate = ratio * user[RATE];
    u.new1 = user[NEW1];
    u.beta2 = user[BETA2];
    u.new2 = user[NEW2];
    u.eps = user[EPS];
    u.root_bias = user[ROOT_BIAS];
    return u;
}

LATHE_HD static inline float adamw_part_element(const adamw_part_uniform *u, float p, float g,
                                                float *s, const lathe_element *at)
{
    (void)at;
    s[0] = fmaf(u->new1, g - s[0], s[0]);
    s[1] = fmaf(u->new2 * g, g, u->beta2 * s[1]);
    return fmaf(-u->rate, s[0] / fmaf(sqrtf(s[1]), u->root_bias, u->eps), p * u->keep);
}

LATHE_ELEMENTWISE(adamw_part, 2)

#endif
