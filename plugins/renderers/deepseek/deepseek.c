/* DeepSeek V3, V3.1 and the distilled R1 models. Earlier answers lose their thinking. */
#include "shared/turns.h"

static const char *const specials[] = {"<\xef\xbd\x9cUser\xef\xbd\x9c>",
                                       "<\xef\xbd\x9c"
                                       "Assistant\xef\xbd\x9c>",
                                       "<\xef\xbd\x9c"
                                       "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                       NULL};
/* R1_KEEPS: a template for training that keeps the thinking. */
enum { R1_KEEPS = 0, R1 = 1, V3 = 2, V3_1 = 3 };

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "always render the reasoning", .absent = "split('</think>')"},
        {.marker = "<\xef\xbd\x9cUser\xef\xbd\x9c>", .absent = "is_first_sp"},
        {.marker = "<\xef\xbd\x9cUser\xef\xbd\x9c>", .absent = "is_last_user"},
        {.marker = "<\xef\xbd\x9cUser\xef\xbd\x9c>"},
    };
    return turns_score_variants(self, variants, 4, NULL, probe, why, why_bytes);
}

static lathe_status check(const lathe_host *host, const lathe_conversation *talk, int32_t variant)
{
    if (talk->n_tools > 0)
        return turns_refuse(host, talk, 0, "tools are rendered by the template");
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        if (m->content.data == NULL || m->n_calls > 0 || m->role >= LATHE_CHAT_TOOL)
            return turns_refuse(host, talk, i, "calls of tools are rendered by the template");
        if (variant == V3_1 && m->role == LATHE_CHAT_ASSISTANT && talk->thinking == 1)
            return turns_refuse(host, talk, i, "thinking is rendered by the template");
    }
    return LATHE_OK;
}

/* R1 uses the last system message, V3 and V3.1 all of them. */
static void put_system(turns_out *out, const lathe_conversation *talk, int32_t variant)
{
    int32_t last = -1;
    for (int32_t i = 0; i < talk->n_messages; i++) {
        if (talk->messages[i].role != LATHE_CHAT_SYSTEM)
            continue;
        if (variant >= V3) {
            out->message = i;
            turns_mark(out, last >= 0 ? "\n\n" : "");
            turns_text(out, talk->messages[i].content);
        }
        last = i;
    }
    if (variant >= V3 || last < 0)
        return;
    out->message = last;
    turns_text(out, talk->messages[last].content);
}

/* The answer, in most variants without its thinking. */
static lathe_chars answer_of(lathe_chars content, int32_t variant)
{
    if (variant == R1_KEEPS)
        return content;
    const int64_t at = turns_find(content, "</think>", variant != V3_1);
    return at < 0 ? content : turns_cut(content, at + 8, content.bytes);
}

static void put_answer(turns_out *out, const lathe_conversation *talk, int32_t i, int32_t variant)
{
    int32_t before = i - 1;
    while (before >= 0 && talk->messages[before].role == LATHE_CHAT_SYSTEM)
        before--;
    const int after_user = before >= 0 && talk->messages[before].role == LATHE_CHAT_USER;
    out->trained = talk->is_marked; /* TRL's templates for training mark the header too */
    if (variant != V3_1 || after_user)
        turns_mark(out, specials[1]);
    if (variant == V3_1 && after_user)
        turns_mark(out, "<think></think>");
    out->trained = 1;
    turns_text(out, answer_of(talk->messages[i].content, variant));
    turns_mark(out, specials[2]);
    out->trained = 0;
}

static void put_prompt(turns_out *out, const lathe_conversation *talk, int32_t variant)
{
    int32_t last = talk->n_messages - 1;
    while (last >= 0 && talk->messages[last].role == LATHE_CHAT_SYSTEM)
        last--;
    if (variant == V3_1 && (last < 0 || talk->messages[last].role != LATHE_CHAT_USER))
        return;
    turns_mark(out, specials[1]);
    if (variant != V3_1)
        turns_mark(out, "<think>\n");
    else
        turns_mark(out, talk->thinking == 1 ? "<think>" : "<think></think>");
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x->host, talk, x->variant);
    if (status != LATHE_OK)
        return status;
    turns_token(&out, talk->bos);
    put_system(&out, talk, x->variant);
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        out.message = i;
        if (m->role == LATHE_CHAT_USER) {
            turns_mark(&out, specials[0]);
            turns_text(&out, m->content);
        } else if (m->role == LATHE_CHAT_ASSISTANT) {
            put_answer(&out, talk, i, x->variant);
        }
    }
    out.message = -1;
    if (talk->prompt)
        put_prompt(&out, talk, x->variant);
    return out.status;
}

TURNS_PLUGIN("deepseek", 0, "DeepSeek V3, V3.1 and distilled R1",
             "chat templates of deepseek-ai/DeepSeek-V3.1 and DeepSeek-R1-Distill-Llama-8B");
