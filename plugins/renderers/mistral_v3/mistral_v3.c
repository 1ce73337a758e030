/* Mistral of the third tokenizer and Nemo: [INST] as tokens, tools before the last question, the
 * system message in it. */
#define TURNS_VERSION "0.2.0" /* tools */

#include "shared/json_pieces.h"

static const char *const specials[] = {
    "[INST]",       "[/INST]",        "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",   NULL};

enum { NEMO = 0, V0_3 = 1, ID_CHARACTERS = 9 };

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "\"[INST]\" + system_message", .absent = "[SYSTEM_PROMPT]"},
        {.marker = "\"[INST] \" + system_message", .absent = "[SYSTEM_PROMPT]"},
    };
    turns_instance *x = self;
    const int32_t result = turns_score_variants(self, variants, 2, NULL, probe, why, why_bytes);
    x->has_tools = turns_may_write(result, probe, "[AVAILABLE_TOOLS]");
    return result;
}

/* ---- what the family has a text for ---- */

static int is_id(lathe_chars id)
{
    int64_t n = 0;
    for (int64_t i = 0; i < id.bytes; i++)
        n += ((unsigned char)id.data[i] & 0xc0) != 0x80;
    return id.data != NULL && n == ID_CHARACTERS;
}

static const char *why_no_calls(const lathe_chat_message *m)
{
    if (m->role != LATHE_CHAT_ASSISTANT)
        return "only the assistant calls tools";
    for (int32_t i = 0; i < m->n_calls; i++) {
        if (lathe_json_kind(m->calls[i].function) != LATHE_JSON_OBJECT)
            return "a call needs its \"function\"";
        if (!is_id(m->calls[i].id))
            return "the id of a call needs 9 characters";
    }
    return NULL;
}

/* n: messages so far without calls and answers of tools; user and assistant alternate in them. */
static const char *why_not(const turns_instance *x, const lathe_chat_message *m, int32_t *n)
{
    const int uses_tools = m->n_calls > 0 || m->role == LATHE_CHAT_TOOL;
    if (uses_tools && !x->has_tools)
        return "the folder's template has no text for calls of tools";
    if (m->n_calls > 0)
        return why_no_calls(m);
    if (m->content.data == NULL)
        return "the family needs a content";
    if (m->role == LATHE_CHAT_TOOL)
        return is_id(m->call_id) ? NULL : "tool_call_id needs 9 characters";
    return m->role == ((*n)++ % 2 == 0 ? LATHE_CHAT_USER : LATHE_CHAT_ASSISTANT)
               ? NULL
               : "user and assistant must alternate, user first";
}

static lathe_status check(const turns_instance *x, const lathe_conversation *conversation)
{
    const int32_t first = conversation->messages[0].role == LATHE_CHAT_SYSTEM;
    int32_t n = 0;
    if (conversation->n_tools > 0 && !x->has_tools)
        return turns_refuse(x->host, conversation, 0,
                            "the folder's template has no text for tools");
    for (int32_t i = 0; i < conversation->n_tools; i++)
        if (lathe_json_kind(lathe_json_get(conversation->tools[i], "function")) !=
            LATHE_JSON_OBJECT)
            return turns_refuse(x->host, conversation, 0, "a tool needs its \"function\"");
    if (first &&
        (conversation->messages[0].content.data == NULL || conversation->messages[0].n_calls > 0))
        return turns_refuse(x->host, conversation, 0,
                            "the family needs a content without calls of tools");
    for (int32_t i = first; i < conversation->n_messages; i++) {
        const char *why = why_not(x, &conversation->messages[i], &n);
        if (why != NULL)
            return turns_refuse(x->host, conversation, i, why);
    }
    return LATHE_OK;
}

/* ---- the text ---- */

/* A tool's function without "return". Strings are not escaped, as in the template. */
static void put_function(turns_out *out, lathe_chars function)
{
    lathe_json_members it = lathe_json_open(function);
    int is_first = 1;
    turns_mark(out, "{\"type\": \"function\", \"function\": {");
    while (lathe_json_next(&it)) {
        const int is_string = lathe_json_is_string(it.value);
        if (lathe_json_is(it.key, "return"))
            continue;
        turns_mark(out, is_first ? "\"" : ", \"");
        json_put_plain(out, it.key);
        turns_mark(out, is_string ? "\": \"" : "\": ");
        if (is_string)
            json_put_plain(out, it.value);
        else
            turns_text(out, it.value);
        turns_mark(out, is_string ? "\"" : NULL);
        is_first = 0;
    }
    turns_mark(out, "}}");
}

