/* Gradient descent with momentum and decoupled decay, with one fault. */
#include "fault.h"

#include "lathe/optimizer.h"

static float shared_momentum[1 << 16];
static int64_t shared_steps;
static double shared_rate;

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    out[0] = (lathe_slot){"momentum", param->desc};
    if (IS(slots_negative))
        return -1;
    if (IS(slots_too_many))
        return 9;
    if (IS(slot_without_name))
        out[0].name = NULL;
    if (IS(slot_of_unknown_dtype))
        out[0].desc.dtype = 99;
    if (IS(slot_of_rank_nine))
        out[0].desc.rank = 9;
    if (IS(slot_of_huge_dims))
        out[0].desc = lathe_desc_2d(LATHE_F32, (int64_t)1 << 60, 16);
    if (IS(slot_of_negative_dims))
        out[0].desc = lathe_desc_2d(LATHE_F32, -4, 4);
    out[1] = (lathe_slot){"momentum", param->desc};
    return IS(same_slot_twice) ? 2 : 1;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self;
    if (IS(partition_unknown))
        return 7;
    if (IS(unknown_role_crashes) && param->role > LATHE_ROLE_ADAPTER)
        crash();
    return IS(matrix_without_build) ? LATHE_PARTITION_MATRIX : LATHE_PARTITION_ELEMENT;
}

static double base_lr(void *self)
{
    const instance *x = self;
    if (IS(base_rate_constant))
        return 0.01;
    return IS(base_rate_nan) ? NAN : IS(base_rate_negative) ? -x->lr : x->lr;
}

static int64_t scratch(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    if (IS(scratch_negative))
        return -64;
    return IS(scratch_huge) ? (int64_t)1 << 60 : 64;
}

/* The factor on the update of element i. */
static double fault_factor(const instance *x, const lathe_optimizer_tensor *t,
                           const lathe_optimizer_step *s, int64_t i)
{
    if (IS(hidden_counter))
        return 1.0 / (double)x->calls;
    if (IS(static_counter))
        return 1.0 / (double)(1 + shared_steps % 7);
    if (IS(depends_on_the_range))
        return i == 0 ? 2.0 : 1.0;
    if (IS(depends_on_threads))
        return 1.0 + 0.125 * (double)x->host->n_threads();
    if (IS(infinite_element))
        return t->first + i == 1 ? (double)INFINITY : 1.0;
    if (IS(ascends))
        return -1.0;
    if (IS(nan_at_step_777))
        return s->step == 777 ? (double)NAN : 1.0;
    if (IS(reads_old_scratch))
        return 1.0 + 1e-3 * (double)*(const unsigned char *)s->scratch;
    if (IS(rolls_dice))
        return (double)(rand() % 3);
    if (IS(turns_at_step_500))
        return s->step > 500 ? -10.0 : 1.0;
    return 1.0;
}

static float scaled(float g, const lathe_optimizer_step *s)
{
    const float x = g * (IS(ignores_scale) ? 1.0f : s->scalars[LATHE_SCALAR_GRAD_SCALE]);
    if (IS(squares_the_scale))
        return x * s->scalars[LATHE_SCALAR_GRAD_SCALE];
    if (IS(takes_magnitudes))
        return fabsf(x);
    if (IS(divides_by_the_gradient))
        return x * x / x;
    return IS(adds_a_constant) ? x + 0.3f : x;
}

static void step_tensor(instance *x, const lathe_optimizer_step *s, const lathe_optimizer_tensor *t)
{
    float *m = IS(shares_momentum) ? shared_momentum : t->slots[0];
    const double mult = IS(ignores_multiplier) ? 1.0 : t->lr_mult;
    const double rate = IS(ignores_rate)       ? x->lr
                        : IS(shares_its_rate)  ? shared_rate
                        : IS(squares_the_rate) ? 100.0 * (double)s->scalars[LATHE_SCALAR_LR] *
                                                     (double)s->scalars[LATHE_SCALAR_LR]
                                               : (double)s->scalars[LATHE_SCALAR_LR];
    const double decay = IS(ignores_decay_multiplier) ? 0.1
                         : IS(grows_by_decay)         ? -0.1 * t->weight_decay_mult
                                                      : 0.01 * t->weight_decay_mult;
    for (int64_t i = 0; i < t->n; i++) {
        const float g = scaled(t->grad[i], s);
        m[i] = 0.9f * m[i] + g;
        if (!IS(stands_still))
            t->param[i] -=
                (float)(rate * mult *
                        ((double)m[i] * fault_factor(x, t, s, i) + decay * (double)t->param[i]));
        if (IS(writes_gradients))
            ((float *)(uintptr_t)t->grad)[i] = 0.0f;
        if (t->shadow != NULL && !IS(forgets_the_shadow))
            t->shadow[i] = t->shadow_dtype == LATHE_F16 && !IS(shadow_is_always_bf16)
                               ? lathe_f32_to_f16(t->param[i])
                               : lathe_f32_to_bf16(t->param[i]);
    }
    if (IS(writes_past_the_end))
        t->param[t->n] = 0.0f;
    if (IS(writes_before_the_start))
        m[-1] = 0.0f;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    instance *x = self;
    x->calls++;
    shared_steps++;
    misbehave(x->host);
    if (IS(shares_its_rate) && x->calls == 1)
        shared_rate = (double)s->scalars[LATHE_SCALAR_LR] * (double)(1 + shared_steps % 3);
    for (int32_t k = 0; k < s->n_tensors; k++)
        step_tensor(x, s, &s->tensors[k]);
    if (IS(writes_scalars))
        ((float *)(uintptr_t)s->scalars)[LATHE_SCALAR_LR] = 0.0f;
    if (IS(fails_without_a_message))
        return LATHE_E_NUMERIC;
    return LATHE_OK;
}

static const lathe_optimizer_v1 table = {
    .size = IS(table_too_short) ? 24 : sizeof table,
    .revision = IS(table_revision_differs) ? 2 : LATHE_OPTIMIZER_REVISION,
    .slots = IS(null_slots) ? NULL : slots,
    .partition = partition,
    .base_lr = IS(null_base_rate) ? NULL : base_lr,
    .step = IS(null_step) ? NULL : step,
    .scratch = scratch,
};

FAULTY_PLUGIN(LATHE_KIND_OPTIMIZER, LATHE_OPTIMIZER_REVISION, &table);
