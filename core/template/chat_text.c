/* Conversations as text, and the parts of it that are learnt. */
#include "template/chat_template_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* ---- rows of a dataset ---- */

/* A list under this key, or its JSON as a string; null is none. */
static lathe_status list_of(const char *place, json_t *row, const char *key, json_t **out,
                            json_t **owned)
{
    json_t *x = json_object_get(row, key);
    *out = NULL;
    if (json_is_string(x) && json_string_length(x) > 0) {
        const lathe_status status = lathe_json_load_exact(key, json_string_value(x),
                                                          (int64_t)json_string_length(x), 1, owned);
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s", place);
        x = *owned;
    }
    if (!x || json_is_null(x) || (json_is_string(x) && json_string_length(x) == 0))
        return LATHE_OK;
    if (!json_is_array(x))
        return lathe_error(LATHE_E_CONFIG, "%s: \"%s\" is no list", place, key);
    *out = x;
    return LATHE_OK;
}

lathe_status lathe_chat_from_row(const char *place, json_t *row, lathe_chat *out, json_t **owned)
{
    memset(out, 0, sizeof *out);
    *owned = NULL;
    if (!json_is_object(row) || !json_is_array(json_object_get(row, "messages")))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: expected an object with a list \"messages\" of objects with "
                           "\"role\" and \"content\"",
                           place);
    out->messages = json_object_get(row, "messages");
    json_t *variables = json_object_get(row, "chat_template_kwargs");
    if (variables && !json_is_object(variables) && !json_is_null(variables))
        return lathe_error(LATHE_E_CONFIG, "%s: \"chat_template_kwargs\" is no object", place);
    out->variables = json_is_object(variables) ? variables : NULL;
    out->add_generation_prompt = json_is_true(json_object_get(row, "add_generation_prompt"));
    lathe_status status = list_of(place, row, "tools", &out->tools, owned);
    json_t *none = NULL;
    if (status == LATHE_OK)
        status = list_of(place, row, "documents", &out->documents, &none);
    if (none) { /* documents have no form as a string */
        json_decref(none);
        status = lathe_error(LATHE_E_CONFIG, "%s: \"documents\" is no list", place);
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
    for (size_t i = 0; i < 3 && (!reasoning || json_is_null(reasoning)); i++)
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

/* The message as transformers gives it: without keys whose value is null, and its reasoning under
 * both names that templates read. NULL: out of memory. */
static json_t *normalized(json_t *message)
{
    json_t *reasoning = lathe__chat_reasoning(message), *out, *value;
    const char *key;
    if (!reasoning && !has_null(message))
        return json_incref(message);
    out = json_object();
    int failed = !out || (reasoning && json_object_set(out, "thinking", reasoning) != 0);
    json_object_foreach(message, key, value) failed |=
        failed || (!json_is_null(value) && json_object_set(out, key, value) != 0);
    failed = failed || (reasoning && json_object_set(out, "reasoning_content", reasoning) != 0);
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The first n messages, checked. */
static lathe_status copy_messages(const lathe_chat *what, size_t n, json_t **out)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *message = json_array_get(what->messages, i);
        if (!json_is_object(message)) {
            json_decref(list);
            return lathe_error(LATHE_E_CONFIG,
                               "message %zu is no object with \"role\" and \"content\"", i + 1);
        }
        if (json_array_append_new(list, normalized(message)) != 0) {
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
    lathe_status status = all ? copy_messages(what, n, &messages) : LATHE_E_NOMEM;
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

/* What is unusual about a message that the template may be unable to use; "": nothing. */
static const char *odd_message(json_t *message)
{
    json_t *content = json_object_get(message, "content");
    if (!json_is_string(json_object_get(message, "role")))
        return json_object_get(message, "role") ? "\"role\" is not a string" : "it has no \"role\"";
    if (!content)
        return "it has no \"content\"";
    return json_is_null(content)      ? "\"content\" is null"
           : json_is_array(content)   ? "\"content\" is a list"
           : !json_is_string(content) ? "\"content\" is not a string"
                                      : "";
}

/* Adds to an error of the template which message it may come from. */
static lathe_status name_odd_message(const lathe_chat *what, size_t n, lathe_status status)
{
    for (size_t i = 0; i < n && status != LATHE_E_NOMEM; i++) {
        const char *odd = odd_message(json_array_get(what->messages, i));
        if (odd[0] != '\0')
            return lathe_error_context(status, "message %zu: %s, and the chat template fails",
                                       i + 1, odd);
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

/* 1: the first n messages fail with this error; 0: they render, or another error comes first. */
static int fails_with(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                      int add_generation_prompt, const char *message)
{
    lathe_rendering text = {0};
    int ran;
    const int fails = interpret(chat, what, n, add_generation_prompt, &text, &ran) != LATHE_OK &&
                      strcmp(lathe_error_message(), message) == 0;
    lathe_rendering_fini(&text);
    return fails;
}

enum { MOST_BLAMED = 64 }; /* conversations of more messages are not searched */

/* Puts the message that the template refuses before its error: the last one without which the first
 * ones do not give the same error. */
static lathe_status blame(const lathe_chat_template *chat, const lathe_chat *what, size_t n,
                          int add_generation_prompt, lathe_status status)
{
    char message[1024];
    size_t k = n;
    if (n == 0 || n > MOST_BLAMED || status == LATHE_E_NOMEM)
        return status;
    (void)snprintf(message, sizeof message, "%s", lathe_error_message());
    while (k > 0 && fails_with(chat, what, k - 1, add_generation_prompt, message))
        k--;
    const char *role =
        k > 0 ? json_string_value(json_object_get(json_array_get(what->messages, k - 1), "role"))
              : NULL;
    if (!role)
        return lathe_error(status, "%s", message);
    return lathe_error(status, "message %zu (role \"%s\"): %s", k, role, message);
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
        if (odd_message(json_array_get(what->messages, i))[0] != '\0')
            return name_odd_message(what, n, status);
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
        if (!role || strcmp(role, "system") != 0)
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
    int failed = !list || !message || !text;
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

/* As find_turn, for an answer without a question before it: its part begins where the text changes
 * with the answer's content. */
static lathe_status find_opening(const lathe_chat_template *chat, const lathe_chat *what, size_t i,
                                 const lathe_rendering *all, lathe_template_span *out, int *found)
{
    lathe_rendering turn = {0}, other = {0};
    lathe_chat changed = *what;
    int64_t n = 0;
    *found = TURN_CHANGES;
    changed.messages = with_other_content(what, i);
    if (!changed.messages) /* it has no text */
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

static lathe_status find_turns(const lathe_chat_template *chat, const lathe_chat *what,
                               lathe_rendering *all)
{
    const size_t n = json_array_size(what->messages);
    free(all->spans);
    all->n_spans = 0;
    all->spans = malloc((n + 1) * sizeof *all->spans);
    if (!all->spans)
        return lathe_error(LATHE_E_NOMEM, "the turns of %zu messages", n);
    for (size_t i = 0; i < n; i++) {
        int found;
        if (!is_assistant(what, i))
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
    if (out->has_tokens || out->is_marked)
        return LATHE_OK; /* the renderer's pieces, or the template, say what is learnt */
    const lathe_status status = find_turns(chat, &whole, out);
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
