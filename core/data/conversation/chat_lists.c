/* Tokenises records of message lists. */
#include "data/conversation/chat_lists.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"
#include "data/conversation/answer_prompt.h"
#include "data/conversation/chat_record.h"
#include "data/records/chat_alpaca.h"
#include "data/records/chat_messages.h"
#include "data/records/row_kind.h"

/* A list of messages is a column's, or that of answer k of a group: column ANSWER + k. */
enum { ANSWER = LATHE_N_COLUMNS, N_LISTS = LATHE_N_COLUMNS + LATHE_MAX_ANSWERS };

/* The record that is tokenised. Its lists are owned, because encode() puts other messages into the
 * record, in which any of its columns may have the name "messages". */
typedef struct source {
    const lathe_reader *reader;
    lathe_fields *fields;
    lathe_record_uses *uses; /* NULL: the row is made of texts, whose fields are noted */
    lathe_encoder *encoder;
    json_t *row;
    json_t *conversation; /* the conversation; NULL: the record has none */
    /* of each column, and of each element of the list `completions`; NULL: the record lacks it */
    json_t *list[N_LISTS];
    const char *prompt_text; /* a prompt that is a text; NULL: it is a list, or missing */
    lathe_chat_lists_facts *facts;
} source;

/* The name of the field that a column is read from. */
static const char *field_of(const source *s, int32_t column)
{
    if (column >= ANSWER)
        column = LATHE_COLUMN_COMPLETIONS;
    if (s->fields->is_chat == LATHE_FIELDS_CHAT)
        return lathe_dataset_messages(s->reader->dataset);
    if (s->fields->is_made)
        return lathe_column_name(column);
    const lathe_layout *layout = &s->reader->layouts.list[s->fields->layout];
    return layout->columns[column].n > 0 ? layout->columns[column].parts[0].name
                                         : lathe_column_name(column);
}

/* A list of one message of this role. */
static json_t *list_of_text(const char *role, json_t *text)
{
    return json_pack("[{s:s, s:O}]", "role", role, "content", text);
}

static lathe_status not_a_list(const char *field)
{
    return lathe_error(LATHE_E_CONFIG,
                       "column \"%s\" is not a list of messages, but another column is; give "
                       "all of them as text, or all of them as messages",
                       field);
}

/* Whether the answers of the record are one list, and the template writes a prompt that is a text.
 */
static int writes_prompt(const source *s)
{
    const lathe_row_kind *kind = lathe_row_kind_get(s->reader->rows);
    return kind->n_answers > 0 && kind->answers == NULL && s->reader->dataset->as_chat > 0;
}

/* Takes the list of a column; leaves NULL if the record lacks it or it is null. A text is the
 * assistant's message; a prompt as text is kept for find_prompt. */
static lathe_status take_list(source *s, int32_t column)
{
    const char *field = field_of(s, column);
    json_t *x = json_object_get(s->row, field), **out = &s->list[column];
    if (column >= ANSWER)
        x = json_array_get(x, (size_t)(column - ANSWER));
    else if (s->reader->layouts.is_format[column] && !s->fields->is_made)
        return lathe_error(LATHE_E_CONFIG,
                           "format.%s makes a text, but another column is a list of messages; "
                           "take the format out, and name a column in columns.%s",
                           lathe_column_name(column), lathe_column_name(column));
    if (x == NULL || json_is_null(x))
        return LATHE_OK;
    lathe_record_use(s->uses, field);
    if (json_is_string(x) && column == LATHE_COLUMN_PROMPT && writes_prompt(s)) {
        *out = list_of_text("user", x);
        return *out ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "messages of a record");
    }
    if (json_is_string(x) && column == LATHE_COLUMN_PROMPT) {
        s->prompt_text = json_string_value(x);
        return LATHE_OK;
    }
    if (!json_is_object(x) && !json_is_array(x) && !json_is_string(x))
        return not_a_list(field);
    *out = json_is_object(x)   ? json_pack("[O]", x) /* a single message */
           : json_is_string(x) ? list_of_text("assistant", x)
                               : json_incref(x);
    if (*out == NULL)
        return lathe_error(LATHE_E_NOMEM, "messages of a record");
    return lathe_chat_messages_read(*out);
}

