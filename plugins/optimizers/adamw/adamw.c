/* AdamW with decoupled weight decay, rounding for rounding as torch.optim.AdamW computes it:
 *
 *     p = p*(1 - lr*wd);  m += (1-b1)*(g - m);  v = b2*v + (1-b2)*g*g
 *     p -= lr/(1 - b1^t) * m / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *
 * Source: arXiv:1711.05101, algorithm 2, with the learning rate multiplying the decay (torch).
 */
#include "lathe/elementwise.h"

/* What scalars() hands to the kernel, at LATHE_SCALAR_USER + k. */
enum { NEW1, BETA2, NEW2, EPS, DECAY, BIAS1, BIAS2 };

typedef struct adamw_uniform {
    float keep; /* 1 - lr*wd */
    float rate; /* lr / (1 - b1^t) */
    float new1; /* 1 - b1 */
    float beta2, new2, eps;
    float root_bias; /* 1 / sqrt(1 - b2^t) */
} adamw_uniform;

LATHE_HD static inline adamw_uniform adamw_prepare(const float *scalars, float lr_mult,
                                                   float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    const float lr = scalars[LATHE_SCALAR_LR] * lr_mult;
    adamw_uniform u;
    u.keep = fmaf(-lr, user[DECAY] * weight_decay_mult, 1.0f);
    u.rate = lr * user[BIAS1];
    u.new1 = user[NEW1];
    u.beta2 = user[BETA2];
    u.new2 = user[NEW2];
    u.eps = user[EPS];
    u.root_bias = user[BIAS2];
    return u;
}

LATHE_HD static inline float adamw_element(const adamw_uniform *u, float p, float g, float *s,
                                           const lathe_element *at)
{
    (void)at;
    s[0] = fmaf(u->new1, g - s[0], s[0]);
    s[1] = fmaf(u->new2 * g, g, u->beta2 * s[1]);
    const float denominator = fmaf(sqrtf(s[1]), u->root_bias, u->eps);
    return fmaf(-u->rate, s[0] / denominator, p * u->keep);
}

LATHE_ELEMENTWISE(adamw, 2)

#ifndef __CUDACC__

#include "lathe/plugin.h"

typedef struct adamw {
    const lathe_host *host;
    double lr, beta1, beta2, eps, weight_decay;
    int32_t state_dtype;
} adamw;

enum { FIELD_LR, FIELD_BETA1, FIELD_BETA2, FIELD_EPS, FIELD_WEIGHT_DECAY, FIELD_STATE, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"lr", LATHE_T_FLOAT, 0, "1e-3", 0, 1e3, NULL, "1", "learning rate that schedules multiply"},
    {"beta1", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.9", 0, 1, NULL, "1",
     "decay of the first moment"},
    {"beta2", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.999", 0, 1, NULL, "1",
     "decay of the second moment"},
    {"eps", LATHE_T_FLOAT, 0, "1e-8", 0, 1, NULL, "1", "added to the root of the second moment"},
    {"weight_decay", LATHE_T_FLOAT, 0, "0.01", 0, 1e3, NULL, "1",
     "decoupled weight decay, times the learning rate"},
    LATHE_FIELD_STRING("state_dtype", "\"fp32\"", "fp32|bf16",
                       "type of both moments; bf16 is rounded stochastically"),
};

/* The schema's ranges, for callers that hand over values unchecked. Written so that NaN fails. */
static lathe_status check(const lathe_host *host, const lathe_value *values, int32_t n_values)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "adamw takes %d values, got %d", N_FIELDS, n_values);
    for (int32_t k = 0; k < FIELD_STATE; k++) {
        const lathe_field *const f = &fields[k];
        const int below =
            f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? values[k].f < f->max : values[k].f <= f->max;
        if (!(values[k].f >= f->min) || !below)
            return lathe_fail(host, LATHE_E_CONFIG, "%s is %g, expected %g to %g%s", f->key,
                              values[k].f, f->min, f->max,
                              f->flags & LATHE_FIELD_MAX_EXCLUSIVE ? " (exclusive)" : "");
    }
    const char *const state = values[FIELD_STATE].s;
    if (state == NULL || (strcmp(state, "fp32") != 0 && strcmp(state, "bf16") != 0))
        return lathe_fail(host, LATHE_E_CONFIG, "state_dtype is \"%s\", expected fp32 or bf16",
                          state != NULL ? state : "");
    return LATHE_OK;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    LATHE_TRY(check(host, values, n_values));
    adamw *const a = host->alloc((int64_t)sizeof *a);
    if (a == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of adamw");
    a->host = host;
    a->lr = values[FIELD_LR].f;
    a->beta1 = values[FIELD_BETA1].f;
    a->beta2 = values[FIELD_BETA2].f;
    a->eps = values[FIELD_EPS].f;
    a->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    a->state_dtype = strcmp(values[FIELD_STATE].s, "bf16") == 0 ? LATHE_BF16 : LATHE_F32;
    *out_self = a;
    return LATHE_OK;
}

static void destroy(void *self)
{
    adamw *const a = self;
    if (a != NULL)
        a->host->free(a);
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    out[0].name = "exp_avg";
    out[1].name = "exp_avg_sq";
    out[0].desc = out[1].desc = param->desc;
    out[0].desc.dtype = out[1].desc.dtype = ((const adamw *)self)->state_dtype;
    return 2;
}

static double base_lr(void *self)
{
    return ((const adamw *)self)->lr;
}

static void scalars(void *self, int64_t step, double *out)
{
    const adamw *const a = self;
    out[NEW1] = 1.0 - a->beta1;
    out[BETA2] = a->beta2;
    out[NEW2] = 1.0 - a->beta2;
    out[EPS] = a->eps;
    out[DECAY] = a->weight_decay;
    out[BIAS1] = 1.0 / (1.0 - pow(a->beta1, (double)step));
    out[BIAS2] = 1.0 / sqrt(1.0 - pow(a->beta2, (double)step));
    out[7] = 0.0;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_elementwise_run(((const adamw *)self)->host, s, 2, adamw_chunk);
}

static const lathe_optimizer_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .base_lr = base_lr,
    .scalars = scalars,
    .step = step,
    .cuda_image = LATHE_CUDA_IMAGE,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_OPTIMIZER,
    .revision = LATHE_OPTIMIZER_REVISION,
    .n_fields = N_FIELDS,
    .name = "adamw",
    .version = "1.0.0",
    .summary = "Adam with decoupled weight decay",
    .source = "arXiv:1711.05101; rounding order of torch.optim.AdamW",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

#endif