static void put_tools(turns_out *out, const lathe_conversation *conversation, const char *space)
{
    turns_mark(out, "[AVAILABLE_TOOLS]");
    turns_mark(out, space);
    for (int32_t i = 0; i < conversation->n_tools; i++) {
        turns_mark(out, i == 0 ? "[" : ", ");
        put_function(out, lathe_json_get(conversation->tools[i], "function"));
    }
    turns_mark(out, "][/AVAILABLE_TOOLS]");
}

static int is_same(lathe_chars a, lathe_chars b)
{
    if (a.data == NULL || b.data == NULL)
        return a.data == b.data;
    return a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0;
}

/* The tools are before the last question, and before earlier ones that are equal to it. */
static int has_tools(const lathe_conversation *conversation, int32_t i)
{
    const lathe_chat_message *m = &conversation->messages[i], *last = m;
    if (conversation->n_tools == 0)
        return 0;
    for (int32_t k = i + 1; k < conversation->n_messages; k++)
        if (conversation->messages[k].role == LATHE_CHAT_USER)
            last = &conversation->messages[k];
    return is_same(m->content, last->content) && is_same(m->reasoning, last->reasoning) &&
           is_same(m->call_id, last->call_id);
}

static void put_question(turns_out *out, const lathe_conversation *conversation, int32_t i,
                         const char *space)
{
    if (has_tools(conversation, i))
        put_tools(out, conversation, space);
    turns_mark(out, "[INST]");
    turns_mark(out, space);
    if (conversation->messages[0].role == LATHE_CHAT_SYSTEM && i + 1 == conversation->n_messages) {
        turns_text(out, conversation->messages[0].content);
        turns_mark(out, "\n\n");
    }
    turns_text(out, conversation->messages[i].content);
    turns_mark(out, "[/INST]");
}

static void put_calls(turns_out *out, const lathe_chat_message *m, const char *space)
{
    turns_mark(out, "[TOOL_CALLS]");
    turns_mark(out, space);
    for (int32_t i = 0; i < m->n_calls; i++) {
        const lathe_chars function = m->calls[i].function;
        turns_mark(out, i == 0 ? "[" : ", ");
        turns_text(out, turns_cut(function, 0, function.bytes - 1)); /* the id is in its braces */
        turns_mark(out, ", \"id\": \"");
        turns_text(out, m->calls[i].id);
        turns_mark(out, "\"}");
    }
    turns_mark(out, "]");
}

static void put_result(turns_out *out, const lathe_chat_message *m, const char *space)
{
    turns_mark(out, "[TOOL_RESULTS]");
    turns_mark(out, space);
    turns_mark(out, "{\"content\": ");
    turns_text(out, m->content);
    turns_mark(out, ", \"call_id\": \"");
    turns_text(out, m->call_id);
    turns_mark(out, "\"}[/TOOL_RESULTS]");
}

static void put_answer(turns_out *out, const lathe_conversation *conversation,
                       const lathe_chat_message *m, const char *space)
{
    out->trained = 1;
    if (m->n_calls > 0) {
        put_calls(out, m, space);
    } else {
        turns_mark(out, space);
        turns_text(out, *space != '\0' ? turns_trim(m->content) : m->content);
    }
    turns_token(out, conversation->eos);
    out->trained = 0;
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    const char *space = x->variant == V0_3 ? " " : "";
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x, conversation);
    if (status != LATHE_OK)
        return status;
    turns_token(&out, conversation->bos);
    for (int32_t i = conversation->messages[0].role == LATHE_CHAT_SYSTEM;
         i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        out.message = i;
        if (m->role == LATHE_CHAT_USER)
            put_question(&out, conversation, i, space);
        else if (m->role == LATHE_CHAT_ASSISTANT)
            put_answer(&out, conversation, m, space);
        else
            put_result(&out, m, space);
    }
    return out.status;
}

TURNS_PLUGIN("mistral_v3", 0, "Mistral Instruct v0.3 and Nemo",
             "chat templates of mistralai/Mistral-Nemo-Instruct-2407 and Mistral-7B-Instruct-v0.3");
