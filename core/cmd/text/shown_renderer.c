/* Loads a chat template with the renderer that is named, or that the folder remembers. */
#include "cmd/text/shown_renderer.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/folder_renderer.h"
#include "run/decide/renderer_choice.h"
#include "run/folder/folder_settings.h"

const char *lathe_shown_folder(const char *path, lathe_arena *arena)
{
    const char *latest = NULL;
    if (!lathe_path_is_dir(path) || lathe_folder_has(path, "config.json") ||
        lathe_folder_has(path, "tokenizer_config.json") ||
        lathe_folder_has(path, "chat_template.jinja"))
        return path;
    if (lathe_checkpoint_resolve(arena, path, &latest) == LATHE_OK)
        return latest;
    lathe_error_clear(); /* a folder of another kind: reading the template says what it lacks */
    return path;
}

/* Reads the keys that the folder remembers of its renderer. */
static lathe_status read_kept(const char *path, json_t *kept, lathe_arena *arena,
                              lathe_shown_renderer *out)
{
    lathe_setting_list list;
    lathe_edits edits = {.n = 0};
    lathe_diags diags = {0};
    LATHE_TRY(lathe_settings_init(&list, arena));
    list.dir = path;
    LATHE_TRY(lathe_settings_add_renderer(&list, arena, kept));
    for (int32_t i = 0; i < list.n; i++)
        lathe_edits_add(&edits, &list.edits[i]);
    const lathe_status status =
        lathe_config_of_edits(&edits, 0, out->registry, &diags, &out->config);
    lathe_edits_fini(&edits);
    lathe_diags_fini(&diags);
    if (status == LATHE_OK)
        return status;
    return lathe_error_context(status,
                               "%s was trained with renderer %s (--renderer chooses another)", path,
                               json_string_value(json_object_get(kept, "name")));
}

/* Finds the renderer that the folder remembers; *io_name stays if there is none. */
static lathe_status find_kept(const char *path, lathe_arena *arena, lathe_shown_renderer *out,
                              const char **io_name, const lathe_value **out_values)
{
    json_t *kept = NULL;
    LATHE_TRY(lathe_folder_renderer(path, arena, &kept));
    const int is_named = lathe_renderer_is_named(kept);
    const lathe_status status = is_named ? read_kept(path, kept, arena, out) : LATHE_OK;
    json_decref(kept);
    if (is_named && status == LATHE_OK) {
        const lathe_part *part = lathe_config_part(out->config, LATHE_KIND_RENDERER);
        *io_name = part->name;
        *out_values = part->values;
    }
    return status;
}

lathe_status lathe_shown_renderer_load(const char *path, const char *name, lathe_arena *arena,
                                       lathe_shown_renderer *out, lathe_chat_template **out_chat)
{
    const lathe_value *values = NULL;
    const char *chosen = name ? name : "auto";
    LATHE_TRY(lathe_registry_create(&out->registry));
    if (!name)
        LATHE_TRY(find_kept(path, arena, out, &chosen, &values));
    const int is_named = strcmp(chosen, "auto") != 0 && strcmp(chosen, "jinja") != 0;
    LATHE_TRY(is_named ? lathe_chat_template_load_any(path, out_chat)
                       : lathe_chat_template_load(path, out_chat));
    LATHE_TRY(lathe_renderer_choose(out->registry, chosen, values, NULL, *out_chat, arena,
                                    &out->instance, &out->why));
    if (is_named)
        out->why = name ? "named on the command line" : "the folder was trained with it";
    return LATHE_OK;
}

void lathe_shown_renderer_fini(lathe_shown_renderer *r)
{
    lathe_instance_fini(&r->instance);
    lathe_config_destroy(r->config);
    lathe_registry_destroy(r->registry);
}
