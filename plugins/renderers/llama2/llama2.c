/* Llama 2 Chat: [INST] and <<SYS>>, in plain text. */
#include "shared/turns.h"

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {{.marker = "<<SYS>>"}};
    return turns_score_variants(self, variants, 1, NULL, probe, why, why_bytes);
}

static lathe_status check(const lathe_host *host, const lathe_conversation *conversation,
                          int32_t first)
{
    if (conversation->n_tools > 0)
        return turns_refuse(host, conversation, 0, "the family has no text for tools");
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const lathe_chat_message *m = &conversation->messages[i];
        if (m->content.data == NULL || m->n_calls > 0)
            return turns_refuse(host, conversation, i,
                                "the family needs a content without calls of tools");
        if (i < first)
            continue;
        if (m->role != ((i - first) % 2 == 0 ? LATHE_CHAT_USER : LATHE_CHAT_ASSISTANT))
            return turns_refuse(host, conversation, i,
                                "user and assistant must alternate, user first");
        if (i == first && first == 1 && turns_trim(m->content).bytes == 0)
            return turns_refuse(host, conversation, i, "an empty message after a system message");
    }
    return LATHE_OK;
}

static void put_user(turns_out *out, const lathe_conversation *conversation, int32_t i,
                     int32_t first)
{
    lathe_chars content = turns_trim(conversation->messages[i].content);
    turns_token(out, conversation->bos);
    turns_mark(out, "[INST] ");
    if (i == first && first == 1) {
        const char *begin = conversation->messages[i].content.data;
        turns_mark(out, "<<SYS>>\n");
        turns_text(out, conversation->messages[0].content);
        turns_mark(out, "\n<</SYS>>\n\n");
        /* spaces before the content are within the trimmed text */
        content = (lathe_chars){begin, content.data + content.bytes - begin};
    }
    turns_text(out, content);
    turns_mark(out, " [/INST]");
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    const int32_t first = conversation->messages[0].role == LATHE_CHAT_SYSTEM;
    turns_out out = {.sink = sink};
    const lathe_status status = check(x->host, conversation, first);
    if (status != LATHE_OK)
        return status;
    for (int32_t i = first; i < conversation->n_messages; i++) {
        out.message = i;
        if (conversation->messages[i].role == LATHE_CHAT_USER) {
            put_user(&out, conversation, i, first);
            continue;
        }
        out.trained = 1;
        turns_mark(&out, " ");
        turns_text(&out, turns_trim(conversation->messages[i].content));
        turns_mark(&out, " ");
        turns_token(&out, conversation->eos);
        out.trained = 0;
    }
    return out.status;
}

TURNS_PLUGIN("llama2", LATHE_RENDERER_EXTENDS, "Llama 2 Chat: [INST] and <<SYS>>",
             "chat template of meta-llama/Llama-2-7b-chat-hf");
