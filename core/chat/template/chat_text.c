/* Conversations as text, and the parts of it that are learnt.
 *
 * Above 800 lines because the rows of a dataset, the variables of a template and the search for
 * what is learnt share the forms of messages. */
#include "chat/template/chat_template_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"

/* ---- rows of a dataset ---- */

/* Replaces tools that are texts of JSON by what they say, in a new list, and refuses what is no
 * object, as transformers does. */
static lathe_status read_tools(json_t **tools, json_t **owned)
{
    json_t *list = json_array(), *tool;
    size_t i;
    lathe_status status = list ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "tools");
    json_array_foreach(*tools, i, tool)
    {
        json_t *one = NULL;
        if (status != LATHE_OK)
            break;
        if (json_is_string(tool)) {
            if (lathe_json_load_exact("tools", json_string_value(tool),
                                      (int64_t)json_string_length(tool), 1, &one) != LATHE_OK)
                one = NULL;
        } else {
            one = json_incref(tool);
        }
        if (!json_is_object(one)) {
            json_decref(one);
            status = lathe_error(LATHE_E_CONFIG,
                                 "element %zu of \"tools\" is no object with the schema of a "
                                 "function, nor its JSON as a text",
                                 i + 1);
        } else if (json_array_append_new(list, one) != 0) {
            status = lathe_error(LATHE_E_NOMEM, "tools");
        }
    }
    if (status != LATHE_OK) {
        json_decref(list);
        return status;
    }
    json_decref(*owned);
    *tools = *owned = list;
    return LATHE_OK;
}

static int has_text(const json_t *list)
{
    const json_t *x;
    size_t i;
    json_array_foreach(list, i, x) if (!json_is_object(x)) return 1;
    return 0;
}

/* A list under this key, or its JSON as a string; null is none. */
static lathe_status list_of(json_t *row, const char *key, json_t **out, json_t **owned)
{
    json_t *x = json_object_get(row, key);
    *out = NULL;
    if (json_is_string(x) && json_string_length(x) > 0) {
        LATHE_TRY(lathe_json_load_exact(key, json_string_value(x), (int64_t)json_string_length(x),
                                        1, owned));
        x = *owned;
    }
    if (x == NULL || json_is_null(x) || (json_is_string(x) && json_string_length(x) == 0))
        return LATHE_OK;
    if (!json_is_array(x))
        return lathe_error(LATHE_E_CONFIG, "\"%s\" is no list", key);
    *out = x;
    return LATHE_OK;
}

/* In the order of ROW_*. */
static const char *const row_keys[] = {"tools", "documents", "chat_template_kwargs"};
enum { ROW_TOOLS = 0, ROW_DOCUMENTS = 1, ROW_VARIABLES = 2, N_ROW_KEYS = 3 };
_Static_assert(sizeof row_keys / sizeof row_keys[0] == N_ROW_KEYS, "one name per key");

const char *lathe_chat_row_key(int32_t i)
{
    return i < N_ROW_KEYS ? row_keys[i] : NULL;
}

lathe_status lathe_chat_from_row(json_t *row, lathe_chat *out, json_t **owned)
{
    memset(out, 0, sizeof *out);
    *owned = NULL;
    if (!json_is_object(row) || !json_is_array(json_object_get(row, "messages")))
        return lathe_error(LATHE_E_CONFIG,
                           "expected an object with a list \"messages\" of objects with "
                           "\"role\" and \"content\"");
    out->messages = json_object_get(row, "messages");
    json_t *variables = json_object_get(row, row_keys[ROW_VARIABLES]);
    if (variables && !json_is_object(variables) && !json_is_null(variables))
        return lathe_error(LATHE_E_CONFIG, "\"chat_template_kwargs\" is no object");
    out->variables = json_is_object(variables) ? variables : NULL;
    out->add_generation_prompt = json_is_true(json_object_get(row, "add_generation_prompt"));
    lathe_status status = list_of(row, row_keys[ROW_TOOLS], &out->tools, owned);
    json_t *none = NULL;
    if (status == LATHE_OK && has_text(out->tools))
        status = read_tools(&out->tools, owned);
    if (status == LATHE_OK)
        status = list_of(row, row_keys[ROW_DOCUMENTS], &out->documents, &none);
    if (none) { /* documents have no form as a string */
        json_decref(none);
        status = lathe_error(LATHE_E_CONFIG, "\"documents\" is no list");
    }
    if (status != LATHE_OK) {
        json_decref(*owned);
        *owned = NULL;
    }
    return status;
}

