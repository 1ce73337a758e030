/* Dialogues in the form of Anthropic's HH-RLHF data: "Human:" and "Assistant:" in plain text, and
 * eos_token after each answer.
 *
 *   Source  arXiv:2204.05862, the columns chosen and rejected of its data. eos_token and a system
 *           message at the beginning are ours.
 */
#include <string.h>

#include <lathe/plugin.h>
#include <lathe/renderer.h>

typedef struct renderer {
    const lathe_host *host;
} renderer;

/* Passes pieces to the sink until the first error, which status keeps. */
typedef struct output {
    const lathe_piece_sink *sink;
    int32_t message, trained; /* of the next pieces */
    lathe_status status;
} output;

static void put(output *out, int32_t kind, lathe_chars text)
{
    const lathe_piece piece = {
        .kind = kind, .message = out->message, .trained = out->trained, .text = text};
    if (out->status == LATHE_OK && text.bytes > 0)
        out->status = out->sink->put(out->sink->ctx, &piece);
}

static void put_fixed(output *out, const char *text)
{
    put(out, LATHE_PIECE_TEXT, (lathe_chars){text, (int64_t)strlen(text)});
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    renderer *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a renderer");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((renderer *)self)->host->free(self);
}

static lathe_status refuse(const lathe_host *host, const lathe_conversation *talk, int32_t i,
                           const char *why)
{
    const lathe_chars role = talk->messages[i].role_name;
    return lathe_fail(host, LATHE_E_UNSUPPORTED, "message %d (role \"%.*s\"): %s", i + 1,
                      (int)role.bytes, role.data, why);
}

/* Refuses conversations that this form has no text for. */
static lathe_status check(const lathe_host *host, const lathe_conversation *talk)
{
    if (talk->n_tools > 0)
        return refuse(host, talk, 0, "this form has no text for tools");
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *const m = &talk->messages[i];
        const int is_known = m->role == LATHE_CHAT_USER || m->role == LATHE_CHAT_ASSISTANT ||
                             (m->role == LATHE_CHAT_SYSTEM && i == 0);
        if (!is_known)
            return refuse(host, talk, i,
                          "expected a message of user or assistant, or of system at the beginning");
        if (m->content.data == NULL || m->n_calls > 0)
            return refuse(host, talk, i, "expected a content without calls of tools");
    }
    return LATHE_OK;
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    output out = {.sink = sink, .message = -1};
    const int32_t first = talk->messages[0].role == LATHE_CHAT_SYSTEM;
    LATHE_TRY(check(((const renderer *)self)->host, talk));
    put(&out, LATHE_PIECE_TOKEN, talk->bos);
    out.message = first ? 0 : -1;
    if (first)
        put(&out, LATHE_PIECE_TEXT, talk->messages[0].content);
    for (int32_t i = first; i < talk->n_messages; i++) {
        const int is_answer = talk->messages[i].role == LATHE_CHAT_ASSISTANT;
        out.message = i;
        put_fixed(&out, is_answer ? "\n\nAssistant:" : "\n\nHuman: ");
        out.trained = is_answer;
        if (is_answer)
            put_fixed(&out, " ");
        put(&out, LATHE_PIECE_TEXT, talk->messages[i].content);
        if (is_answer)
            put(&out, LATHE_PIECE_TOKEN, talk->eos);
        out.trained = 0;
    }
    out.message = -1;
    if (talk->prompt)
        put_fixed(&out, "\n\nAssistant:");
    return out.status;
}

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
    .name = "human_assistant",
    .version = "0.1.0",
    .summary = "HH-RLHF: Human: and Assistant: in plain text",
    .source = "arXiv:2204.05862",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};
