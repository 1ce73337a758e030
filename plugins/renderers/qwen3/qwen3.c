/* Qwen3: ChatML with tools; answers after the last question begin with their thinking, earlier ones
 * lose it. The templates of July 2025 (2507, Instruct) have no thinking. */
#define TURNS_VERSION "0.2.0" /* calls without a content */

#include "shared/qwen.h"

enum { THINKS = 0, INSTRUCT = 1, KEEPS = 2 };

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "last_query_index %}", .absent = "Qwen, created"},
        {.marker = "within <tools></tools>", .absent = "think>"},
        {.marker = "prefix-preserving", .absent = "Qwen, created"},
    };
    const int32_t result = turns_score_variants(self, variants, 3, NULL, probe, why, why_bytes);
    turns_instance *x = self;
    x->may_lack_content = turns_may_write(result, probe, "message.content is string");
    if (result != LATHE_SCORE_NO && turns_has(probe->template_text, "always include thinking"))
        x->variant = KEEPS;
    return result;
}

static int begins_with(lathe_chars text, const char *part)
{
    const int64_t n = (int64_t)strlen(part);
    return text.bytes >= n && memcmp(text.data, part, (size_t)n) == 0;
}

static int ends_with(lathe_chars text, const char *part)
{
    const int64_t n = (int64_t)strlen(part);
    return text.bytes >= n && memcmp(text.data + text.bytes - n, part, (size_t)n) == 0;
}

/* The last message of the user that is no answer of a tool in disguise. */
static int32_t last_query(const lathe_conversation *conversation)
{
    for (int32_t i = conversation->n_messages - 1; i >= 0; i--) {
        const lathe_chat_message *m = &conversation->messages[i];
        if (m->role == LATHE_CHAT_USER && !(begins_with(m->content, "<tool_response>") &&
                                            ends_with(m->content, "</tool_response>")))
            return i;
    }
    return conversation->n_messages - 1;
}

/* Thinking and answer of a message: two members, or one content with </think> in it. */
static void split(const lathe_chat_message *m, lathe_chars *thinking, lathe_chars *answer)
{
    const lathe_chars content = m->content;
    *thinking = m->reasoning;
    *answer = content;
    if (m->reasoning.data != NULL || !turns_has(content, "</think>"))
        return;
    const int64_t first = turns_find(content, "</think>", 0);
    const int64_t last = turns_find(content, "</think>", 1);
    lathe_chars before = turns_strip_newlines(turns_cut(content, 0, first), 2);
    const int64_t open = turns_find(before, "<think>", 1);
    if (open >= 0)
        before = turns_cut(before, open + 7, before.bytes);
    *thinking = turns_strip_newlines(before, 1);
    *answer = turns_strip_newlines(turns_cut(content, last + 8, content.bytes), 1);
}

static void put_calls(turns_out *out, const lathe_chat_message *m, int has_content)
{
    for (int32_t i = 0; i < m->n_calls; i++) {
        const lathe_tool_call *call = &m->calls[i];
        if (has_content || i > 0)
            turns_mark(out, "\n");
        qwen_call(out, call, call->arguments_text.data ? call->arguments_text : call->arguments);
    }
}

static void put_answer(turns_out *out, const lathe_conversation *conversation, int32_t variant,
                       int32_t i, int32_t query)
{
    const lathe_chat_message *m = &conversation->messages[i];
    lathe_chars thinking = m->reasoning, answer = m->content;
    if (variant != INSTRUCT)
        split(m, &thinking, &answer);
    const int is_last = i + 1 == conversation->n_messages;
    const int shows =
        variant == KEEPS || (variant == THINKS && i > query && (is_last || thinking.bytes > 0));
    const int has_content = answer.bytes > 0;
    turns_mark(out, "<|im_start|>assistant\n");
    out->trained = 1;
    if (shows) {
        turns_mark(out, "<think>\n");
        turns_text(out, turns_strip_newlines(thinking, 3));
        turns_mark(out, "\n</think>\n\n");
        answer = turns_strip_newlines(answer, 1);
    }
    turns_text(out, answer);
    put_calls(out, m, has_content);
    turns_mark(out, "<|im_end|>\n");
    out->trained = 0;
}

static void put_system(turns_out *out, const lathe_conversation *conversation)
{
    const lathe_chat_message *first = &conversation->messages[0];
    const int has_system = first->role == LATHE_CHAT_SYSTEM;
    out->message = has_system ? 0 : -1;
    if (!has_system && conversation->n_tools == 0)
        return;
    turns_mark(out, "<|im_start|>system\n");
    if (has_system)
        turns_text(out, first->content);
    if (conversation->n_tools == 0) {
        turns_mark(out, "<|im_end|>\n");
        return;
    }
    if (has_system)
        turns_mark(out, "\n\n");
    qwen_tools(out, conversation);
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = qwen_specials};
    const lathe_status status = qwen_check(x, conversation);
    if (status != LATHE_OK)
        return status;
    const int32_t query = last_query(conversation);
    put_system(&out, conversation);
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        out.message = i;
        if (m->role == LATHE_CHAT_USER || (m->role == LATHE_CHAT_SYSTEM && i > 0))
            qwen_turn(&out, m);
        else if (m->role == LATHE_CHAT_ASSISTANT)
            put_answer(&out, conversation, x->variant, i, query);
        else if (m->role == LATHE_CHAT_TOOL)
            qwen_tool_answer(&out, conversation, i);
    }
    out.message = -1;
    if (conversation->prompt)
        turns_mark(&out, "<|im_start|>assistant\n");
    if (conversation->prompt && conversation->thinking == 0 && x->variant != INSTRUCT)
        turns_mark(&out, "<think>\n\n</think>\n\n");
    return out.status;
}

TURNS_PLUGIN("qwen3", 0, "Qwen3: ChatML with tools, with and without thinking",
             "chat templates of Qwen/Qwen3-0.6B and Qwen/Qwen3-4B-Instruct-2507");
