/* libFuzzer target: any bytes as run.toml, parsed and checked as a configuration. An accepted file
 * must print as JSON. */
#include <string.h>

#include "base/json/json.h"
#include "base/toml.h"
#include "config/config.h"
#include "fuzz/fuzz_file.h"

static void check_tree(const lathe_toml_node *root)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    json_t *json = NULL;
    lathe_toml_json(root, &text);
    if (text.status != LATHE_OK || lathe_json_load("toml", text.data, text.len, &json) != LATHE_OK)
        abort();
    json_decref(json);
    lathe_buffer_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *root = NULL;
    if (lathe_toml_load("fuzz.toml", (const char *)data, (int64_t)size, &arena, &root) == LATHE_OK)
        check_tree(root);
    const int parsed = root != NULL;
    lathe_arena_fini(&arena);
    const fuzz_file file = fuzz_file_open(data, size);
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags;
    memset(&diags, 0, sizeof diags);
    if (lathe_registry_create(&registry) != LATHE_OK)
        abort();
    const lathe_status status = lathe_config_load(file.path, NULL, 0, 0, registry, &diags, &config);
    if (status == LATHE_OK) {
        lathe_buffer text = LATHE_BUFFER_INIT;
        lathe_config_json(config, &text);
        if (!parsed || text.status != LATHE_OK)
            abort();
        lathe_buffer_fini(&text);
        lathe_config_check_train(config, 0, &diags);
    }
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    fuzz_file_close(&file);
    return 0;
}
