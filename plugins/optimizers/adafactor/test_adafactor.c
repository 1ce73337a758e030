/* Adafactor: against transformers with each option, its state, and refusals. */
#include "support/optimizer_golden.h"

Test(adafactor, follows_transformers_for_300_steps)
{
    golden_follow(&(golden_run){.file = "adafactor_lr.f32",
                                .settings = "lr=1e-3 scale_parameter=false weight_decay=0.1"});
    golden_follow(
        &(golden_run){.file = "adafactor_scaled.f32",
                      .settings = "lr=1e-2 beta1=0.9 clip_threshold=0.5 weight_decay=0.1"});
    golden_follow(&(golden_run){.file = "adafactor_relative.f32",
                                .settings = "warmup_init=true decay_rate=-0.6 weight_decay=0.1",
                                .constant_lr = 1});
}

Test(adafactor, keeps_a_number_per_row_and_column)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    const lathe_param_info matrix = golden_info(0), vector = golden_info(1);
    lathe_slot slots[LATHE_MAX_SLOTS];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "", &self), LATHE_OK);
    cr_assert_eq(table->slots(self, &matrix, slots), 2);
    cr_assert_eq(lathe_desc_count(&slots[0].desc), 17);
    cr_assert_eq(lathe_desc_count(&slots[1].desc), 5);
    cr_assert_eq(table->slots(self, &vector, slots), 1);
    cr_assert_eq(lathe_desc_count(&slots[0].desc), 33);
}

/* Sums are split by size, so the number of workers does not matter. */
Test(adafactor, large_tensors_are_repeatable)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    float *kept = NULL;
    for (int run = 0; run < 2; run++) {
        optimizer_case c = {0};
        void *self;
        cr_assert_eq(lathe_test_create(plugin, "lr=1e-2", &self), LATHE_OK);
        case_add(&c, 301, 517, 0, 0.0);
        c.tensors[0].slots[0] = calloc(301, sizeof(float));
        c.tensors[0].slots[1] = calloc(517, sizeof(float));
        for (int64_t step = 1; step <= 3; step++) {
            case_gradient(0, (uint64_t)step, c.grads[0], c.tensors[0].n);
            case_scalars(&c, table, self, step, 1e-2, 0.5);
            cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
        }
        if (run == 0) {
            kept = c.tensors[0].param;
            c.tensors[0].param = NULL;
        } else {
            cr_assert_arr_eq(kept, c.tensors[0].param, (size_t)c.tensors[0].n * sizeof(float));
        }
        case_free(&c);
        plugin->destroy(self);
    }
    free(kept);
}

Test(adafactor, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",
                                      "eps1=-1",
                                      "clip_threshold=0",
                                      "decay_rate=0",
                                      "beta1=1",
                                      "lr=1e-3 relative_step=true",
                                      "weight_decay=nan",
                                      NULL};
    static const char *const crossed[] = {"relative_step=false", "warmup_init=true lr=1e-3", NULL};
    const lathe_plugin *const plugin = fixture_plugin();
    void *self;
    golden_refuses(bad);
    for (int k = 0; crossed[k] != NULL; k++)
        cr_assert_eq(lathe_test_create(plugin, crossed[k], &self), LATHE_E_CONFIG, "%s",
                     crossed[k]);
}
