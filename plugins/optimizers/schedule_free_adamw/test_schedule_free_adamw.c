/* Schedule-free AdamW: against the schedulefree package, its average, and refusals. */
#include "support/optimizer_golden.h"

static int64_t compare_average(const optimizer_case *c, const lathe_optimizer_v1 *table, void *self,
                               const float *want)
{
    float *out[CASE_MAX_TENSORS];
    int64_t n = 0;
    for (int32_t k = 0; k < c->n_tensors; k++)
        out[k] = calloc((size_t)c->tensors[k].n, sizeof(float));
    const lathe_optimizer_step s = {
        .size = (uint32_t)sizeof s, .n_tensors = c->n_tensors, .tensors = c->tensors, .step = 300};
    cr_assert_eq(table->average(self, &s, out), LATHE_OK);
    for (int32_t k = 0; k < c->n_tensors; n += c->tensors[k].n, k++) {
        const double worst = golden_worst(out[k], want + n, c->tensors[k].n, 0.2);
        cr_assert(worst < 1e-6, "average of tensor %d: %.3g", k, worst);
        free(out[k]);
    }
    return n;
}

Test(schedule_free_adamw, follows_schedulefree_for_300_steps)
{
    golden_follow(&(golden_run){.file = "schedule_free_adamw_default.f32",
                                .settings = "lr=1e-3 beta2=0.95",
                                .n_slots = 2,
                                .constant_lr = 1,
                                .rest = compare_average});
    golden_follow(
        &(golden_run){.file = "schedule_free_adamw_warmup.f32",
                      .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1 warmup_steps=20 r=1",
                      .n_slots = 2,
                      .constant_lr = 1,
                      .rest = compare_average});
}

Test(schedule_free_adamw, average_is_z_and_the_weights_after_the_first_step)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.5 eps=1e-30 beta1=0.5", &self), LATHE_OK);
    case_add(&c, 1, 1, 2, 0.0);
    c.tensors[0].param[0] = 2.0f;
    c.grads[0][0] = 3.0f;
    case_scalars(&c, table, self, 1, 0.5, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    /* by hand: u = 1, c = 1: z = 2 - 0.5, y = z_before - 0.5*u = 1.5, x = z */
    float x = 0.0f, *out[1] = {&x};
    const lathe_optimizer_step s = {
        .size = (uint32_t)sizeof s, .n_tensors = 1, .tensors = c.tensors, .step = 1};
    cr_assert_eq(table->average(self, &s, out), LATHE_OK);
    cr_assert_float_eq(c.tensors[0].param[0], 1.5f, 1e-6f);
    cr_assert_float_eq(((float *)c.tensors[0].slots[0])[0], 1.5f, 1e-6f);
    cr_assert_float_eq(x, 1.5f, 1e-6f);
    case_free(&c);
}

/* The sum of weights is a cache of the instance, not state: any step may be asked for first. */
Test(schedule_free_adamw, scalars_are_a_function_of_the_step)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    double in_order[8] = {0}, alone[8] = {0}, again[8] = {0};
    void *self, *fresh;
    cr_assert_eq(lathe_test_create(plugin, "warmup_steps=5 r=2", &self), LATHE_OK);
    cr_assert_eq(lathe_test_create(plugin, "warmup_steps=5 r=2", &fresh), LATHE_OK);
    for (int64_t t = 1; t <= 9; t++)
        table->scalars(self, t, in_order);
    table->scalars(fresh, 9, alone);
    cr_assert_arr_eq(in_order, alone, sizeof alone);
    table->scalars(self, 12, again);
    table->scalars(self, 9, again);
    cr_assert_arr_eq(again, alone, sizeof alone);
    plugin->destroy(self);
    plugin->destroy(fresh);
}

Test(schedule_free_adamw, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
}

Test(schedule_free_adamw, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",           "beta1=0", "beta1=1",         "beta2=1",
                                      "weight_decay=-1", "r=-1",    "warmup_steps=-1", NULL};
    golden_refuses(bad);
}
