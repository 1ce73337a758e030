/* @NAME@: a case by hand. Run with the path of the .so. */
#include <lathe/kit/testing.h>
#include <lathe/op_plugin.h>
#include <math.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_op_v1 *const table = plugin->table;
    const lathe_desc in[2] = {lathe_desc_2d(LATHE_F32, 2, 1), lathe_desc_1d(LATHE_F32, 1)};
    lathe_desc out = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "slope=2", &self) == LATHE_OK);
    LATHE_CHECK(table->shape(self, in, &out) == LATHE_OK && out.dims[0] == 2);

    const float x[2] = {0.0f, 1.0f}, w[1] = {0.5f};
    float y[2];
    const void *const inputs[2] = {x, w};
    void *const outputs[1] = {y};
    const lathe_op_call call = {.size = (uint32_t)sizeof call,
                                .in = in,
                                .out = &out,
                                .n_in = 2,
                                .n_out = 1,
                                .may_overwrite = 1,
                                .n_threads = 1};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args, .in = inputs, .out = outputs};
    LATHE_CHECK(table->kernels[0].run(self, &call, &args) == LATHE_OK);
    LATHE_CHECK(fabsf(y[0]) < 1e-7f);
    LATHE_CHECK(fabsf(y[1] - 0.73105858f) < 1e-6f); /* by hand: sigmoid(2 * 0.5 * 1) */

    lathe_desc wrong[2] = {in[0], lathe_desc_1d(LATHE_F32, 3)};
    LATHE_CHECK(table->shape(self, wrong, &out) == LATHE_E_SHAPE);
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
