/* Whether this process is one of several ranks. */
#include "opening/one_rank.h"

#include "base/error.h"
#include "plug/instance.h"
#include "plug/schema.h"
#include "plug/select.h"

/* Makes an instance with the defaults of its keys. */
static lathe_status make(const lathe_component *engine, lathe_arena *arena, lathe_instance *out)
{
    const lathe_plugin *plugin = engine->plugin;
    const lathe_schema_scope scope = {.section = "collective"};
    lathe_diags diags = {0};
    lathe_value *values = NULL;
    lathe_status status =
        lathe_schema_check(&scope, NULL, plugin->fields, plugin->n_fields, arena, &diags, &values);
    if (status == LATHE_OK && diags.n > 0)
        status =
            lathe_error(LATHE_E_CONFIG, "collective %s has keys without a default", plugin->name);
    lathe_diags_fini(&diags);
    return status == LATHE_OK ? lathe_instance_init(out, engine, values) : status;
}

/* Opens the group of one, which refuses a process that is one of several. */
static lathe_status open_group(const lathe_component *engine, lathe_arena *arena)
{
    const lathe_collective_v1 *table = engine->plugin->table;
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = 60.0};
    lathe_instance instance = {0};
    lathe_group *group = NULL;
    LATHE_TRY(make(engine, arena, &instance));
    lathe_group_info info = {.size = (uint32_t)sizeof info, .n_ranks = 1};
    lathe_status status = table->open(instance.self, &setup, &group);
    if (status == LATHE_OK)
        status = table->info(group, &info);
    if (status == LATHE_OK)
        status = table->close(group);
    if (status == LATHE_OK && info.n_ranks > 1)
        status = lathe_error(LATHE_E_UNSUPPORTED,
                             "this process is rank %d of %d, and a run has one rank in this "
                             "version: start one process",
                             info.rank, info.n_ranks);
    lathe_instance_fini(&instance);
    return status;
}

lathe_status lathe__one_rank(lathe_registry *registry)
{
    const lathe_collective_probe probe = {
        .size = (uint32_t)sizeof probe, .host_memory = 1, .device = "cpu"};
    const lathe_component *engine = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = lathe_select_collective(registry, "auto", &probe, &arena, &engine, NULL);
    if (status == LATHE_OK)
        status = open_group(engine, &arena);
    lathe_arena_fini(&arena);
    return status;
}
