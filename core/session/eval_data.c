/* Writes the datasets of `lathe eval --data PATH`. */
#include "session/eval_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/toml.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "config/config.h"
#include "data/records/dataset.h"
#include "files/safetensors/manifest.h"
#include "run/folder/folder_settings.h"

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

/* Adds a text to a table; a table without memory stays NULL. */
static lathe_toml_node *with_text(lathe_toml_node *table, const char *key, const char *text,
                                  lathe_arena *arena)
{
    lathe_toml_node *node = table ? lathe_toml_new(LATHE_TOML_STRING, key, text, arena) : NULL;
    return node && lathe_toml_set(table, node, arena) == LATHE_OK ? table : NULL;
}

/* Adds the table columns or format of a dataset. more: of the table columns, messages and the
 * stage's inputs; NULL: of the table format. */
static lathe_status put_columns(const char *key, const char *const list[LATHE_N_COLUMNS],
                                const lathe_dataset *more, lathe_arena *arena, lathe_toml_node *out)
{
    lathe_toml_node *table = lathe_toml_new(LATHE_TOML_TABLE, key, NULL, arena);
    if (more && more->messages)
        table = with_text(table, "messages", more->messages, arena);
    for (int32_t i = 0; more && i < more->n_input_columns; i++)
        table = with_text(table, more->input_columns[i].input, more->input_columns[i].field, arena);
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
        if (list[c])
            table = with_text(table, lathe_column_name(c), list[c], arena);
    if (!table)
        return LATHE_E_NOMEM;
    return table->n_children > 0 ? lathe_toml_set(out, table, arena) : LATHE_OK;
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

/* Adds to the table `out` the type, columns and format that the datasets share. config: the run
 * file, or NULL: they come from the manifest of `checkpoint`. */
static lathe_status put_shared(const lathe_config *config, const char *checkpoint, const char *path,
                               const lathe_dataset *sets, int64_t n, lathe_arena *arena,
                               lathe_toml_node *out)
{
    static const char *const names[] = {"text", "jsonl", "json", "csv",
                                        "reader"}; /* LATHE_DATASET_* */
    int32_t type = type_of(path, n > 0 ? sets[0].registry : NULL, arena);
    int same_type = 1;
    for (int64_t i = 1; i < n; i++)
        same_type &= sets[i].type == sets[0].type;
    if (type == LATHE_DATASET_TEXT && same_type && sets[0].type > LATHE_DATASET_TEXT) {
        type = sets[0].type;
        if (!with_text(out, "type", names[type], arena))
            return LATHE_E_NOMEM;
    }
    if (type == LATHE_DATASET_TEXT)
        return LATHE_OK;
    for (int64_t i = 1; i < n; i++) {
        if (same_columns(&sets[0], &sets[i]))
            continue;
        const char *where = where_of(config, checkpoint, i, arena);
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: the datasets have different columns, so the columns of %s are not "
            "known; set them: data.validation = '[{path = \"%s\", columns = {...}}]'",
            where ? where : "", path, path);
    }
    LATHE_TRY(put_columns("columns", sets[0].columns, &sets[0], arena, out));
    LATHE_TRY(put_columns("format", sets[0].formats, NULL, arena, out));
    if (sets[0].as_chat == 0)
        return LATHE_OK;
    lathe_toml_node *chat = lathe_toml_new(LATHE_TOML_BOOL, "chat", NULL, arena);
    if (!chat)
        return LATHE_E_NOMEM;
    chat->i = sets[0].as_chat > 0;
    return lathe_toml_set(out, chat, arena);
}

/* Drops the columns of the folder's own stage if --stage.name is pretrain, which would refuse them.
 */
static void keep_texts(const lathe_model_request *ask, lathe_dataset *sets, int64_t n)
{
    if (!same_text(lathe__request_value(ask, "stage.name"), "pretrain"))
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
    lathe_config *config;
    lathe_diags diags;
    lathe_dataset *list;
    int64_t n;
} read_sets;

