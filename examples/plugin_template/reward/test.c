/* @NAME@, by hand. Run with the path of the .so. */
#include <lathe/kit/testing.h>
#include <lathe/reward.h>

static lathe_reward_item item(const char *completion)
{
    return (lathe_reward_item){.size = (uint32_t)sizeof(lathe_reward_item),
                               .prompt = "",
                               .completion = completion,
                               .completion_bytes = (int64_t)strlen(completion),
                               .record = "{}",
                               .record_bytes = 2};
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_reward_v1 *const table = plugin->table;
    const lathe_reward_item items[3] = {item("yes please, please"), item("no"), item("")};
    double out[3];
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "word=please points=0.5", &self) == LATHE_OK);
    LATHE_CHECK(table->score(self, items, 3, out) == LATHE_OK);
    LATHE_CHECK(out[0] == 1.0 && out[1] == 0.0 && out[2] == 0.0);
    plugin->destroy(self);
    LATHE_CHECK(lathe_test_create(plugin, "word=", &self) == LATHE_E_CONFIG);
    return lathe_test_failures != 0;
}
