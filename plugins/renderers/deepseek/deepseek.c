/* DeepSeek V3, V3.1 and the distilled R1 models. Earlier answers lose their thinking. */
#define TURNS_VERSION "0.2.0" /* tools */

#include "shared/turns.h"

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define USER "<" BAR "User" BAR ">"
#define ASSISTANT "<" BAR "Assistant" BAR ">"
#define END "<" BAR "end" LOW "of" LOW "sentence" BAR ">"
#define TOOL(name, edge) "<" BAR "tool" LOW name LOW edge BAR ">"
#define SEPARATOR "<" BAR "tool" LOW "sep" BAR ">"

static const char *const specials[] = {USER,
                                       ASSISTANT,
                                       END,
                                       TOOL("calls", "begin"),
                                       TOOL("calls", "end"),
                                       TOOL("call", "begin"),
                                       TOOL("call", "end"),
                                       TOOL("outputs", "begin"),
                                       TOOL("outputs", "end"),
                                       TOOL("output", "begin"),
                                       TOOL("output", "end"),
                                       SEPARATOR,
                                       NULL};
/* R1_KEEPS: a template for training that keeps the thinking. */
enum { R1_KEEPS = 0, R1 = 1, V3 = 2, V3_1 = 3 };
/* Arguments of calls: V3 takes them as text alone, TRL's template for training writes their JSON.
 */
enum { NO_TOOLS = 0, TEXTS = 1, JSON = 2 };

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "always render the reasoning", .absent = "split('</think>')"},
        {.marker = USER, .absent = "is_first_sp"},
        {.marker = USER, .absent = "is_last_user"},
        {.marker = USER},
    };
    const lathe_chars text = probe->template_text;
    turns_instance *x = self;
    const int32_t result = turns_score_variants(self, variants, 4, NULL, probe, why, why_bytes);
    const int is_json = x->variant == V3_1 || turns_has(text, "['arguments'] | tojson");
    x->has_tools = x->variant < V3 || !turns_has(text, TOOL("calls", "begin")) ? NO_TOOLS
                   : is_json                                                   ? JSON
                                                                               : TEXTS;
    return result;
}

static const char no_tools[] =
    "tools and calls are only written in the format of V3 and V3.1, where "
    "the folder's template has it";

static const char *why_no_calls(const turns_instance *x, const lathe_chat_message *m)
{
    if (m->role != LATHE_CHAT_ASSISTANT)
        return "only the assistant calls tools";
    for (int32_t i = 0; i < m->n_calls; i++) {
        const lathe_tool_call *call = &m->calls[i];
        if (call->function.data == NULL || (x->variant == V3 && call->type.data == NULL))
            return "a call needs \"type\" and \"function\"";
        if (x->has_tools == TEXTS && call->arguments_text.data == NULL)
            return "arguments of calls must be JSON as a string";
    }
    return NULL;
}

static const char *why_not(const turns_instance *x, const lathe_conversation *conversation,
                           const lathe_chat_message *m)
{
    const int uses_tools = m->n_calls > 0 || m->role == LATHE_CHAT_TOOL;
    if (m->role == LATHE_CHAT_OTHER)
        return "the family has no text for this role";
    if (uses_tools && x->has_tools == NO_TOOLS)
        return no_tools;
    if (m->content.data == NULL && !(m->n_calls > 0 && x->variant == V3_1))
        return "the family needs a content";
    if (x->variant == V3_1 && m->role == LATHE_CHAT_ASSISTANT && conversation->thinking == 1)
        return "the renderer has no text for enable_thinking = true";
    return m->n_calls > 0 ? why_no_calls(x, m) : NULL;
}

static lathe_status check(const turns_instance *x, const lathe_conversation *conversation)
{
    if (conversation->n_tools > 0 && x->has_tools == NO_TOOLS)
        return turns_refuse(x->host, conversation, 0, no_tools);
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const char *why = why_not(x, conversation, &conversation->messages[i]);
        if (why != NULL)
            return turns_refuse(x->host, conversation, i, why);
    }
    return LATHE_OK;
}

/* R1 uses the last system message, V3 and V3.1 all of them. */
static void put_system(turns_out *out, const lathe_conversation *conversation, int32_t variant)
{
    int32_t last = -1;
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        if (conversation->messages[i].role != LATHE_CHAT_SYSTEM)
            continue;
        if (variant >= V3) {
            out->message = i;
            turns_mark(out, last >= 0 ? "\n\n" : "");
            turns_text(out, conversation->messages[i].content);
        }
        last = i;
    }
    if (variant >= V3 || last < 0)
        return;
    out->message = last;
    turns_text(out, conversation->messages[last].content);
}

/* The answer, in most variants without its thinking. */
static lathe_chars answer_of(lathe_chars content, int32_t variant)
{
    if (variant == R1_KEEPS)
        return content;
    const int64_t at = turns_find(content, "</think>", variant != V3_1);
    return at < 0 ? content : turns_cut(content, at + 8, content.bytes);
}

