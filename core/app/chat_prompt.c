/* Renders a conversation as a prompt. */
#include "app/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "app/tokenizer_open.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "template/chat_template.h"

/* The template of the first folder that has one. */
static lathe_status load_template(const char *const folders[2], lathe_chat_template **out)
{
    for (int i = 0; i < 2; i++) {
        if (!folders[i] || !lathe_path_is_dir(folders[i]))
            continue;
        const lathe_status status = lathe_chat_template_load(folders[i], out);
        if (status != LATHE_E_NOT_FOUND || i == 1 || !folders[1])
            return status;
    }
    return lathe_error(LATHE_E_NOT_FOUND,
                       "--messages needs a chat template, and the model has no folder to hold one");
}

/* The conversation in the file; a list is its messages. */
static lathe_status load_row(const char *name, const char *text, int64_t n, json_t **out)
{
    LATHE_TRY(lathe_json_load(name, text, n, out));
    if (!json_is_array(*out))
        return LATHE_OK;
    json_t *row = json_pack("{so}", "messages", *out);
    *out = row;
    return row ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "%s", name);
}

static lathe_status render(const lathe_chat_template *chat, const char *name, json_t *row,
                           char **out)
{
    lathe_chat what;
    lathe_rendering text = {0};
    json_t *owned = NULL;
    LATHE_TRY(lathe_chat_from_row(name, row, &what, &owned));
    what.add_generation_prompt = 1;
    const lathe_status status = lathe_chat_render(chat, &what, &text);
    json_decref(owned);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s", name);
    *out = text.text;
    free(text.spans);
    return LATHE_OK;
}

lathe_status lathe_app_chat_prompt(const char *file, const char *const folders[2], char **out)
{
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    lathe_chat_template *chat = NULL;
    json_t *row = NULL;
    char *text = NULL;
    int64_t n = 0;
    *out = NULL;
    lathe_status status = load_template(folders, &chat);
    if (status == LATHE_OK)
        status = lathe_app_read(file, &text, &n);
    if (status == LATHE_OK)
        status = load_row(name, text, n, &row);
    if (status == LATHE_OK)
        status = render(chat, name, row, out);
    free(text);
    json_decref(row);
    lathe_chat_template_destroy(chat);
    return status;
}
