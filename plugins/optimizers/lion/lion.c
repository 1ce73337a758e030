/* Lion with decoupled weight decay:
 *
 *     p = p*(1 - lr*wd) - lr*sign(b1*m + (1 - b1)*g);   m = b2*m + (1 - b2)*g
 *
 * Source: arXiv:2302.06675, algorithm 2; rounding order of lion-pytorch.
 */
#include "lathe/kit/elementwise.h"

enum { BETA1, NEW1, BETA2, NEW2, DECAY };

LATHE_UNIFORM(lion, DECAY)

LATHE_HD static inline float lion_element(const lion_uniform *u, float p, float g, float *s,
                                          const lathe_element *at)
{
    const float mix = fmaf(u->user[NEW1], g, u->user[BETA1] * s[0]);
    (void)at;
    s[0] = fmaf(u->user[NEW2], g, u->user[BETA2] * s[0]);
    return fmaf(-u->lr, lathe_sign(mix), p * u->keep);
}

LATHE_ELEMENTWISE(lion, 1)

#ifndef __CUDACC__

#include "lathe/kit/optimizer_kit.h"

typedef struct lion {
    lathe_optimizer_common common;
    double beta1, beta2, weight_decay;
} lion;

enum { FIELD_LR, FIELD_BETA1, FIELD_BETA2, FIELD_WEIGHT_DECAY, FIELD_STATE_DTYPE };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-4"),
    LATHE_BETA_FIELD("beta1", "0.9", "weight of the momentum in the update, whose sign is taken"),
    LATHE_BETA_FIELD("beta2", "0.99", "decay of the momentum"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_STATE_DTYPE_FIELD("type of the momentum; bf16 is rounded stochastically"),
};

static lathe_status read_values(const lathe_host *host, lion *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->common.state_dtype = lathe_state_dtype(&values[FIELD_STATE_DTYPE]);
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    return LATHE_OK;
}

static int32_t lion_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    lathe_slot_like(&out[0], "exp_avg", param, ((const lion *)self)->common.state_dtype);
    return 1;
}

static void lion_scalars(void *self, int64_t step, double *out)
{
    const lion *const o = self;
    (void)step;
    out[BETA1] = o->beta1;
    out[NEW1] = 1.0 - o->beta1;
    out[BETA2] = o->beta2;
    out[NEW2] = 1.0 - o->beta2;
    out[DECAY] = o->weight_decay;
}

LATHE_OPTIMIZER_ELEMENTWISE(lion, 1, read_values, .version = "1.0.0",
                            .summary = "the sign of a momentum: half of AdamW's state",
                            .source = "arXiv:2302.06675; lion-pytorch");

#endif
