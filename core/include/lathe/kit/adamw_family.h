/* Building blocks for optimizers of the AdamW family: five configuration fields, the scalars of a
 * step, and the update of one element:
 *
 *     m += (1-b1)*(g - m);  v = b2*v + (1-b2)*g*g
 *     p = p*(1 - lr*wd) - lr/(1 - b1^t) * m / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *
 * with the same roundings as torch.optim.AdamW (arXiv:1711.05101, algorithm 2). An optimizer that
 * stores the moments in another format can use some of the parts only. The first half of the file
 * compiles both as C and as CUDA.
 */
#ifndef LATHE_KIT_ADAMW_FAMILY_H
#define LATHE_KIT_ADAMW_FAMILY_H

#include "elementwise.h"

/* Index k of each scalar that lathe_adamw_scalars() writes at LATHE_SCALAR_USER + k. An
 * optimizer may add one scalar after them. */
enum {
    LATHE_ADAMW_NEW1,  /* 1 - b1 */
    LATHE_ADAMW_BETA2, /* b2 */
    LATHE_ADAMW_NEW2,  /* 1 - b2 */
    LATHE_ADAMW_EPS,
    LATHE_ADAMW_DECAY,
    LATHE_ADAMW_BIAS1, /* 1/(1 - b1^t) */
    LATHE_ADAMW_BIAS2, /* 1/sqrt(1 - b2^t) */
    LATHE_ADAMW_N_SCALARS
};

/** Values that all elements of a tensor share in a step. */
typedef struct lathe_adamw_numbers {
    float keep; /* 1 - lr*wd */
    float rate; /* lr/(1 - b1^t) */
    float new1; /* 1 - b1 */
    float beta2, new2, eps;
    float root_bias; /* 1/sqrt(1 - b2^t) */
} lathe_adamw_numbers;

/** lr: learning rate of the tensor, with its multiplier. */
LATHE_HD static inline lathe_adamw_numbers lathe_adamw_numbers_of(const float *scalars, float lr,
                                                                  float weight_decay_mult)
{
    const float *const user = scalars + LATHE_SCALAR_USER;
    lathe_adamw_numbers u;
    u.keep = lathe_keep(lr, user[LATHE_ADAMW_DECAY], weight_decay_mult);
    u.rate = lr * user[LATHE_ADAMW_BIAS1];
    u.new1 = user[LATHE_ADAMW_NEW1];
    u.beta2 = user[LATHE_ADAMW_BETA2];
    u.new2 = user[LATHE_ADAMW_NEW2];
    u.eps = user[LATHE_ADAMW_EPS];
    u.root_bias = user[LATHE_ADAMW_BIAS2];
    return u;
}

/** Updates one element: p parameter, g gradient, m and v moments (in place). Returns the new p. */
LATHE_HD static inline float lathe_adamw_move(const lathe_adamw_numbers *u, float p, float g,
                                              float *m, float *v)
{
    *m = fmaf(u->new1, g - *m, *m);
    *v = fmaf(u->new2 * g, g, u->beta2 * *v);
    return fmaf(-u->rate, *m / fmaf(sqrtf(*v), u->root_bias, u->eps), p * u->keep);
}

#ifndef __CUDACC__

#include "optimizer_kit.h"

/** First member of every instance of the family. */
typedef struct lathe_adamw {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay;
} lathe_adamw;

/* The first five rows of the schema, and the index of the next row. */
#define LATHE_ADAMW_FIELDS(lr, eps, weight_decay)                                                  \
    LATHE_LR_FIELD(lr), LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),             \
        LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"), LATHE_EPS_FIELD(eps),    \
        LATHE_WEIGHT_DECAY_FIELD(weight_decay)
enum { LATHE_ADAMW_N_FIELDS = 5 };

static inline void lathe_adamw_read(lathe_adamw *out, const lathe_value *values)
{
    out->common.lr = values[0].f;
    out->beta1 = values[1].f;
    out->beta2 = values[2].f;
    out->eps = values[3].f;
    out->weight_decay = values[4].f;
}

/** scalars() of the family. self begins with lathe_adamw. */
static inline void lathe_adamw_scalars(void *self, int64_t step, double *out)
{
    const lathe_adamw *const o = (const lathe_adamw *)self;
    out[LATHE_ADAMW_NEW1] = 1.0 - o->beta1;
    out[LATHE_ADAMW_BETA2] = o->beta2;
    out[LATHE_ADAMW_NEW2] = 1.0 - o->beta2;
    out[LATHE_ADAMW_EPS] = o->eps;
    out[LATHE_ADAMW_DECAY] = o->weight_decay;
    out[LATHE_ADAMW_BIAS1] = 1.0 / lathe_bias_correction(o->beta1, step);
    out[LATHE_ADAMW_BIAS2] = 1.0 / sqrt(lathe_bias_correction(o->beta2, step));
}

/** Declares two state slots for the moments, with the parameter's shape; returns their number,
 *  2. */
static inline int32_t lathe_adamw_moments(const lathe_param_info *param, int32_t dtype,
                                          lathe_slot *out)
{
    lathe_slot_like(&out[0], "exp_avg", param, dtype);
    lathe_slot_like(&out[1], "exp_avg_sq", param, dtype);
    return 2;
}

#endif

#endif
