/* Adam-mini: AdamW with one second moment per block.
 *
 *     m += (1-b1)*(g - m);  v = b2*v + (1-b2)*mean(g*g over the block)
 *     p = p*(1 - lr*wd) - lr * m/(1 - b1^t) / (sqrt(v)/sqrt(1 - b2^t) + eps)
 *
 * Blocks: a head of a query or key projection; a row of every other matrix, embedding and head; the
 * whole of a norm; an element of a bias.
 * Source: arXiv:2406.16793; the authors' package adam-mini 1.1.1.
 */
#include "lathe/optimizer_kit.h"
#include "lathe/tensor_chunks.h"

typedef struct adam_mini {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay;
} adam_mini;

enum { NEW1, BETA2, NEW2, EPS, DECAY, BIAS1, BIAS2 };
enum { FIELD_LR, FIELD_BETA1, FIELD_BETA2, FIELD_EPS, FIELD_WEIGHT_DECAY };
enum { SLOT_M, SLOT_V, N_SLOTS };

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moments"),
    LATHE_EPS_FIELD("1e-8"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
};

static lathe_status read_values(const lathe_host *host, adam_mini *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->eps = values[FIELD_EPS].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    return LATHE_OK;
}

/* Elements that share a second moment. */
static int64_t block(void *self, const lathe_param_info *param)
{
    const int64_t n = lathe_desc_count(&param->desc);
    const int64_t cols = param->desc.rank > 1 ? n / param->desc.dims[0] : 1;
    (void)self;
    if (param->role == LATHE_ROLE_BIAS)
        return 1;
    if (param->desc.rank < 2)
        return n > 0 ? n : 1;
    return param->head_rows > 0 && param->desc.dims[0] % param->head_rows == 0
               ? cols * param->head_rows
               : cols;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return LATHE_PARTITION_BLOCK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const int64_t size = block(self, param);
    lathe_slot_like(&out[SLOT_M], "exp_avg", param, LATHE_F32);
    lathe_slot_vector(&out[SLOT_V], "exp_avg_sq",
                      (lathe_desc_count(&param->desc) + size - 1) / size, LATHE_F32);
    return N_SLOTS;
}

static void scalars(void *self, int64_t step, double *out)
{
    const adam_mini *const o = self;
    out[NEW1] = 1.0 - o->beta1;
    out[BETA2] = o->beta2;
    out[NEW2] = 1.0 - o->beta2;
    out[EPS] = o->eps;
    out[DECAY] = o->weight_decay;
    out[BIAS1] = 1.0 / lathe_bias_correction(o->beta1, step);
    out[BIAS2] = 1.0 / sqrt(lathe_bias_correction(o->beta2, step));
}

/* Whole blocks, about LATHE_CHUNK_ELEMENTS elements. */
static int64_t chunk_size(void *ctx, const lathe_optimizer_tensor *x)
{
    (void)ctx;
    const int64_t size = x->block > 0 ? x->block : 1, want = LATHE_CHUNK_ELEMENTS;
    return size >= want ? size : want / size * size;
}

#define LANES 8

/* Mean of the squares of the scaled gradient, by eight partial sums: the same order everywhere. */
LATHE_CLONES static float mean_square(const float *restrict g, int64_t n, float scale)
{
    double sum[LANES] = {0.0}, total = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float x = g[i + k] * scale;
            sum[k] += (double)(x * x);
        }
    for (; i < n; i++) {
        const float x = g[i] * scale;
        sum[0] += (double)(x * x);
    }
    for (int k = 0; k < LANES; k++)
        total += sum[k];
    return (float)(total / (double)n);
}

/* One block, its second moment known. */
LATHE_CLONES static void move(float *restrict p, float *restrict m, const float *restrict g,
                              int64_t n, float scale, float new1, float rate, float keep)
{
    for (int64_t i = 0; i < n; i++) {
        const float moment = fmaf(new1, g[i] * scale - m[i], m[i]);
        m[i] = moment;
        p[i] = fmaf(-rate, moment, p[i] * keep);
    }
}

static void update(void *ctx, const lathe_optimizer_step *s, const lathe_optimizer_tensor *x,
                   int64_t begin, int64_t end)
{
    const float *const user = s->scalars + LATHE_SCALAR_USER;
    const float lr = s->scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
    const float scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    const float keep = fmaf(-lr, user[DECAY] * (float)x->weight_decay_mult, 1.0f);
    const int64_t size = x->block > 0 ? x->block : 1;
    float *const v = x->slots[SLOT_V];
    (void)ctx;
    for (int64_t at = begin; at < end; at += size) {
        const int64_t n = at + size < end ? size : end - at;
        float *const one = &v[at / size];
        *one = fmaf(user[NEW2], mean_square(x->grad + at, n, scale), user[BETA2] * *one);
        const float rate = lr * (user[BIAS1] / fmaf(sqrtf(*one), user[BIAS2], user[EPS]));
        move(x->param + at, (float *)x->slots[SLOT_M] + at, x->grad + at, n, scale, user[NEW1],
             rate, keep);
    }
    lathe_shadow_refresh(x, begin, end);
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_chunks_run(*(const lathe_host **)self, s, N_SLOTS, chunk_size, update, self);
}

LATHE_INSTANCE(adam_mini, read_values)

static const lathe_optimizer_v1 adam_mini_table = {
    .size = (uint32_t)sizeof adam_mini_table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .block = block,
    .base_lr = lathe_optimizer_lr,
    .scalars = scalars,
    .step = step,
};

LATHE_OPTIMIZER_ENTRY(adam_mini, .version = "1.0.0",
                      .summary = "AdamW with one second moment per head or row: half the state",
                      .source = "arXiv:2406.16793; adam-mini 1.1.1");
