/* AdamW for the tensors that Muon does not update (all but hidden matrices). It has its own rate,
 * on the same schedule as Muon's. */
#ifndef LATHE_MUON_ADAMW_PART_H
#define LATHE_MUON_ADAMW_PART_H

#include "lathe/kit/adamw_family.h"

typedef lathe_adamw_numbers adamw_part_uniform;

/* scalars() has already multiplied its rate into the decay and the bias; this adds the schedule's
 * part. */
LATHE_HD static inline adamw_part_uniform adamw_part_prepare(const float *scalars, float lr_mult,
                                                             float weight_decay_mult)
{
    return lathe_adamw_numbers_of(scalars, scalars[LATHE_SCALAR_LR_RATIO] * lr_mult,
                                  weight_decay_mult);
}

LATHE_HD static inline float adamw_part_element(const adamw_part_uniform *u, float p, float g,
                                                float *s, const lathe_element *at)
{
    (void)at;
    return lathe_adamw_move(u, p, g, &s[0], &s[1]);
}

LATHE_ELEMENTWISE(adamw_part, 2)

#endif
