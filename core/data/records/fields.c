/* Extracts the texts of a record, a JSON object or a CSV row, and checks them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "data/records/record_reader.h"
#include "data/records/row_kind.h"

/* Kinds of values. NUMBER: also true and false; COMPOUND: an object or a list. */
enum { NOTHING = 0, STRING = 1, NUMBER = 2, NIL = 3, COMPOUND = 4 };

/* A field's value, without escapes and quotes. */
typedef struct value {
    const char *text;
    int64_t n;
    int32_t kind;
} value;

/* The record that is being read. */
typedef struct source {
    const lathe_reader *reader;
    const lathe_record *record;
    const char *text; /* of the record */
} source;

static lathe_status reserve(lathe_field_room *room, int64_t bytes)
{
    if (bytes <= room->bytes)
        return LATHE_OK;
    free(room->data);
    room->bytes = 0;
    room->data = malloc((size_t)bytes);
    if (room->data == NULL)
        return lathe_error(LATHE_E_NOMEM, "texts of %lld bytes", (long long)bytes);
    room->bytes = bytes;
    return LATHE_OK;
}

/* ---- values of the fields ---- */

/* Reports an error with the line in the file. In a record's first line, columns count from the
 * record's start. */
static lathe_status wrong_json(const source *s, const lathe_json_record *json)
{
    int64_t line, column;
    /* the object has no end in its line: it may go on in the next one */
    const int is_open = s->reader->sources->type == LATHE_DATASET_JSONL && json->depth > 0 &&
                        json->walk.at == json->walk.end;
    lathe_json_record_place(json, &line, &column);
    if (s->reader->sources->type == LATHE_DATASET_READER)
        return lathe_error(LATHE_E_PARSE, "%s", json->walk.what);
    return lathe_error_in(LATHE_E_PARSE, s->reader->sources->list[s->record->file].path,
                          s->record->line + line - 1, column, "%s%s", json->walk.what,
                          is_open ? "; for objects over several lines, set type = \"json\" in the "
                                    "dataset"
                                  : "");
}

/* Takes the values of a JSON record. They point into the file, or to unescaped copies. */
static lathe_status take_json(lathe_fields *f, const lathe_json_member *members, int32_t n,
                              value *out)
{
    int64_t room = 0;
    for (int32_t i = 0; i < n; i++)
        room += members[i].string.escaped ? members[i].string.n : 0;
    LATHE_TRY(reserve(&f->plain, room));
    char *to = f->plain.data;
    for (int32_t i = 0; i < n; i++) {
        const lathe_json_string *s = &members[i].string;
        out[i] = (value){.text = s->escaped ? to : s->text, .n = s->n};
        if (s->escaped)
            to += lathe_json_unescape(s->text, s->n_raw, to);
        out[i].kind = !members[i].found      ? NOTHING
                      : members[i].is_string ? STRING
                      : s->text == NULL      ? COMPOUND
                      : lathe_is_one_of(*s->text, "nNI") || (s->n > 1 && s->text[1] == 'I')
                          ? NIL
                          : NUMBER;
    }
    return LATHE_OK;
}

/* Whether the record has the field, and it is not null. */
static int is_filled(const value *values, int32_t field)
{
    return field >= 0 && values[field].kind != NOTHING && values[field].kind != NIL;
}

/* Whether the field holds a conversation: a list, or the JSON of a list as a text. */
static int is_conversation(const value *values, int32_t field)
{
    if (!is_filled(values, field))
        return 0;
    const value *v = &values[field];
    int64_t i = 0;
    while (v->kind == STRING && i < v->n && lathe_is_one_of(v->text[i], " \t\r\n"))
        i++;
    return v->kind == COMPOUND || (v->kind == STRING && i < v->n && v->text[i] == '[');
}

static int has_conversation(const lathe_layouts *l, const value *values)
{
    return is_conversation(values, l->messages) || is_conversation(values, l->sharegpt);
}

/* Whether the record is a conversation. A record that has both messages and the column that the
 * rows are made of is one only if the dataset names the field of messages. */
static int is_chat(const lathe_fields *f, const source *s, const value *values)
{
    const lathe_layouts *l = &s->reader->layouts;
    if (!has_conversation(l, values) || l->is_prompt)
        return 0;
    if (s->reader->dataset->messages)
        return 1;
    return f->layout == LATHE_LAYOUT_OWN && !is_filled(values, l->main);
}

