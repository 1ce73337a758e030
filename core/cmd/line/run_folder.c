/* Finds the folder of a run by its run file. */
#include "cmd/line/run_folder.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "config/config.h"

static int is_run_file(const char *word)
{
    const size_t n = strlen(word);
    return n > 5 && strcmp(word + n - 5, ".toml") == 0 && !lathe_path_is_dir(word);
}

lathe_status lathe_cli_run_folder(const char *word, lathe_arena *arena, const char **out)
{
    lathe_registry *registry = NULL;
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    *out = word;
    if (!is_run_file(word))
        return LATHE_OK;
    lathe_status status = lathe_registry_create(&registry);
    if (status == LATHE_OK)
        status = lathe_config_load(word, NULL, 0, 0, registry, &diags, &config);
    if (status == LATHE_OK) {
        const char *dir = lathe_config_string(config, "checkpoint", "dir");
        if (dir == NULL || dir[0] == '\0')
            status = lathe_error(
                LATHE_E_CONFIG, "%s: its checkpoint.dir is empty, so the run writes nothing", word);
        else if (!lathe_path_is_dir(dir))
            status = lathe_error(
                LATHE_E_CONFIG,
                "%s: nothing was trained yet: its folder %s (checkpoint.dir) is not there", word,
                dir);
        else if ((*out = lathe_arena_strdup(arena, dir)) == NULL)
            status = LATHE_E_NOMEM;
    }
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(registry);
    return status;
}
