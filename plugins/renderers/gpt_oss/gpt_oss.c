/* gpt-oss: the harmony format. Only the last answer of a text for training, and a call
 * without a later answer, keep their analysis. */
#define TURNS_VERSION "0.2.0" /* tools */

#include <stdlib.h>

#include "harmony_tools.h"
#include "shared/json_pieces.h"

static const char *const specials[] = {"<|start|>",  "<|end|>",  "<|message|>", "<|channel|>",
                                       "<|return|>", "<|call|>", NULL};

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {{.marker = "<|start|>system<|message|>"}};
    turns_instance *x = self;
    const int32_t result = turns_score_variants(self, variants, 1, NULL, probe, why, why_bytes);
    x->has_tools = turns_may_write(result, probe, "render_typescript_type");
    return result;
}

/* ---- what the family has a text for ---- */

static const char *why_no_call(const lathe_chat_message *m)
{
    const lathe_tool_call *call = &m->calls[0];
    const lathe_chars type = lathe_json_get(call->function, "content_type");
    if (m->role != LATHE_CHAT_ASSISTANT)
        return "only the assistant calls tools";
    if (m->n_calls > 1)
        return "the family has one call in a message";
    if (lathe_json_kind(call->function) != LATHE_JSON_OBJECT)
        return "a call needs its \"function\"";
    if (type.data != NULL && !lathe_json_is_string(type))
        return "content_type is no string";
    if (m->content.bytes > 0 && m->reasoning.bytes > 0)
        return "a call has its analysis as content or as thinking, not as both";
    return NULL;
}

static const char *why_not(const turns_instance *x, const lathe_conversation *conversation,
                           int32_t i)
{
    const lathe_chat_message *m = &conversation->messages[i];
    if (m->role == LATHE_CHAT_OTHER)
        return "the renderer has no text for this role";
    if ((m->role == LATHE_CHAT_TOOL || m->n_calls > 0) && !x->has_tools)
        return "the folder's template has no text for calls of tools";
    if (m->n_calls == 0 && m->content.data == NULL)
        return "the family needs a content";
    if (m->role == LATHE_CHAT_SYSTEM && i > 0)
        return "only the first message may be the system's";
    if (turns_has(m->content, "<|channel|>") || turns_has(m->reasoning, "<|channel|>"))
        return "<|channel|> in a message";
    return m->n_calls > 0 ? why_no_call(m) : NULL;
}

static lathe_status check(const turns_instance *x, const lathe_conversation *conversation)
{
    int is_called = 0;
    if (conversation->n_tools > 0 && !x->has_tools)
        return turns_refuse(x->host, conversation, 0,
                            "the folder's template has no text for tools");
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        const char *why = why_not(x, conversation, i);
        if (why == NULL && m->role == LATHE_CHAT_TOOL && !is_called)
            why = "no call is before the answer of a tool";
        if (why != NULL)
            return turns_refuse(x->host, conversation, i, why);
        if (m->role == LATHE_CHAT_ASSISTANT)
            is_called = m->n_calls > 0;
    }
    return LATHE_OK;
}

/* ---- the text ---- */

static void put_system(turns_out *out, const lathe_conversation *conversation, lathe_chars tools)
{
    char day[32];
    const lathe_chat_message *first = &conversation->messages[0];
    const int instructs = first->role == LATHE_CHAT_SYSTEM && first->content.bytes > 0;
    snprintf(day, sizeof day, "%04d-%02d-%02d", conversation->year, conversation->month,
             conversation->day);
    turns_mark(out, "<|start|>system<|message|>You are ChatGPT, a large language model trained by "
                    "OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ");
    turns_mark(out, day);
    turns_mark(out, "\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
                    "Channel must be included for every message.");
    if (tools.data != NULL)
        turns_mark(out, "\nCalls to these tools must go to the commentary channel: 'functions'.");
    turns_mark(out, "<|end|>");
    if (!instructs && tools.data == NULL)
        return;
    out->message = instructs ? 0 : -1;
    turns_mark(out, "<|start|>developer<|message|>");
    if (instructs) {
        turns_mark(out, "# Instructions\n\n");
        turns_text(out, first->content);
        turns_mark(out, "\n\n");
    }
    turns_text(out, tools);
    turns_mark(out, "<|end|>");
}

