/* APOLLO: against apollo-torch with each option, its state, and refusals. */
#include "support/optimizer_golden.h"

#define COMMON "lr=1e-3 beta2=0.95 weight_decay=0.1 update_proj_gap=50 "

Test(apollo, follows_apollo_torch_for_300_steps)
{
    golden_follow(&(golden_run){.file = "apollo_channel.f32", .settings = COMMON "rank=3"});
    golden_follow(&(golden_run){.file = "apollo_mini.f32",
                                .settings = COMMON "rank=1 scale=128 scale_type=tensor"});
    golden_follow(&(golden_run){.file = "apollo_front.f32",
                                .settings = COMMON "rank=2 scale=4 scale_front=true"});
    golden_follow(
        &(golden_run){.file = "apollo_free.f32",
                      .settings = COMMON "rank=3 scale_type=tensor norm_growth_limiter=false"});
}

Test(apollo, keeps_no_projector)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    const lathe_param_info info = golden_info(0);
    lathe_slot slots[LATHE_MAX_SLOTS];
    int64_t n = 0;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "rank=1 scale=128 scale_type=tensor", &self), LATHE_OK);
    const int32_t n_slots = table->slots(self, &info, slots);
    for (int32_t s = 0; s < n_slots; s++)
        n += lathe_desc_count(&slots[s].desc);
    cr_assert_eq(n, 2 * 17 + 1); /* both moments of a 17 x 5 matrix, and a norm */
}

Test(apollo, refuses_bad_settings)
{
    static const char *const bad[] = {
        "lr=-1", "rank=0", "update_proj_gap=0", "scale=-1", "scale_type=row", "beta2=1", NULL};
    golden_refuses(bad);
}
