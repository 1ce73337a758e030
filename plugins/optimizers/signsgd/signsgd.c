/* SignSGD, with momentum Signum, and decoupled weight decay:
 *
 *     m = b*m + (1 - b)*g;   p = p*(1 - lr*wd) - lr*sign(m)
 *
 * Source: arXiv:1802.04434, algorithms 1 and 3 (b = 0 is the first).
 */
#include "lathe/kit/elementwise.h"

enum { BETA, NEW, DECAY };

LATHE_UNIFORM(signsgd, DECAY)

LATHE_HD static inline float signsgd_element(const signsgd_uniform *u, float p, float g, float *s,
                                             const lathe_element *at)
{
    (void)at;
    s[0] = fmaf(u->user[NEW], g, u->user[BETA] * s[0]);
    return fmaf(-u->lr, lathe_sign(s[0]), p * u->keep);
}

LATHE_ELEMENTWISE(signsgd, 1)

#ifndef __CUDACC__

#include "lathe/kit/optimizer_kit.h"

typedef struct signsgd {
    lathe_optimizer_common common;
    double momentum, weight_decay;
} signsgd;

enum { FIELD_LR, FIELD_MOMENTUM, FIELD_WEIGHT_DECAY, FIELD_STATE_DTYPE };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-4"),
    LATHE_BETA_FIELD("momentum", "0.9",
                     "decay of the average of gradients whose sign is taken; 0: the sign of the "
                     "gradient itself"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_STATE_DTYPE_FIELD("type of the momentum; bf16 is rounded stochastically"),
};

static lathe_status read_values(const lathe_host *host, signsgd *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->common.state_dtype = lathe_state_dtype(&values[FIELD_STATE_DTYPE]);
    o->momentum = values[FIELD_MOMENTUM].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    return LATHE_OK;
}

static int32_t signsgd_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    lathe_slot_like(&out[0], "exp_avg", param, ((const signsgd *)self)->common.state_dtype);
    return 1;
}

static void signsgd_scalars(void *self, int64_t step, double *out)
{
    const signsgd *const o = self;
    (void)step;
    out[BETA] = o->momentum;
    out[NEW] = 1.0 - o->momentum;
    out[DECAY] = o->weight_decay;
}

LATHE_OPTIMIZER_ELEMENTWISE(signsgd, 1, read_values, .version = "1.0.0",
                            .summary = "the sign of the gradient, or of its average",
                            .source = "arXiv:1802.04434");

#endif