/* Whether a column that is a field of the record is a list: of messages, or of token ids. */
static int has_lists(const lathe_fields *f, const source *s, const value *values)
{
    const lathe_layouts *l = &s->reader->layouts;
    const lathe_layout *layout = &l->list[f->layout];
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const lathe_format *format = &layout->columns[c];
        if (c != LATHE_COLUMN_TEXT && format->n > 0 && !l->is_format[c] &&
            lathe_format_is_field(format) && values[format->parts[0].field].kind == COMPOUND)
            return 1;
    }
    return 0;
}

/* Whether a conversation is the prompt of completions that are texts. */
static int has_conversation_before(const lathe_fields *f, const source *s, const value *values)
{
    const lathe_layouts *l = &s->reader->layouts;
    const lathe_format *prompt = &l->list[f->layout].columns[LATHE_COLUMN_PROMPT];
    for (int32_t c = LATHE_COLUMN_CHOSEN; c < LATHE_N_COLUMNS; c++) /* else one is missing */
        if (l->list[f->layout].columns[c].n > 0 &&
            !is_filled(values, l->list[f->layout].columns[c].parts[0].field))
            return 0;
    return lathe_row_shape_get(s->reader->rows)->n_answers > 0 && has_conversation(l, values) &&
           f->layout == LATHE_LAYOUT_OWN && !l->is_format[LATHE_COLUMN_PROMPT] &&
           !is_filled(values, prompt->parts[0].field);
}

/* Notes the fields that the texts of the columns are made of. */
static void use_fields(lathe_fields *f, const source *s)
{
    const lathe_layouts *l = &s->reader->layouts;
    const lathe_layout *layout = &l->list[f->layout];
    for (int32_t c = 0; c < LATHE_N_COLUMNS && f->is_chat == LATHE_FIELDS_TEXTS; c++)
        for (int32_t i = 0; i < layout->columns[c].n; i++)
            if (layout->columns[c].parts[i].name)
                lathe_record_use(&f->uses, layout->columns[c].parts[i].name);
}

/* Whether the dataset's chat template writes the record, which is of the alpaca form. */
static int is_alpaca_chat(const lathe_fields *f, const source *s)
{
    return f->layout == LATHE_LAYOUT_KNOWN && s->reader->dataset->chat != NULL &&
           s->reader->dataset->as_chat >= 0;
}

static int32_t alpaca_kind(const source *s)
{
    return s->reader->rows == LATHE_ROWS_COMPLETIONS ? LATHE_FIELDS_CHAT : LATHE_FIELDS_LISTS;
}

static lathe_status json_values(lathe_fields *f, const source *s, value *out)
{
    const lathe_layouts *l = &s->reader->layouts;
    lathe_json_member members[LATHE_MAX_FIELDS];
    uint32_t found = 0, filled = 0;
    const char first = s->text[strspn(s->text, " \t\r\n")];
    if (first != '{')
        return lathe_error(
            LATHE_E_PARSE, "expected one JSON object per line%s",
            first == '[' && s->record->number == 1
                ? "; for a file that is one array, set type = \"json\" in the dataset"
                : "");
    f->json.takes_nan = 1;
    const int read =
        lathe_json_record_read(&f->json, s->text, s->record->n, l->fields, l->n_fields, members);
    if (read < 0)
        return lathe_error(LATHE_E_NOMEM, "a record of %lld bytes", (long long)s->record->n);
    if (read == 0)
        return wrong_json(s, &f->json);
    LATHE_TRY(take_json(f, members, l->n_fields, out));
    for (int32_t i = 0; i < l->n_fields; i++) {
        found |= out[i].kind != NOTHING ? 1u << i : 0;
        filled |= is_filled(out, i) ? 1u << i : 0;
    }
    f->layout = lathe_layouts_choose(l, found, filled);
    f->row = s->text;
    f->n_row = s->record->n;
    if (f->json.walk.n_nan > 0) {
        LATHE_TRY(reserve(&f->made, s->record->n + f->json.walk.n_nan));
        f->n_row = lathe_json_nulls_for_nan(s->text, s->record->n, f->made.data);
        f->row = f->made.data;
    }
    f->is_chat = is_alpaca_chat(f, s)                 ? alpaca_kind(s)
                 : is_chat(f, s, out)                 ? LATHE_FIELDS_CHAT
                 : has_lists(f, s, out)               ? LATHE_FIELDS_LISTS
                 : has_conversation_before(f, s, out) ? LATHE_FIELDS_LISTS
                                                      : LATHE_FIELDS_TEXTS;
    return LATHE_OK;
}

