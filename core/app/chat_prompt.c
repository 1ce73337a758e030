/* Renders conversations as prompts. */
#include "app/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "dialog/answer_prompt.h"
#include "records/record_keys.h"
#include "run/run_state.h"
#include "textcmd/tokenizer_open.h"

lathe_status lathe_app_chat_template(lathe_run *run, const char *place,
                                     const lathe_chat_template **out)
{
    LATHE_TRY(lathe__run_chat_template(run));
    *out = run->data.chat;
    return *out ? LATHE_OK
                : lathe_error(LATHE_E_CONFIG, "%s: a conversation needs a chat template: %s", place,
                              run->data.no_chat);
}

static lathe_status refuse_unknown(const char *name, json_t *row)
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
                               "%s: unknown key \"%s\"; expected messages, tools, documents or "
                               "chat_template_kwargs",
                               name, key);
    }
    return LATHE_OK;
}

static lathe_status check_messages(const char *name, json_t *row)
{
    const json_t *messages = json_object_get(row, "messages");
    if (!json_is_array(messages))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: expected an object with a list \"messages\" of objects with "
                           "\"role\" and \"content\"",
                           name);
    if (json_array_size(messages) == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the list of messages is empty; expected at least one to answer",
                           name);
    return LATHE_OK;
}

lathe_status lathe_app_chat_load(const char *file, json_t **out)
{
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    char *text = NULL;
    int64_t n = 0;
    *out = NULL;
    LATHE_TRY(lathe_app_read(file, &text, &n));
    lathe_status status = lathe_json_load_exact(name, text, n, 0, out);
    free(text);
    if (status == LATHE_OK && json_is_array(*out)) {
        json_t *row = json_pack("{so}", "messages", *out);
        *out = row;
        status = row ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "%s", name);
    }
    if (status == LATHE_OK && json_is_object(*out))
        status = refuse_unknown(name, *out);
    if (status == LATHE_OK)
        status = check_messages(name, *out);
    if (status != LATHE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

lathe_status lathe_app_chat_prompt(const lathe_chat_template *chat, const char *place, json_t *row,
                                   lathe_encoder *encoder, lathe_ids *out)
{
    lathe_chat what;
    json_t *owned = NULL;
    LATHE_TRY(check_messages(place, row));
    LATHE_TRY(lathe_chat_from_row(place, row, &what, &owned));
    const lathe_status status = lathe_chat_answer_prompt(chat, place, &what, encoder, out);
    json_decref(owned);
    return status;
}
