/* AnyPrecision AdamW: against the published update, the benefit of Kahan summation, and
 * refusals. */
#include "support/optimizer_golden.h"

Test(adamw_anyprecision, follows_the_published_update_for_300_steps)
{
    golden_follow(&(golden_run){.file = "adamw_anyprecision_fp32.f32",
                                .settings =
                                    "lr=1e-3 beta2=0.95 weight_decay=0.1 use_kahan_summation=false "
                                    "momentum_dtype=\"fp32\" variance_dtype=\"fp32\"",
                                .n_slots = 0});
    golden_follow(&(golden_run){.file = "adamw_anyprecision_kahan.f32",
                                .settings =
                                    "lr=1e-3 beta2=0.95 weight_decay=0.1 momentum_dtype=\"fp32\" "
                                    "variance_dtype=\"fp32\" compensation_dtype=\"fp32\"",
                                .n_slots = 0});
    /* States in bf16: a difference in the last bit of f32 can round a state to its neighbour, 2^-8
     * of it apart, in one of 2^16 cases; such an element's update of 1e-3 is off by up to 4e-6. */
    golden_follow(&(golden_run){.file = "adamw_anyprecision_bf16.f32",
                                .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1",
                                .n_slots = 0,
                                .tolerance = 4e-5});
}

Test(adamw_anyprecision, compensation_keeps_updates_that_the_parameter_is_too_coarse_for)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    const char *const settings[2] = {
        "lr=1e-5 beta1=0 beta2=0 eps=1e-30 use_kahan_summation=false momentum_dtype=\"fp32\" "
        "variance_dtype=\"fp32\"",
        "lr=1e-5 beta1=0 beta2=0 eps=1e-30 momentum_dtype=\"fp32\" variance_dtype=\"fp32\" "
        "compensation_dtype=\"fp32\""};
    const double want[2] = {1024.0, 1024.0 - 1e-2}; /* half an ulp of 1024 is 6e-5: nothing moves */
    for (int k = 0; k < 2; k++) {
        optimizer_case c = {0};
        void *self;
        cr_assert_eq(lathe_test_create(plugin, settings[k], &self), LATHE_OK);
        case_add(&c, 1, 1, 3, 0.0);
        c.tensors[0].param[0] = 1024.0f;
        c.grads[0][0] = 1.0f;
        for (int64_t step = 1; step <= 1000; step++) {
            case_scalars(&c, table, self, step, 1e-5, 1.0);
            cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
        }
        cr_assert_float_eq((double)c.tensors[0].param[0], want[k], 1.3e-4, "%s: %.9g", settings[k],
                           (double)c.tensors[0].param[0]);
        case_free(&c);
    }
}

static float narrow(float x, int is_bf16)
{
    return is_bf16 ? lathe_bf16_to_f32(lathe_f32_to_bf16(x)) : x;
}

static float slot_get(const lathe_optimizer_tensor *x, int k, int64_t i)
{
    return x->half_slots >> k & 1u ? lathe_bf16_to_f32(((const uint16_t *)x->slots[k])[i])
                                   : ((const float *)x->slots[k])[i];
}

/* The first step, from zero states: m = narrow(0.1 g) and so on, in the order of the source. */
static void check_first_step(const lathe_optimizer_tensor *x, const float *scalars)
{
    const int m_bf16 = x->half_slots & 1, v_bf16 = x->half_slots & 2, c_bf16 = x->half_slots & 4;
    const float *const user = scalars + LATHE_SCALAR_USER;
    const float rate = 1e-3f * user[5];
    for (int64_t i = 0; i < x->n; i++) {
        const float g = x->grad[i], p = case_uniform(0, 0, i);
        const float m = narrow(user[0] * g, m_bf16), v = narrow(user[2] * g * g, v_bf16);
        const float update = rate * (m / fmaf(sqrtf(v), user[6], user[3]));
        const float waiting = narrow(-update, c_bf16), moved = p + waiting;
        cr_assert_eq(x->param[i], moved, "slots %u element %d", x->half_slots, (int)i);
        cr_assert_eq(slot_get(x, 0, i), m);
        cr_assert_eq(slot_get(x, 1, i), v);
        cr_assert_eq(slot_get(x, 2, i), narrow(waiting + (p - moved), c_bf16));
    }
}

Test(adamw_anyprecision, every_choice_of_state_types_follows_the_formula)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    static const char *const names[2] = {"fp32", "bf16"};
    for (uint32_t half = 0; half < 8; half++) {
        optimizer_case c = {0};
        char settings[256];
        void *self;
        snprintf(settings, sizeof settings,
                 "lr=1e-3 momentum_dtype=\"%s\" variance_dtype=\"%s\" compensation_dtype=\"%s\"",
                 names[half & 1], names[half >> 1 & 1], names[half >> 2]);
        cr_assert_eq(lathe_test_create(plugin, settings, &self), LATHE_OK);
        case_add(&c, 1, 2501, 3, 0.0);
        c.tensors[0].half_slots = half;
        case_gradient(0, 11, c.grads[0], 2501);
        case_scalars(&c, table, self, 1, 1e-3, 1.0);
        cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
        check_first_step(&c.tensors[0], c.scalars);
        case_free(&c);
        plugin->destroy(self);
    }
}

Test(adamw_anyprecision, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
}

Test(adamw_anyprecision, refuses_bad_settings)
{
    static const char *const bad[] = {
        "lr=-1", "beta1=1", "beta2=1", "eps=-1", "weight_decay=-1", "momentum_dtype=\"fp8\"", NULL};
    golden_refuses(bad);
}
