/* Reads a record of a group. */
#include "data/conversation/answer_list.h"

#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "data/conversation/chat_record.h"

/* The field that a column is read from. */
static const char *field_of(const lathe_reader *reader, const lathe_fields *f, int32_t column)
{
    const lathe_format *format = &reader->layouts.list[f->layout].columns[column];
    return format->n > 0 ? format->parts[0].name : lathe_column_name(column);
}

static lathe_status check(const lathe_answer_list *list, const char *field, int32_t n)
{
    const size_t n_items = json_array_size(list->items);
    const json_t *item;
    size_t i;
    if (!json_is_array(list->items))
        return lathe_error(LATHE_E_CONFIG,
                           "column \"%s\" is no list; expected a list of %d "
                           "answers",
                           field, n);
    if (n_items != (size_t)n)
        return lathe_error(LATHE_E_CONFIG,
                           "column \"%s\" has %lld answer%s, and the stage compares %d of each "
                           "record",
                           field, (long long)n_items, n_items == 1 ? "" : "s", n);
    json_array_foreach(list->items, i, item)
    {
        if (!json_is_string(item) && !json_is_array(item) && !json_is_object(item))
            return lathe_error(LATHE_E_CONFIG,
                               "answer %lld of column \"%s\" is no text and no list of messages",
                               (long long)i + 1, field);
    }
    return LATHE_OK;
}

lathe_status lathe_answer_list_read(const lathe_reader *reader, lathe_fields *fields, int32_t n,
                                    lathe_answer_list *out)
{
    const char *field = field_of(reader, fields, LATHE_COLUMN_COMPLETIONS);
    memset(out, 0, sizeof *out);
    if (fields->is_chat == LATHE_FIELDS_TEXTS) /* each column is a text */
        return check(out, field, n);
    LATHE_TRY(lathe_json_load_exact("record", fields->row, fields->n_row, 1, &out->row));
    const json_t *prompt = json_object_get(out->row, field_of(reader, fields, LATHE_COLUMN_PROMPT));
    out->items = json_object_get(out->row, field);
    LATHE_TRY(check(out, field, n));
    /* without a prompt, a conversation is the prompt */
    out->are_texts = prompt && !json_is_null(prompt)
                         ? json_is_string(prompt)
                         : lathe_chat_conversation_field(reader->dataset, out->row) == NULL;
    for (size_t i = 0; i < json_array_size(out->items); i++)
        out->are_texts &= json_is_string(json_array_get(out->items, i));
    if (!out->are_texts)
        return LATHE_OK;
    out->prompt = json_string_value(prompt);
    out->n_prompt = (int64_t)json_string_length(prompt);
    lathe_record_use(&fields->uses, field);
    if (out->prompt)
        lathe_record_use(&fields->uses, field_of(reader, fields, LATHE_COLUMN_PROMPT));
    return LATHE_OK;
}

void lathe_answer_list_fini(lathe_answer_list *list)
{
    json_decref(list->row);
    memset(list, 0, sizeof *list);
}
