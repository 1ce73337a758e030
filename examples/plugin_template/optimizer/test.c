/* @NAME@, by hand: two steps of three elements. Run with the path of the .so. */
#include <lathe/optimizer.h>
#include <lathe/kit/testing.h>
#include <math.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_optimizer_v1 *const table = plugin->table;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "lr=0.1 momentum=0.5 weight_decay=0.25", &self) ==
                LATHE_OK);
    LATHE_CHECK(table->base_lr(self) == 0.1);

    float p[3] = {1, 2, -4}, m[3] = {0}, scalars[LATHE_N_SCALARS] = {0};
    const float g[3] = {4, -2, 0};
    uint16_t shadow[3] = {0};
    double user[8] = {0};
    table->scalars(self, 1, user);
    scalars[LATHE_SCALAR_LR] = 0.1f;
    scalars[LATHE_SCALAR_GRAD_SCALE] = 0.5f;
    for (int k = 0; k < 8; k++)
        scalars[LATHE_SCALAR_USER + k] = (float)user[k];
    const lathe_optimizer_tensor tensor = {.param = p,
                                           .grad = g,
                                           .shadow = shadow,
                                           .slots = {m},
                                           .n = 3,
                                           .lr_mult = 1.0,
                                           .weight_decay_mult = 1.0};
    const lathe_optimizer_step step = {.size = (uint32_t)sizeof step,
                                       .n_tensors = 1,
                                       .tensors = &tensor,
                                       .scalars = scalars,
                                       .step = 1};
    LATHE_CHECK(table->step(self, &step) == LATHE_OK);
    /* g/2 + p/4 = 2.25, -0.5, -1; p - 0.1*that */
    const float want[3] = {0.775f, 2.05f, -3.9f};
    for (int i = 0; i < 3; i++) {
        LATHE_CHECK(fabsf(p[i] - want[i]) < 1e-6f);
        LATHE_CHECK(shadow[i] == lathe_f32_to_bf16(p[i]));
    }
    LATHE_CHECK(table->step(self, &step) == LATHE_OK);
    /* m = 0.5*2.25 + (2 + 0.775/4) = 3.31875 */
    LATHE_CHECK(fabsf(p[0] - (0.775f - 0.331875f)) < 1e-6f);
    plugin->destroy(self);

    LATHE_CHECK(lathe_test_create(plugin, "momentum=0 nesterov=true", &self) == LATHE_E_CONFIG);
    return lathe_test_failures != 0;
}
