/* AdamW with states of selectable precision and Kahan summation of the parameter:
 *
 *     p = p*(1 - lr*wd);  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g*g
 *     u = lr/(1 - b1^t) * m / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *     plain  p -= u
 *     Kahan  c -= u;  q = p + c;  c += p - q;  p = q      c is the part that p cannot represent
 *
 * bf16 states are rounded to nearest, as in the source (those of adamw are rounded stochastically).
 * Source: torchdistx AnyPrecisionAdamW (Meta); Kahan 1965.
 */
#include "lathe/kit/elementwise.h"

enum { NEW1, BETA2, NEW2, EPS, DECAY, BIAS1, BIAS2, MODE };

/* MODE is a sum of these bits. */
enum { MODE_M_BF16 = 1, MODE_V_BF16 = 2, MODE_C_BF16 = 4, MODE_KAHAN = 8 };

typedef struct adamw_anyprecision_uniform {
    float keep, rate; /* 1 - lr*wd; lr/(1 - b1^t) */
    float beta1, new1, beta2, new2, eps;
    float root_bias;              /* 1/sqrt(1 - b2^t) */
    uint32_t m_cut, v_cut, c_cut; /* low bits that the states do not store */
    int32_t has_kahan;
} adamw_anyprecision_uniform;

LATHE_HD static inline adamw_anyprecision_uniform
adamw_anyprecision_prepare(const float *scalars, float lr_mult, float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    const float lr = scalars[LATHE_SCALAR_LR] * lr_mult;
    adamw_anyprecision_uniform u;
    u.keep = fmaf(-lr, user[DECAY] * weight_decay_mult, 1.0f);
    u.rate = lr * user[BIAS1];
    u.new1 = user[NEW1];
    u.beta1 = 1.0f - user[NEW1];
    u.beta2 = user[BETA2];
    u.new2 = user[NEW2];
    u.eps = user[EPS];
    u.root_bias = user[BIAS2];
    const int32_t mode = (int32_t)user[MODE];
    u.m_cut = mode & MODE_M_BF16 ? 0xffffu : 0u;
    u.v_cut = mode & MODE_V_BF16 ? 0xffffu : 0u;
    u.c_cut = mode & MODE_C_BF16 ? 0xffffu : 0u;
    u.has_kahan = mode & MODE_KAHAN;
    return u;
}

/* x rounded to nearest, ties to even. `cut` has the bits that are removed: 0xffff for bf16; 0
 * leaves x as it is. A NaN must be quiet, as NaN results are; it only loses the bits. */