/* Writes the values of a CSV row as a JSON object. */
static lathe_status make_row(lathe_fields *f, const source *s, const value *values)
{
    const lathe_layouts *l = &s->reader->layouts;
    json_t *row = json_object();
    for (int32_t i = 0; i < l->n_fields; i++)
        if (values[i].kind == STRING)
            (void)json_object_set_new(row, l->fields[i],
                                      json_stringn(values[i].text, (size_t)values[i].n));
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "a row as an object");
    const int64_t n = (int64_t)strlen(text);
    const lathe_status status = reserve(&f->made, n);
    if (status == LATHE_OK)
        memcpy(f->made.data, text, (size_t)n);
    free(text);
    f->row = f->made.data;
    f->n_row = n;
    f->is_chat = alpaca_kind(s);
    return status;
}

static lathe_status csv_values(lathe_fields *f, const source *s, value *out)
{
    LATHE_TRY(reserve(&f->plain,
                      s->record->n)); /* the fields of a row are together not longer than the row */
    char *to = f->plain.data;
    f->layout = s->record->layout;
    for (int32_t i = 0; i < s->reader->layouts.n_fields; i++) {
        out[i] = (value){.kind = NOTHING};
        if (s->record->csv[i] < 0)
            continue;
        out[i] = (value){.text = to, .kind = STRING};
        out[i].n =
            lathe__csv_field(s->text, s->record->n, s->record->delimiter, s->record->csv[i], to);
        to += out[i].n;
        if (lathe_utf8_prefix((const uint8_t *)out[i].text, out[i].n) < out[i].n)
            return lathe_error(LATHE_E_PARSE, "the field of column %d is not UTF-8",
                               s->record->csv[i] + 1);
    }
    return is_alpaca_chat(f, s) ? make_row(f, s, out) : LATHE_OK;
}

/* ---- texts of the columns ---- */

/* Whether the list "a, b, c" has the name. */
static int is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at && *at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return 1;
    return 0;
}

/* Writes the columns that the record has, for messages: "a, b, c". In a file that a plugin reads
 * they are the columns of the file. */
static void list_columns(const source *s, char *out, size_t bytes)
{
    const char *all = s->record->header;
    if (s->reader->sources->type != LATHE_DATASET_READER) {
        lathe_json_record_keys(s->text, s->record->n, out, (int64_t)bytes);
        return;
    }
    (void)snprintf(out, bytes, "%s", all);
    if (strlen(all) >= bytes)
        memcpy(out + bytes - 4, "...", 4);
}

/* Whether the file has the column, but the record has null in it, which a plugin leaves out. */
static int is_null_in_row(const source *s, const value *v, const char *field)
{
    return v->kind == NOTHING && s->reader->sources->type == LATHE_DATASET_READER &&
           is_listed(s->record->header, field);
}

/* Refuses a value that the part of column c cannot use. */
static lathe_status refuse(const source *s, int32_t c, const lathe_format_part *part,
                           const value *v)
{
    const lathe_layouts *l = &s->reader->layouts;
    char list[256];
    list_columns(s, list, sizeof list);
    if (is_null_in_row(s, v, part->name) || (!l->is_format[c] && v->kind == NIL))
        return lathe_error(LATHE_E_CONFIG, "column \"%s\" is null", part->name);
    if (v->kind == NOTHING)
        return lathe_layouts_missing(l, c, part, list);
    if (!l->is_format[c] && v->kind == NUMBER)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "column \"%s\" is not a string; with format.%s = \"{%s}\" it is read as "
                           "it is written",
                           part->name, lathe_column_name(c), part->name);
    if (!l->is_format[c])
        return lathe_error(LATHE_E_UNSUPPORTED, "column \"%s\" is not a string", part->name);
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "field \"%s\" is %s; format.%s takes strings, numbers, true and false; "
                       "the fields are %s",
                       part->name, v->kind == NIL ? "null" : "an object or a list",
                       lathe_column_name(c), list);
}

