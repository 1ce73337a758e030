/* The datasets of another trainer's run file as data.datasets or data.validation. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "cmd/new/imported_run.h"
#include "plug/core_schema.h"
#include "plug/foreign_keys.h"
#include "plug/schema_check.h"

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Whether a path names something here: as it is, or beside the imported file. */
static int is_here(const lathe_import *io, const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *slash = strrchr(io->path, '/');
    const char *beside =
        slash ? lathe_arena_printf(&arena, "%.*s/%s", (int)(slash - io->path), io->path, path)
              : path;
    const int here = lathe_path_exists(path) || (beside && lathe_path_exists(beside));
    lathe_arena_fini(&arena);
    return here;
}

/* ORG/NAME of the Hub, which Lathe does not download. */
static void remark_missing(lathe_import *io, const char *path)
{
    if (!is_here(io, path) && path[0] != '/' && strchr(path, '/') != NULL)
        lathe_run_file_remark(
            io->out,
            "\"%s\" is not here: hf download %s --repo-type dataset --local-dir DIR, "
            "then name DIR in data.datasets",
            path, path);
}

/* Begins an element of the array: "{ path = ...". */
static void open_element(lathe_buffer *out, const char *path)
{
    lathe_buffer_puts(out, out->len > 1 ? ", { path = " : " { path = ");
    lathe_buffer_json_string(out, path);
}

/* ---- LLaMA-Factory: names of dataset_info.json ---- */

/* dataset_info.json of the file's dataset_dir ("data"); NULL: it is not here, or cannot be read,
 * which is remarked. */
static json_t *read_info(lathe_import *io, const char **out_dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *dir = text_of(io->root, "dataset_dir");
    const char *slash = strrchr(io->path, '/');
    json_t *info = NULL;
    dir = dir ? dir : "data";
    /* LLaMA-Factory looks in the folder in which it is started; its examples lie two levels below.
     */
    const char *const from[] = {"", "/", "/../", "/../../"};
    for (size_t i = 0; i < 4 && info == NULL; i++) {
        const char *base =
            i == 0 || slash == NULL
                ? ""
                : lathe_arena_printf(&arena, "%.*s%s", (int)(slash - io->path), io->path, from[i]);
        const char *folder = base ? lathe_arena_printf(&arena, "%s%s", base, dir) : NULL;
        const char *path =
            folder ? lathe_arena_printf(&arena, "%s/dataset_info.json", folder) : NULL;
        if (path == NULL || !lathe_path_exists(path))
            continue;
        if (lathe_json_load_file(path, &info) == LATHE_OK)
            *out_dir = lathe_arena_strdup(&io->out->arena, folder);
        else
            lathe_run_file_remark(io->out, "%s", lathe_error_message());
    }
    lathe_arena_fini(&arena);
    lathe_error_clear();
    return info;
}

/* Columns of an entry that have other names than those that Lathe reads by itself. */
static void put_columns(lathe_import *io, const char *name, const json_t *entry, lathe_buffer *out)
{
    static const struct {
        const char *theirs, *usual, *ours;
    } columns[] = {{"prompt", "instruction", "prompt"},
                   {"response", "output", "completion"},
                   {"messages", "conversations", "messages"},
                   {"chosen", "chosen", "chosen"},
                   {"rejected", "rejected", "rejected"}};
    const json_t *given = json_object_get(entry, "columns"), *value;
    const char *key;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)given, key, value)
    {
        size_t i = 0;
        const char *text = json_string_value(value);
        while (i < sizeof columns / sizeof columns[0] && strcmp(columns[i].theirs, key) != 0)
            i++;
        if (text == NULL ||
            (i < sizeof columns / sizeof columns[0] &&
             (strcmp(text, columns[i].usual) == 0 || (i == 2 && strcmp(text, "messages") == 0))))
            continue;
        if (i == sizeof columns / sizeof columns[0]) {
            if (strcmp(text, key) != 0)
                lathe_run_file_remark(io->out, "dataset %s: columns.%s = \"%s\": %s", name, key,
                                      text, "a column of that name is read by its own name only");
            continue;
        }
        lathe_buffer_printf(out, "%s%s = ", n++ ? ", " : ", columns = { ", columns[i].ours);
        lathe_buffer_json_string(out, text);
    }
    if (n > 0)
        lathe_buffer_puts(out, " }");
    if (json_object_get(entry, "tags"))
        lathe_run_file_remark(io->out,
                              "dataset %s: tags: roles and their keys are read by the usual "
                              "names (docs/data.md)",
                              name);
}

