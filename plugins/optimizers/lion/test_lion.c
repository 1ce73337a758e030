/* Lion: by hand, against lion-pytorch, and refusals. */
#include "support/optimizer_golden.h"

Test(lion, first_step_moves_lr_against_the_gradient_sign)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.1 weight_decay=0.5", &self), LATHE_OK);
    case_add(&c, 1, 3, 1, 1.0);
    const float g[3] = {2.0f, -3.0f, 0.0f};
    const float want[3] = {1.8f, 2.0f, 1.9f}; /* by hand: 2*(1 - 0.1*0.5) - 0.1*sign(g) */
    for (int i = 0; i < 3; i++) {
        c.tensors[0].param[i] = 2.0f;
        c.grads[0][i] = 4.0f * g[i]; /* undone by the gradient scale */
    }
    case_scalars(&c, table, self, 1, 0.1, 0.25);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    for (int i = 0; i < 3; i++) {
        cr_assert_float_eq(c.tensors[0].param[i], want[i], 1e-6f);
        cr_assert_float_eq(((float *)c.tensors[0].slots[0])[i], 0.01f * g[i], 1e-7f);
    }
    case_free(&c);
}

Test(lion, follows_lion_pytorch_for_300_steps)
{
    golden_follow(
        &(golden_run){.file = "lion.f32", .settings = "lr=1e-3 weight_decay=0.1", .n_slots = 1});
    golden_follow(&(golden_run){
        .file = "lion_betas.f32", .settings = "lr=1e-3 beta1=0.95 beta2=0.98", .n_slots = 1});
}

Test(lion, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
}

Test(lion, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",
                                      "lr=nan",
                                      "beta1=1",
                                      "beta2=-0.1",
                                      "beta2=2",
                                      "weight_decay=-1",
                                      "state_dtype=\"f64\"",
                                      NULL};
    golden_refuses(bad);
}