LATHE_HD static inline float narrow(float x, uint32_t cut)
{
    uint32_t bits;
    float out;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + (cut >> 1) + (bits >> 16 & cut & 1u);
    bits = (x != x ? bits : rounded) & ~cut;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Updates the moments; returns what would be subtracted from the parameter exactly. As in the
 * source, a product and a sum are two roundings of the state. */
LATHE_HD static inline float adamw_anyprecision_update(const adamw_anyprecision_uniform *u, float g,
                                                       float *s)
{
    s[0] = narrow(narrow(u->beta1 * s[0], u->m_cut) + u->new1 * g, u->m_cut);
    s[1] = narrow(narrow(u->beta2 * s[1], u->v_cut) + u->new2 * g * g, u->v_cut);
    return u->rate * (s[0] / fmaf(sqrtf(s[1]), u->root_bias, u->eps));
}

/* The CPU has a separate loop without the compensation; a CUDA image has one kernel for both. */
#ifdef __CUDACC__
#define HAS_KAHAN(u) ((u)->has_kahan)
#else
#define HAS_KAHAN(u) 1
#endif

LATHE_HD static inline float adamw_anyprecision_element(const adamw_anyprecision_uniform *u,
                                                        float p, float g, float *s,
                                                        const lathe_element *at)
{
    const float update = adamw_anyprecision_update(u, g, s), kept = p * u->keep;
    const float waiting = narrow(s[2] - update, u->c_cut), moved = kept + waiting;
    (void)at;
    s[2] = HAS_KAHAN(u) ? narrow(waiting + (kept - moved), u->c_cut) : s[2];
    return HAS_KAHAN(u) ? moved : kept - update;
}

LATHE_ELEMENTWISE_EXACT(adamw_anyprecision, 3)

#ifndef __CUDACC__

#include "lathe/kit/optimizer_kit.h"

/* The loop without Kahan summation: two slots. */
typedef adamw_anyprecision_uniform plain_uniform;
#define plain_prepare adamw_anyprecision_prepare

static inline float plain_element(const plain_uniform *u, float p, float g, float *s,
                                  const lathe_element *at)
{
    (void)at;
    return p * u->keep - adamw_anyprecision_update(u, g, s);
}

LATHE_ELEMENTWISE_EXACT(plain, 2)

typedef struct adamw_anyprecision {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay;
    int32_t momentum_dtype, variance_dtype, compensation_dtype;
    int32_t kahan;
} adamw_anyprecision;

enum {
    FIELD_LR,
    FIELD_BETA1,
    FIELD_BETA2,
    FIELD_EPS,
    FIELD_WEIGHT_DECAY,
    FIELD_KAHAN,
    FIELD_MOMENTUM_DTYPE,
    FIELD_VARIANCE_DTYPE,
    FIELD_COMPENSATION_DTYPE
};

#define DTYPE_FIELD(key, def, doc) LATHE_FIELD_STRING(key, def, "fp32|bf16", doc)

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"),
    LATHE_EPS_FIELD("1e-8"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_FIELD_BOOL("use_kahan_summation", "true",
                     "keep the rounding errors of the parameters and add them to the next updates "
                     "(Kahan summation)"),
    DTYPE_FIELD("momentum_dtype", "\"bf16\"", "type of the first moment"),
    DTYPE_FIELD("variance_dtype", "\"bf16\"", "type of the second moment"),
    DTYPE_FIELD("compensation_dtype", "\"bf16\"", "type of what Kahan summation keeps"),
};

static lathe_status read_values(const lathe_host *host, adamw_anyprecision *o,
                                const lathe_value *values)
{
    if (values[FIELD_COMPENSATION_DTYPE].is_explicit && !values[FIELD_KAHAN].i)
        lathe_warn_at(host, "compensation_dtype",
                      "optimizer.compensation_dtype has no effect: use_kahan_summation is false");
    o->common.lr = values[FIELD_LR].f;
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->eps = values[FIELD_EPS].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->kahan = (int32_t)values[FIELD_KAHAN].i;
    o->momentum_dtype = lathe_state_dtype(&values[FIELD_MOMENTUM_DTYPE]);
    o->variance_dtype = lathe_state_dtype(&values[FIELD_VARIANCE_DTYPE]);
    o->compensation_dtype = lathe_state_dtype(&values[FIELD_COMPENSATION_DTYPE]);
    return LATHE_OK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const adamw_anyprecision *const o = self;
    lathe_slot_like(&out[0], "exp_avg", param, o->momentum_dtype);
    lathe_slot_like(&out[1], "exp_avg_sq", param, o->variance_dtype);
    if (o->kahan)
        lathe_slot_like(&out[2], "compensation", param, o->compensation_dtype);
    return o->kahan ? 3 : 2;
}

static void scalars(void *self, int64_t step, double *out)
{
    const adamw_anyprecision *const o = self;
    out[NEW1] = 1.0 - o->beta1;
    out[BETA2] = o->beta2;
    out[NEW2] = 1.0 - o->beta2;
    out[EPS] = o->eps;
    out[DECAY] = o->weight_decay;
    out[BIAS1] = 1.0 / lathe_bias_correction(o->beta1, step);
    out[BIAS2] = 1.0 / sqrt(lathe_bias_correction(o->beta2, step));
    out[MODE] = (o->momentum_dtype == LATHE_BF16 ? MODE_M_BF16 : 0) +
                (o->variance_dtype == LATHE_BF16 ? MODE_V_BF16 : 0) +
                (o->compensation_dtype == LATHE_BF16 ? MODE_C_BF16 : 0) +
                (o->kahan ? MODE_KAHAN : 0);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    const adamw_anyprecision *const o = self;
    return o->kahan ? lathe_elementwise_run(o->common.host, s, 3, adamw_anyprecision_chunk)
                    : lathe_elementwise_run(o->common.host, s, 2, plain_chunk);
}

LATHE_INSTANCE(adamw_anyprecision, read_values)

static const lathe_optimizer_v1 adamw_anyprecision_table = {
    .size = (uint32_t)sizeof adamw_anyprecision_table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .base_lr = lathe_optimizer_lr,
    .scalars = scalars,
    .step = step,
    .cuda_image = LATHE_CUDA_IMAGE,
};

LATHE_OPTIMIZER_ENTRY(adamw_anyprecision, .version = "1.0.0",
                      .summary = "AdamW with bf16 states and Kahan summation",
                      .source = "torchdistx AnyPrecisionAdamW");

#endif