/* ---- what the template sees ---- */

json_t *lathe__chat_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (size_t i = 0; i < 3 && (reasoning == NULL || json_is_null(reasoning)); i++)
        reasoning = json_object_get(message, names[i]);
    return reasoning && !json_is_null(reasoning) ? reasoning : NULL;
}

static int has_null(json_t *message)
{
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value) if (json_is_null(value)) return 1;
    return 0;
}

json_t *lathe__chat_parsed_call(json_t *function)
{
    json_t *arguments = json_object_get(function, "arguments"), *parsed = NULL, *out = NULL;
    if (!json_is_string(arguments))
        return NULL;
    if (lathe_json_load_exact("arguments", json_string_value(arguments),
                              (int64_t)json_string_length(arguments), 1, &parsed) != LATHE_OK)
        lathe_error_clear();
    if (json_is_object(parsed) && (out = json_copy(function)) != NULL &&
        json_object_set(out, "arguments", parsed) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(parsed);
    return out;
}

/* A copy of the list of calls in which arguments are objects; NULL: no call has a text of one. */
static json_t *parsed_calls(json_t *calls)
{
    json_t *out = NULL, *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        json_t *inner = json_object_get(call, "function");
        json_t *parsed = lathe__chat_parsed_call(inner ? inner : call);
        if (parsed == NULL)
            continue;
        if (inner) {
            json_t *copy = json_copy(call);
            if (copy && json_object_set(copy, "function", parsed) != 0) {
                json_decref(copy);
                copy = NULL;
            }
            json_decref(parsed);
            parsed = copy;
        }
        if (out == NULL)
            out = json_copy(calls);
        if (parsed == NULL || out == NULL || json_array_set_new(out, i, parsed) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* The message as transformers gives it: without keys whose value is null, and its reasoning under
 * both names that templates read. Arguments of calls that are texts become objects where the
 * template would encode the text once more. NULL: out of memory. */
static json_t *normalized(const lathe_chat_template *chat, json_t *message)
{
    json_t *reasoning = lathe__chat_reasoning(message), *out, *value;
    json_t *calls =
        chat->takes_objects ? parsed_calls(json_object_get(message, "tool_calls")) : NULL;
    const char *key;
    if (reasoning == NULL && !has_null(message) && calls == NULL)
        return json_incref(message);
    out = json_object();
    int failed = out == NULL || (reasoning && json_object_set(out, "thinking", reasoning) != 0);
    json_object_foreach(message, key, value) failed |=
        failed || (!json_is_null(value) && json_object_set(out, key, value) != 0);
    failed = failed || (reasoning && json_object_set(out, "reasoning_content", reasoning) != 0);
    failed = failed || (calls && json_object_set(out, "tool_calls", calls) != 0);
    json_decref(calls);
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The first n messages, checked. */
static lathe_status copy_messages(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                                  json_t **out)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *message = json_array_get(what->messages, i);
        if (!json_is_object(message)) {
            json_decref(list);
            return lathe_error(LATHE_E_CONFIG,
                               "message %zu is no object with \"role\" and \"content\"", i + 1);
        }
        if (json_array_append_new(list, normalized(chat, message)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    *out = list;
    return list ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "%zu messages of a conversation", n);
}

/* Sets a member to a value or, where there is none, to null. */
static int set_or_null(json_t *object, const char *key, json_t *value)
{
    return value ? json_object_set(object, key, value)
                 : json_object_set_new(object, key, json_null());
}

static lathe_status make_variables(const lathe_chat_template *chat, const lathe_chat *what,
                                   size_t n, int add_generation_prompt, json_t **out)
{
    json_t *messages = NULL, *all = json_object();
    *out = NULL;
    lathe_status status = all ? copy_messages(chat, what, n, &messages) : LATHE_E_NOMEM;
    if (status == LATHE_OK && (json_object_update(all, chat->tokens) != 0 ||
                               (chat->variables && json_object_update(all, chat->variables) != 0) ||
                               (what->variables && json_object_update(all, what->variables) != 0) ||
                               json_object_set(all, "messages", messages) != 0 ||
                               set_or_null(all, "tools", what->tools) != 0 ||
                               set_or_null(all, "documents", what->documents) != 0 ||
                               json_object_set_new(all, "add_generation_prompt",
                                                   json_boolean(add_generation_prompt)) != 0))
        status = LATHE_E_NOMEM;
    if (status == LATHE_E_NOMEM)
        status = lathe_error(LATHE_E_NOMEM, "the variables of a chat template");
    json_decref(messages);
    if (status == LATHE_OK)
        *out = all;
    else
        json_decref(all);
    return status;
}

/* Says how a message is unusual, so that the template may be unable to use it; "": in nothing. */
static const char *unusual_form(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_string(json_object_get(message, "role")))
        return json_object_get(message, "role") ? "\"role\" is not a string" : "it has no \"role\"";
    if (content == NULL)
        return "it has no \"content\"";
    return json_is_null(content)      ? "\"content\" is null"
           : json_is_array(content)   ? "\"content\" is a list"
           : !json_is_string(content) ? "\"content\" is not a string"
                                      : "";
}

/* Adds to an error of the template which message it may come from. */
static lathe_status name_unusual_message(const lathe_chat *what, size_t n, lathe_status status)
{
    for (size_t i = 0; i < n && status != LATHE_E_NOMEM; i++) {
        const char *form = unusual_form(json_array_get(what->messages, i));
        if (form[0] != '\0')
            return lathe_error_context(status, "message %zu: %s, and the chat template fails",
                                       i + 1, form);
    }
    return status;
}

/* *ran: 1 if the template ran, so that an error is the template's. */
static lathe_status interpret(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                              int add_generation_prompt, lathe_rendering *out, int *ran)
{
    lathe_template_input input = {.now = what->now};
    *ran = 0;
    LATHE_TRY(make_variables(chat, what, n, add_generation_prompt, &input.variables));
    *ran = 1;
    const lathe_status status =
        lathe_template_render(what->tools && chat->tools ? chat->tools : chat->plain, &input, out);
    json_decref(input.variables);
    return status;
}

/* Renders a call with these arguments. *out: how the text has the key of the arguments. */
enum { AS_NOTHING, AS_JSON, AS_TEXT_OF_JSON };

static lathe_status try_call(const lathe_chat_template *chat, const char *arguments, int *out)
{
    lathe_rendering text = {0};
    json_t *row =
        json_pack("{s:[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s}}]}]}", "messages", "role", "user",
                  "content", "a", "role", "assistant", "content", "", "tool_calls", "type",
                  "function", "id", "abcdefghi", "function", "name", "f");
    json_t *list = json_object_get(row, "messages");
    json_t *function = json_object_get(
        json_array_get(json_object_get(json_array_get(list, 1), "tool_calls"), 0), "function");
    int ran = 0;
    *out = AS_NOTHING;
    if (row == NULL || json_object_set_new(function, "arguments",
                                           arguments ? json_string(arguments)
                                                     : json_pack("{s:i}", "lathe_key", 1)) != 0) {
        json_decref(row);
        return lathe_error(LATHE_E_NOMEM, "a chat template");
    }
    const lathe_chat what = {.messages = list};
    lathe_template_input input = {.now = 1};
    lathe_status status = make_variables(chat, &what, 2, 0, &input.variables);
    if (status == LATHE_OK)
        ran = lathe_template_render(chat->tools ? chat->tools : chat->plain, &input, &text) ==
              LATHE_OK;
    lathe_error_clear();
    if (ran && strstr(text.text, "\\\"lathe_key\\\""))
        *out = AS_TEXT_OF_JSON;
    else if (ran && strstr(text.text, "lathe_key"))
        *out = AS_JSON;
    json_decref(input.variables);
    lathe_rendering_fini(&text);
    json_decref(row);
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}

/* The text is compared, not the template: it may write arguments in many ways. */
lathe_status lathe__chat_try_arguments(lathe_chat_template *chat)
{
    int text, object;
    const lathe_chars source = chat->tools ? chat->of_tools : chat->whole;
    if (chat->plain == NULL || source.data == NULL ||
        memmem(source.data, (size_t)source.bytes, "arguments", strlen("arguments")) == NULL)
        return LATHE_OK;
    LATHE_TRY(try_call(chat, "{\"lathe_key\": 1}", &text));
    LATHE_TRY(try_call(chat, NULL, &object));
    chat->takes_objects = object == AS_JSON && text != AS_JSON;
    return LATHE_OK;
}

/* 1: the first n messages fail at this place of the template; 0: they render, or fail elsewhere. */
static int fails_at(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                    int add_generation_prompt, const lathe_place *place)
{
    lathe_rendering text = {0};
    int ran;
    const int fails = interpret(chat, what, n, add_generation_prompt, &text, &ran) != LATHE_OK;
    const lathe_place at = lathe_error_place();
    lathe_rendering_fini(&text);
    return fails && at.file != NULL && at.line == place->line && at.column == place->column;
}

enum { MAX_BLAMED = 64 }; /* conversations of more messages are not searched */

/* Puts the message that the template refuses before its error: the last one without which the first
 * ones do not fail at the same place of the template. */
static lathe_status blame(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                          int add_generation_prompt, lathe_status status)
{
    char words[1024], file[PATH_MAX];
    size_t k = n;
    const lathe_place place = lathe_error_place();
    (void)lathe_error_words(words, sizeof words);
    if (n == 0 || n > MAX_BLAMED || status == LATHE_E_NOMEM || place.file == NULL)
        return status;
    (void)snprintf(file, sizeof file, "%s", place.file);
    while (k > 0 && fails_at(chat, what, k - 1, add_generation_prompt, &place))
        k--;
    const char *role =
        k > 0 ? json_string_value(json_object_get(json_array_get(what->messages, k - 1), "role"))
              : NULL;
    (void)lathe_error_in(status, file, place.line, place.column, "%s", words);
    return role ? lathe_error_context(status, "message %zu (role \"%s\")", k, role) : status;
}

static lathe_status render(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                           int add_generation_prompt, lathe_rendering *out)
{
    int served = 0, ran;
    memset(out, 0, sizeof *out);
    if (chat->renderer.table)
        LATHE_TRY(lathe__chat_render_pieces(chat, what, n, add_generation_prompt, out, &served));
    if (served)
        return LATHE_OK;
    const lathe_status status = interpret(chat, what, n, add_generation_prompt, out, &ran);
    if (status == LATHE_OK || !ran)
        return status;
    for (size_t i = 0; i < n; i++)
        if (unusual_form(json_array_get(what->messages, i))[0] != '\0')
            return name_unusual_message(what, n, status);
    return blame(chat, what, n, add_generation_prompt, status);
}

lathe_status lathe_chat_render(const lathe_chat_template *chat, const lathe_chat *what,
                               lathe_rendering *out)
{
    memset(out, 0, sizeof *out);
    return render(chat, what, json_array_size(what->messages), what->add_generation_prompt, out);
}

/* ---- what is learnt ---- */

static int is_assistant(const lathe_chat *what, size_t i)
{
    const char *role =
        json_string_value(json_object_get(json_array_get(what->messages, i), "role"));
    return role && strcmp(role, "assistant") == 0;
}

static int begins_with(const lathe_rendering *text, const lathe_rendering *prefix)
{
    return text->bytes >= prefix->bytes &&
           (prefix->bytes == 0 || memcmp(text->text, prefix->text, (size_t)prefix->bytes) == 0);
}

/* Whether the part of an answer is found in the text. */
enum {
    TURN_FOUND,
    TURN_CHANGES,   /* the text does not begin with that of the messages up to the answer */
    TURN_UNPROMPTED /* the text up to the answer does not begin with the prompt before it */
};

/* The part of `all` that message i of the assistant adds to the prompt before it. */
static lathe_status find_turn(const lathe_chat_template *chat, const lathe_chat *what, size_t i,
                              const lathe_rendering *all, lathe_template_span *out, int *found)
{
    lathe_rendering prompt = {0}, turn = {0};
    *found = TURN_CHANGES;
    lathe_status status = render(chat, what, i, 1, &prompt);
    if (status == LATHE_OK)
        status = render(chat, what, i + 1, 0, &turn);
    if (status == LATHE_OK) {
        *found = !begins_with(all, &turn)       ? TURN_CHANGES
                 : !begins_with(&turn, &prompt) ? TURN_UNPROMPTED
                                                : TURN_FOUND;
        *out = (lathe_template_span){prompt.bytes, turn.bytes};
    } else {
        status = lathe_error_context(status, "the messages before message %zu alone", i + 1);
    }
    lathe_rendering_fini(&prompt);
    lathe_rendering_fini(&turn);
    return status;
}

/* Whether message i has a user's or tool's message before it. Many templates cannot write a prompt
 * without one, or write it otherwise. */
static int has_question(const lathe_chat *what, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        const char *role =
            json_string_value(json_object_get(json_array_get(what->messages, k), "role"));
        if (role == NULL || strcmp(role, "system") != 0)
            return 1;
    }
    return 0;
}

/* The messages up to i, with another text in message i, whose first character differs. */
static json_t *with_other_content(const lathe_chat *what, size_t i)
{
    const char *text =
        json_string_value(json_object_get(json_array_get(what->messages, i), "content"));
    json_t *list = json_array(), *message = json_copy(json_array_get(what->messages, i));
    int failed = list == NULL || message == NULL || text == NULL;
    for (size_t k = 0; k < i && !failed; k++)
        failed = json_array_append(list, json_array_get(what->messages, k)) != 0;
    if (!failed)
        failed = json_object_set_new(message, "content",
                                     json_string(text[strspn(text, " \t\r\n")] == 'A' ? "B" : "A"));
    if (!failed && json_array_append(list, message) == 0) {
        json_decref(message);
        return list;
    }
    json_decref(message);
    json_decref(list);
    return NULL;
}

/* Like find_turn, for an answer without a question before it: its part begins where the text
 * changes with the answer's content. */
static lathe_status find_opening(const lathe_chat_template *chat, const lathe_chat *what, size_t i,
                                 const lathe_rendering *all, lathe_template_span *out, int *found)
{
    lathe_rendering turn = {0}, other = {0};
    lathe_chat changed = *what;
    int64_t n = 0;
    *found = TURN_CHANGES;
    changed.messages = with_other_content(what, i);
    if (changed.messages == NULL) /* it has no text */
        return LATHE_OK;
    lathe_status status = render(chat, what, i + 1, 0, &turn);
    if (status == LATHE_OK)
        status = render(chat, &changed, i + 1, 0, &other);
    if (status == LATHE_OK) {
        while (n < turn.bytes && n < other.bytes && turn.text[n] == other.text[n])
            n++;
        if (n < turn.bytes && begins_with(all, &turn))
            *found = TURN_FOUND;
        *out = (lathe_template_span){n, turn.bytes};
    }
    json_decref(changed.messages);
    lathe_rendering_fini(&turn);
    lathe_rendering_fini(&other);
    return status;
}

static lathe_status turn_error(int found, size_t i)
{
    if (found == TURN_UNPROMPTED)
        return lathe_error(LATHE_E_CONFIG,
                           "the text of message %zu of the assistant does not begin with the "
                           "prompt that the template writes for it (add_generation_prompt), so "
                           "the text to learn cannot be found; mend the prompt in the template, "
                           "or mark the text with {%% generation %%} and {%% endgeneration %%}",
                           i + 1);
    return lathe_error(LATHE_E_CONFIG,
                       "the template writes message %zu of the assistant otherwise when later "
                       "messages follow, so the text to learn cannot be found; mark it in the "
                       "template with {%% generation %%} and {%% endgeneration %%}, or give each "
                       "conversation one answer, at its end",
                       i + 1);
}

/* 0 or 1 of a mark; -1: null or missing, -2: something else. */
static int value_of_mark(const json_t *x)
{
    if (x == NULL || json_is_null(x))
        return -1;
    if (json_is_boolean(x))
        return json_is_true(x);
    const double number = json_is_number(x) ? json_number_value(x) : -1.0;
    return number == 0.0 ? 0 : number == 1.0 ? 1 : -2;
}

/* Keys of other trainers (chat_template.h). */
static const char *const mark_keys[] = {"weight", "train", "trainable", "loss", "loss_mask"};
enum { N_MARK_KEYS = sizeof mark_keys / sizeof mark_keys[0] };

const char *lathe_chat_mark_key(int32_t i)
{
    return i < N_MARK_KEYS ? mark_keys[i] : NULL;
}

lathe_status lathe_chat_message_mark(const json_t *message, size_t number, int *out)
{
    const char *first = NULL;
    *out = LATHE_CHAT_UNMARKED;
    for (int32_t i = 0; i < N_MARK_KEYS; i++) {
        const int value = value_of_mark(json_object_get(message, mark_keys[i]));
        const int mark = value == 0 ? LATHE_CHAT_MUTE : LATHE_CHAT_LEARN;
        if (value == -1)
            continue;
        if (value == -2)
            return lathe_error(LATHE_E_CONFIG,
                               "message %zu: \"%s\" says whether the message is learnt; expected "
                               "0, 1, true or false",
                               number, mark_keys[i]);
        if (first && mark != *out)
            return lathe_error(LATHE_E_CONFIG,
                               "message %zu: \"%s\" and \"%s\" contradict each other about whether "
                               "the message is learnt",
                               number, first, mark_keys[i]);
        first = mark_keys[i];
        *out = mark;
    }
    return LATHE_OK;
}

/* Takes [begin, end) out of the spans. */
static lathe_status take_out(lathe_rendering *all, lathe_template_span part)
{
    lathe_template_span *list = malloc((size_t)(all->n_spans + 1) * 2 * sizeof *list);
    int64_t n = 0;
    if (list == NULL)
        return lathe_error(LATHE_E_NOMEM, "the parts of a conversation");
    for (int64_t i = 0; i < all->n_spans; i++) {
        const lathe_template_span span = all->spans[i];
        const int64_t left = span.end < part.begin ? span.end : part.begin;
        const int64_t right = span.begin > part.end ? span.begin : part.end;
        if (left > span.begin)
            list[n++] = (lathe_template_span){span.begin, left};
        if (right < span.end)
            list[n++] = (lathe_template_span){right, span.end};
    }
    free(all->spans);
    all->spans = list;
    all->n_spans = n;
    return LATHE_OK;
}

/* Takes the muted messages out of the parts that the template marks. If it marks one part for each
 * answer, they are these; else the message's turn is. */
static lathe_status mute(const lathe_chat_template *chat, const lathe_chat *what,
                         lathe_rendering *all)
{
    const size_t n = json_array_size(what->messages);
    int64_t n_answers = 0, answer = 0;
    for (size_t i = 0; i < n; i++)
        n_answers += is_assistant(what, i);
    const int are_answers = n_answers == all->n_spans;
    for (size_t i = 0; i < n; i++) {
        lathe_template_span part = {0};
        int mark, found = TURN_FOUND;
        LATHE_TRY(lathe_chat_message_mark(json_array_get(what->messages, i), i + 1, &mark));
        answer += is_assistant(what, i);
        if (mark != LATHE_CHAT_MUTE || !is_assistant(what, i))
            continue;
        if (are_answers) {
            all->spans[answer - 1].end = all->spans[answer - 1].begin;
            continue;
        }
        LATHE_TRY(find_turn(chat, what, i, all, &part, &found));
        if (found != TURN_FOUND)
            return turn_error(found, i);
        LATHE_TRY(take_out(all, part));
    }
    return LATHE_OK;
}

/* ---- long conversations ---- */

/* Rendering all messages before each answer takes time with the square of their number. In a long
 * conversation the text of an answer is therefore found from a window: the system messages and the
 * last few messages. What the window adds must stand in the whole text at the place that the
 * windows before it reached; then each text is one that the whole conversation has, and the parts
 * are those of find_turn. Otherwise find_turn decides. */
enum { LONG_TALK = 32, WINDOW = 6 };

typedef struct window_search {
    const lathe_chat_template *chat;
    const lathe_chat *what;
    const lathe_rendering *all;
    size_t n_head; /* system messages at the beginning */
    size_t done;   /* number of messages whose text is known */
    int64_t at;    /* where it ends */
} window_search;

/* Renders the head and the messages [begin, end). */
static lathe_status render_window(const window_search *w, size_t begin, size_t end, int prompt,
                                  lathe_rendering *out)
{
    lathe_chat part = *w->what;
    part.messages = json_array();
    int failed = part.messages == NULL;
    for (size_t i = 0; i < end && !failed; i++)
        if (i < w->n_head || i >= begin)
            failed = json_array_append(part.messages, json_array_get(w->what->messages, i)) != 0;
    const lathe_status status =
        failed ? lathe_error(LATHE_E_NOMEM, "messages of a conversation")
               : render(w->chat, &part, json_array_size(part.messages), prompt, out);
    json_decref(part.messages);
    return status;
}

/* Whether `longer` is `shorter` and then what the whole text has from w->at on. */
static int continues(const window_search *w, const lathe_rendering *shorter,
                     const lathe_rendering *longer)
{
    const int64_t n = longer->bytes - shorter->bytes;
    return n >= 0 && begins_with(longer, shorter) && w->at + n <= w->all->bytes &&
           memcmp(w->all->text + w->at, longer->text + shorter->bytes, (size_t)n) == 0;
}

/* Finds the part of answer i in a window. *found 0: the window does not show it. */
static lathe_status find_in_window(window_search *w, size_t i, lathe_template_span *out, int *found)
{
    lathe_rendering known = {0}, prompt = {0}, turn = {0};
    size_t begin = w->done > w->n_head + WINDOW ? w->done - WINDOW : w->n_head;
    begin -= (begin - w->n_head) % 2; /* templates may want users and assistants in turn */
    lathe_status status = render_window(w, begin, w->done, 0, &known);
    if (status == LATHE_OK)
        status = render_window(w, begin, i, 1, &prompt);
    if (status == LATHE_OK)
        status = render_window(w, begin, i + 1, 0, &turn);
    *found = status == LATHE_OK && continues(w, &known, &turn) && begins_with(&turn, &prompt) &&
             prompt.bytes >= known.bytes;
    if (*found) {
        *out = (lathe_template_span){w->at + prompt.bytes - known.bytes,
                                     w->at + turn.bytes - known.bytes};
        w->at = out->end;
        w->done = i + 1;
    }
    lathe_rendering_fini(&known);
    lathe_rendering_fini(&prompt);
    lathe_rendering_fini(&turn);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        lathe_error_clear();
    return LATHE_OK;
}

/* Finds the parts of a long conversation. *found 0: windows do not show them. */
static lathe_status find_long(const lathe_chat_template *chat, const lathe_chat *what,
                              lathe_rendering *all, int *found)
{
    const size_t n = json_array_size(what->messages);
    window_search w = {.chat = chat, .what = what, .all = all};
    lathe_template_span span = {0}, last = {0};
    size_t last_answer = 0;
    *found = n > LONG_TALK;
    while (w.n_head < n && !is_assistant(what, w.n_head) && !has_question(what, w.n_head + 1))
        w.n_head++;
    for (size_t i = 0; i < n && *found; i++) {
        int mark;
        LATHE_TRY(lathe_chat_message_mark(json_array_get(what->messages, i), i + 1, &mark));
        if (!is_assistant(what, i) || mark == LATHE_CHAT_MUTE)
            continue;
        if (w.done == 0) { /* the first part, which all others follow */
            int turn;
            LATHE_TRY(find_turn(chat, what, i, all, &span, &turn));
            *found = turn == TURN_FOUND;
            w.done = i + 1;
            w.at = span.end;
        } else {
            LATHE_TRY(find_in_window(&w, i, &span, found));
        }
        all->spans[all->n_spans++] = last = span;
        last_answer = i;
    }
    if (*found &&
        all->n_spans > 0) { /* the template extends its texts: the last part is the same */
        int turn;
        LATHE_TRY(find_turn(chat, what, last_answer, all, &span, &turn));
        *found = turn == TURN_FOUND && span.begin == last.begin && span.end == last.end;
    }
    if (!*found)
        all->n_spans = 0;
    return LATHE_OK;
}

static lathe_status find_turns(const lathe_chat_template *chat, const lathe_chat *what,
                               lathe_rendering *all)
{
    const size_t n = json_array_size(what->messages);
    free(all->spans);
    all->n_spans = 0;
    all->spans = malloc((n + 1) * sizeof *all->spans);
    if (all->spans == NULL)
        return lathe_error(LATHE_E_NOMEM, "the turns of %zu messages", n);
    int is_found = 0;
    LATHE_TRY(find_long(chat, what, all, &is_found));
    for (size_t i = 0; i < n && !is_found; i++) {
        int found, mark;
        LATHE_TRY(lathe_chat_message_mark(json_array_get(what->messages, i), i + 1, &mark));
        if (!is_assistant(what, i) || mark == LATHE_CHAT_MUTE)
            continue;
        const lathe_status status =
            find_turn(chat, what, i, all, &all->spans[all->n_spans], &found);
        if ((status != LATHE_OK || found != TURN_FOUND) && status != LATHE_E_NOMEM &&
            !has_question(what, i))
            LATHE_TRY(find_opening(chat, what, i, all, &all->spans[all->n_spans], &found));
        else
            LATHE_TRY(status);
        if (found != TURN_FOUND)
            return turn_error(found, i);
        all->n_spans++;
    }
    return LATHE_OK;
}

lathe_status lathe_chat_render_training(const lathe_chat_template *chat, const lathe_chat *what,
                                        lathe_rendering *out)
{
    lathe_chat whole = *what;
    whole.add_generation_prompt = 0;
    LATHE_TRY(lathe_chat_render(chat, &whole, out));
    out->is_marked = lathe_chat_template_marks(chat);
    if (out->has_tokens) /* the renderer's pieces say what is learnt */
        return LATHE_OK;
    const lathe_status status =
        out->is_marked ? mute(chat, &whole, out) : find_turns(chat, &whole, out);
    if (status != LATHE_OK)
        lathe_rendering_fini(out);
    return status;
}

lathe_status lathe_chat_extends(const lathe_chat_template *chat, const lathe_chat *what, int *out)
{
    lathe_rendering before = {0}, prompt = {0};
    const size_t n = json_array_size(what->messages);
    lathe_status status = LATHE_OK;
    *out = 1;
    for (size_t i = 0; i < n && *out && status == LATHE_OK; i++) {
        if (!is_assistant(what, i))
            continue;
        status = render(chat, what, i, 1, &prompt);
        if (status != LATHE_OK)
            break;
        *out = begins_with(&prompt, &before);
        lathe_rendering_fini(&before);
        before = prompt;
        prompt = (lathe_rendering){0};
    }
    if (status == LATHE_OK && *out) {
        status = render(chat, what, n, 0, &prompt);
        *out = status == LATHE_OK && begins_with(&prompt, &before);
    }
    lathe_rendering_fini(&before);
    lathe_rendering_fini(&prompt);
    return status;
}