static void sets_fini(read_sets *x)
{
    lathe_config_destroy(x->config);
    lathe_diags_fini(&x->diags);
}

/* Adds what the datasets of the run file say. Errors in the file are reported when the run is
 * opened. */
static lathe_status put_of_run(const lathe_model_request *ask, const char *path, lathe_arena *arena,
                               lathe_toml_node *out)
{
    read_sets sets = {.n = 0};
    lathe_status status = lathe_config_make(ask->inputs->file, NULL, 0, ask->inputs->registry,
                                            &sets.diags, &sets.config);
    if (status == LATHE_OK)
        status = lathe_datasets_read(sets.config, "datasets", arena, &sets.list, &sets.n);
    if (status == LATHE_OK && sets.n > 0) { /* a run file may have no datasets */
        keep_texts(ask, sets.list, sets.n);
        status = put_shared(sets.config, NULL, path, sets.list, sets.n, arena, out);
    } else {
        lathe_error_clear();
        status = LATHE_OK;
    }
    sets_fini(&sets);
    return status;
}

/* Reads the datasets of a checkpoint as those of a run file are read. */
static lathe_status put_of_settings(const lathe_model_request *ask,
                                    const lathe_setting_list *settings, const char *checkpoint,
                                    const char *path, lathe_arena *arena, lathe_toml_node *out)
{
    read_sets sets = {.n = 0};
    lathe_edits edits = {.n = 0};
    for (int32_t i = 0; i < settings->n; i++)
        lathe_edits_add(&edits, &settings->edits[i]);
    lathe_status status =
        lathe_config_of_edits(&edits, 0, ask->inputs->registry, &sets.diags, &sets.config);
    if (status != LATHE_OK)
        goto out;
    status = lathe_datasets_read(sets.config, "datasets", arena, &sets.list, &sets.n);
    if (status != LATHE_OK)
        goto out;
    keep_texts(ask, sets.list, sets.n);
    if (sets.n > 0)
        status = put_shared(NULL, checkpoint, path, sets.list, sets.n, arena, out);
out:
    sets_fini(&sets);
    lathe_edits_fini(&edits);
    return status;
}

/* The columns of the datasets in the manifest of a checkpoint; a folder without one has none. */
static lathe_status put_of_folder(const lathe_model_request *ask, const char *path,
                                  lathe_arena *arena, lathe_toml_node *out)
{
    const char *checkpoint = NULL;
    json_t *manifest = NULL;
    int32_t has_manifest = 0;
    lathe_setting_list settings;
    LATHE_TRY(lathe_checkpoint_resolve(arena, ask->word, &checkpoint));
    LATHE_TRY(lathe_settings_init(&settings, arena));
    LATHE_TRY(lathe_folder_config(checkpoint, arena, &manifest, &has_manifest));
    const json_t *list = json_object_get(json_object_get(manifest, "data"), "datasets");
    lathe_status status = lathe_settings_add(&settings, arena, "data", "datasets", list);
    if (status == LATHE_OK && settings.n > 0)
        status = put_of_settings(ask, &settings, checkpoint, path, arena, out);
    json_decref(manifest);
    return status;
}

/* ---- a folder of no run ---- */