/* Keys of an entry that select or convert records, which data.datasets does not do. */
static void remark_entry(lathe_import *io, const char *name, const json_t *entry)
{
    static const char *const read[] = {"file_name", "hf_hub_url", "columns",
                                       "tags",      "formatting", "ranking"};
    const json_t *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)entry, key, value)
    {
        size_t i = 0;
        while (i < sizeof read / sizeof read[0] && strcmp(read[i], key) != 0)
            i++;
        if (i == sizeof read / sizeof read[0] && !json_is_null(value) && !json_is_false(value))
            lathe_run_file_remark(io->out, "dataset %s: %s has no equal; see docs/data.md", name,
                                  key);
    }
}

static void put_named(lathe_import *io, const json_t *info, const char *dir, const char *name,
                      lathe_buffer *out)
{
    const json_t *entry = json_object_get(info, name);
    const char *file = text_of(entry, "file_name"), *hub = text_of(entry, "hf_hub_url");
    char *path = file ? lathe_arena_printf(&io->out->arena, "%s/%s", dir, file) : NULL;
    const char *shown = path ? path : hub ? hub : name;
    open_element(out, shown);
    if (entry == NULL)
        lathe_run_file_remark(io->out,
                              "dataset %s: give the path of its file (file_name in "
                              "dataset_info.json)",
                              name);
    else {
        put_columns(io, name, entry, out);
        remark_entry(io, name, entry);
    }
    if (hub && !file)
        remark_missing(io, hub);
}

/* Names that are divided by commas. */
static void put_names(lathe_import *io, const json_t *info, const char *dir, const char *names,
                      const char *more, lathe_buffer *out)
{
    while (*names) {
        char name[256];
        const size_t n = strcspn(names, ",");
        size_t from = strspn(names, " ");
        from = from < n ? from : n;
        (void)snprintf(name, sizeof name, "%.*s", (int)(n - from), names + from);
        name[strcspn(name, " ")] = '\0';
        if (name[0]) {
            put_named(io, info, dir, name, out);
            lathe_buffer_printf(out, "%s }", more);
        }
        names += n + (names[n] == ',');
    }
}

/* Names in a text, or in a list of texts. */
static void import_llamafactory(lathe_import *io, const char *from, const json_t *value,
                                const char *more, lathe_buffer *out)
{
    const char *dir = "data";
    json_t *info = read_info(io, &dir);
    const json_t *one;
    size_t i;
    if (json_is_string(value))
        put_names(io, info, dir, json_string_value(value), more, out);
    json_array_foreach(value, i, one)
    {
        if (json_is_string(one))
            put_names(io, info, dir, json_string_value(one), more, out);
        else
            lathe_run_file_remark(io->out, "%s[%zu] is no name of a dataset", from, i);
    }
    json_decref(info);
}

/* ---- axolotl and xorl: lists of tables ---- */

/* Keys of an axolotl dataset that name a column. */
static const struct {
    const char *theirs, *ours;
} fields[] = {{"field_messages", "messages"},
              {"text_column", "text"},
              {"field", "text"},
              {"field_chosen", "chosen"},
              {"field_rejected", "rejected"}};

/* A key that says nothing which data.datasets would need: records are recognised by their columns,
 * and files by their names. */
static int is_harmless(const char *key, const json_t *value)
{
    static const char *const keys[] = {"path", "data_files", "ds_type", "trust_remote_code"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return 1;
    return json_is_null(value) || json_is_false(value);
}

/* Why a dataset's type is no part of data.datasets; "": nothing is lost; NULL: it has no equal. */
static const char *why_of_type(const lathe_import *io, const char *type)
{
    const int is_pretrain = strcmp(io->stage, "pretrain") == 0;
    static const struct {
        const char *type, *why;
    } types[] = {
        {"chat_template", ""},
        {"chat_template.default", ""},
        {"sharegpt", ""},
        {"alpaca", "the records are recognised; axolotl writes them as Alpaca's prompts, which "
                   "renderer.name = \"alpaca\" does, and the model's chat template does not"},
        {"tokenized", "token ids are not read; give the texts or the messages that they were made "
                      "of"}};
    if (strcmp(type, "completion") == 0 || strcmp(type, "pretrain") == 0)
        return is_pretrain ? ""
                           : "every token of these texts is learnt, which is stage pretrain: give "
                             "them a run file of their own";
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i].type) == 0)
            return types[i].why;
    return NULL;
}

/* A part of a dataset of the Hub. A file is one part already; a folder is read whole. */
static const char *why_of_split(const char *path, const char *split)
{
    const char *const dot = strrchr(path, '.');
    const int is_file = dot && strchr(dot, '/') == NULL && dot[1] != '\0';
    return is_file && strcmp(split, "train") == 0
               ? ""
               : "splits are not read: name the files of this split in path";
}

