/* Writes the datasets of `lathe eval --data PATH`. */
#include "app/eval_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/toml.h"
#include "checkpoint/checkpoint_folder.h"
#include "config/config.h"
#include "io/manifest.h"
#include "opening/folder_settings.h"
#include "records/dataset.h"

static int same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static int same_columns(const lathe_dataset *a, const lathe_dataset *b)
{
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
        if (!same_text(a->columns[c], b->columns[c]) || !same_text(a->formats[c], b->formats[c]))
            return 0;
    if (a->as_chat != b->as_chat || a->n_input_columns != b->n_input_columns ||
        !same_text(a->messages, b->messages))
        return 0;
    for (int32_t i = 0; i < a->n_input_columns; i++)
        if (!same_text(a->input_columns[i].input, b->input_columns[i].input) ||
            !same_text(a->input_columns[i].field, b->input_columns[i].field))
            return 0;
    return 1;
}

/* ", columns = {text = "body"}". more: of the table columns, messages and the stage's inputs; NULL:
 * of the table format. */
static void put_columns(const char *key, const char *const list[LATHE_N_COLUMNS],
                        const lathe_dataset *more, lathe_buffer *out)
{
    int n = 0;
    if (more && more->messages) {
        lathe_buffer_printf(out, ", %s = {messages = ", key);
        lathe_buffer_json_string(out, more->messages);
        n++;
    }
    for (int32_t i = 0; more && i < more->n_input_columns; i++, n++) {
        if (n == 0)
            lathe_buffer_printf(out, ", %s = {", key);
        lathe_buffer_puts(out, n ? ", " : "");
        lathe_buffer_json_string(out, more->input_columns[i].input);
        lathe_buffer_puts(out, " = ");
        lathe_buffer_json_string(out, more->input_columns[i].field);
    }
    for (int32_t c = 0; list && c < LATHE_N_COLUMNS; c++) {
        if (!list[c])
            continue;
        if (n++ == 0)
            lathe_buffer_printf(out, ", %s = {", key);
        lathe_buffer_printf(out, "%s%s = ", n > 1 ? ", " : "", lathe_column_name(c));
        lathe_buffer_json_string(out, list[c]);
    }
    lathe_buffer_puts(out, n ? "}" : "");
}

/* The type of the file by its name; TEXT also if it cannot be read, which is reported later. */
static int32_t type_of(const char *path, lathe_registry *registry, lathe_arena *arena)
{
    const lathe_dataset dataset = {.path = path, .type = LATHE_DATASET_AUTO, .registry = registry};
    lathe_sources sources;
    if (lathe_sources_list(&dataset, arena, &sources) == LATHE_OK)
        return sources.type;
    lathe_error_clear();
    return LATHE_DATASET_TEXT;
}

/* Where the columns of dataset i are said: in the run file, or in the manifest of a checkpoint. */
static const char *where_of(const lathe_config *config, const char *checkpoint, int64_t i,
                            lathe_arena *arena)
{
    if (!config)
        return lathe_path_join(arena, checkpoint, LATHE_MANIFEST_NAME);
    const lathe_place place = lathe_config_where_in(config, "data", "datasets", i, NULL);
    return lathe_arena_printf(arena, "%s:%d:%d", place.file, place.line, place.column);
}

/* Adds the type, columns and format that the datasets share. config: the run file, or NULL: they
 * come from the manifest of `checkpoint`. */
static lathe_status put_shared(const lathe_config *config, const char *checkpoint, const char *path,
                               const lathe_dataset *sets, int64_t n, lathe_arena *arena,
                               lathe_buffer *out)
{
    static const char *const names[] = {"text", "jsonl", "json", "csv",
                                        "reader"}; /* LATHE_DATASET_* */
    int32_t type = type_of(path, n > 0 ? sets[0].registry : NULL, arena);
    int same_type = 1;
    for (int64_t i = 1; i < n; i++)
        same_type &= sets[i].type == sets[0].type;
    if (type == LATHE_DATASET_TEXT && same_type && sets[0].type > LATHE_DATASET_TEXT) {
        type = sets[0].type;
        lathe_buffer_printf(out, ", type = \"%s\"", names[type]);
    }
    if (type == LATHE_DATASET_TEXT)
        return LATHE_OK;
    for (int64_t i = 1; i < n; i++) {
        if (same_columns(&sets[0], &sets[i]))
            continue;
        const char *where = where_of(config, checkpoint, i, arena);
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: the datasets have different columns, so the columns of --data %s are not "
            "known; set them: --data.validation '[{path = \"%s\", columns = {...}}]'",
            where ? where : "", path, path);
    }
    put_columns("columns", sets[0].columns, &sets[0], out);
    put_columns("format", sets[0].formats, NULL, out);
    if (sets[0].as_chat != 0)
        lathe_buffer_printf(out, ", chat = %s", sets[0].as_chat > 0 ? "true" : "false");
    return out->status;
}

