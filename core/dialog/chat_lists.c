/* Tokenises records of message lists. */
#include "dialog/chat_lists.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "dialog/chat_record.h"
#include "records/chat_alpaca.h"
#include "records/chat_messages.h"
#include "template/chat_template.h"

/* The record that is tokenised. */
typedef struct source {
    const lathe_reader *reader;
    const lathe_fields *fields;
    lathe_encoder *encoder;
    json_t *row;
    char place[640]; /* "a.jsonl:3" */
    lathe_chat_lists_facts *facts;
} source;

/* The name of the field that a column is read from. */
static const char *field_of(const source *s, int32_t column)
{
    if (s->fields->is_chat == LATHE_FIELDS_CHAT)
        return lathe_dataset_messages(s->reader->dataset);
    const lathe_layout *layout = &s->reader->layouts.list[s->fields->layout];
    return layout->columns[column].n > 0 ? layout->columns[column].parts[0].name
                                         : lathe_column_name(column);
}

/* The list of a column; NULL if the record lacks it or it is null. */
static lathe_status list_of(const source *s, int32_t column, json_t **out)
{
    const char *field = field_of(s, column);
    json_t *x = json_object_get(s->row, field);
    *out = NULL;
    if (!x || json_is_null(x))
        return LATHE_OK;
    if (json_is_object(x)) { /* a single message */
        x = json_pack("[O]", x);
        if (!x || json_object_set_new(s->row, field, x) != 0)
            return lathe_error(LATHE_E_NOMEM, "%s: messages of a record", s->place);
    }
    if (!json_is_array(x))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: column \"%s\" is not a list of messages, but another column is; give "
            "all of them as text, or all of them as messages",
            s->place, field);
    *out = x;
    return lathe_chat_messages_read(s->place, x);
}

/* Finds the list of the prompt. In sharegpt records without a prompt it is the conversation. */
static lathe_status find_prompt(const source *s, json_t **out)
{
    LATHE_TRY(list_of(s, LATHE_COLUMN_PROMPT, out));
    json_t *talk = json_object_get(s->row, LATHE_SHAREGPT_FIELD);
    if (*out || !json_is_array(talk) || s->reader->dataset->messages)
        return LATHE_OK;
    *out = talk;
    LATHE_TRY(lathe_chat_messages_read(s->place, talk));
    return lathe_chat_messages_add_system(s->place, s->row, talk);
}

static lathe_status need_list(const source *s, int32_t column, json_t **out)
{
    LATHE_TRY(list_of(s, column, out));
    if (*out && json_array_size(*out) > 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: column \"%s\" %s; expected a list of messages",
                       s->place, field_of(s, column), *out ? "is an empty list" : "is missing");
}

/* The number of messages that both lists begin with. The last message of the shorter list never
 * counts. */
static size_t common_messages(json_t *a, json_t *b)
{
    const size_t n_a = json_array_size(a), n_b = json_array_size(b), n = n_a < n_b ? n_a : n_b;
    size_t i = 0;
    while (i + 1 < n && json_equal(json_array_get(a, i), json_array_get(b, i)))
        i++;
    return i;
}

static int is_question(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && (strcmp(role, "user") == 0 || strcmp(role, "system") == 0 ||
                    strcmp(role, "developer") == 0);
}

/* Whether message n, the first in which the lists differ, belongs to a prompt. */
static int prompts_differ(json_t *a, json_t *b, size_t n)
{
    const json_t *x = json_array_get(a, n), *y = json_array_get(b, n);
    return !json_equal(x, y) && (is_question(x) || is_question(y));
}

