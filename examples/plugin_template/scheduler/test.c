/* @NAME@, by hand. Run with the path of the .so. */
#include <lathe/scheduler.h>
#include <lathe/kit/testing.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_scheduler_v1 *const table = plugin->table;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "warmup_steps=4", &self) == LATHE_OK);
    const double want[6] = {0.5, 1.0, 1.5, 2.0, 2.0, 2.0};
    for (int64_t t = 0; t < 6; t++)
        LATHE_CHECK(table->at(self, t, 6, 2.0, NULL) == want[t]);
    LATHE_CHECK(table->check(self, 6) == LATHE_OK);
    LATHE_CHECK(table->check(self, 3) == LATHE_E_CONFIG);
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
