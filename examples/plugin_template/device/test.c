/* @NAME@, by hand: memory, a product and an op that is not there. Run with the path of the .so. */
#include <lathe/device.h>
#include <lathe/kit/testing.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_device_v1 *const table = (const lathe_device_v1 *)plugin->table;
    void *self, *y;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);

    /* y = x W^T + b, of x = [1 2], W = [3 4; 5 6; 7 8], b = [1 0 -1] */
    const float x[2] = {1, 2}, w[6] = {3, 4, 5, 6, 7, 8}, b[3] = {1, 0, -1};
    const float want[3] = {12, 17, 22};
    const lathe_desc in[3] = {lathe_desc_2d(LATHE_F32, 1, 2), lathe_desc_2d(LATHE_F32, 3, 2),
                              lathe_desc_1d(LATHE_F32, 3)};
    const lathe_desc out[1] = {lathe_desc_2d(LATHE_F32, 1, 3)};
    const lathe_op_attrs attrs = {.alpha = 1};
    lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                    .op = LATHE_OP_LINEAR,
                                    .attrs = &attrs,
                                    .in = in,
                                    .out = out,
                                    .n_in = 3,
                                    .n_out = 1,
                                    .may_overwrite = 1,
                                    .n_threads = 1};
    lathe_kernel *kernel = NULL;
    int64_t scratch = -1;
    LATHE_CHECK(table->kernel_create(self, &problem, &kernel, &scratch) == LATHE_OK);
    LATHE_CHECK(scratch == 0);
    LATHE_CHECK(table->alloc(self, (int64_t)sizeof want, LATHE_MEM_DEVICE, &y) == LATHE_OK);
    const void *const from[3] = {x, w, b};
    void *const to[1] = {y};
    lathe_kernel_args args = {.size = (uint32_t)sizeof args, .in = from, .out = to};
    LATHE_CHECK(table->kernel_run(self, kernel, &args) == LATHE_OK);
    for (int i = 0; i < 3; i++)
        LATHE_CHECK(((const float *)y)[i] == want[i]);
    args.accumulate = 1;
    LATHE_CHECK(table->kernel_run(self, kernel, &args) == LATHE_OK);
    LATHE_CHECK(((const float *)y)[2] == 2 * want[2]);
    table->kernel_destroy(self, kernel);
    table->free(self, y);

    problem.op = LATHE_OP_ATTENTION;
    LATHE_CHECK(table->kernel_create(self, &problem, &kernel, &scratch) == LATHE_E_UNSUPPORTED);
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