/* A new list: those of `before`, then list[first, end). */
static json_t *join(json_t *before, json_t *list, size_t first, size_t end)
{
    json_t *out = json_array();
    int failed = !out || (before && json_array_extend(out, before) != 0);
    for (size_t i = first; i < end && !failed; i++)
        failed = json_array_append(out, json_array_get(list, i)) != 0;
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

/* Renders and encodes a list of messages, which this call frees. first_learnt: number of the first
 * message that may be learnt, from 0; -1: the list is a prompt, and the generation prompt follows.
 */
static lathe_status encode(const source *s, json_t *messages, int64_t first_learnt, lathe_ids *out,
                           int64_t *out_bytes)
{
    const lathe_dataset *dataset = s->reader->dataset;
    lathe_rendering text = {0};
    lathe_chat what;
    json_t *owned = NULL;
    if (!messages || json_object_set_new(s->row, "messages", messages) != 0)
        return lathe_error(LATHE_E_NOMEM, "%s: messages of a record", s->place);
    lathe_status status = lathe_chat_from_row(s->place, s->row, &what, &owned);
    what.add_generation_prompt = first_learnt < 0;
    if (status == LATHE_OK) {
        status = lathe_chat_render(dataset->chat, &what, &text);
        if (status != LATHE_OK)
            status = lathe_error_context(status, "%s", s->place);
    }
    out->n = 0;
    if (status == LATHE_OK)
        status = lathe_chat_find_unwritten(dataset->chat, &what, &text,
                                           first_learnt < 0 ? SIZE_MAX : (size_t)first_learnt,
                                           &s->facts->unwritten);
    if (status == LATHE_OK)
        status = lathe_chat_encode_text(s->encoder, &text, text.bytes, out);
    *out_bytes = text.bytes;
    lathe_rendering_fini(&text);
    json_decref(owned);
    return status;
}

/* ---- prompts alone ---- */

static lathe_status take_ids(const source *s, json_t *list, int64_t vocab_size, lathe_ids *out)
{
    const int64_t n = (int64_t)json_array_size(list);
    out->n = 0;
    LATHE_TRY(lathe_ids_reserve(out, n));
    for (int64_t i = 0; i < n; i++) {
        json_t *x = json_array_get(list, (size_t)i);
        const json_int_t id = json_integer_value(x);
        if (!json_is_integer(x) || id < 0 || id >= vocab_size)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: element %lld of \"%s\" is no token id; expected whole numbers "
                               "of 0 to %lld, or messages",
                               s->place, (long long)i + 1, field_of(s, LATHE_COLUMN_PROMPT),
                               (long long)vocab_size - 1);
        out->data[out->n++] = (int32_t)id;
    }
    return LATHE_OK;
}

static int is_assistant(json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* Finds the end of a prompt's messages: the answers at the end are not part of it. */
static lathe_status prompt_end(const source *s, json_t *list, size_t *out)
{
    size_t n = json_array_size(list);
    while (n > 0 && is_assistant(json_array_get(list, n - 1)))
        n--;
    *out = n;
    if (n > 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: \"%s\" has no message before the assistant's", s->place,
                       field_of(s, LATHE_COLUMN_PROMPT));
}

/* ---- the record ---- */

static lathe_status need_template(const source *s, int32_t column)
{
    const lathe_dataset *dataset = s->reader->dataset;
    if (dataset->chat)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: the column \"%s\" needs a chat template: %s", s->place,
                       field_of(s, column),
                       dataset->no_chat ? dataset->no_chat : "the dataset has none");
}

static lathe_status encode_prompt(const source *s, int64_t vocab_size, lathe_ids *prompt,
                                  int64_t *bytes)
{
    json_t *list;
    size_t n;
    LATHE_TRY(find_prompt(s, &list));
    if (json_array_size(list) == 0)
        LATHE_TRY(need_list(s, LATHE_COLUMN_PROMPT, &list));
    bytes[0] = 0;
    if (json_is_number(json_array_get(list, 0)))
        return take_ids(s, list, vocab_size, prompt);
    LATHE_TRY(need_template(s, LATHE_COLUMN_PROMPT));
    LATHE_TRY(prompt_end(s, list, &n));
    return encode(s, join(NULL, list, 0, n), -1, prompt, bytes);
}

/* A conversation of an unpaired example: its last answers are the completion. */
static lathe_status encode_talk(const source *s, lathe_ids *prompt, lathe_ids *full, int64_t *bytes)
{
    json_t *talk = NULL;
    size_t n = 0;
    LATHE_TRY(need_template(s, LATHE_COLUMN_PROMPT));
    LATHE_TRY(find_prompt(s, &talk));
    LATHE_TRY(prompt_end(s, talk, &n));
    const size_t all = json_array_size(talk);
    if (n == all)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: \"%s\" ends without an answer; expected a message of the assistant "
                           "at its end, which is the completion",
                           s->place, field_of(s, LATHE_COLUMN_PROMPT));
    json_incref(talk); /* encode() replaces the record's messages */
    lathe_status status = encode(s, join(NULL, talk, 0, n), -1, prompt, &bytes[0]);
    if (status == LATHE_OK)
        status = encode(s, join(NULL, talk, 0, all), (int64_t)n, full, &bytes[1]);
    json_decref(talk);
    bytes[1] = bytes[1] > bytes[0] ? bytes[1] - bytes[0] : 0;
    return status;
}