/* Drops the columns of the folder's own stage if --stage.name is pretrain, which would refuse them.
 */
static void keep_texts(const lathe_args *args, lathe_dataset *sets, int64_t n)
{
    if (!same_text(lathe_args_override(args, "stage.name"), "pretrain"))
        return;
    for (int64_t i = 0; i < n; i++) {
        for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
            if (c != LATHE_COLUMN_TEXT)
                sets[i].columns[c] = sets[i].formats[c] = NULL;
        sets[i].n_input_columns = 0;
    }
}

/* Datasets of a configuration, which owns them. */
typedef struct read_sets {
    lathe_registry *registry;
    lathe_config *config;
    lathe_diags diags;
    lathe_dataset *list;
    int64_t n;
} read_sets;

static void sets_fini(read_sets *x)
{
    lathe_config_destroy(x->config);
    lathe_diags_fini(&x->diags);
    lathe_registry_destroy(x->registry);
}

/* Reads data.datasets of a run file (NULL: none) with overrides. Call sets_fini also on errors. */
static lathe_status sets_read(read_sets *x, const char *run_file, const lathe_override *overrides,
                              int32_t n_overrides, lathe_arena *arena)
{
    *x = (read_sets){.registry = NULL};
    LATHE_TRY(lathe_registry_create(&x->registry));
    LATHE_TRY(
        lathe_config_load(run_file, overrides, n_overrides, 0, x->registry, &x->diags, &x->config));
    return lathe_datasets_read(x->config, "datasets", arena, &x->list, &x->n);
}

/* Errors in the run file are reported when the run is opened. */
static lathe_status put_of_run(const lathe_args *args, const char *path, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    read_sets sets;
    lathe_status status = LATHE_OK;
    if (sets_read(&sets, args->words[0], args->overrides, args->n_overrides, &arena) == LATHE_OK) {
        keep_texts(args, sets.list, sets.n);
        status = put_shared(sets.config, NULL, path, sets.list, sets.n, &arena, out);
    }
    if (status == LATHE_OK)
        lathe_error_clear();
    sets_fini(&sets);
    lathe_arena_fini(&arena);
    return status;
}

/* Reads the datasets of a checkpoint as those of a run file are read. */
static lathe_status put_of_settings(const lathe_args *args, const lathe_setting_list *settings,
                                    const char *checkpoint, const char *path, lathe_arena *arena,
                                    lathe_buffer *out)
{
    read_sets sets;
    lathe_status status = sets_read(&sets, NULL, settings->list, settings->n, arena);
    if (status == LATHE_OK)
        keep_texts(args, sets.list, sets.n);
    if (status == LATHE_OK && sets.n > 0)
        status = put_shared(NULL, checkpoint, path, sets.list, sets.n, arena, out);
    sets_fini(&sets);
    return status;
}