/* Reads the first record of a JSON Lines file, or of an array; NULL: it is something else. */
static json_t *first_record(const char *path)
{
    enum { FIRST = 1 << 16 };
    char *text = calloc(1, FIRST);
    FILE *file = NULL;
    if (text && lathe_file_stream(path, &file) != LATHE_OK)
        lathe_error_clear(); /* opening the dataset says what is wrong with it */
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

void lathe_eval_say_stage(const lathe_model_request *ask, const char *dir)
{
    static const struct {
        const char *column, *records, *stage;
    } kinds[] = {{"messages", "conversations", "sft"},
                 {"conversations", "conversations", "sft"},
                 {"completion", "prompts with completions", "sft"},
                 {"chosen", "preference pairs", "dpo or rm"},
                 {"instruction", "instructions with answers", "sft"}};
    const char *data = ask->data;
    json_t *record = data ? first_record(data) : NULL;
    size_t k = 0, n = sizeof kinds / sizeof kinds[0];
    while (k < n && !json_object_get(record, kinds[k].column))
        k++;
    if (record && k < n)
        lathe_log(LATHE_LOG_INFO,
                  "%s does not say how it was trained, so every token counts; the records of %s "
                  "are %s: stage.name %s evaluates them as such",
                  dir, data, kinds[k].records, kinds[k].stage);
    else
        lathe_log(LATHE_LOG_INFO,
                  "%s does not say how it was trained, so every token counts (stage.name sets "
                  "another stage)",
                  dir);
    json_decref(record);
}

/* Adds the columns or the format that the caller gives as a table in TOML. */
static lathe_status put_given(const char *key, const char *literal, lathe_arena *arena,
                              lathe_toml_node *out)
{
    lathe_toml_node *node = NULL;
    if (!literal)
        return LATHE_OK;
    if (lathe_toml_literal(literal, arena, &node) != LATHE_OK) {
        lathe_error_clear(); /* reading the dataset refuses the text */
        return with_text(out, key, literal, arena) ? LATHE_OK : LATHE_E_NOMEM;
    }
    node->key = key;
    return lathe_toml_set(out, node, arena);
}

/* The setting data.validation of the caller; NULL: none, or an empty one. */
static const lathe_toml_node *given_validation(const lathe_model_request *ask)
{
    const lathe_toml_node *found = NULL;
    for (int32_t i = 0; i < ask->edits->n; i++)
        if (strcmp(ask->edits->list[i].key, "data.validation") == 0)
            found = ask->edits->list[i].value;
    return found;
}

/* Describes the data as a dataset. */
static lathe_status describe(const lathe_model_request *ask, const lathe_eval_source *from,
                             lathe_arena *arena, lathe_toml_node *out)
{
    const char *path = from->path;
    if (from->columns || from->format) { /* they replace what the model's folder says of its data */
        LATHE_TRY(put_given("columns", from->columns, arena, out));
        return put_given("format", from->format, arena, out);
    }
    if (!lathe_path_exists(ask->word) || given_validation(ask))
        return LATHE_OK;
    return lathe_path_is_model(ask->word) ? put_of_folder(ask, path, arena, out)
                                          : put_of_run(ask, path, arena, out);
}

lathe_status lathe_eval_data(const lathe_model_request *ask, const lathe_eval_source *from,
                             lathe_edits *out)
{
    const char *path = from->path;
    lathe_arena arena = LATHE_ARENA_INIT;
    /* reported here once: it becomes the data to train on and to evaluate on */
    if (!lathe_path_exists(path) && !strpbrk(path, "*?["))
        return lathe_error(LATHE_E_CONFIG, "%s %s: no such file or folder", from->option, path);
    const lathe_toml_node *other = given_validation(ask);
    if (other && other->s[0] && !lathe_datasets_name_only(other, path))
        return lathe_error(LATHE_E_ARG,
                           "%s %s and data.validation = %s name different data; expected only "
                           "one of them",
                           from->option, path, other->s);
    lathe_toml_node *set =
        with_text(lathe_toml_new(LATHE_TOML_TABLE, NULL, NULL, &arena), "path", path, &arena);
    lathe_status status = set ? describe(ask, from, &arena, set) : LATHE_E_NOMEM;
    if (status == LATHE_OK) {
        lathe_toml_node list = {.kind = LATHE_TOML_ARRAY, .children = &set, .n_children = 1};
        lathe_edits_node_of(out, LATHE_BY_COMMAND, "data.datasets", &list, from->place);
        lathe_edits_node_of(out, LATHE_BY_COMMAND, "data.validation", &list, from->place);
        status = out->status;
    }
    lathe_arena_fini(&arena);
    return status;
}
