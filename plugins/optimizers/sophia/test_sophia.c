/* Sophia-G: by hand, against the authors' update, and refusals. */
#include "support/optimizer_golden.h"

#define COUNT 32.0f

/* Every tenth step, from the first: the gradients of step + 1000 serve as those of sampled
 * labels. */
static void estimate(optimizer_case *c, const lathe_optimizer_v1 *table, void *self, int64_t step)
{
    if ((step - 1) % table->estimate_every(self) != 0)
        return;
    for (int32_t k = 0; k < c->n_tensors; k++) {
        case_gradient((uint64_t)k, (uint64_t)step + 1000, c->grads[k], c->tensors[k].n);
        for (int64_t i = 0; i < c->tensors[k].n; i++)
            c->grads[k][i] *= golden_tensors[k].gradient;
    }
    c->scalars[LATHE_SCALAR_COUNT] = COUNT;
    const lathe_optimizer_step s = {.size = (uint32_t)sizeof s,
                                    .n_tensors = c->n_tensors,
                                    .tensors = c->tensors,
                                    .scalars = c->scalars,
                                    .step = step};
    cr_assert_eq(table->estimate(self, &s), LATHE_OK);
}

Test(sophia, clips_where_the_curvature_is_small)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_optimizer_v1 *const table = plugin->table;
    optimizer_case c = {0};
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "lr=0.5 beta1=0 rho=0.5 weight_decay=0", &self),
                 LATHE_OK);
    case_add(&c, 1, 3, 2, 0.0);
    const float g[3] = {2.0f, -2.0f, 0.0f}, h[3] = {0.0f, 16.0f, 1.0f};
    const float want[3] = {-0.5f, 0.125f, 0.0f}; /* min(2/0, 1); 2/(0.5*16) = 1/4 */
    for (int i = 0; i < 3; i++) {
        c.tensors[0].param[i] = 0.0f;
        c.grads[0][i] = g[i];
        ((float *)c.tensors[0].slots[1])[i] = h[i];
    }
    case_scalars(&c, table, self, 1, 0.5, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_float_eq(c.tensors[0].param[i], want[i], 1e-7f, "%d", i);
    case_free(&c);
}

Test(sophia, follows_the_published_update_for_300_steps)
{
    golden_follow(&(golden_run){.file = "sophia.f32",
                                .settings = "lr=1e-3 weight_decay=0.1",
                                .n_slots = 2,
                                .after = estimate});
}

Test(sophia, nan_gradient_shows_and_stays_in_its_element)
{
    case_nan_stays("");
}

Test(sophia, refuses_bad_settings)
{
    static const char *const bad[] = {
        "lr=-1", "beta1=1", "beta2=nan", "rho=0", "estimate_every=0", "weight_decay=-1", NULL};
    golden_refuses(bad);
}
