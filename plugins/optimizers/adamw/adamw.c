/* AdamW with decoupled weight decay: the formula of lathe/kit/adamw_family.h, elementwise.
 *
 * Source: arXiv:1711.05101, algorithm 2, with the learning rate multiplying the decay (torch).
 */
#include "lathe/kit/adamw_family.h"

typedef lathe_adamw_numbers adamw_uniform;

LATHE_HD static inline adamw_uniform adamw_prepare(const float *scalars, float lr_mult,
                                                   float weight_decay_mult)
{
    return lathe_adamw_numbers_of(scalars, scalars[LATHE_SCALAR_LR] * lr_mult, weight_decay_mult);
}

LATHE_HD static inline float adamw_element(const adamw_uniform *u, float p, float g, float *s,
                                           const lathe_element *at)
{
    (void)at;
    return lathe_adamw_move(u, p, g, &s[0], &s[1]);
}

LATHE_ELEMENTWISE(adamw, 2)

#ifndef __CUDACC__

typedef lathe_adamw adamw;

static const lathe_field fields[] = {
    LATHE_ADAMW_FIELDS("1e-3", "1e-8", "0.01"),
    LATHE_STATE_DTYPE_FIELD("type of both moments; bf16 is rounded stochastically"),
};

static lathe_status read_values(const lathe_host *host, adamw *o, const lathe_value *values)
{
    (void)host;
    lathe_adamw_read(o, values);
    o->common.state_dtype = lathe_state_dtype(&values[LATHE_ADAMW_N_FIELDS]);
    return LATHE_OK;
}

static int32_t adamw_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    return lathe_adamw_moments(param, ((const adamw *)self)->common.state_dtype, out);
}

#define adamw_scalars lathe_adamw_scalars

LATHE_OPTIMIZER_ELEMENTWISE(adamw, 2, read_values, .version = "1.0.0",
                            .summary = "Adam with decoupled weight decay",
                            .source = "arXiv:1711.05101; rounding order of torch.optim.AdamW");

#endif
