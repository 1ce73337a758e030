/* A record's texts: columns of a JSON object or of a CSV row, checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "data/reader.h"
#include "data/utf8.h"
#include "lathe/stage.h"

/* 1: the record must have it, -1: it is not asked for. */
static int need(const lathe_reader *reader, int32_t column)
{
    if ((reader->rows == LATHE_ROWS_PACKED) != (column == LATHE_COLUMN_TEXT))
        return -1;
    return column != LATHE_COLUMN_PROMPT || reader->dataset->columns[column] != NULL;
}

static lathe_status missing(const char *place, const char *name, int32_t column,
                            const json_t *record)
{
    char list[256] = "";
    size_t used = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)record, key, value)
    {
        const int more = used + strlen(key) + 8 >= sizeof list;
        const int put =
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", more ? "..." : key);
        used += put > 0 ? (size_t)put : 0;
        if (more)
            break;
    }
    return lathe_error(LATHE_E_CONFIG,
                       "%s: no column \"%s\"; the columns are %s; name it in columns.%s", place,
                       name, used ? list : "none", lathe_column_name(column));
}

static lathe_status json_fields(lathe_fields *f, const lathe_reader *reader, const char *path,
                                const lathe_record *record)
{
    json_error_t error;
    char place[640];
    json_t *root = json_loadb(reader->data + record->begin, (size_t)record->n,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    f->json = root;
    if (!root)
        return lathe_error(LATHE_E_PARSE, "%s:%lld:%d: %s", path,
                           (long long)(record->line + error.line - 1), error.column, error.text);
    (void)snprintf(place, sizeof place, "%s:%lld", path, (long long)record->line);
    if (!json_is_object(root))
        return lathe_error(LATHE_E_PARSE, "%s: expected one JSON object a line", place);
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const int needed = need(reader, c);
        if (needed < 0)
            continue;
        const char *given = reader->dataset->columns[c];
        const char *name = given ? given : lathe_column_name(c);
        const json_t *value = json_object_get(root, name);
        if (!value && needed)
            return missing(place, name, c, root);
        if (value && !json_is_string(value))
            return lathe_error(LATHE_E_UNSUPPORTED, "%s: column \"%s\" is no string", place, name);
        if (value) {
            f->text[c] = json_string_value(value);
            f->n[c] = (int64_t)json_string_length(value);
        }
    }
    return LATHE_OK;
}

static lathe_status csv_fields(lathe_fields *f, const lathe_reader *reader, const char *path,
                               const lathe_record *record)
{
    const int64_t room = record->n * LATHE_N_COLUMNS;
    if (room > f->scratch_bytes) {
        char *scratch = realloc(f->scratch, (size_t)room);
        if (!scratch)
            return lathe_error(LATHE_E_NOMEM, "a row of %lld bytes", (long long)record->n);
        f->scratch = scratch;
        f->scratch_bytes = room;
    }
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        if (need(reader, c) < 0 || record->column[c] < 0)
            continue;
        char *text = f->scratch + c * record->n;
        f->n[c] = lathe__csv_field(reader->data + record->begin, record->n, record->delimiter,
                                   record->column[c], text);
        f->text[c] = text;
        if (lathe_utf8_prefix((const uint8_t *)text, f->n[c]) < f->n[c])
            return lathe_error(LATHE_E_PARSE, "%s:%lld: the field of column %d is not UTF-8", path,
                               (long long)record->line, record->column[c] + 1);
    }
    return LATHE_OK;
}

lathe_status lathe_fields_read(lathe_fields *fields, const lathe_reader *reader,
                               const lathe_record *record)
{
    const char *path = reader->sources->list[record->file].path;
    json_decref(fields->json);
    fields->json = NULL;
    memset(fields->text, 0, sizeof fields->text);
    memset(fields->n, 0, sizeof fields->n);
    if (reader->sources->type == LATHE_DATASET_CSV)
        return csv_fields(fields, reader, path, record);
    if (reader->sources->type != LATHE_DATASET_TEXT)
        return json_fields(fields, reader, path, record);
    fields->text[LATHE_COLUMN_TEXT] = reader->data + record->begin;
    fields->n[LATHE_COLUMN_TEXT] = record->n;
    return LATHE_OK;
}

void lathe_fields_fini(lathe_fields *fields)
{
    json_decref(fields->json);
    free(fields->scratch);
    memset(fields, 0, sizeof *fields);
}
