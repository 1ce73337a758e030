/* Extracts the texts of a record, a JSON object or a CSV row, and checks them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/reader.h"
#include "data/row_kind.h"

static int32_t need(const lathe_reader *reader, int32_t column)
{
    return lathe_row_kind_need(reader->rows, reader->dataset, column);
}

static lathe_status missing(const char *place, const char *name, int32_t column, const char *text,
                            int64_t n)
{
    char list[256];
    lathe_json_record_keys(text, n, list, sizeof list);
    return lathe_error(LATHE_E_CONFIG,
                       "%s: no column \"%s\"; the columns are %s; name it in columns.%s", place,
                       name, *list ? list : "none", lathe_column_name(column));
}

static lathe_status reserve(lathe_fields *f, int64_t bytes)
{
    if (bytes <= f->scratch_bytes)
        return LATHE_OK;
    free(f->scratch);
    f->scratch_bytes = 0;
    f->scratch = malloc((size_t)bytes);
    if (!f->scratch)
        return lathe_error(LATHE_E_NOMEM, "texts of %lld bytes", (long long)bytes);
    f->scratch_bytes = bytes;
    return LATHE_OK;
}

/* Reports an error with the line in the file. In a record's first line, columns count from the
 * record's start. */
static lathe_status wrong_json(const char *path, const lathe_record *record,
                               const lathe_json_record *json)
{
    int64_t line, column;
    lathe_json_record_place(json, &line, &column);
    return lathe_error(LATHE_E_PARSE, "%s:%lld:%lld: %s", path,
                       (long long)(record->line + line - 1), (long long)column, json->walk.what);
}

/* The first column that uses the same member as column c. */
static int32_t first_of(const lathe_json_member *members, int32_t c)
{
    int32_t first = 0;
    while (members[first].string.text != members[c].string.text)
        first++;
    return first;
}

/* Takes the wanted texts: pointers into the file, or unescaped copies in the scratch. */
static lathe_status take_texts(lathe_fields *f, const lathe_json_member *members)
{
    int64_t room = 0;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
        room += members[c].string.escaped && first_of(members, c) == c ? members[c].string.n : 0;
    LATHE_TRY(reserve(f, room));
    char *to = f->scratch;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const lathe_json_string *s = &members[c].string;
        const int32_t first = first_of(members, c);
        f->n[c] = s->n;
        f->text[c] = first < c ? f->text[first] : s->escaped ? to : s->text;
        if (first == c && s->escaped)
            to += lathe_json_unescape(s->text, s->n_raw, to);
    }
    return LATHE_OK;
}

static lathe_status json_fields(lathe_fields *f, const lathe_reader *reader, const char *path,
                                const lathe_record *record)
{
    const char *names[LATHE_N_COLUMNS], *text = reader->data + record->begin;
    lathe_json_member members[LATHE_N_COLUMNS];
    char place[640];
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const char *given = reader->dataset->columns[c];
        names[c] = need(reader, c) == LATHE_COLUMN_UNUSED ? NULL
                   : given                                ? given
                                                          : lathe_column_name(c);
    }
    (void)snprintf(place, sizeof place, "%s:%lld", path, (long long)record->line);
    if (text[strspn(text, " \t\r\n")] != '{')
        return lathe_error(LATHE_E_PARSE, "%s: expected one JSON object a line", place);
    const int read =
        lathe_json_record_read(&f->json, text, record->n, names, LATHE_N_COLUMNS, members);
    if (read < 0)
        return lathe_error(LATHE_E_NOMEM, "%s: a record of %lld bytes", place,
                           (long long)record->n);
    if (read == 0)
        return wrong_json(path, record, &f->json);
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        if (names[c] && !members[c].found && need(reader, c) == LATHE_COLUMN_REQUIRED)
            return missing(place, names[c], c, text, record->n);
        if (members[c].found && !members[c].is_string)
            return lathe_error(LATHE_E_UNSUPPORTED, "%s: column \"%s\" is no string", place,
                               names[c]);
    }
    return take_texts(f, members);
}

static lathe_status csv_fields(lathe_fields *f, const lathe_reader *reader, const char *path,
                               const lathe_record *record)
{
    LATHE_TRY(reserve(f, record->n)); /* fields are parts of the row, so they fit in its length */
    char *to = f->scratch;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        if (need(reader, c) == LATHE_COLUMN_UNUSED || record->column[c] < 0)
            continue;
        int32_t same = 0;
        while (same < c && (!f->text[same] || record->column[same] != record->column[c]))
            same++;
        if (same < c) { /* one field serves two columns */
            f->text[c] = f->text[same];
            f->n[c] = f->n[same];
            continue;
        }
        f->text[c] = to;
        f->n[c] = lathe__csv_field(reader->data + record->begin, record->n, record->delimiter,
                                   record->column[c], to);
        to += f->n[c];
        if (lathe_utf8_prefix((const uint8_t *)f->text[c], f->n[c]) < f->n[c])
            return lathe_error(LATHE_E_PARSE, "%s:%lld: the field of column %d is not UTF-8", path,
                               (long long)record->line, record->column[c] + 1);
    }
    return LATHE_OK;
}

lathe_status lathe_fields_read(lathe_fields *fields, const lathe_reader *reader,
                               const lathe_record *record)
{
    const char *path = reader->sources->list[record->file].path;
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
    lathe_json_record_fini(&fields->json);
    free(fields->scratch);
    memset(fields, 0, sizeof *fields);
}
