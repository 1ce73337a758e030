/* SignSGD and Signum: by hand, against pytorch-optimizer, and refusals. */
#include "support/optimizer_golden.h"

Test(signsgd, moves_lr_against_the_sign_of_the_average)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.5 momentum=0.75", &self), LATHE_OK);
    case_add(&c, 1, 2, 1, 0.0);
    float *const p = c.tensors[0].param, *const g = c.grads[0];
    p[0] = p[1] = 0.0f;
    const float gradient[3][2] = {{4.0f, -4.0f}, {-4.0f, 0.0f}, {-8.0f, 0.0f}};
    /* by hand: the averages are 1, -0.25, -2.1875 and -1, -0.75, -0.5625 */
    const float want[3][2] = {{-0.5f, 0.5f}, {0.0f, 1.0f}, {0.5f, 1.5f}};
    for (int64_t step = 1; step <= 3; step++) {
        g[0] = gradient[step - 1][0];
        g[1] = gradient[step - 1][1];
        case_scalars(&c, table, self, step, 0.5, 1.0);
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
        cr_assert_float_eq(p[0], want[step - 1][0], 0.0f, "step %d: %g", (int)step, (double)p[0]);
        cr_assert_float_eq(p[1], want[step - 1][1], 0.0f, "step %d: %g", (int)step, (double)p[1]);
    }
    case_free(&c);
}

Test(signsgd, follows_pytorch_optimizer_for_300_steps)
{
    golden_follow(&(golden_run){.file = "signsgd_plain.f32",
                                .settings = "lr=1e-3 weight_decay=0.1 momentum=0",
                                .n_slots = 0});
    golden_follow(&(golden_run){.file = "signsgd_momentum.f32",
                                .settings = "lr=1e-3 weight_decay=0.1 momentum=0.9",
                                .n_slots = 1});
}

Test(signsgd, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
}

Test(signsgd, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1", "momentum=1", "momentum=nan", "weight_decay=-1",
                                      NULL};
    golden_refuses(bad);
}
