/* Writes the JSON output of lathe data. */
#include "cmd/text/data_json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/records/layout.h"
#include "data/records/row_kind.h"
#include "data/rows/shard_file.h"
#include "run/api/data_view.h"

/* Appends root as text and frees it. */
static lathe_status put_root(json_t *root, lathe_buffer *out)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!text)
        return lathe_error(LATHE_E_NOMEM, "no memory for the data's description");
    lathe_buffer_puts(out, text);
    lathe_buffer_puts(out, "\n");
    free(text);
    return out->status;
}

static void set_int(json_t *object, const char *key, int64_t value)
{
    (void)json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* {"records": 2, "file": "a.jsonl", "line": 3} */
static json_t *describe_count(const lathe_shards *shards, const lathe_shards_set *set,
                              const lathe_record_count *c)
{
    const lathe_source *source;
    int64_t line;
    json_t *one = json_object();
    set_int(one, "records", c->n);
    if (lathe_shards_line(shards, set, c->first, &source, &line)) {
        (void)json_object_set_new(one, "file", json_string(source->path));
        set_int(one, source->reader ? "row" : source->is_array ? "record" : "line", line);
    }
    return one;
}

/* {"tools": {"records": 2, ...}}: what the chat template does not write of records. */
static json_t *describe_unwritten(const lathe_shards *shards, const lathe_shards_set *set)
{
    json_t *out = json_object();
    for (int32_t what = 0; what < LATHE_N_UNWRITTEN; what++)
        if (set->counts.unwritten[what].n > 0)
            (void)json_object_set_new(out, lathe_unwritten_name(what),
                                      describe_count(shards, set, &set->counts.unwritten[what]));
    return out;
}

/* {"seam": {"records": 2, ...}}: what is told of records that are used. */
static json_t *describe_told(const lathe_shards *shards, const lathe_shards_set *set)
{
    json_t *out = json_object();
    for (int32_t what = 0; what < LATHE_N_TOLD; what++)
        if (set->notes.told[what].n > 0)
            (void)json_object_set_new(out, lathe_told_name(what),
                                      describe_count(shards, set, &set->notes.told[what]));
    return out;
}

/* {"question": {"records": 2, ...}}: the fields that nothing reads. */
static json_t *describe_unread(const lathe_shards *shards, const lathe_shards_set *set)
{
    json_t *out = json_object();
    for (int32_t i = 0; i < LATHE_UNREAD_COLUMNS && set->notes.unread[i].name[0]; i++)
        (void)json_object_set_new(out, set->notes.unread[i].name,
                                  describe_count(shards, set, &set->notes.unread[i].count));
    return out;
}

/* {"empty": {"records": 2, "file": "a.jsonl", "line": 3}, ...}: the reasons that occur. */
static json_t *describe_left(const lathe_shards *shards, const lathe_shards_set *set)
{
    json_t *out = json_object();
    for (int32_t why = 0; why < LATHE_N_LEFT; why++) {
        if (set->counts.left[why].n == 0)
            continue;
        json_t *one = describe_count(shards, set, &set->counts.left[why]);
        if (why == LATHE_LEFT_UNKNOWN_ROLE)
            (void)json_object_set_new(one, "role", json_string(set->counts.role));
        (void)json_object_set_new(out, lathe_left_name(why), one);
    }
    return out;
}

static json_t *describe_datasets(const lathe_data_split *split)
{
    const lathe_shards *shards = split->shards;
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    json_t *out = json_array();
    for (int64_t d = 0; d < split->n_datasets; d++) {
        const lathe_shards_set *set = lathe_shards_set_get(shards, d);
        json_t *one = json_object();
        (void)json_object_set_new(one, "path", json_string(split->datasets[d].path));
        set_int(one, kind->records, set->n_segments / kind->n_segments);
        set_int(one, "tokens", set->n_tokens);
        (void)json_object_set_new(one, "weight", json_real(set->weight));
        if (lathe_layout_known_text(lathe_shards_rows(shards)))
            set_int(one, "alpaca_records", set->counts.n_known);
        if (kind->n_answers > 1) {
            char name[32];
            (void)snprintf(name, sizeof name, "equal_%s", kind->records);
            set_int(one, name, set->counts.n_equal);
        }
        (void)json_object_set_new(one, "left_out", describe_left(shards, set));
        (void)json_object_set_new(one, "unwritten", describe_unwritten(shards, set));
        (void)json_object_set_new(one, "told", describe_told(shards, set));
        (void)json_object_set_new(one, "unread_columns", describe_unread(shards, set));
        (void)json_array_append_new(out, one);
    }
    return out;
}

static json_t *describe_split(const lathe_data_view *view, const lathe_data_split *split)
{
    const lathe_shards *shards = split->shards;
    lathe_loader_facts f;
    lathe_loader_facts_get(split->loader, &f);
    const lathe_row_kind *kind = lathe_row_kind_get(lathe_shards_rows(shards));
    const int64_t accumulated = view->n_micro;
    json_t *out = json_object();
    if (split->is_own)
        (void)json_object_set_new(out, "datasets", describe_datasets(split));
    set_int(out, "skipped_records", lathe_shards_skipped(shards));
    set_int(out, kind->records, f.n_documents);
    set_int(out, "tokens", f.n_tokens);
    set_int(out, "text_bytes", f.text_bytes);
    set_int(out, "rows", f.n_rows);
    set_int(out, "row_tokens", view->row_tokens);
    if (!lathe_row_shape_get(lathe_shards_rows(shards))->is_padded)
        (void)json_object_set_new(out, "filled", json_real(f.fill));
    if (kind->has_lines) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_left_out", kind->records);
        set_int(out, key, f.n_left_out);
        (void)snprintf(key, sizeof key, "%s_overlong", kind->records);
        set_int(out, key, f.n_overlong);
        (void)snprintf(key, sizeof key, "%s_cut", kind->records);
        set_int(out, key, f.n_cut);
        (void)snprintf(key, sizeof key, "%s_equal_after_cut", kind->records);
        if (kind->n_answers > 1)
            set_int(out, key, f.n_same_cut);
    }
    set_int(out, "rows_per_epoch", f.n_places);
    set_int(out, "steps_per_epoch",
            (lathe_loader_batches(split->loader, 1) + accumulated - 1) / accumulated);
    set_int(out, "index_bytes", f.index_bytes);
    return out;
}