/* Facts about the text so far on which the next message depends. */
typedef struct state {
    turns_out out;
    const turns_instance *x;
    int32_t after_user;  /* V3.1 names the assistant after a question alone */
    int32_t after_tool;  /* an answer of a tool is open */
    int32_t has_calls;   /* V3 names the assistant at the first call of the conversation alone */
    int32_t has_outputs; /* V3 */
} state;

/* The assistant's name; TRL's templates for training learn it too. */
static void put_header(state *s, const lathe_conversation *conversation)
{
    s->out.trained = conversation->is_marked;
    if (s->x->variant != V3_1 || s->after_user)
        turns_mark(&s->out, ASSISTANT);
    if (s->x->variant == V3_1 && s->after_user)
        turns_mark(&s->out, "<think></think>");
    s->out.trained = 1;
}

static void put_call(state *s, const lathe_tool_call *call)
{
    turns_out *out = &s->out;
    const int is_v3 = s->x->variant == V3;
    turns_mark(out, TOOL("call", "begin"));
    if (is_v3) {
        turns_text(out, call->type);
        turns_mark(out, SEPARATOR);
    }
    turns_text(out, call->name);
    turns_mark(out, is_v3 ? "\n```json\n" : SEPARATOR);
    turns_text(out, s->x->has_tools == TEXTS ? call->arguments_text : call->arguments);
    turns_mark(out, is_v3 ? "\n```" : NULL);
    turns_mark(out, TOOL("call", "end"));
}

static void put_calls(state *s, const lathe_conversation *conversation, const lathe_chat_message *m)
{
    turns_out *out = &s->out;
    const int is_v3 = s->x->variant == V3;
    const int is_first = !is_v3 || !s->has_calls;
    if (is_first)
        put_header(s, conversation);
    out->trained = 1;
    if (is_first) {
        turns_text(out, m->content);
        turns_mark(out, TOOL("calls", "begin"));
    }
    for (int32_t i = 0; i < m->n_calls; i++) {
        turns_mark(out, is_v3 && (i > 0 || !is_first) ? "\n" : NULL);
        put_call(s, &m->calls[i]);
    }
    turns_mark(out, TOOL("calls", "end") END);
    out->trained = 0;
    s->has_calls = 1;
}

static void put_answer(state *s, const lathe_conversation *conversation,
                       const lathe_chat_message *m)
{
    turns_out *out = &s->out;
    const int32_t variant = s->x->variant;
    if (m->n_calls > 0) {
        put_calls(s, conversation, m);
    } else {
        if (variant == V3 && s->after_tool) {
            out->trained = conversation->is_marked;
            turns_mark(out, TOOL("outputs", "end"));
            out->trained = 1;
        } else {
            put_header(s, conversation);
        }
        turns_text(out, s->after_tool ? m->content : answer_of(m->content, variant));
        turns_mark(out, END);
        out->trained = 0;
    }
    s->after_tool = s->after_user = 0;
}

static void put_output(state *s, const lathe_chat_message *m)
{
    if (s->x->variant == V3 && !s->has_outputs)
        turns_mark(&s->out, TOOL("outputs", "begin"));
    turns_mark(&s->out, TOOL("output", "begin"));
    turns_text(&s->out, m->content);
    turns_mark(&s->out, TOOL("output", "end"));
    s->has_outputs = s->after_tool = 1;
    s->after_user = 0;
}

static void put_end(state *s, const lathe_conversation *conversation)
{
    turns_out *out = &s->out;
    const int32_t variant = s->x->variant;
    if (variant == V3 && s->after_tool)
        turns_mark(out, TOOL("outputs", "end"));
    if (!conversation->prompt || s->after_tool || (variant == V3_1 && !s->after_user))
        return;
    turns_mark(out, ASSISTANT);
    if (variant != V3_1)
        turns_mark(out, "<think>\n");
    else
        turns_mark(out, conversation->thinking == 1 ? "<think>" : "<think></think>");
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    state s = {.out = {.sink = sink, .specials = specials, .message = -1}, .x = x};
    const lathe_status status = check(x, conversation);
    if (status != LATHE_OK)
        return status;
    turns_token(&s.out, conversation->bos);
    put_system(&s.out, conversation, x->variant);
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        s.out.message = i;
        if (m->role == LATHE_CHAT_USER) {
            turns_mark(&s.out, USER);
            turns_text(&s.out, m->content);
            s.after_tool = 0;
            s.after_user = 1;
        } else if (m->role == LATHE_CHAT_ASSISTANT) {
            put_answer(&s, conversation, m);
        } else if (m->role == LATHE_CHAT_TOOL) {
            put_output(&s, m);
        }
    }
    s.out.message = -1;
    put_end(&s, conversation);
    return s.out.status;
}

TURNS_PLUGIN("deepseek", 0, "DeepSeek V3, V3.1 and distilled R1",
             "chat templates of deepseek-ai/DeepSeek-V3.1 and DeepSeek-R1-Distill-Llama-8B");