/* Refuses a completion that begins with a question, beside a prompt of its own. */
static lathe_status need_answer(const source *s, int32_t column, json_t *list)
{
    if (!is_question(json_array_get(list, 0)))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: column \"%s\" begins with a message of role \"%s\", but \"%s\" is the "
                       "prompt; expected an answer of the assistant (records without a prompt may "
                       "have whole conversations)",
                       s->place, field_of(s, column),
                       json_string_value(json_object_get(json_array_get(list, 0), "role")),
                       field_of(s, LATHE_COLUMN_PROMPT));
}

static lathe_status encode_all(const source *s, int32_t n_full, lathe_ids *prompt, lathe_ids *full,
                               int64_t *bytes)
{
    static const int32_t columns[2][2] = {{LATHE_COLUMN_COMPLETION, LATHE_COLUMN_COMPLETION},
                                          {LATHE_COLUMN_CHOSEN, LATHE_COLUMN_REJECTED}};
    const int32_t n_lists = n_full == 2 ? 2 : 1, *const own = columns[n_lists - 1];
    json_t *before = NULL, *list[2] = {NULL, NULL};
    if (s->fields->is_chat == LATHE_FIELDS_CHAT)
        return encode_talk(s, prompt, full, bytes);
    LATHE_TRY(need_template(s, own[0]));
    LATHE_TRY(find_prompt(s, &before));
    for (int32_t k = 0; k < n_lists; k++)
        LATHE_TRY(need_list(s, own[k], &list[k]));
    for (int32_t k = 0; before && k < n_lists; k++)
        LATHE_TRY(need_answer(s, own[k], list[k]));
    if (!before && n_lists == 1)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: column \"%s\" is a list of messages and there is no prompt; give "
                           "\"%s\" a list of messages too, or name whole conversations in "
                           "columns.messages",
                           s->place, field_of(s, LATHE_COLUMN_COMPLETION),
                           field_of(s, LATHE_COLUMN_PROMPT));
    const size_t n = before ? 0 : common_messages(list[0], list[1]);
    s->facts->prompts_differ = !before && prompts_differ(list[0], list[1], n);
    if (s->facts->prompts_differ)
        return LATHE_OK;
    const int64_t first_learnt = (int64_t)(before ? json_array_size(before) : n);
    LATHE_TRY(encode(s, before ? join(before, NULL, 0, 0) : join(NULL, list[0], 0, n), -1, prompt,
                     &bytes[0]));
    for (int32_t k = 0; k < n_lists; k++) {
        LATHE_TRY(encode(s, join(before, list[k], 0, json_array_size(list[k])), first_learnt,
                         &full[k], &bytes[1 + k]));
        bytes[1 + k] = bytes[1 + k] > bytes[0] ? bytes[1 + k] - bytes[0] : 0;
    }
    return LATHE_OK;
}

lathe_status lathe_chat_encode_lists(const lathe_reader *reader, const lathe_record *record,
                                     const lathe_fields *fields, int32_t n_full,
                                     lathe_encoder *encoder, int64_t vocab_size, lathe_ids *prompt,
                                     lathe_ids *full, int64_t *bytes, lathe_chat_lists_facts *facts)
{
    source s = {.reader = reader, .fields = fields, .encoder = encoder, .facts = facts};
    (void)lathe_source_place_text(&reader->sources->list[record->file],
                                  lathe_record_at(reader->sources, record), s.place,
                                  sizeof s.place);
    LATHE_TRY(lathe_json_load_exact(s.place, fields->row, fields->n_row, 1, &s.row));
    lathe_status status =
        fields->layout == LATHE_LAYOUT_KNOWN ? lathe_chat_alpaca_read(s.place, 0, s.row) : LATHE_OK;
    if (status == LATHE_OK)
        status = n_full == 0 ? encode_prompt(&s, vocab_size, prompt, bytes)
                             : encode_all(&s, n_full, prompt, full, bytes);
    json_decref(s.row);
    return status;
}
