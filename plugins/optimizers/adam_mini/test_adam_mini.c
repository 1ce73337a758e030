/* Adam-mini: against the authors' package, its blocks, and refusals. */
#include "support/optimizer_golden.h"

Test(adam_mini, follows_adam_mini_for_300_steps)
{
    golden_follow(
        &(golden_run){.file = "adam_mini.f32", .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1"});
}

Test(adam_mini, has_one_second_moment_per_block)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    const int64_t want[GOLDEN_N_TENSORS] = {17, 1, 1, 20, 6, 3, 9}; /* rows, a norm, heads of 3 */
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    for (int32_t k = 0; k < GOLDEN_N_TENSORS; k++)
        cr_assert_eq(golden_slot_count(table, self, k, 1), want[k], "tensor %d", k);
}

Test(adam_mini, one_block_by_hand)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.5 eps=1e-30", &self), LATHE_OK);
    case_add(&c, 1, 2, 2, 0.0);
    c.tensors[0].block = 2;
    c.tensors[0].param[0] = c.tensors[0].param[1] = 0.0f;
    c.grads[0][0] = 1.0f;
    c.grads[0][1] = 7.0f; /* mean of squares 25: both move by lr*g/5 */
    case_scalars(&c, table, self, 1, 0.5, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    cr_assert_float_eq(c.tensors[0].param[0], -0.1f, 1e-6f);
    cr_assert_float_eq(c.tensors[0].param[1], -0.7f, 1e-6f);
    case_free(&c);
}

Test(adam_mini, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",  "beta1=1",         "beta2=nan",
                                      "eps=-1", "weight_decay=-1", NULL};
    golden_refuses(bad);
}
