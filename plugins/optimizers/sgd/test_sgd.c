/* SGD: by hand, against torch.optim.SGD with each option, and refusals. */
#include "support/optimizer_golden.h"

Test(sgd, first_steps_by_hand)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.5 momentum=0.5 dampening=0.5", &self), LATHE_OK);
    case_add(&c, 1, 1, 1, 0.0);
    c.tensors[0].param[0] = 0.0f;
    c.grads[0][0] = 1.0f;
    const float want[3] = {-0.5f, -1.0f, -1.5f}; /* m = 1; 0.5 + 0.5 = 1; 0.5 + 0.5 = 1 */
    for (int64_t step = 1; step <= 3; step++) {
        case_scalars(&c, table, self, step, 0.5, 1.0);
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
        cr_assert_float_eq(c.tensors[0].param[0], want[step - 1], 0.0f);
    }
    case_free(&c);
}

Test(sgd, follows_torch_for_300_steps)
{
    /* the tensor of huge gradients walks to 1e3, where one rounding is 6e-5: relative to |p| */
    golden_follow(&(golden_run){.file = "sgd_plain.f32", .settings = "lr=1e-3", .n_slots = 0});
    golden_follow(&(golden_run){.file = "sgd_momentum.f32",
                                .settings = "lr=1e-3 momentum=0.9 dampening=0.1 weight_decay=0.01",
                                .n_slots = 1});
    golden_follow(&(golden_run){.file = "sgd_nesterov.f32",
                                .settings = "lr=1e-3 momentum=0.95 nesterov=true weight_decay=0.01",
                                .n_slots = 1});
}

Test(sgd, plain_has_no_state)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    const lathe_param_info info = golden_info(0);
    lathe_slot slots[LATHE_MAX_SLOTS];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    cr_assert_eq(table->slots(self, &info, slots), 0);
    cr_assert_eq(lathe_test_create(plugin, "momentum=0.9", &self), LATHE_OK);
    cr_assert_eq(table->slots(self, &info, slots), 1);
}

Test(sgd, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
    case_nan_stays("momentum=0.9 nesterov=true");
}

Test(sgd, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",
                                      "momentum=1",
                                      "dampening=2",
                                      "weight_decay=nan",
                                      "nesterov=true",
                                      "nesterov=true momentum=0.9 dampening=0.1",
                                      NULL};
    golden_refuses(bad);
}
