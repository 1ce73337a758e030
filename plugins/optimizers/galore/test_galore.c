/* GaLore: against galore-torch, its singular vectors, its state, and refusals. */
#include "base/eigen.h"
#include "support/optimizer_golden.h"

static void provide_eigenvectors(void)
{
    lathe_test_host()->eigenvectors = lathe_eigenvectors;
}

TestSuite(galore, .init = provide_eigenvectors);

Test(galore, follows_galore_torch_for_300_steps)
{
    golden_follow(
        &(golden_run){.file = "galore.f32",
                      .settings = "lr=1e-3 beta2=0.95 weight_decay=0.1 rank=3 update_proj_gap=50"});
}

Test(galore, state_is_projected)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    lathe_param_info info = golden_info(0);
    lathe_slot slots[LATHE_MAX_SLOTS];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "rank=2", &self), LATHE_OK);
    cr_assert_eq(table->slots(self, &info, slots), 3); /* 17 x 5: lines of 5 */
    cr_assert_eq(lathe_desc_count(&slots[0].desc), 2 * 17);
    cr_assert_eq(lathe_desc_count(&slots[2].desc), 2 * 5);
    cr_assert_eq(table->partition(self, &info), LATHE_PARTITION_TENSOR);
    info.role = LATHE_ROLE_EMBEDDING;
    cr_assert_eq(table->slots(self, &info, slots), 2);
    info.role = LATHE_ROLE_MATRIX;
    cr_assert_eq(lathe_test_create(plugin, "rank=5", &self), LATHE_OK); /* nothing to project */
    cr_assert_eq(table->slots(self, &info, slots), 2);
}

Test(galore, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",    "rank=0",  "rank=5000", "update_proj_gap=0",
                                      "scale=-1", "beta1=1", NULL};
    golden_refuses(bad);
}
