/* Shared by the ChatML templates of Qwen: tools in the system message, calls of tools, and their
 * answers as a user's turn. */
#ifndef LATHE_RENDERERS_SHARED_QWEN_H
#define LATHE_RENDERERS_SHARED_QWEN_H

#include "shared/turns.h"

static const char *const qwen_specials[] = {"<|im_start|>", "<|im_end|>", NULL};

static const char qwen_tools_begin[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
static const char qwen_tools_end[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";

/** The list of tools, which ends the system message. */
static inline void qwen_tools(turns_out *out, const lathe_conversation *conversation)
{
    turns_mark(out, qwen_tools_begin);
    for (int32_t i = 0; i < conversation->n_tools; i++) {
        turns_mark(out, "\n");
        turns_text(out, conversation->tools[i]);
    }
    turns_mark(out, qwen_tools_end);
}

/** A user's or a later system message. */
static inline void qwen_turn(turns_out *out, const lathe_chat_message *m)
{
    turns_mark(out, m->role == LATHE_CHAT_USER ? "<|im_start|>user\n" : "<|im_start|>system\n");
    turns_text(out, m->content);
    turns_mark(out, "<|im_end|>\n");
}

/** A tool's answer; answers that follow each other share a turn. */
static inline void qwen_tool_answer(turns_out *out, const lathe_conversation *conversation,
                                    int32_t i)
{
    if (i == 0 || conversation->messages[i - 1].role != LATHE_CHAT_TOOL)
        turns_mark(out, "<|im_start|>user");
    turns_mark(out, "\n<tool_response>\n");
    turns_text(out, conversation->messages[i].content);
    turns_mark(out, "\n</tool_response>");
    if (i + 1 == conversation->n_messages || conversation->messages[i + 1].role != LATHE_CHAT_TOOL)
        turns_mark(out, "<|im_end|>\n");
}

/** One call, from its tag to its tag. */
static inline void qwen_call(turns_out *out, const lathe_tool_call *call, lathe_chars arguments)
{
    turns_mark(out, "<tool_call>\n{\"name\": \"");
    turns_text(out, call->name);
    turns_mark(out, "\", \"arguments\": ");
    turns_text(out, arguments);
    turns_mark(out, "}\n</tool_call>");
}

/** Refuses roles that Qwen does not have, and messages without content. */
static inline lathe_status qwen_check(const turns_instance *x,
                                      const lathe_conversation *conversation)
{
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        const int calls = m->role == LATHE_CHAT_ASSISTANT && m->n_calls > 0;
        if (m->role == LATHE_CHAT_OTHER)
            return turns_refuse(x->host, conversation, i, "the family has no such role");
        if (m->content.data == NULL && !(calls && x->may_lack_content))
            return turns_refuse(x->host, conversation, i, "the family needs a content");
    }
    return LATHE_OK;
}

#endif