/* Checks that a record whose columns are lists has every column that the dataset names, and each
 * record the conversation that it names. make_texts checks the columns of other records. */
static lathe_status check_named(const lathe_fields *f, const source *s, const value *values)
{
    const lathe_layouts *l = &s->reader->layouts;
    const lathe_dataset *dataset = s->reader->dataset;
    char list[256];
    const int is_conversation = f->is_chat == LATHE_FIELDS_CHAT;
    for (int32_t c = 0; c < LATHE_N_COLUMNS && f->is_chat != LATHE_FIELDS_TEXTS; c++) {
        const lathe_format *format = &l->list[LATHE_LAYOUT_OWN].columns[c];
        const int32_t field = format->n > 0 ? format->parts[0].field : -1;
        if (dataset->columns[c] == NULL || field < 0 || (is_conversation && dataset->messages))
            continue;
        if (!is_filled(values, field))
            return refuse(s, c, &format->parts[0], &values[field]);
        if (is_conversation)
            return lathe_error(LATHE_E_CONFIG,
                               "columns.%s has no effect, because the record is read as a "
                               "conversation; take it out, or name the column of the answer too",
                               lathe_column_name(c));
    }
    if (dataset->messages == NULL || l->messages < 0 || is_filled(values, l->messages) ||
        (!l->is_prompt && is_filled(values, l->main)))
        return LATHE_OK;
    if (is_null_in_row(s, &values[l->messages], dataset->messages) ||
        values[l->messages].kind == NIL)
        return lathe_error(LATHE_E_CONFIG, "column \"%s\" is null, which columns.messages names",
                           dataset->messages);
    list_columns(s, list, sizeof list);
    return lathe_error(LATHE_E_CONFIG,
                       "no column \"%s\", which columns.messages names; the columns are %s",
                       dataset->messages, *list ? list : "none");
}

/* Checks that the part has a value that it can use. *out_any 0: the part, or the optional column,
 * is left out. */
static lathe_status check_part(const source *s, int32_t c, const lathe_format_part *part,
                               const value *v, int *out_any)
{
    const lathe_layouts *l = &s->reader->layouts;
    const int is_none = v->kind == NOTHING || (v->kind == NIL && !l->is_format[c]);
    *out_any = v->kind == STRING || (v->kind == NUMBER && l->is_format[c]);
    if (part->may_be_out && (v->kind == NOTHING || v->kind == NIL || v->n == 0)) {
        *out_any = 0;
        return LATHE_OK;
    }
    if (*out_any || (is_none && l->need[c] != LATHE_COLUMN_REQUIRED))
        return LATHE_OK;
    return refuse(s, c, part, v);
}

/* Writes the text of a column to out, or only counts its bytes where out is NULL. */
static lathe_status make_text(const source *s, int32_t c, const lathe_format *format,
                              const value *values, char *out, int64_t *out_n)
{
    int64_t n = 0;
    for (int32_t i = 0; i < format->n; i++) {
        const lathe_format_part *part = &format->parts[i];
        const value *v = part->name ? &values[part->field] : NULL;
        int any = 1;
        if (v)
            LATHE_TRY(check_part(s, c, part, v, &any));
        if (!any)
            continue;
        const int64_t n_text = part->may_be_out && n == 0 ? 0 : part->n;
        if (out && n_text > 0)
            memcpy(out + n, part->text, (size_t)n_text);
        n += n_text;
        if (out && v && v->n > 0)
            memcpy(out + n, v->text, (size_t)v->n);
        n += v ? v->n : 0;
    }
    *out_n = n;
    return LATHE_OK;
}

/* Makes the texts of the columns. A column that is one field is that field's value; a column of
 * several fields is written to f->made. */
static lathe_status make_texts(lathe_fields *f, const source *s, const value *values)
{
    const lathe_layout *layout = &s->reader->layouts.list[f->layout];
    int64_t room = 0;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        if (layout->columns[c].n == 0)
            continue;
        LATHE_TRY(make_text(s, c, &layout->columns[c], values, NULL, &f->n[c]));
        room += lathe_format_is_field(&layout->columns[c]) ? 0 : f->n[c];
    }
    LATHE_TRY(reserve(&f->made, room + 1));
    char *to = f->made.data;
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++) {
        const lathe_format *format = &layout->columns[c];
        if (format->n > 0 && lathe_format_is_field(format)) {
            f->text[c] = values[format->parts[0].field].text; /* NULL: it is optional */
        } else if (format->n > 0) {
            LATHE_TRY(make_text(s, c, format, values, to, &f->n[c]));
            f->text[c] = to;
            to += f->n[c];
        }
    }
    return LATHE_OK;
}