/* Says what is not taken over from a key of a dataset's table. */
static void remark_key(lathe_import *io, const char *from, const char *path, const char *key,
                       const json_t *value)
{
    const char *text = json_string_value(value), *why = NULL;
    lathe_buffer shown = LATHE_BUFFER_INIT;
    if (is_harmless(key, value))
        return;
    if (text && strcmp(key, "type") == 0)
        why = why_of_type(io, text);
    else if (text && strcmp(key, "split") == 0)
        why = why_of_split(path, text);
    lathe__import_value(value, &shown);
    if (why == NULL || why[0] != '\0')
        lathe_run_file_remark(io->out, "%s, \"%s\": %s = %.200s: %s", from, path, key,
                              shown.status == LATHE_OK && shown.data ? shown.data : "",
                              why ? why : "has no equal; see docs/data.md");
    lathe_buffer_fini(&shown);
}

/* The file of a table: data_files, which lie in path unless that names a format. */
static const char *path_of(lathe_import *io, const json_t *table, const char *file)
{
    static const char *const formats[] = {"json", "csv", "parquet", "arrow", "text"};
    const char *path = text_of(table, "path");
    if (file == NULL || path == NULL)
        return file ? file : path ? path : "";
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(path, formats[i]) == 0)
            return file;
    if (file[0] == '/' || is_here(io, file))
        return file;
    const char *joined = lathe_arena_printf(&io->out->arena, "%s/%s", path, file);
    return joined ? joined : file;
}

static void put_table(lathe_import *io, const char *from, const json_t *table, lathe_buffer *out)
{
    const json_t *files = json_object_get(table, "data_files"), *value;
    const json_t *first = json_is_array(files) ? json_array_get(files, 0) : files;
    const char *path = path_of(io, table, json_string_value(first)), *key;
    int n = 0;
    open_element(out, path);
    json_object_foreach((json_t *)(uintptr_t)table, key, value)
    {
        size_t i = 0;
        while (i < sizeof fields / sizeof fields[0] && strcmp(fields[i].theirs, key) != 0)
            i++;
        if (i < sizeof fields / sizeof fields[0] && json_is_string(value)) {
            lathe_buffer_printf(out, "%s%s = ", n++ ? ", " : ", columns = { ", fields[i].ours);
            lathe_buffer_json_string(out, json_string_value(value));
        } else {
            remark_key(io, from, path, key, value);
        }
    }
    lathe_buffer_puts(out, n ? " } }" : " }");
    if (json_array_size(files) > 1)
        lathe_run_file_remark(io->out,
                              "%s, \"%s\": data_files has %zu files; give each an element of "
                              "data.datasets",
                              from, path, json_array_size(files));
    remark_missing(io, path);
}

static void import_tables(lathe_import *io, const char *from, const json_t *value,
                          lathe_buffer *out)
{
    const json_t *table;
    size_t i;
    if (json_is_object(value))
        put_table(io, from, value, out);
    json_array_foreach(value, i, table)
    {
        if (json_is_object(table)) {
            put_table(io, from, table, out);
        } else if (json_is_string(table)) {
            open_element(out, json_string_value(table));
            lathe_buffer_puts(out, " }");
            remark_missing(io, json_string_value(table));
        } else {
            lathe_run_file_remark(io->out, "%s[%zu] is no dataset; expected a table with a path",
                                  from, i);
        }
    }
}

/* ---- */

static int datasets_have(const char *key)
{
    const lathe_core_section *table = lathe_core_table_find("data", "datasets");
    return table && lathe_schema_index(table->fields, table->n_fields, key) >= 0;
}

void lathe__import_data(lathe_import *io, const char *key, const char *from, const json_t *value)
{
    lathe_buffer out = LATHE_BUFFER_INIT, more = LATHE_BUFFER_INIT;
    const json_t *samples = json_object_get(io->root, "max_samples");
    const char *column = text_of(io->root, "dataset_text_field");
    lathe_buffer_puts(&out, "[");
    lathe_buffer_puts(&more, "");
    if (json_is_integer(samples) && datasets_have("max_samples"))
        lathe_buffer_printf(&more, ", max_samples = %lld", (long long)json_integer_value(samples));
    if (io->program == LATHE_FOREIGN_LLAMA_FACTORY) {
        import_llamafactory(io, from, value, more.data ? more.data : "", &out);
    } else if (json_is_string(value)) {
        open_element(&out, json_string_value(value));
        if (column) {
            lathe_buffer_puts(&out, ", columns = { text = ");
            lathe_buffer_json_string(&out, column);
            lathe_buffer_puts(&out, " }");
        }
        lathe_buffer_puts(&out, " }");
        remark_missing(io, json_string_value(value));
    } else {
        import_tables(io, from, value, &out);
    }
    lathe_buffer_puts(&out, out.len > 1 ? " ]" : "]");
    if (out.status == LATHE_OK && out.len > 2)
        lathe_run_file_set(io->out, "data", key, out.data, from);
    lathe_buffer_fini(&out);
    lathe_buffer_fini(&more);
}