/* Whether a column of the rows is read from the field. */
static int is_column(const source *s, const char *field)
{
    for (int32_t c = 0; c < LATHE_N_COLUMNS; c++)
        if (s->reader->layouts.need[c] != LATHE_COLUMN_UNUSED && strcmp(field_of(s, c), field) == 0)
            return 1;
    return 0;
}

/* Takes the conversation of a record whose columns are lists: it is the prompt where no column is.
 */
static lathe_status take_conversation(source *s)
{
    const lathe_dataset *dataset = s->reader->dataset;
    const int is_chat = s->fields->is_chat == LATHE_FIELDS_CHAT;
    const char *field = lathe_chat_conversation_field(dataset, s->row);
    if (!is_chat && (field == NULL || is_column(s, field)))
        return LATHE_OK;
    /* beside lists, find_prompt notes it if it is the prompt */
    LATHE_TRY(
        lathe_chat_take_conversation(dataset, s->row, is_chat ? s->uses : NULL, &s->conversation));
    if (s->conversation && is_chat)
        s->list[LATHE_COLUMN_PROMPT] = json_incref(s->conversation);
    return LATHE_OK;
}

static lathe_status check_list(const source *s, int32_t column)
{
    const json_t *list = s->list[column];
    if (json_array_size(list) > 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "column \"%s\" %s; expected a list of messages",
                       field_of(s, column), list ? "is an empty list" : "is missing");
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

static int has_role(const json_t *message, const char *name)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, name) == 0;
}

static int is_instruction(const json_t *message)
{
    return has_role(message, "system") || has_role(message, "developer");
}

static int is_assistant(const json_t *message)
{
    return has_role(message, "assistant");
}

static int is_question(const json_t *message)
{
    return has_role(message, "user") || is_instruction(message);
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
    int failed = out == NULL || (before && json_array_extend(out, before) != 0);
    for (size_t i = first; i < end && !failed; i++)
        failed = json_array_append(out, json_array_get(list, i)) != 0;
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

enum { A_PROMPT = -1, A_BEGUN_ANSWER = -2 };

/* Renders and encodes a list of messages, which this call frees. first_learnt: number of the first
 * message that may be learnt, from 0; A_PROMPT: the generation prompt follows the list;
 * A_BEGUN_ANSWER: the model continues the last message. */
static lathe_status encode(source *s, json_t *messages, int64_t first_learnt, lathe_ids *out,
                           int64_t *out_bytes)
{
    const lathe_dataset *dataset = s->reader->dataset;
    lathe_rendering text = {0};
    lathe_chat what;
    json_t *owned = NULL, *message;
    int64_t end = 0;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        int mark = LATHE_CHAT_UNMARKED;
        if (lathe_chat_message_mark(message, i + 1, &mark) != LATHE_OK)
            lathe_error_clear();
        s->facts->has_marks |= mark == LATHE_CHAT_MUTE;
    }
    if (messages == NULL || json_object_set_new(s->row, "messages", messages) != 0)
        return lathe_error(LATHE_E_NOMEM, "messages of a record");
    lathe_status status = lathe_chat_from_row(s->row, &what, &owned);
    what.add_generation_prompt = first_learnt == A_PROMPT;
    if (status == LATHE_OK) {
        status = lathe_chat_render(dataset->chat, &what, &text);
        end = text.bytes;
        if (status == LATHE_OK && first_learnt == A_BEGUN_ANSWER)
            status = lathe_chat_answer_end(&what, &text, &end);
    }
    out->n = 0;
    if (status == LATHE_OK)
        status = lathe_chat_find_unwritten(dataset->chat, &what, &text,
                                           first_learnt < 0 ? SIZE_MAX : (size_t)first_learnt,
                                           &s->facts->unwritten);
    if (status == LATHE_OK)
        status = lathe_chat_encode_text(s->encoder, &text, end, out);
    *out_bytes = end;
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
                               "element %lld of \"%s\" is no token id; expected whole numbers "
                               "of 0 to %lld, or messages",
                               (long long)i + 1, field_of(s, LATHE_COLUMN_PROMPT),
                               (long long)vocab_size - 1);
        out->data[out->n++] = (int32_t)id;
    }
    return LATHE_OK;
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
    return lathe_error(LATHE_E_CONFIG, "\"%s\" has no message before the assistant's",
                       field_of(s, LATHE_COLUMN_PROMPT));
}

