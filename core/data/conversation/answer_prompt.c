/* Renders a conversation up to where the answer begins, and encodes it. */
#include "data/conversation/answer_prompt.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "data/conversation/chat_record.h"

/* The text of the last message if it is the assistant's, else NULL. */
static const char *answer_begun(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0
               ? json_string_value(json_object_get(last, "content"))
               : NULL;
}

/* Finds where the last occurrence of `content` in the text ends, which leaves out what the template
 * puts after a message. Space around the content that the template removed is not looked for. */
static lathe_status end_of(const char *text, const char *content, int64_t *out)
{
    while (isspace((unsigned char)*content))
        content++;
    const size_t whole = strlen(content);
    size_t n = whole;
    while (n > 0 && isspace((unsigned char)content[n - 1]))
        n--;
    const char *last = NULL;
    for (const char *at = n > 0 ? strstr(text, content) : NULL; at; at = strstr(at + 1, content))
        last = at;
    if (last) {
        *out = last + whole - text;
        return LATHE_OK;
    }
    for (const char *at = text; n > 0 && *at; at++)
        last = strncmp(at, content, n) == 0 ? at : last;
    if (last == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "the template does not write the last message of the assistant as it "
                           "is, so it cannot be continued; end with a message of the user");
    *out = last + n - text;
    return LATHE_OK;
}

int lathe_chat_answer_begun(const json_t *messages)
{
    return answer_begun(messages) != NULL;
}

lathe_status lathe_chat_answer_end(const lathe_chat *what, const lathe_rendering *text,
                                   int64_t *out)
{
    const char *begun = answer_begun(what->messages);
    *out = text->bytes;
    return begun ? end_of(text->text, begun, out) : LATHE_OK;
}

static lathe_status make(const lathe_chat_template *chat, const lathe_chat *given,
                         lathe_encoder *encoder, lathe_ids *out)
{
    lathe_chat what = *given;
    lathe_rendering text = {0};
    what.add_generation_prompt = !lathe_chat_answer_begun(what.messages);
    LATHE_TRY(lathe_chat_render(chat, &what, &text));
    int64_t end = 0;
    lathe_status status = lathe_chat_answer_end(&what, &text, &end);
    if (status == LATHE_OK)
        status = lathe_chat_encode_text(encoder, &text, end, out);
    if (status == LATHE_OK && out->n == 0)
        status = lathe_error(LATHE_E_CONFIG,
                             "the chat template writes no text for this conversation, so there is "
                             "nothing to answer");
    lathe_rendering_fini(&text);
    return status;
}

lathe_status lathe_chat_answer_prompt(const lathe_chat_template *chat, const lathe_chat *what,
                                      lathe_encoder *encoder, lathe_ids *out)
{
    out->n = 0;
    return make(chat, what, encoder, out);
}