/* The columns of the datasets in the manifest of a checkpoint; a folder without one has none. */
static lathe_status put_of_folder(const lathe_args *args, const char *path, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *checkpoint = NULL;
    json_t *manifest = NULL;
    int32_t has_manifest = 0;
    lathe_setting_list settings;
    lathe_status status = lathe_checkpoint_resolve(&arena, args->words[0], &checkpoint);
    if (status == LATHE_OK)
        status = lathe_folder_config(checkpoint, &arena, &manifest, &has_manifest);
    const json_t *list = json_object_get(json_object_get(manifest, "data"), "datasets");
    if (status == LATHE_OK)
        status = lathe_settings_init(&settings, &arena);
    if (status == LATHE_OK)
        status = lathe_settings_add(&settings, &arena, "data", "datasets", list);
    if (status == LATHE_OK && settings.n > 0)
        status = put_of_settings(args, &settings, checkpoint, path, &arena, out);
    json_decref(manifest);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- --data beside --data.validation ---- */

static int is_same_place(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    const int same = strcmp(a, b) == 0 || (real_a && real_b && strcmp(real_a, real_b) == 0);
    free(real_a);
    free(real_b);
    return same;
}

/* Whether a dataset, as a table or its path alone, is the file. */
static int is_of_file(const lathe_toml_node *set, const char *path)
{
    const lathe_toml_node *at = set->kind == LATHE_TOML_TABLE ? lathe_toml_find(set, "path") : set;
    return at && at->kind == LATHE_TOML_STRING && is_same_place(at->s, path);
}

/* Whether --data.validation names the file and nothing else. What is no list of datasets is
 * reported when it is read. */
static int names_only(const char *validation, const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_toml_node *list = NULL;
    int same = 1;
    if (lathe_toml_literal(validation, &arena, &list) != LATHE_OK) {
        lathe_error_clear();
        same = is_same_place(validation, path); /* a string without quotes */
    } else if (list->kind == LATHE_TOML_ARRAY) {
        for (int64_t i = 0; i < list->n_children; i++)
            same &= is_of_file(list->children[i], path);
    } else {
        same = is_of_file(list, path);
    }
    lathe_arena_fini(&arena);
    return same;
}

/* ---- a folder of no run ---- */

/* Reads the first record of a JSON Lines file, or of an array; NULL: it is something else. */
static json_t *first_record(const char *path)
{
    enum { FIRST = 1 << 16 };
    char *text = calloc(1, FIRST);
    FILE *file = text && !lathe_path_is_dir(path) ? fopen(path, "rbe") : NULL;
    const size_t n = file ? fread(text, 1, FIRST - 1, file) : 0;
    json_t *record = NULL;
    const char *begin = text ? text + strspn(text, " \t\r\n[") : NULL;
    if (n > 0 && *begin == '{')
        record = json_loadb(begin, n - (size_t)(begin - text), JSON_DISABLE_EOF_CHECK, NULL);
    if (file)
        (void)fclose(file);
    free(text);
    return record;
}

void lathe_eval_say_stage(const lathe_args *args, const char *dir)
{
    static const struct {
        const char *column, *records, *stage;
    } kinds[] = {{"messages", "conversations", "sft"},
                 {"conversations", "conversations", "sft"},
                 {"completion", "prompts with completions", "sft"},
                 {"chosen", "preference pairs", "dpo or rm"},
                 {"instruction", "instructions with answers", "sft"}};
    const char *data = lathe_args_value(args, "--data");
    json_t *record = data ? first_record(data) : NULL;
    size_t k = 0, n = sizeof kinds / sizeof kinds[0];
    while (k < n && !json_object_get(record, kinds[k].column))
        k++;
    if (record && k < n)
        lathe_log(LATHE_LOG_INFO,
                  "%s does not say how it was trained, so every token counts; the records of %s "
                  "are %s: --stage.name %s evaluates them as such",
                  dir, data, kinds[k].records, kinds[k].stage);
    else
        lathe_log(LATHE_LOG_INFO,
                  "%s does not say how it was trained, so every token counts (--stage.name)", dir);
    json_decref(record);
}

lathe_status lathe_eval_data(const lathe_args *args, const char *option, const char *path,
                             lathe_buffer *out)
{
    /* reported here once: it becomes the data to train on and to evaluate on */
    if (!lathe_path_exists(path) && !strpbrk(path, "*?["))
        return lathe_error(LATHE_E_CONFIG, "%s %s: no such file or folder", option, path);
    const char *other = lathe_args_override(args, "data.validation");
    if (other && other[0] && !names_only(other, path))
        return lathe_error(LATHE_E_ARG,
                           "%s %s and --data.validation %s name different data; expected only "
                           "one of them",
                           option, path, other);
    lathe_buffer_puts(out, "[{path = ");
    lathe_buffer_json_string(out, path);
    if (lathe_path_exists(args->words[0]) && !other)
        LATHE_TRY(lathe_path_is_model(args->words[0]) ? put_of_folder(args, path, out)
                                                      : put_of_run(args, path, out));
    lathe_buffer_puts(out, "}]");
    return out->status;
}