/* ---- the record ---- */

static lathe_status need_template(const source *s, int32_t column)
{
    const lathe_dataset *dataset = s->reader->dataset;
    if (dataset->chat)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "the column \"%s\" needs a chat template: %s",
                       field_of(s, column),
                       dataset->no_chat ? dataset->no_chat : "the dataset has none");
}

/* A prompt alone. The answers at the end of a conversation are not part of it; one at the end of
 * the column prompt is begun, and the model continues it, as TRL's trainers do. */
static lathe_status encode_prompt(source *s, int64_t vocab_size, lathe_ids *prompt, int64_t *bytes)
{
    size_t n;
    LATHE_TRY(check_list(s, LATHE_COLUMN_PROMPT));
    json_t *list = s->list[LATHE_COLUMN_PROMPT];
    bytes[0] = 0;
    if (json_is_number(json_array_get(list, 0)))
        return take_ids(s, list, vocab_size, prompt);
    LATHE_TRY(need_template(s, LATHE_COLUMN_PROMPT));
    LATHE_TRY(lathe_chat_add_system(s->row, list, s->uses));
    LATHE_TRY(prompt_end(s, list, &n));
    const size_t all = json_array_size(list);
    if (s->fields->is_chat == LATHE_FIELDS_CHAT || n == all || !lathe_chat_answer_begun(list))
        return encode(s, join(NULL, list, 0, n), A_PROMPT, prompt, bytes);
    s->facts->is_begun = 1;
    return encode(s, join(NULL, list, 0, all), A_BEGUN_ANSWER, prompt, bytes);
}

/* A conversation of an unpaired example: its last answers are the completion. */
static lathe_status encode_conversation(source *s, lathe_ids *prompt, lathe_ids *full,
                                        int64_t *bytes)
{
    json_t *conversation = s->list[LATHE_COLUMN_PROMPT];
    size_t n = 0;
    LATHE_TRY(need_template(s, LATHE_COLUMN_PROMPT));
    LATHE_TRY(prompt_end(s, conversation, &n));
    const size_t all = json_array_size(conversation);
    if (n == all)
        return lathe_error(LATHE_E_CONFIG,
                           "\"%s\" ends without an answer; expected a message of the assistant "
                           "at its end, which is the completion",
                           field_of(s, LATHE_COLUMN_PROMPT));
    LATHE_TRY(encode(s, join(NULL, conversation, 0, n), A_PROMPT, prompt, &bytes[0]));
    LATHE_TRY(encode(s, join(NULL, conversation, 0, all), (int64_t)n, full, &bytes[1]));
    bytes[1] = bytes[1] > bytes[0] ? bytes[1] - bytes[0] : 0;
    return LATHE_OK;
}

/* Refuses a completion that begins with a question, beside a prompt of its own. */
static lathe_status need_answer(const source *s, int32_t column, json_t *list)
{
    if (!is_question(json_array_get(list, 0)))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "column \"%s\" begins with a message of role \"%s\", but \"%s\" is the "
                       "prompt; expected an answer of the assistant (records without a prompt may "
                       "have whole conversations)",
                       field_of(s, column),
                       json_string_value(json_object_get(json_array_get(list, 0), "role")),
                       field_of(s, LATHE_COLUMN_PROMPT));
}

/* Whether the list begins with all messages of the prompt, and has more of them. */
static int begins_with(const json_t *list, const json_t *prompt)
{
    const size_t n = json_array_size(prompt);
    for (size_t i = 0; i < n; i++)
        if (!json_equal(json_array_get(list, i), json_array_get(prompt, i)))
            return 0;
    return n > 0 && json_array_size(list) > n;
}

/* Takes the prompt off a list that is a whole conversation. */
static lathe_status drop_prompt(source *s, int32_t column, const json_t *prompt)
{
    json_t *list = s->list[column];
    if (!begins_with(list, prompt))
        return need_answer(s, column, list);
    s->list[column] = join(NULL, list, json_array_size(prompt), json_array_size(list));
    json_decref(list);
    return s->list[column] ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "messages of a record");
}

