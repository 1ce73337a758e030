/* SGD with momentum, dampening, Nesterov's form, and weight decay in the gradient:
 *
 *     d = g + wd*p;   m = mu*m + (1 - tau)*d  (the first step: m = d);   u = d + mu*m or m
 *     p -= lr*u
 *
 * Source: torch.optim.SGD, operation by operation. The decay is coupled, as in torch: the optimizer
 * has no second moment that would distort it. Without momentum there is no state.
 */
#include "lathe/kit/elementwise.h"

enum { MOMENTUM, FRESH /* 1 - tau, or 1 */, NESTEROV, DECAY };

LATHE_UNIFORM(sgd, DECAY)

LATHE_HD static inline float sgd_element(const sgd_uniform *u, float p, float g, float *s,
                                         const lathe_element *at)
{
    const float momentum = u->user[MOMENTUM], d = fmaf(u->decay, p, g);
    (void)at;
    s[0] = fmaf(u->user[FRESH], d, momentum * s[0]);
    const float update = u->user[NESTEROV] != 0.0f ? fmaf(momentum, s[0], d) : s[0];
    return fmaf(-u->lr, update, p);
}

LATHE_ELEMENTWISE(sgd, 1)

#ifndef __CUDACC__

/* The loop of plain SGD: the same formula without velocity. */
typedef sgd_uniform sgd_plain_uniform;
#define sgd_plain_prepare sgd_prepare
#define sgd_plain_element sgd_element
LATHE_ELEMENTWISE(sgd_plain, 0)

#include "lathe/kit/optimizer_kit.h"

typedef struct sgd {
    lathe_optimizer_common common;
    double momentum, dampening, weight_decay;
    int32_t nesterov, reserved;
} sgd;

enum { FIELD_LR, FIELD_MOMENTUM, FIELD_DAMPENING, FIELD_NESTEROV, FIELD_DECAY, FIELD_STATE_DTYPE };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("momentum", "0.0", "decay of the velocity; 0: plain SGD"),
    LATHE_FIELD_FLOAT("dampening", "0.0", 0, 1, "1",
                      "dampening of the momentum: the gradient enters it times (1 - dampening)"),
    LATHE_FIELD_BOOL("nesterov", "false", "use Nesterov momentum"),
    LATHE_FIELD_FLOAT("weight_decay", "0.0", 0, 1e3, "1",
                      "L2 penalty: weight_decay times the weight is added to the gradient"),
    LATHE_STATE_DTYPE_FIELD("type of the velocity; bf16 is rounded stochastically"),
};

static lathe_status read_values(const lathe_host *host, sgd *o, const lathe_value *values)
{
    o->common.lr = values[FIELD_LR].f;
    o->common.state_dtype = lathe_state_dtype(&values[FIELD_STATE_DTYPE]);
    o->momentum = values[FIELD_MOMENTUM].f;
    o->dampening = values[FIELD_DAMPENING].f;
    o->nesterov = (int32_t)values[FIELD_NESTEROV].i;
    o->weight_decay = values[FIELD_DECAY].f;
    if (o->nesterov && (o->momentum <= 0.0 || o->dampening != 0.0))
        return lathe_fail_at(host, LATHE_E_CONFIG, "nesterov",
                             "nesterov needs a momentum above 0 and no dampening; momentum is %g, "
                             "dampening %g",
                             o->momentum, o->dampening);
    return LATHE_OK;
}

static int32_t sgd_slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const sgd *const o = self;
    if (o->momentum == 0.0)
        return 0;
    lathe_slot_like(&out[0], "momentum_buffer", param, o->common.state_dtype);
    return 1;
}

static void sgd_scalars(void *self, int64_t step, double *out)
{
    const sgd *const o = self;
    out[MOMENTUM] = o->momentum;
    out[FRESH] = step == 1 || o->momentum == 0.0 ? 1.0 : 1.0 - o->dampening;
    out[NESTEROV] = o->nesterov;
    out[DECAY] = o->weight_decay;
}

static lathe_status sgd_step(void *self, const lathe_optimizer_step *step)
{
    const sgd *const o = self;
    return o->momentum == 0.0 ? lathe_elementwise_run(o->common.host, step, 0, sgd_plain_chunk)
                              : lathe_elementwise_run(o->common.host, step, 1, sgd_chunk);
}

LATHE_INSTANCE(sgd, read_values)

LATHE_OPTIMIZER_TABLE(sgd, .slots = sgd_slots, .scalars = sgd_scalars, .step = sgd_step,
                      .cuda_image = LATHE_CUDA_IMAGE);

LATHE_OPTIMIZER_ENTRY(sgd, .version = "1.0.0",
                      .summary = "stochastic gradient descent with momentum",
                      .source = "torch.optim.SGD");

#endif
