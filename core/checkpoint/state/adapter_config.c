/* Writes adapter_config.json. */
#include "checkpoint/state/adapter_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "checkpoint/state/parents.h"

/* Adds the heads of the stage to the text of an adapter_config.json, as PEFT keeps modules that it
 * saves whole. A head "score" makes it the adapter of a sequence classifier. */
static lathe_status add_heads(const lathe_saved_state *saved, char **io_text)
{
    json_t *names = json_array(), *config = NULL;
    lathe_status status = names ? LATHE_OK : LATHE_E_NOMEM;
    int is_classifier = 0;
    for (int32_t i = saved->params->n_model; i < saved->params->n; i++) {
        const lathe_param *row = saved->params->rows[i];
        const char *dot = strrchr(row->name, '.');
        if (!row->stage_head || dot == NULL)
            continue;
        is_classifier |= strncmp(row->name, "score.", 6) == 0;
        (void)json_array_append_new(names, json_stringn(row->name, (size_t)(dot - row->name)));
    }
    if (status == LATHE_OK && json_array_size(names) > 0)
        status =
            lathe_json_load("adapter_config.json", *io_text, (int64_t)strlen(*io_text), &config);
    if (config && is_classifier)
        (void)json_object_set_new(config, "task_type", json_string("SEQ_CLS"));
    if (config) {
        json_t *list = json_object_get(config, "modules_to_save");
        if (json_is_array(list))
            (void)json_array_extend(list, names);
        else
            (void)json_object_set(config, "modules_to_save", names);
        free(*io_text);
        *io_text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        if (*io_text == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
    }
    json_decref(config);
    json_decref(names);
    return status;
}

/* Whether PEFT, which quantizes the base of LoftQ to NF4 with plain scales, makes the same base. */
static int is_base_of_peft(const lathe_saved_state *saved)
{
    const lathe_component *format = saved->parts->quant.component;
    const lathe_value *nested = lathe_config_get(saved->config, "quant", "double_quant");
    return format && strcmp(format->plugin->name, "nf4") == 0 && nested && !nested->i;
}

/* An adapter that belongs to another base than PEFT would make gets an initialization that PEFT
 * refuses by name: it would compute something else in silence. */
static lathe_status mark_base(const lathe_saved_state *saved, char **io_text)
{
    static const char key[] = "init_lora_weights";
    const lathe_adapter_v1 *table = saved->parts->adapter.table;
    json_t *config = NULL;
    if (!LATHE_HAS(table, starts_elsewhere) ||
        !table->starts_elsewhere(saved->parts->adapter.self) || is_base_of_peft(saved))
        return LATHE_OK;
    LATHE_TRY(lathe_json_load("adapter_config.json", *io_text, (int64_t)strlen(*io_text), &config));
    const char *init = json_string_value(json_object_get(config, key));
    if (init)
        (void)json_object_set_new(config, key, json_sprintf("%s over another base", init));
    free(*io_text);
    *io_text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    return *io_text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
}

/* Says which rows of tokens the file holds, as PEFT does: a list for the embedding, which a tied
 * head shares, or a list for each module. */
static lathe_status add_token_rows(const lathe_saved_state *saved, char **io_text)
{
    static const char key[] = "trainable_token_indices";
    const lathe_params *params = saved->params;
    json_t *config = NULL, *ids = json_array(), *modules = json_object();
    for (int32_t i = params->n_model; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (row->init != LATHE_INIT_TOKEN_ROWS || row->is_derived || row->reference)
            continue;
        const char *name = params->rows[row->init_from]->name, *dot = strrchr(name, '.');
        const char *module = name;
        (void)json_array_clear(ids);
        for (int32_t k = 0; k < row->tokens.n; k++)
            (void)json_array_append_new(ids, json_integer(row->tokens.ids[k]));
        for (const char *c = name; dot && c < dot; c++)
            module = *c == '.' ? c + 1 : module;
        (void)json_object_set_new(modules,
                                  lathe_arena_strndup(saved->arena, module, dot ? dot - module : 0),
                                  json_deep_copy(ids));
    }
    lathe_status status = LATHE_OK;
    const size_t n = json_object_size(modules);
    if (n > 0)
        status =
            lathe_json_load("adapter_config.json", *io_text, (int64_t)strlen(*io_text), &config);
    if (config) {
        (void)json_object_set(config, key, n == 1 ? ids : modules);
        free(*io_text);
        *io_text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        if (*io_text == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
    }
    json_decref(config);
    json_decref(modules);
    json_decref(ids);
    return status;
}

/* Adds text of a regular expression that means the text itself. */
static void put_literal(lathe_buffer *b, const char *text)
{
    for (; *text != '\0'; text++)
        lathe_buffer_printf(b, lathe_is_one_of(*text, ".^$*+?()[]{}|\\") ? "\\%c" : "%c", *text);
}

/* The expression of modules that PEFT must leave alone in a model of several towers: those of the
 * other towers, whose layers may have the names of targets, and those that were left out before.
 */
static void put_excluded(const lathe_model_config *model, const json_t *before, lathe_buffer *b)
{
    size_t i;
    const json_t *name;
    const char *pattern = json_string_value(before), *dot = strrchr(model->head, '.');
    lathe_buffer_puts(b, "(?!");
    put_literal(b, model->prefix);
    lathe_buffer_puts(b, "|");
    for (const char *c = model->head; c < dot; c++)
        put_literal(b, (const char[2]){*c, '\0'});
    lathe_buffer_puts(b, "$).*");
    if (pattern)
        lathe_buffer_printf(b, "|(?:%s)", pattern);
    json_array_foreach(before, i, name)
    {
        lathe_buffer_puts(b, "|(?:.*\\.)?");
        put_literal(b, json_string_value(name) ? json_string_value(name) : "");
    }
}

/* PEFT looks for the targets in all towers: only the text model has an adapter. */
static lathe_status exclude_towers(const lathe_saved_state *saved, char **io_text)
{
    static const char key[] = "exclude_modules";
    lathe_buffer pattern = LATHE_BUFFER_INIT;
    json_t *config = NULL;
    if (saved->model->wrapper == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_json_load("adapter_config.json", *io_text, (int64_t)strlen(*io_text), &config));
    put_excluded(saved->model, json_object_get(config, key), &pattern);
    if (pattern.status == LATHE_OK)
        (void)json_object_set_new(config, key, json_string(pattern.data));
    lathe_buffer_fini(&pattern);
    free(*io_text);
    *io_text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    return *io_text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
}

/* The base is written as an absolute path: the folder may be used from anywhere. */
lathe_status lathe__adapter_config_write(const lathe_saved_state *saved, const char *dir,
                                         const char *place)
{
    const lathe_adapter_v1 *table = saved->parts->adapter.table;
    if (!LATHE_HAS(table, config_json))
        return LATHE_OK;
    char *absolute = saved->model_path ? realpath(saved->model_path, NULL) : NULL;
    const char *base = absolute ? absolute : saved->model_path ? saved->model_path : "";
    const char *merged = saved->merges ? lathe__parents_place(place, saved->arena) : NULL;
    base = merged ? merged : base;
    const int64_t bytes = table->config_json(saved->parts->adapter.self, base, NULL, 0);
    char *text = malloc((size_t)bytes + 1);
    lathe_status status =
        text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for adapter_config.json");
    if (status == LATHE_OK) {
        const int64_t written =
            table->config_json(saved->parts->adapter.self, base, text, bytes + 1);
        text[written < bytes ? written : bytes] = '\0';
        status = add_heads(saved, &text);
        if (status == LATHE_OK)
            status = add_token_rows(saved, &text);
        if (status == LATHE_OK)
            status = mark_base(saved, &text);
        if (status == LATHE_OK)
            status = exclude_towers(saved, &text);
    }
    if (status == LATHE_OK) {
        const char *path = lathe_path_join(saved->arena, dir, "adapter_config.json");
        status = path ? lathe_file_write_atomic(path, text, (int64_t)strlen(text)) : LATHE_E_NOMEM;
    }
    free(text);
    free(absolute);
    return status;
}
