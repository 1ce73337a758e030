/* gpt-oss: the harmony format. Only the last answer of a text for training keeps its analysis. */
#include "shared/turns.h"

static const char *const specials[] = {"<|start|>",   "<|end|>",    "<|message|>",
                                       "<|channel|>", "<|return|>", NULL};

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {{.marker = "<|start|>system<|message|>"}};
    return turns_score_variants(self, variants, 1, NULL, probe, why, why_bytes);
}

static lathe_status check(const lathe_host *host, const lathe_conversation *talk)
{
    if (talk->n_tools > 0)
        return turns_refuse(host, talk, 0, "tools are rendered by the template");
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        if (m->content.data == NULL || m->n_calls > 0 || m->role >= LATHE_CHAT_TOOL)
            return turns_refuse(host, talk, i, "calls of tools are rendered by the template");
        if (m->role == LATHE_CHAT_SYSTEM && i > 0)
            return turns_refuse(host, talk, i, "only the first message may be the system's");
        if (turns_has(m->content, "<|channel|>") || turns_has(m->reasoning, "<|channel|>"))
            return turns_refuse(host, talk, i, "<|channel|> in a message");
    }
    return LATHE_OK;
}

static void put_system(turns_out *out, const lathe_conversation *talk)
{
    char day[32];
    const lathe_chat_message *first = &talk->messages[0];
    snprintf(day, sizeof day, "%04d-%02d-%02d", talk->year, talk->month, talk->day);
    turns_mark(out, "<|start|>system<|message|>You are ChatGPT, a large language model trained by "
                    "OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ");
    turns_mark(out, day);
    turns_mark(out,
               "\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel "
               "must be included for every message.<|end|>");
    if (first->role != LATHE_CHAT_SYSTEM || first->content.bytes == 0)
        return;
    out->message = 0;
    turns_mark(out, "<|start|>developer<|message|># Instructions\n\n");
    turns_text(out, first->content);
    turns_mark(out, "\n\n<|end|>");
}

static void put_answer(turns_out *out, const lathe_conversation *talk, const lathe_chat_message *m,
                       int is_last)
{
    const int ends = is_last && !talk->prompt;
    out->trained = talk->is_marked; /* the marks of templates begin here */
    turns_mark(out, "<|start|>assistant");
    out->trained = 1;
    if (ends && m->reasoning.data != NULL) {
        turns_mark(out, "<|channel|>analysis<|message|>");
        turns_text(out, m->reasoning);
        turns_mark(out, "<|end|><|start|>assistant");
    }
    turns_mark(out, "<|channel|>final<|message|>");
    turns_text(out, m->content);
    turns_mark(out, ends ? "<|return|>" : "<|end|>");
    out->trained = 0;
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x->host, talk);
    if (status != LATHE_OK)
        return status;
    put_system(&out, talk);
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        out.message = i;
        if (m->role == LATHE_CHAT_USER) {
            turns_mark(&out, "<|start|>user<|message|>");
            turns_text(&out, m->content);
            turns_mark(&out, "<|end|>");
        } else if (m->role == LATHE_CHAT_ASSISTANT) {
            put_answer(&out, talk, m, i + 1 == talk->n_messages);
        }
    }
    out.message = -1;
    if (talk->prompt)
        turns_mark(&out, "<|start|>assistant");
    return out.status;
}

TURNS_PLUGIN("gpt_oss", 0, "gpt-oss: the harmony format", "chat template of openai/gpt-oss-120b");
