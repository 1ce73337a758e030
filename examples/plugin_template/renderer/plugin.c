/* @NAME@: "User: ..." and "Assistant: ...", each turn on lines of its own.
 *
 *     User: CONTENT \n Assistant: CONTENT <eos_token> \n      learnt: the answer and its end
 *
 * Pieces of kind TEXT never become special tokens; a special token is a piece of kind TOKEN.
 */
#include <lathe/plugin.h>
#include <lathe/renderer.h>

static const lathe_host *host;

static lathe_status create(const lathe_host *given, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    host = given;
    *out_self = NULL;
    return LATHE_OK;
}

static lathe_status put(const lathe_piece_sink *sink, int32_t message, int32_t trained,
                        int32_t kind, lathe_chars text)
{
    const lathe_piece piece = {
        .kind = kind, .message = message, .trained = trained, .text = text};
    return text.bytes > 0 ? sink->put(sink->ctx, &piece) : LATHE_OK;
}

static lathe_status put_turn(const lathe_conversation *talk, int32_t i,
                             const lathe_piece_sink *sink)
{
    const lathe_chat_message *const m = &talk->messages[i];
    const int is_answer = m->role == LATHE_CHAT_ASSISTANT;
    const lathe_chars user = {"User: ", 6}, assistant = {"Assistant: ", 11}, end = {"\n", 1};
    LATHE_TRY(put(sink, i, 0, LATHE_PIECE_TEXT, is_answer ? assistant : user));
    LATHE_TRY(put(sink, i, is_answer, LATHE_PIECE_TEXT, m->content));
    if (is_answer)
        LATHE_TRY(put(sink, i, 1, LATHE_PIECE_TOKEN, talk->eos));
    return put(sink, i, is_answer, LATHE_PIECE_TEXT, end);
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    const lathe_chars assistant = {"Assistant: ", 11};
    (void)self;
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *const m = &talk->messages[i];
        if ((m->role != LATHE_CHAT_USER && m->role != LATHE_CHAT_ASSISTANT) ||
            m->content.data == NULL || m->n_calls > 0 || talk->n_tools > 0)
            return lathe_fail(host, LATHE_E_UNSUPPORTED,
                              "message %d (role \"%.*s\"): expected a text of user or assistant",
                              i + 1, (int)m->role_name.bytes, m->role_name.data);
    }
    for (int32_t i = 0; i < talk->n_messages; i++)
        LATHE_TRY(put_turn(talk, i, sink));
    return talk->prompt ? put(sink, -1, 0, LATHE_PIECE_TEXT, assistant) : LATHE_OK;
}

/* No score(): `[renderer] name = "auto"` never takes it, only its name does. */
static const lathe_renderer_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_RENDERER_REVISION,
    .flags = LATHE_RENDERER_EXTENDS,
    .render = render,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_RENDERER,
    .revision = LATHE_RENDERER_REVISION,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "User: and Assistant:, a turn on each line",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
};