/* Whether one of the first n messages has this text. */
static int has_text(const json_t *list, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        const char *content =
            json_string_value(json_object_get(json_array_get(list, i), "content"));
        if (content && strcmp(content, text) == 0)
            return 1;
    }
    return 0;
}

/* Refuses a pair whose prompt asks nothing: it would compare answers to no question. */
static lathe_status need_user(const source *s, const json_t *prompt, const int32_t *own,
                              int32_t n_lists)
{
    const json_t *message;
    size_t i;
    json_array_foreach(prompt, i, message) if (!is_assistant(message) &&
                                               !is_instruction(message)) return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "no message of the user is before the answers in \"%s\" and \"%s\", so "
                       "the pair has no question; give the record a list \"%s\", name it in "
                       "columns.prompt, or begin both lists with the question",
                       field_of(s, own[0]), field_of(s, own[n_lists - 1]),
                       field_of(s, LATHE_COLUMN_PROMPT));
}

/* A conversation that ends with one of the answers of the pair is the prompt without it. */
static json_t *conversation_before(const source *s, const int32_t *own, int32_t n_lists)
{
    const size_t n = json_array_size(s->conversation);
    for (int32_t k = 0; k < n_lists; k++)
        if (n > 1 && json_array_size(s->list[own[k]]) == 1 &&
            json_equal(json_array_get(s->conversation, n - 1), json_array_get(s->list[own[k]], 0)))
            return join(NULL, s->conversation, 0, n - 1);
    return json_incref(s->conversation);
}

/* Finds the prompt of whole conversations: what they have in common. */
static lathe_status find_common_prompt(source *s, const int32_t *own, int32_t n_lists)
{
    json_t **prompt = &s->list[LATHE_COLUMN_PROMPT];
    json_t *first = s->list[own[0]];
    if (n_lists == 1)
        return lathe_error(LATHE_E_CONFIG,
                           "column \"%s\" is a list of messages and there is no prompt; give "
                           "\"%s\" a list of messages too, or name whole conversations in "
                           "columns.messages",
                           field_of(s, LATHE_COLUMN_COMPLETION), field_of(s, LATHE_COLUMN_PROMPT));
    size_t n = common_messages(first, s->list[own[1]]);
    for (int32_t k = 2; k < n_lists; k++) {
        const size_t with = common_messages(first, s->list[own[k]]);
        n = with < n ? with : n;
    }
    for (int32_t k = 1; k < n_lists; k++)
        s->facts->prompts_differ |= prompts_differ(first, s->list[own[k]], n);
    if (s->facts->prompts_differ)
        return LATHE_OK;
    if (s->prompt_text && !has_text(first, n, s->prompt_text))
        lathe_record_unuse(s->uses, field_of(s, LATHE_COLUMN_PROMPT));
    for (int32_t k = 0; s->conversation && k < n_lists; k++)
        if (json_equal(s->conversation, s->list[own[k]]))
            lathe_record_use(s->uses, lathe_chat_conversation_field(s->reader->dataset, s->row));
    *prompt = join(NULL, first, 0, n);
    if (*prompt == NULL)
        return lathe_error(LATHE_E_NOMEM, "messages of a record");
    for (int32_t k = 0; k < n_lists && n > 0; k++)
        LATHE_TRY(drop_prompt(s, own[k], *prompt));
    return need_user(s, *prompt, own, n_lists);
}

/* Finds the prompt, which stands in s->list[PROMPT] then: the column, the conversation beside
 * answers, or what whole conversations have in common. Removes it from the completions. */
