/* Conversations: messages, and answers of the session's model to them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json/json.h"
#include "session/chat_prompt.h"
#include "session/session_state.h"

struct lathe_dialogue {
    lathe_session *session;
    json_t *row;      /* {"messages": [...]} */
    json_t *messages; /* borrowed from row */
    uint64_t n_answers;
    char *json; /* given by lathe_dialogue_json; NULL: none */
};

lathe_status lathe__dialogue_create_named(lathe_session *session, const char *place,
                                          lathe_dialogue **out)
{
    const lathe_chat_template *chat;
    *out = NULL;
    LATHE_TRY(lathe_session_template(session->run, place, &chat));
    lathe_dialogue *c = calloc(1, sizeof *c);
    if (c == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a conversation");
    c->session = session;
    c->row = json_pack("{s:[]}", "messages");
    c->messages = json_object_get(c->row, "messages");
    if (c->messages == NULL) {
        lathe_dialogue_destroy(c);
        return lathe_error(LATHE_E_NOMEM, "no memory for a conversation");
    }
    *out = c;
    return LATHE_OK;
}

lathe_status lathe_dialogue_create(lathe_session *session, lathe_dialogue **out)
{
    return lathe__dialogue_create_named(session, "the session", out);
}

void lathe_dialogue_destroy(lathe_dialogue *dialogue)
{
    if (dialogue == NULL)
        return;
    json_decref(dialogue->row);
    free(dialogue->json);
    free(dialogue);
}

static json_t *message_of(const char *role, const char *text, int64_t n)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", text, (size_t)n);
}

static const char *role_at(const lathe_dialogue *c, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
    return role != NULL ? role : "";
}

static int has_system(const lathe_dialogue *c)
{
    return json_array_size(c->messages) > 0 && strcmp(role_at(c, 0), "system") == 0;
}

static void cut(lathe_dialogue *c, size_t n)
{
    while (json_array_size(c->messages) > n)
        (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

lathe_status lathe_dialogue_sampling(const lathe_dialogue *dialogue, lathe_sampling *out)
{
    enum { WHOLE_CONTEXT = 100000000 };
    const lathe_run *run = dialogue->session->run;
    LATHE_TRY(lathe_default_sampling(run, out));
    out->stop_at_eos = 1;
    if (!lathe_config_is_set(run->config, "generate", "max_new_tokens"))
        out->max_new_tokens = WHOLE_CONTEXT;
    return LATHE_OK;
}

lathe_status lathe_dialogue_system(lathe_dialogue *dialogue, const char *text)
{
    json_t *message = message_of("system", text, (int64_t)strlen(text));
    if (message == NULL)
        return lathe_error(LATHE_E_ARG, "the system message is not UTF-8");
    if (has_system(dialogue))
        (void)json_array_remove(dialogue->messages, 0);
    if (text[0] == '\0') {
        json_decref(message);
        return LATHE_OK;
    }
    return json_array_insert_new(dialogue->messages, 0, message) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for the system message");
}

/* Adds the answer. One that is cut within a character keeps its whole characters. */
static lathe_status keep_answer(lathe_dialogue *c, const lathe_generation *made)
{
    json_t *message = message_of("assistant", made->text, made->text_bytes);
    for (int64_t n = made->text_bytes; message == NULL && n > 0;)
        message = message_of("assistant", made->text, --n);
    return message != NULL && json_array_append_new(c->messages, message) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for an answer of %lld bytes",
                             (long long)made->text_bytes);
}

static lathe_status answer(lathe_dialogue *c, const lathe_sampling *sampling,
                           lathe_session_piece_fn fn, void *arg, lathe_generation *out)
{
    lathe_session *const session = c->session;
    LATHE_TRY(lathe__session_render(session, "the conversation", c->row));
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt,
                                 .n_tokens = (int32_t)session->tokens.ids.n,
                                 .tokens = session->tokens.ids.data,
                                 .seed = sampling->seed + c->n_answers};
    LATHE_TRY(lathe_session_stream(session, &prompt, sampling, fn, arg, out));
    c->n_answers++;
    return keep_answer(c, out);
}

lathe_status lathe_dialogue_say(lathe_dialogue *dialogue, const char *text, int64_t n,
                                const lathe_sampling *sampling, lathe_session_piece_fn fn,
                                void *arg, lathe_generation *out)
{
    const size_t before = json_array_size(dialogue->messages);
    json_t *message = message_of("user", text, n);
    if (message == NULL)
        return lathe_error(LATHE_E_ARG, "the message is not UTF-8");
    if (json_array_append_new(dialogue->messages, message) != 0)
        return lathe_error(LATHE_E_NOMEM, "no memory for a message of %lld bytes", (long long)n);
    atomic_store(&dialogue->session->cancels, 0); /* from here on: rendering counts, too */
    dialogue->session->is_answering = 1;
    const lathe_status status = answer(dialogue, sampling, fn, arg, out);
    dialogue->session->is_answering = 0;
    if (status != LATHE_OK)
        cut(dialogue, before);
    return status;
}

lathe_status lathe_dialogue_undo(lathe_dialogue *dialogue)
{
    size_t n = json_array_size(dialogue->messages);
    while (n > 0 && strcmp(role_at(dialogue, n - 1), "assistant") == 0)
        n--;
    if (n == 0 || strcmp(role_at(dialogue, n - 1), "user") != 0)
        return lathe_error(LATHE_E_STATE, "there is no question to drop");
    cut(dialogue, n - 1);
    return LATHE_OK;
}

void lathe_dialogue_clear(lathe_dialogue *dialogue)
{
    cut(dialogue, has_system(dialogue) ? 1 : 0);
}

int64_t lathe_dialogue_count(const lathe_dialogue *dialogue)
{
    return (int64_t)json_array_size(dialogue->messages);
}

lathe_status lathe_dialogue_json(lathe_dialogue *dialogue, const char **out, int64_t *out_bytes)
{
    char *text = json_dumps(dialogue->row, 0);
    if (text == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the messages");
    free(dialogue->json);
    *out = dialogue->json = text;
    *out_bytes = (int64_t)strlen(text);
    return LATHE_OK;
}
