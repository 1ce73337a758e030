/* @NAME@, by hand. Run with the path of the .so. */
#include <lathe/collective.h>
#include <lathe/kit/testing.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_collective_v1 *const table = plugin->table;
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = 10.0};
    const lathe_exchange_problem sum = {
        .size = (uint32_t)sizeof sum, .op = LATHE_ALL_REDUCE, .dtype = LATHE_F32, .n = 3};
    const float in[3] = {1.0f, 2.0f, 3.0f};
    float out[3] = {0};
    const lathe_exchange_args args = {.size = (uint32_t)sizeof args, .in = in, .out = out};
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    lathe_exchange *x;
    lathe_group *group;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);
    LATHE_CHECK(table->open(self, &setup, &group) == LATHE_OK);
    LATHE_CHECK(table->prepare(group, &sum, &x, &info) == LATHE_OK);
    LATHE_CHECK(table->start(x, &args) == LATHE_OK && table->wait(x, 10.0) == LATHE_OK);
    LATHE_CHECK(out[0] == 1.0f && out[1] == 2.0f && out[2] == 3.0f);
    table->exchange_destroy(x);
    LATHE_CHECK(table->close(group) == LATHE_OK);
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
