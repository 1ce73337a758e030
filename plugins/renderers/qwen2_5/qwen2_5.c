/* Qwen2.5: ChatML with a default system message, and tools. */
#define TURNS_VERSION "0.2.0" /* calls without a content */

#include "shared/qwen.h"

#define SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {{.marker = SYSTEM}};
    turns_instance *x = self;
    x->may_lack_content = 1;
    return turns_score_variants(self, variants, 1, NULL, probe, why, why_bytes);
}

static void put_system(turns_out *out, const lathe_conversation *conversation)
{
    const lathe_chat_message *first = &conversation->messages[0];
    const int has_system = first->role == LATHE_CHAT_SYSTEM;
    out->message = has_system ? 0 : -1;
    turns_mark(out, "<|im_start|>system\n");
    if (has_system)
        turns_text(out, first->content);
    else
        turns_mark(out, SYSTEM);
    if (conversation->n_tools == 0) {
        turns_mark(out, "<|im_end|>\n");
        return;
    }
    turns_mark(out, "\n\n");
    qwen_tools(out, conversation);
}

static void put_answer(turns_out *out, const lathe_conversation *conversation,
                       const lathe_chat_message *m)
{
    turns_mark(out, "<|im_start|>assistant");
    /* A template that marks what is learnt begins the mark here; others learn what follows the
     * prompt, which ends with the newline. */
    out->trained = conversation->is_marked;
    if (m->content.bytes > 0 || m->n_calls == 0 || conversation->is_marked == 0)
        turns_mark(out, m->content.bytes > 0 || m->n_calls == 0 ? "\n" : "");
    out->trained = 1;
    turns_text(out, m->content);
    for (int32_t i = 0; i < m->n_calls; i++) {
        if (i == 0 && m->content.bytes == 0)
            out->trained = conversation->is_marked;
        turns_mark(out, "\n");
        out->trained = 1;
        qwen_call(out, &m->calls[i], m->calls[i].arguments);
    }
    turns_mark(out, "<|im_end|>\n");
    out->trained = 0;
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = qwen_specials};
    const lathe_status status = qwen_check(x, conversation);
    if (status != LATHE_OK)
        return status;
    put_system(&out, conversation);
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        out.message = i;
        if (m->role == LATHE_CHAT_USER || (m->role == LATHE_CHAT_SYSTEM && i > 0))
            qwen_turn(&out, m);
        else if (m->role == LATHE_CHAT_ASSISTANT)
            put_answer(&out, conversation, m);
        else if (m->role == LATHE_CHAT_TOOL)
            qwen_tool_answer(&out, conversation, i);
    }
    out.message = -1;
    if (conversation->prompt)
        turns_mark(&out, "<|im_start|>assistant\n");
    return out.status;
}

TURNS_PLUGIN("qwen2_5", LATHE_RENDERER_EXTENDS, "Qwen2.5: ChatML with its system message and tools",
             "chat template of Qwen/Qwen2.5-7B-Instruct");