static lathe_status find_prompt(source *s, const int32_t *own, int32_t n_lists)
{
    json_t **prompt = &s->list[LATHE_COLUMN_PROMPT];
    int are_whole = 0;
    for (int32_t k = 0; k < n_lists; k++)
        are_whole |= is_question(json_array_get(s->list[own[k]], 0));
    if (s->prompt_text && (!are_whole || n_lists == 1))
        return not_a_list(field_of(s, LATHE_COLUMN_PROMPT));
    if (*prompt == NULL && !are_whole && s->conversation) {
        *prompt = conversation_before(s, own, n_lists);
        lathe_record_use(s->uses, lathe_chat_conversation_field(s->reader->dataset, s->row));
        if (*prompt == NULL)
            return lathe_error(LATHE_E_NOMEM, "messages of a record");
    }
    if (*prompt)
        LATHE_TRY(lathe_chat_add_system(s->row, *prompt, s->uses));
    for (int32_t k = 0; k < n_lists; k++)
        if (is_question(json_array_get(s->list[own[k]], 0)))
            LATHE_TRY(lathe_chat_add_system(s->row, s->list[own[k]], s->uses));
    if (*prompt) {
        for (int32_t k = 0; k < n_lists; k++)
            LATHE_TRY(drop_prompt(s, own[k], *prompt));
        s->facts->is_begun = is_assistant(json_array_get(*prompt, json_array_size(*prompt) - 1));
        return n_lists > 1 ? need_user(s, *prompt, own, n_lists) : LATHE_OK;
    }
    return find_common_prompt(s, own, n_lists);
}

static lathe_status encode_all(source *s, int32_t n_full, lathe_ids *prompt, lathe_ids *full,
                               int64_t *bytes)
{
    const int32_t *columns = lathe_row_kind_get(s->reader->rows)->answers;
    int32_t own[LATHE_MAX_ANSWERS] = {0};
    for (int32_t k = 0; k < n_full; k++)
        own[k] = columns != NULL ? columns[k] : ANSWER + k;
    if (s->fields->is_chat == LATHE_FIELDS_CHAT)
        return encode_conversation(s, prompt, full, bytes);
    LATHE_TRY(need_template(s, own[0]));
    for (int32_t k = 0; k < n_full; k++) {
        LATHE_TRY(take_list(s, own[k]));
        LATHE_TRY(check_list(s, own[k]));
    }
    LATHE_TRY(find_prompt(s, own, n_full));
    if (s->facts->prompts_differ)
        return LATHE_OK;
    json_t *before = s->list[LATHE_COLUMN_PROMPT];
    const int64_t first_learnt = (int64_t)json_array_size(before);
    LATHE_TRY(encode(s, join(before, NULL, 0, 0), A_PROMPT, prompt, &bytes[0]));
    for (int32_t k = 0; k < n_full; k++) {
        json_t *list = s->list[own[k]];
        LATHE_TRY(encode(s, join(before, list, 0, json_array_size(list)), first_learnt, &full[k],
                         &bytes[1 + k]));
        bytes[1 + k] = bytes[1 + k] > bytes[0] ? bytes[1 + k] - bytes[0] : 0;
    }
    return LATHE_OK;
}

static lathe_status read_row(source *s)
{
    if (s->fields->layout == LATHE_LAYOUT_KNOWN && !s->fields->is_made)
        LATHE_TRY(lathe_chat_alpaca_read(0, s->row, s->uses));
    lathe_chat_use_row(s->row, s->uses);
    if (s->fields->is_chat != LATHE_FIELDS_CHAT)
        LATHE_TRY(take_list(s, LATHE_COLUMN_PROMPT));
    return take_conversation(s);
}

lathe_status lathe_chat_encode_lists(const lathe_reader *reader, lathe_fields *fields,
                                     int32_t n_full, lathe_encoder *encoder, int64_t vocab_size,
                                     lathe_ids *prompt, lathe_ids *full, int64_t *bytes,
                                     lathe_chat_lists_facts *facts)
{
    source s = {.reader = reader,
                .fields = fields,
                .uses = fields->is_made ? NULL : &fields->uses,
                .encoder = encoder,
                .facts = facts};
    LATHE_TRY(lathe_json_load_exact("record", fields->row, fields->n_row, 1, &s.row));
    lathe_status status = read_row(&s);
    if (status == LATHE_OK)
        status = n_full == 0 ? encode_prompt(&s, vocab_size, prompt, bytes)
                             : encode_all(&s, n_full, prompt, full, bytes);
    for (int32_t c = 0; c < N_LISTS; c++)
        json_decref(s.list[c]);
    json_decref(s.conversation);
    json_decref(s.row);
    return status;
}