/* ---- texts as messages ---- */

static int add_message(json_t *list, const char *role, const char *text, int64_t n)
{
    return json_array_append_new(
        list, json_pack("{s:s, s:s%}", "role", role, "content", text, (size_t)n));
}

/* Copies the members of the record that the chat template reads besides the messages. */
static lathe_status copy_members(const source *s, json_t *row, lathe_record_uses *uses)
{
    const lathe_record_key *known;
    const char *at = s->text, *end = s->text + s->record->n, *raw;
    lathe_json_string key;
    int64_t n;
    if (s->reader->sources->type == LATHE_DATASET_CSV)
        return LATHE_OK;
    while (lathe_json_record_next(&at, end, &key, &raw, &n))
        for (int32_t i = 0; (known = lathe_record_key_get(i)) != NULL; i++) {
            json_t *member = NULL;
            if (!(known->where & LATHE_RECORD_IS_BESIDE) || *raw == 'n' ||
                !lathe_json_is(&key, known->name, (int64_t)strlen(known->name)))
                continue;
            LATHE_TRY(lathe_json_load_exact(known->name, raw, n, 1, &member));
            if (json_object_set_new(row, known->name, member) != 0)
                return lathe_error(LATHE_E_NOMEM, "a record as messages");
            lathe_record_use(uses, known->name);
        }
    return LATHE_OK;
}

/* Adds the list of column c, or the whole conversation of a prompt and its completion. */
static int put_lists(const lathe_fields *f, const source *s, const value *values, json_t *row)
{
    const lathe_layouts *l = &s->reader->layouts;
    const int is_one = s->reader->rows == LATHE_ROWS_COMPLETIONS;
    json_t *list = json_array();
    int failed =
        list == NULL || json_object_set_new(row,
                                            is_one ? lathe_dataset_messages(s->reader->dataset)
                                                   : lathe_column_name(LATHE_COLUMN_PROMPT),
                                            list) != 0;
    const value *system = l->system >= 0 ? &values[l->system] : NULL;
    if (!failed && system && system->kind == STRING && system->n > 0)
        failed = add_message(list, "system", system->text, system->n);
    if (!failed && f->n[LATHE_COLUMN_PROMPT] > 0)
        failed = add_message(list, "user", f->text[LATHE_COLUMN_PROMPT], f->n[LATHE_COLUMN_PROMPT]);
    for (int32_t c = LATHE_COLUMN_CHOSEN; c < LATHE_N_COLUMNS && !failed; c++) {
        if (f->text[c] == NULL)
            continue;
        json_t *answer = is_one ? json_incref(list) : json_array();
        failed = answer == NULL || add_message(answer, "assistant", f->text[c], f->n[c]) ||
                 (!is_one && json_object_set(row, lathe_column_name(c), answer) != 0);
        json_decref(answer);
    }
    return failed;
}

