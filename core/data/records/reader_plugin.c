/* Reads the records of files through reader plugins. The text of a record is a JSON object, as a
 * line of a JSONL file is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "data/records/readers.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"
#include "lathe/reader.h"
#include "plug/call_watch.h"

static lathe_status fail(const lathe_reader *r, lathe_status status, int has_row)
{
    const lathe_source *file = &r->sources->list[r->at.file];
    if (lathe_error_message()[0] == '\0')
        (void)lathe_error(status, "reader %s refuses it and does not say why",
                          r->plugin.component->plugin->name);
    return has_row ? lathe_source_error(status, file, r->at.line)
                   : lathe_error_from(status, file->path, 0, 0);
}

/* Keeps the names of the file's columns for messages: "a, b, c". */
static lathe_status list_columns(lathe_reader *r)
{
    const lathe_reader_v1 *table = r->plugin.table;
    lathe_buffer b = LATHE_BUFFER_INIT;
    const char *name = NULL;
    int32_t n = 0;
    lathe_call_begin(r->plugin.component->path, "column()");
    for (; n <= LATHE_MOST_COLUMNS && (name = table->column(r->opened, n)) != NULL; n++)
        lathe_buffer_printf(&b, "%s%s", n ? ", " : "", name);
    lathe_call_end();
    lathe_status status = b.status;
    if (status == LATHE_OK && name != NULL)
        status =
            lathe_error(LATHE_E_PLUGIN,
                        "%s: reader %s: column() gives more than %d names; expected NULL after "
                        "the last column",
                        r->sources->list[r->at.file].path, r->plugin.component->plugin->name,
                        LATHE_MOST_COLUMNS);
    r->n_header = b.len;
    r->header = lathe_arena_strdup(&r->layouts.arena, b.data ? b.data : "");
    lathe_buffer_fini(&b);
    return status == LATHE_OK && r->header == NULL ? LATHE_E_NOMEM : status;
}

static lathe_status make_instance(lathe_reader *r)
{
    const lathe_component *component = r->sources->list[r->at.file].reader;
    if (r->plugin.component == component)
        return LATHE_OK;
    lathe_instance_fini(&r->plugin);
    r->plugin = (lathe_instance){0};
    return lathe_instance_init(&r->plugin, component, NULL);
}

lathe_status lathe__plugin_check_name(lathe_reader *r)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_readers readers;
    char head[16], suffix[32];
    const char *path = r->sources->list[r->at.file].path, *format = NULL;
    const ssize_t n = pread(r->fd, head, sizeof head, 0);
    if (r->dataset->registry == NULL || n < 4 || head[0] == '{' || head[0] == '[')
        return LATHE_OK;
    lathe_status status = lathe_readers_find(r->dataset->registry, &arena, &readers);
    const lathe_component *reader =
        status == LATHE_OK ? lathe_readers_by_bytes(&readers, head, n, &format) : NULL;
    if (reader) {
        const char *all = ((const lathe_reader_v1 *)reader->plugin->table)->suffixes;
        (void)snprintf(suffix, sizeof suffix, "%.*s", (int)strcspn(all, " "), all);
        status = lathe_error(LATHE_E_PARSE,
                             "%s: it begins like a %s file; give it the suffix %s, or set type = "
                             "\"reader\"",
                             path, format, suffix);
    }
    lathe_arena_fini(&arena);
    return status;
}

/* Lists the columns that the plugin is asked for: the fields of the layouts, and those that a
 * conversation is made of besides. Returns their number. */
static int32_t wanted_columns(const lathe_layouts *l,
                              const char *out[LATHE_MAX_FIELDS + LATHE_MAX_RECORD_KEYS])
{
    const uint32_t where = LATHE_RECORD_IS_SYSTEM | LATHE_RECORD_IS_BESIDE |
                           (l->n == LATHE_N_LAYOUTS ? LATHE_RECORD_IS_ALPACA : 0u);
    const lathe_record_key *key;
    int32_t n = l->n_fields;
    for (int32_t f = 0; f < n; f++)
        out[f] = l->fields[f];
    for (int32_t i = 0; (key = lathe_record_key_get(i)) != NULL; i++) {
        int32_t f = 0;
        while (f < l->n_fields && strcmp(l->fields[f], key->name) != 0)
            f++;
        if ((key->where & where) && f == l->n_fields)
            out[n++] = key->name;
    }
    return n;
}

lathe_status lathe__plugin_open(lathe_reader *r)
{
    const lathe_source *source = &r->sources->list[r->at.file];
    const lathe_row_kind *kind = lathe_row_kind_get(r->rows);
    const char *columns[LATHE_MAX_FIELDS + LATHE_MAX_RECORD_KEYS];
    LATHE_TRY(make_instance(r));
    const lathe_reader_file file = {.size = (uint32_t)sizeof file,
                                    .fd = r->fd,
                                    .bytes = source->bytes,
                                    .path = source->path,
                                    .offset = r->at.offset,
                                    .row = r->at.line,
                                    .columns = columns,
                                    .n_columns = wanted_columns(&r->layouts, columns),
                                    .wants_all = kind->has_records};
    const lathe_reader_v1 *table = r->plugin.table;
    lathe_error_clear();
    lathe_call_begin(r->plugin.component->path, "open()");
    const lathe_status status = table->open(r->plugin.self, &file, &r->opened);
    lathe_call_end();
    if (status != LATHE_OK) {
        r->opened = NULL;
        return fail(r, status, 0);
    }
    return list_columns(r);
}

void lathe__plugin_close(lathe_reader *r)
{
    if (r->opened)
        ((const lathe_reader_v1 *)r->plugin.table)->close(r->opened);
    r->opened = NULL;
}

lathe_status lathe__plugin_next(lathe_reader *r, const char **out_text, int64_t *out_bytes,
                                int64_t *out_offset)
{
    const lathe_reader_v1 *table = r->plugin.table;
    lathe_reader_row row = {0};
    lathe_error_clear();
    const lathe_status status = table->next(r->opened, &row);
    if (status != LATHE_OK)
        return fail(r, status, 1);
    if (row.text && (row.bytes < 2 || row.offset < 1))
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: row %lld: reader %s gives a record of %lld bytes with the offset "
                           "%lld",
                           r->sources->list[r->at.file].path, (long long)r->at.line,
                           r->plugin.component->plugin->name, (long long)row.bytes,
                           (long long)row.offset);
    *out_text = row.text;
    *out_bytes = row.bytes;
    *out_offset = row.offset;
    return LATHE_OK;
}