static void put_analysis(turns_out *out, lathe_chars text)
{
    turns_mark(out, "<|channel|>analysis<|message|>");
    turns_text(out, text);
    turns_mark(out, "<|end|><|start|>assistant");
}

/* A later answer without calls: then the analysis before a call is left out. */
static int is_answered(const lathe_conversation *conversation, int32_t i)
{
    for (int32_t k = i + 1; k < conversation->n_messages; k++)
        if (conversation->messages[k].role == LATHE_CHAT_ASSISTANT &&
            conversation->messages[k].n_calls == 0)
            return 1;
    return 0;
}

static void put_call(turns_out *out, const lathe_conversation *conversation, int32_t i)
{
    const lathe_chat_message *m = &conversation->messages[i];
    const lathe_chars analysis = m->content.bytes > 0 ? m->content : m->reasoning;
    const lathe_chars type = lathe_json_get(m->calls[0].function, "content_type");
    if (analysis.bytes > 0 && !is_answered(conversation, i))
        put_analysis(out, analysis);
    turns_mark(out, " to=functions.");
    turns_text(out, m->calls[0].name);
    turns_mark(out, "<|channel|>commentary ");
    if (type.data != NULL)
        json_put_plain(out, type);
    else
        turns_mark(out, "json");
    turns_mark(out, "<|message|>");
    turns_text(out, m->calls[0].arguments);
    turns_mark(out, "<|call|>");
}

static void put_result(turns_out *out, const lathe_chat_message *m, lathe_chars name)
{
    turns_mark(out, "<|start|>functions.");
    turns_text(out, name);
    turns_mark(out, " to=assistant<|channel|>commentary<|message|>");
    json_put_quoted(out, m->content);
    turns_mark(out, "<|end|>");
}

static void put_final(turns_out *out, const lathe_conversation *conversation, int32_t i)
{
    const lathe_chat_message *m = &conversation->messages[i];
    const int ends = i + 1 == conversation->n_messages && !conversation->prompt;
    if (ends && m->reasoning.data != NULL)
        put_analysis(out, m->reasoning);
    turns_mark(out, "<|channel|>final<|message|>");
    turns_text(out, m->content);
    turns_mark(out, ends ? "<|return|>" : "<|end|>");
}

static void put_answer(turns_out *out, const lathe_conversation *conversation, int32_t i)
{
    out->trained = conversation->is_marked; /* the marks of templates begin here */
    turns_mark(out, "<|start|>assistant");
    out->trained = 1;
    if (conversation->messages[i].n_calls > 0)
        put_call(out, conversation, i);
    else
        put_final(out, conversation, i);
    out->trained = 0;
}

static void put_messages(turns_out *out, const lathe_conversation *conversation)
{
    lathe_chars called = {NULL, 0}; /* the function that was called last */
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        out->message = i;
        if (m->role == LATHE_CHAT_USER) {
            turns_mark(out, "<|start|>user<|message|>");
            turns_text(out, m->content);
            turns_mark(out, "<|end|>");
        } else if (m->role == LATHE_CHAT_ASSISTANT) {
            put_answer(out, conversation, i);
            called = m->n_calls > 0 ? m->calls[0].name : called;
        } else if (m->role == LATHE_CHAT_TOOL) {
            put_result(out, m, called);
        }
    }
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    char *tools = NULL;
    int64_t bytes = 0;
    lathe_status status = check(x, conversation);
    if (status == LATHE_OK)
        status = harmony_tools(x->host, conversation, &tools, &bytes);
    if (status != LATHE_OK)
        return status;
    put_system(&out, conversation, (lathe_chars){tools, bytes});
    free(tools);
    put_messages(&out, conversation);
    out.message = -1;
    if (conversation->prompt)
        turns_mark(&out, "<|start|>assistant");
    return out.status;
}

TURNS_PLUGIN("gpt_oss", 0, "gpt-oss: the harmony format", "chat template of openai/gpt-oss-120b");