/* Makes a conversation of the texts of the columns, for the chat template. */
static lathe_status make_chat(lathe_fields *f, const source *s, const value *values)
{
    const int32_t rows = s->reader->rows;
    json_t *row = json_object();
    if (f->n[lathe_row_kind_get(rows)->main < 0 ? LATHE_COLUMN_CHOSEN
                                                : lathe_row_kind_get(rows)->main] == 0) {
        json_decref(row); /* it is left out, as an empty text */
        return LATHE_OK;
    }
    if (row == NULL || put_lists(f, s, values, row)) {
        json_decref(row);
        return lathe_error(LATHE_E_NOMEM, "a record as messages");
    }
    lathe_status status = copy_members(s, row, &f->uses);
    char *text = status == LATHE_OK ? json_dumps(row, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(row);
    if (status == LATHE_OK && text == NULL)
        status = lathe_error(LATHE_E_NOMEM, "a record as messages");
    LATHE_TRY(status);
    free(f->conversation);
    f->conversation = text;
    f->row = text;
    f->n_row = (int64_t)strlen(text);
    f->is_made = 1;
    f->is_chat = rows == LATHE_ROWS_COMPLETIONS ? LATHE_FIELDS_CHAT : LATHE_FIELDS_LISTS;
    if (s->reader->layouts.system >= 0)
        lathe_record_use(&f->uses, LATHE_RECORD_SYSTEM);
    return LATHE_OK;
}

/* ---- inputs of the stage ---- */

/* The value as a number; NAN: it is not one. CSV has only strings. */
static double number_of(const value *v, int is_csv)
{
    char text[64], *end = text;
    if ((v->kind != NUMBER && !(is_csv && v->kind == STRING)) || v->n == 0 ||
        v->n >= (int64_t)sizeof text)
        return (double)NAN;
    memcpy(text, v->text, (size_t)v->n);
    text[v->n] = '\0';
    if (!strcmp(text, "true") || (is_csv && (!strcmp(text, "True") || !strcmp(text, "TRUE"))))
        return 1.0;
    if (!strcmp(text, "false") || (is_csv && (!strcmp(text, "False") || !strcmp(text, "FALSE"))))
        return 0.0;
    const double x = strtod(text, &end);
    return *end == '\0' && isfinite(x) ? x : (double)NAN;
}

static lathe_status refuse_input(const source *s, const lathe_stage_input *input, const char *field,
                                 const value *v)
{
    const char *expected = input->is_boolean ? "true or false" : "a number, true or false";
    char list[256];
    if (is_null_in_row(s, v, field))
        return lathe_error(LATHE_E_CONFIG, "column \"%s\" is null; expected %s (%s)", field,
                           expected, input->doc);
    if (v->kind == NOTHING) {
        list_columns(s, list, sizeof list);
        return lathe_error_at(LATHE_E_CONFIG, "data", "columns",
                              "no column \"%s\"; the columns are %s; name it in columns.%s; it "
                              "holds %s: %s",
                              field, *list ? list : "none", input->name, expected, input->doc);
    }
    if (v->kind == STRING || v->kind == NUMBER)
        return lathe_error(LATHE_E_CONFIG, "column \"%s\" is %s%.*s%s; expected %s (%s)", field,
                           v->kind == STRING ? "\"" : "", (int)(v->n < 60 ? v->n : 60), v->text,
                           v->kind == STRING ? "\"" : "", expected, input->doc);
    return lathe_error(LATHE_E_CONFIG, "column \"%s\" is %s; expected %s (%s)", field,
                       v->kind == NIL ? "null" : "an object or a list", expected, input->doc);
}

/* Whether the dataset names the column of an input. */
static int is_named_input(const lathe_dataset *dataset, const char *name)
{
    for (int32_t k = 0; k < dataset->n_input_columns; k++)
        if (strcmp(dataset->input_columns[k].input, name) == 0)
            return 1;
    return 0;
}

/* Reads the values of the stage's inputs. If a column is missing or null, its fallback is used;
 * one that the dataset names must be there. */
static lathe_status read_inputs(lathe_fields *f, const source *s, const value *values)
{
    const lathe_dataset *dataset = s->reader->dataset;
    for (int32_t i = 0; i < dataset->n_inputs; i++) {
        const lathe_stage_input *input = &dataset->inputs[i];
        const lathe_layouts *l = &s->reader->layouts;
        const int32_t other = l->other_inputs[i];
        const int is_other =
            values[l->inputs[i]].kind == NOTHING && other >= 0 && values[other].kind != NOTHING;
        const value *v = &values[is_other ? other : l->inputs[i]];
        const double x = number_of(v, s->reader->sources->type == LATHE_DATASET_CSV);
        lathe_record_use(&f->uses, l->fields[is_other ? other : l->inputs[i]]);
        f->inputs[i] = x;
        if (!isnan(x) && (!input->is_boolean || x == 0.0 || x == 1.0))
            continue;
        const char *field = is_other ? l->fields[other] : lathe_dataset_input_field(dataset, i);
        const int is_missing = v->kind == NOTHING && !is_null_in_row(s, v, field);
        if ((v->kind != NOTHING && v->kind != NIL) || input->required ||
            (is_missing && is_named_input(dataset, input->name)))
            return refuse_input(s, input, field, v);
        f->inputs[i] = input->fallback;
    }
    return LATHE_OK;
}

lathe_status lathe_record_error(lathe_status status, const lathe_reader *reader,
                                const lathe_record *record)
{
    return lathe_source_error(status, &reader->sources->list[record->file],
                              lathe_record_at(reader->sources, record));
}

static lathe_status read_fields(lathe_fields *fields, const lathe_reader *reader,
                                const lathe_record *record)
{
    value values[LATHE_MAX_FIELDS];
    source s = {.reader = reader, .record = record, .text = reader->data + record->begin};
    memset(fields->text, 0, sizeof fields->text);
    memset(fields->n, 0, sizeof fields->n);
    fields->layout = LATHE_LAYOUT_OWN;
    fields->is_chat = fields->is_made = 0;
    fields->uses.n = 0;
    for (int32_t i = 0; i < reader->dataset->n_inputs; i++)
        fields->inputs[i] = reader->dataset->inputs[i].fallback;
    if (reader->sources->type == LATHE_DATASET_TEXT) {
        fields->text[LATHE_COLUMN_TEXT] = s.text;
        fields->n[LATHE_COLUMN_TEXT] = record->n;
        return LATHE_OK;
    }
    if (reader->sources->type == LATHE_DATASET_CSV)
        LATHE_TRY(csv_values(fields, &s, values));
    else
        LATHE_TRY(json_values(fields, &s, values));
    use_fields(fields, &s);
    LATHE_TRY(read_inputs(fields, &s, values));
    LATHE_TRY(check_named(fields, &s, values));
    if (fields->is_chat)
        return LATHE_OK;
    LATHE_TRY(make_texts(fields, &s, values));
    return reader->dataset->as_chat > 0 && reader->rows != LATHE_ROWS_PACKED
               ? make_chat(fields, &s, values)
               : LATHE_OK;
}

lathe_status lathe_fields_read(lathe_fields *fields, const lathe_reader *reader,
                               const lathe_record *record)
{
    return lathe_record_error(read_fields(fields, reader, record), reader, record);
}

/* The next name of the list "a, b, c" from byte *at on. Returns 0 at the end. */
static int next_listed(const char *list, int64_t *at, lathe_json_string *out)
{
    const char *begin = list + *at, *end = strstr(begin, ", ");
    if (!*begin)
        return 0;
    const int64_t n = end ? end - begin : (int64_t)strlen(begin);
    *out = (lathe_json_string){begin, n, n, 0, 0};
    *at += n + (end ? 2 : 0);
    return 1;
}

/* The next name of a CSV header, whose byte *at is the begin of a field. */
static int next_in_header(const lathe_record *r, int64_t *at, lathe_json_string *out)
{
    const char *text = r->header + *at, *end = r->header + r->n_header;
    if (text >= end)
        return 0;
    const int quoted = *text == '"';
    const char *to = text + quoted;
    while (to < end &&
           (quoted ? *to != '"' || (to + 1 < end && to[1] == '"') : *to != r->delimiter))
        to += quoted && *to == '"' ? 2 : 1;
    *out = (lathe_json_string){text + quoted, to - text - quoted, to - text - quoted, 0, 0};
    *at = to + quoted + 1 - r->header;
    return 1;
}

int lathe_fields_unread(const lathe_fields *fields, const lathe_reader *reader,
                        const lathe_record *record, int64_t *i, lathe_json_string *out)
{
    const int32_t type = reader->sources->type;
    const char *text = reader->data + record->begin;
    for (;;) {
        int holds = 1;
        if (type == LATHE_DATASET_TEXT)
            return 0;
        if (type == LATHE_DATASET_READER) {
            if (!next_listed(record->header, i, out))
                return 0;
        } else if (type == LATHE_DATASET_CSV) {
            if (record->header == NULL || !next_in_header(record, i, out))
                return 0;
        } else {
            if (*i >= fields->json.n_own_keys)
                return 0;
            holds = lathe_json_record_key(&fields->json, text, record->n, (*i)++, out);
        }
        if (holds && !lathe_record_is_used(&fields->uses, out))
            return 1;
    }
}

void lathe_fields_fini(lathe_fields *fields)
{
    lathe_json_record_fini(&fields->json);
    free(fields->plain.data);
    free(fields->made.data);
    free(fields->conversation);
    memset(fields, 0, sizeof *fields);
}