lathe_status lathe_data_json_run(lathe_run *run, lathe_buffer *out)
{
    lathe_data_view view;
    LATHE_TRY(lathe_run_data_view(run, &view));
    json_t *root = json_object(), *validation = json_null();
    if (view.validation.loader) {
        validation = describe_split(&view, &view.validation);
        (void)json_object_del(validation, "steps_per_epoch"); /* no step uses these data */
    }
    (void)json_object_set_new(root, "training", describe_split(&view, &view.training));
    (void)json_object_set_new(root, "validation", validation);
    return put_root(root, out);
}

/* Describes one shard: "name", and its content or its damage. */
static lathe_status describe_shard(const char *path, const char *name, json_t *one, int64_t *bad)
{
    lathe_shard shard;
    lathe_shard_header h;
    int current = 0;
    lathe_status status = lathe__shard_peek(path, &h, &current);
    (void)json_object_set_new(one, "name", json_string(name));
    (void)json_object_set_new(one, "damaged", json_null());
    (void)json_object_set_new(one, "other_version", json_boolean(status == LATHE_OK && !current));
    if (status == LATHE_OK && !current)
        return LATHE_OK;
    if (status == LATHE_OK)
        status = lathe__shard_open(path, 1, &shard);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) {
        (void)json_object_set_new(one, "damaged", json_string(lathe_error_message()));
        ++*bad;
        return LATHE_OK;
    }
    const lathe_row_kind *kind = lathe_row_kind_get(h.rows);
    set_int(one, kind->records, h.n_segments / kind->n_segments);
    set_int(one, "tokens", h.n_tokens);
    set_int(one, "source_bytes", h.source_bytes);
    set_int(one, "text_bytes", h.text_bytes);
    (void)json_object_set_new(one, "is_last", json_boolean(h.is_last));
    lathe__shard_close(&shard);
    return LATHE_OK;
}

lathe_status lathe_data_json_folder(const char *dir, lathe_buffer *out, int64_t *out_bad)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *shards = json_array(), *root;
    char **names = NULL;
    int64_t n = 0;
    *out_bad = 0;
    lathe_status status = lathe_dir_list(dir, &arena, &names, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        if (!lathe__shard_is_name(names[i]))
            continue;
        json_t *one = json_object();
        const char *path = lathe_path_join(&arena, dir, names[i]);
        status = path ? describe_shard(path, names[i], one, out_bad) : LATHE_E_NOMEM;
        (void)json_array_append_new(shards, one);
    }
    if (status == LATHE_OK && json_array_size(shards) == 0)
        status =
            lathe_error(LATHE_E_CONFIG,
                        "%s: no shards in it; name a run file, or the data.cache_dir of one", dir);
    lathe_arena_fini(&arena);
    if (status != LATHE_OK) {
        json_decref(shards);
        return status;
    }
    root = json_object();
    (void)json_object_set_new(root, "shards", shards);
    return put_root(root, out);
}
