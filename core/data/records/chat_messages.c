/* Reads messages of the sharegpt form. */
#include "data/records/chat_messages.h"

#include <string.h>

#include "base/error.h"
#include "base/json/json.h"

static const char *const roles[][2] = {
    {"human", "user"},    {"user", "user"},        {"gpt", "assistant"}, {"assistant", "assistant"},
    {"system", "system"}, {"observation", "tool"}, {"tool", "tool"},     {"function_call", NULL},
};

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "messages of a conversation");
}

/* The value of a function_call, parsed if it is a text, like every JSON text in a record. NULL: it
 * is none. */
static json_t *read_call(json_t *value)
{
    json_t *read = NULL;
    if (!json_is_string(value))
        return json_incref(value);
    if (lathe_json_load_exact("function_call", json_string_value(value),
                              (int64_t)json_string_length(value), 1, &read) != LATHE_OK)
        lathe_error_clear(); /* the caller refuses it */
    return read;
}

/* Reads a function_call: one call {"name", "arguments"}, or a list of calls. NULL: it is
 * neither. */
static json_t *calls_of(json_t *value)
{
    json_t *call, *out = json_array();
    json_t *read = read_call(value);
    json_t *list = json_is_object(read) ? json_pack("[O]", read) : json_incref(read);
    size_t i;
    int is_good = out && json_array_size(list) > 0;
    json_array_foreach(list, i, call) is_good =
        is_good && json_is_string(json_object_get(call, "name")) &&
        json_array_append_new(out, json_pack("{s:s, s:O}", "type", "function", "function", call)) ==
            0;
    json_decref(list);
    json_decref(read);
    if (is_good)
        return out;
    json_decref(out);
    return NULL;
}

static lathe_status set(json_t *message, const char *key, json_t *value)
{
    return value && json_object_set_new(message, key, value) == 0 ? LATHE_OK : no_memory();
}

static lathe_status read_message(size_t number, json_t *message)
{
    const char *from = json_string_value(json_object_get(message, "from"));
    json_t *value = json_object_get(message, "value");
    size_t k = 0;
    const size_t n = sizeof roles / sizeof roles[0];
    if (json_object_get(message, "role") || (from == NULL && value == NULL))
        return LATHE_OK;
    while (k < n && from && strcmp(roles[k][0], from) != 0)
        k++;
    if (from == NULL || k == n)
        return lathe_error(LATHE_E_CONFIG,
                           "message %zu is from \"%s\"; expected human, gpt, system, "
                           "observation or function_call",
                           number, from ? from : "");
    LATHE_TRY(set(message, "role", json_string(roles[k][1] ? roles[k][1] : "assistant")));
    json_t *calls = roles[k][1] ? NULL : calls_of(value);
    if (roles[k][1] == NULL && calls == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "message %zu is from \"function_call\", but its value is no JSON of a "
                           "call {\"name\", \"arguments\"} or of a list of calls",
                           number);
    if (calls) {
        LATHE_TRY(set(message, "tool_calls", calls));
        LATHE_TRY(set(message, "content", json_string("")));
    } else {
        LATHE_TRY(set(message, "content", value ? json_incref(value) : json_null()));
    }
    json_object_del(message, "from");
    json_object_del(message, "value");
    return LATHE_OK;
}

lathe_status lathe_chat_messages_read(json_t *messages)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) if (json_is_object(message))
        LATHE_TRY(read_message(i + 1, message));
    return LATHE_OK;
}
