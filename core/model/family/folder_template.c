/* Writes the chat template that a run was given into a folder of a model. */
#include "model/family/folder_template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json_cut.h"
#include "files/gguf/model_files.h"

static const char file_name[] = "chat_template.jinja", folder_name[] = "additional_chat_templates",
                  config_name[] = "tokenizer_config.json", member_name[] = "chat_template",
                  object_name[] = "chat_template.json"; /* of older processors of images */

/* Removes a file of the folder, if it is there. */
static lathe_status remove_file(lathe_arena *arena, const char *dir, const char *name)
{
    const char *path = lathe_path_join(arena, dir, name);
    if (path == NULL)
        return LATHE_E_NOMEM;
    return unlink(path) == 0 || errno == ENOENT
               ? LATHE_OK
               : lathe_error(LATHE_E_IO, "%s: cannot be removed: %s", path, strerror(errno));
}

static lathe_status write_text(lathe_arena *arena, const char *dir, const char *name,
                               lathe_chars text)
{
    const char *path = lathe_path_join(arena, dir, name);
    return path ? lathe_file_write_atomic(path, text.data, text.bytes) : LATHE_E_NOMEM;
}

/* Removes chat_template from tokenizer_config.json. */
static lathe_status strip_config(lathe_arena *arena, const char *dir)
{
    const char *path = lathe_path_join(arena, dir, config_name);
    char *text = NULL;
    int64_t n = 0, from, to;
    lathe_buffer out = LATHE_BUFFER_INIT;
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_file_read(path, 0, &text, &n));
    lathe_status status = LATHE_OK;
    if (lathe_json_cut(text, n, member_name, &from, &to)) {
        lathe_buffer_append(&out, text, from);
        lathe_buffer_append(&out, text + to, n - to);
        status =
            out.status == LATHE_OK ? lathe_file_write_atomic(path, out.data, out.len) : out.status;
    }
    lathe_buffer_fini(&out);
    free(text);
    return status;
}

static lathe_status write_tools(lathe_arena *arena, const char *dir, lathe_chars tools)
{
    const char *folder = lathe_path_join(arena, dir, folder_name);
    if (folder == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_dir_remove(folder));
    if (tools.data == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_dir_create(folder));
    return write_text(arena, folder, "tool_use.jinja", tools);
}

lathe_status lathe_folder_template_write(lathe_chars text, lathe_chars tools, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    if (text.data == NULL)
        return LATHE_OK;
    lathe_status status = write_text(&arena, dir, file_name, text);
    if (status != LATHE_OK)
        goto out;
    if ((status = write_tools(&arena, dir, tools)) != LATHE_OK)
        goto out;
    if ((status = strip_config(&arena, dir)) != LATHE_OK)
        goto out;
    status = remove_file(&arena, dir, object_name);
out:
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status has_template(const char *model, int *out)
{
    json_t *config = NULL;
    *out = lathe_model_has(model, file_name) || lathe_model_has(model, object_name);
    if (*out || !lathe_model_has(model, config_name))
        return LATHE_OK;
    LATHE_TRY(lathe_model_json(model, config_name, &config));
    const json_t *found = json_object_get(config, member_name);
    *out = json_is_string(found) || json_is_array(found);
    json_decref(config);
    return LATHE_OK;
}

/* A template of tokenizer_config.json: the only one, or the one of a list with this name. */
static lathe_chars named_template(const json_t *config, const char *name)
{
    const json_t *found = json_object_get(config, member_name), *one;
    size_t i;
    if (json_is_string(found) && strcmp(name, "default") == 0)
        return (lathe_chars){json_string_value(found), (int64_t)json_string_length(found)};
    json_array_foreach(found, i, one)
    {
        const char *own = json_string_value(json_object_get(one, "name"));
        const json_t *text = json_object_get(one, "template");
        if (own && strcmp(own, name) == 0 && json_is_string(text))
            return (lathe_chars){json_string_value(text), (int64_t)json_string_length(text)};
    }
    return (lathe_chars){NULL, 0};
}

/* Moves the template from tokenizer_config.json to files, unless there is a file. */
static lathe_status keep_own(const char *dir)
{
    json_t *config = NULL;
    if (lathe_model_has(dir, file_name) || !lathe_model_has(dir, config_name))
        return LATHE_OK;
    LATHE_TRY(lathe_model_json(dir, config_name, &config));
    const lathe_status status = lathe_folder_template_write(
        named_template(config, "default"), named_template(config, "tool_use"), dir);
    json_decref(config);
    return status;
}

lathe_status lathe_folder_template_yield(const char *dir, const char *other)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    int has = 0;
    lathe_status status = has_template(other, &has);
    if (status == LATHE_OK && !has)
        status = keep_own(dir);
    const char *folder = lathe_path_join(&arena, dir, folder_name);
    if (status != LATHE_OK)
        goto out;
    if (folder == NULL) {
        status = LATHE_E_NOMEM;
        goto out;
    }
    if (has && (status = lathe_dir_remove(folder)) != LATHE_OK)
        goto out;
    if (has && (status = remove_file(&arena, dir, file_name)) != LATHE_OK)
        goto out;
    if (has)
        status = remove_file(&arena, dir, object_name);
out:
    lathe_arena_fini(&arena);
    return status;
}
