/* Renders conversations as prompts. */
#include "session/chat_prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/log_once.h"
#include "data/conversation/answer_prompt.h"
#include "data/conversation/chat_unwritten.h"
#include "data/records/record_keys.h"
#include "run/parts/run_parts.h"
#include "run/state/run_state.h"

/* Puts the name of the conversation before an error; "": it has none. */
static lathe_status named(lathe_status status, const char *name)
{
    return status == LATHE_OK || name[0] == '\0' ? status : lathe_error_context(status, "%s", name);
}

lathe_status lathe_session_template(lathe_run *run, const char *place,
                                    const lathe_chat_template **out)
{
    LATHE_TRY(lathe__run_chat_template(run));
    *out = run->data.chat;
    return *out != NULL
               ? LATHE_OK
               : named(lathe_error(LATHE_E_CONFIG, "a conversation needs a chat template: %s",
                                   run->data.no_chat),
                       place);
}

static lathe_status refuse_unknown(json_t *row)
{
    const char *known;
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value)
    {
        int found = strcmp(key, LATHE_RECORD_MESSAGES) == 0;
        for (int32_t i = 0; (known = lathe_chat_row_key(i)) != NULL; i++)
            found |= strcmp(key, known) == 0;
        if (!found)
            return lathe_error(LATHE_E_CONFIG,
                               "unknown key \"%s\"; expected messages, tools, documents or "
                               "chat_template_kwargs",
                               key);
    }
    return LATHE_OK;
}

static lathe_status check_messages(json_t *row)
{
    const json_t *messages = json_object_get(row, "messages");
    if (!json_is_array(messages))
        return lathe_error(LATHE_E_CONFIG,
                           "expected an object with a list \"messages\" of objects with "
                           "\"role\" and \"content\"");
    if (json_array_size(messages) == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "the list of messages is empty; expected at least one to answer");
    return LATHE_OK;
}

lathe_status lathe_session_chat_parse(const char *name, const char *text, int64_t n, json_t **out)
{
    *out = NULL;
    LATHE_TRY(lathe_json_load_exact(name, text, n, 0, out));
    lathe_status status = LATHE_OK;
    if (json_is_array(*out)) {
        json_t *row = json_pack("{so}", "messages", *out);
        *out = row;
        status = row ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "the messages");
    }
    if (status == LATHE_OK && json_is_object(*out))
        status = refuse_unknown(*out);
    if (status == LATHE_OK)
        status = check_messages(*out);
    if (status != LATHE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return named(status, name);
}

/* Names the keys of messages that have no effect, each set of them once. */
static lathe_status note_unread_keys(const lathe_chat_template *chat, const lathe_chat *what)
{
    lathe_chat_unwritten found = {.n_keys = 0};
    lathe_buffer text = LATHE_BUFFER_INIT;
    int means = 0;
    LATHE_TRY(lathe_chat_find_unread_keys(chat, what, NULL, &found));
    for (int32_t i = 0; i < found.n_keys; i++) {
        char name[sizeof LATHE_RECORD_OF_MESSAGES + LATHE_UNWRITTEN_KEY_BYTES];
        (void)snprintf(name, sizeof name, LATHE_RECORD_OF_MESSAGES "%s", found.keys[i]);
        means |= lathe_record_key_means(name);
        lathe_buffer_printf(&text, "%s%s", i > 0 ? ", " : "nothing reads ", name);
    }
    if (found.n_keys > 0 && text.status == LATHE_OK)
        lathe_log_once(means ? LATHE_LOG_WARN : LATHE_LOG_INFO, text.data);
    lathe_buffer_fini(&text);
    return LATHE_OK;
}

lathe_status lathe_session_chat_prompt(const lathe_chat_template *chat, const char *place,
                                       json_t *row, lathe_encoder *encoder, lathe_ids *out)
{
    lathe_chat what;
    json_t *owned = NULL;
    lathe_status status = check_messages(row);
    if (status != LATHE_OK)
        goto out;
    status = lathe_chat_from_row(row, &what, &owned);
    if (status != LATHE_OK)
        goto out;
    status = lathe_chat_answer_prompt(chat, &what, encoder, out);
    if (status == LATHE_OK)
        status = note_unread_keys(chat, &what);
out:
    json_decref(owned);
    return named(status, place);
}
