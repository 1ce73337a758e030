/* Mistral of the third tokenizer and Nemo: [INST] as tokens, tools before the last question, the
 * system message in it. */
#include "shared/turns.h"

static const char *const specials[] = {
    "[INST]",       "[/INST]",        "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",   NULL};

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "\"[INST]\" + system_message", .absent = "[SYSTEM_PROMPT]"},
        {.marker = "\"[INST] \" + system_message", .absent = "[SYSTEM_PROMPT]"},
    };
    return turns_score_variants(self, variants, 2, NULL, probe, why, why_bytes);
}

enum { NEMO = 0, V0_3 = 1 };

static lathe_status check(const lathe_host *host, const lathe_conversation *talk, int32_t first)
{
    if (talk->n_tools > 0)
        return turns_refuse(host, talk, 0, "tools are rendered by the template");
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        if (m->content.data == NULL || m->n_calls > 0 || m->role >= LATHE_CHAT_TOOL)
            return turns_refuse(host, talk, i, "calls of tools are rendered by the template");
        if (i >= first &&
            m->role != ((i - first) % 2 == 0 ? LATHE_CHAT_USER : LATHE_CHAT_ASSISTANT))
            return turns_refuse(host, talk, i, "user and assistant must alternate, user first");
    }
    return LATHE_OK;
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    const int32_t first = talk->messages[0].role == LATHE_CHAT_SYSTEM;
    const char *space = x->variant == V0_3 ? " " : "";
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x->host, talk, first);
    if (status != LATHE_OK)
        return status;
    turns_token(&out, talk->bos);
    for (int32_t i = first; i < talk->n_messages; i++) {
        out.message = i;
        if (talk->messages[i].role == LATHE_CHAT_USER) {
            turns_mark(&out, "[INST]");
            turns_mark(&out, space);
            if (first && i + 1 == talk->n_messages) {
                turns_text(&out, talk->messages[0].content);
                turns_mark(&out, "\n\n");
            }
            turns_text(&out, talk->messages[i].content);
            turns_mark(&out, "[/INST]");
            continue;
        }
        out.trained = 1;
        turns_mark(&out, space);
        turns_text(&out, x->variant == V0_3 ? turns_trim(talk->messages[i].content)
                                            : talk->messages[i].content);
        turns_token(&out, talk->eos);
        out.trained = 0;
    }
    return out.status;
}

TURNS_PLUGIN("mistral_v3", 0, "Mistral Instruct v0.3 and Nemo",
             "chat templates of mistralai/Mistral-Nemo-Instruct-2407 and Mistral-7B-Instruct-v0.3");
