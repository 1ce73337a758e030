/* Correct optimizers that differ from the built-in ones; they must pass. */
#include "fault.h"

#include "lathe/optimizer.h"

static lathe_status create_odd(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (IS(sound_with_a_required_key) && !(n_values == 2 && values[1].is_set && values[1].f < 0.75))
        return lathe_fail(host, LATHE_E_CONFIG, "momentum is %g, expected less than 0.75",
                          n_values == 2 ? values[1].f : 0.0);
    return create(host, values, n_values, out_self);
}

static const lathe_field odd_fields[] = {
    {"lr", LATHE_T_FLOAT, 0, "0.01", 0, 10, NULL, "1", "learning rate"},
    {"momentum", LATHE_T_FLOAT, IS(sound_with_a_required_key) ? LATHE_FIELD_REQUIRED : 0,
     IS(sound_with_a_required_key) ? NULL : "0.5", 0.5, 1, NULL, "1", "decay of the momentum"},
};

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    out[0] = (lathe_slot){"momentum", param->desc};
    if (IS(sound_with_bf16_state))
        out[0].desc.dtype = LATHE_BF16;
    return IS(sound_without_state) || IS(sound_by_norms) ? 0 : 1;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return IS(sound_by_norms)    ? LATHE_PARTITION_TENSOR
           : IS(sound_in_blocks) ? LATHE_PARTITION_BLOCK
                                 : LATHE_PARTITION_ELEMENT;
}

static int64_t block(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return IS(sound_in_blocks) ? 8 : 1;
}

static double base_lr(void *self)
{
    return ((const instance *)self)->lr;
}

static double norm(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The factor of layer-wise rates (LARS, arXiv:1708.03888); 1 otherwise. */
static double trust(const lathe_optimizer_tensor *t, double scale)
{
    const double p = norm(t->param, t->n), g = norm(t->grad, t->n) * scale;
    return IS(sound_by_norms) && p > 0.0 && g > 0.0 ? p / g : 1.0;
}

static float direction(const lathe_optimizer_tensor *t, float g, int64_t i)
{
    if (IS(sound_with_bf16_state)) {
        uint16_t *m = t->slots[0];
        m[i] = lathe_f32_to_bf16(0.5f * lathe_bf16_to_f32(m[i]) + g);
        return lathe_bf16_to_f32(m[i]);
    }
    if (IS(sound_without_state) || IS(sound_by_norms))
        return g;
    float *m = t->slots[0];
    m[i] = 0.5f * m[i] + g;
    return IS(sound_by_signs) ? (float)((m[i] > 0.0f) - (m[i] < 0.0f)) : m[i];
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    (void)self;
    const float scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    for (int32_t k = 0; k < s->n_tensors; k++) {
        const lathe_optimizer_tensor *t = &s->tensors[k];
        const float lr =
            (float)((double)s->scalars[LATHE_SCALAR_LR] * t->lr_mult * trust(t, (double)scale));
        const float decay = 0.01f * (float)t->weight_decay_mult;
        for (int64_t i = 0; i < t->n; i++) {
            const float d = direction(t, t->grad[i] * scale, i);
            t->param[i] -= lr * (d + decay * t->param[i]);
            if (t->shadow != NULL)
                t->shadow[i] = t->shadow_dtype == LATHE_F16 ? lathe_f32_to_f16(t->param[i])
                                                            : lathe_f32_to_bf16(t->param[i]);
        }
    }
    return LATHE_OK;
}

static const lathe_optimizer_v1 table = {
    .size = sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .block = block,
    .base_lr = base_lr,
    .step = step,
};

#undef FAULT_CREATE
#undef FAULT_FIELDS
#define FAULT_CREATE create_odd
#define FAULT_FIELDS odd_fields
FAULTY_PLUGIN(LATHE_KIND_OPTIMIZER, LATHE_OPTIMIZER_REVISION, &table);
