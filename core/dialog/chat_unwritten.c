/* Finds the calls, tools and documents of conversations that their chat template does not write. */
#include "dialog/chat_unwritten.h"

#include <string.h>

#include "base/error.h"

static const char *const call_keys[] = {"tool_calls", "function_call"};
#define N_CALL_KEYS (sizeof call_keys / sizeof *call_keys)

static int is_empty(const json_t *x)
{
    return !x || json_is_null(x) || (json_is_string(x) && json_string_length(x) == 0) ||
           (json_is_array(x) && json_array_size(x) == 0) ||
           (json_is_object(x) && json_object_size(x) == 0);
}

static int has_calls(const json_t *message)
{
    for (size_t i = 0; i < N_CALL_KEYS; i++)
        if (!is_empty(json_object_get(message, call_keys[i])))
            return 1;
    return 0;
}

/* A new list of the messages without their calls; NULL: no memory. */
static json_t *without_calls(json_t *messages)
{
    json_t *out = json_array(), *message;
    size_t i;
    int failed = !out;
    json_array_foreach(messages, i, message)
    {
        json_t *one = has_calls(message) ? json_copy(message) : json_incref(message);
        for (size_t k = 0; k < N_CALL_KEYS && one != message; k++)
            (void)json_object_del(one, call_keys[k]);
        failed |= json_array_append_new(out, one) != 0; /* frees `one` if it fails */
    }
    if (!failed)
        return out;
    json_decref(out);
    return NULL;
}

/* *out = 1: the conversation gives the same text. */
static lathe_status is_same(const lathe_chat_template *chat, const lathe_chat *what,
                            const lathe_rendering *text, int32_t *out)
{
    lathe_rendering other = {0};
    const lathe_status status = lathe_chat_render(chat, what, &other);
    if (status == LATHE_OK && other.bytes == text->bytes &&
        memcmp(other.text, text->text, (size_t)text->bytes) == 0)
        *out = 1;
    lathe_rendering_fini(&other);
    if (status == LATHE_E_NOMEM)
        return status;
    lathe_error_clear();
    return LATHE_OK;
}

lathe_status lathe_chat_find_unwritten(const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, size_t first_learnt,
                                       lathe_chat_unwritten *out)
{
    lathe_chat other = *what;
    json_t *message;
    size_t i;
    int any = 0, empty = 0;
    json_array_foreach(what->messages, i, message) if (has_calls(message))
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        any = 1;
        empty = empty || (i >= first_learnt && role && strcmp(role, "assistant") == 0 &&
                          is_empty(json_object_get(message, "content")));
    }
    if (any) {
        int32_t same = 0;
        other.messages = without_calls(what->messages);
        if (!other.messages)
            return lathe_error(LATHE_E_NOMEM, "the messages of a conversation");
        const lathe_status status = is_same(chat, &other, text, &same);
        json_decref(other.messages);
        other.messages = what->messages;
        LATHE_TRY(status);
        out->calls |= same;
        out->empty_answer |= same && empty;
    }
    if (!is_empty(what->tools)) {
        other.tools = NULL;
        LATHE_TRY(is_same(chat, &other, text, &out->tools));
        other.tools = what->tools;
    }
    if (is_empty(what->documents))
        return LATHE_OK;
    other.documents = NULL;
    return is_same(chat, &other, text, &out->documents);
}
