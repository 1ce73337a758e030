/* Llama 3, 3.1, 3.2 and 3.3. The later ones put dates into the system message. */
#include "shared/turns.h"

static const char *const specials[] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                                       NULL};
enum { PLAIN = 0, DATED = 1, TODAY = 2 };

static int32_t score(void *self, const lathe_renderer_probe *probe, char *why, int64_t why_bytes)
{
    static const turns_family variants[] = {
        {.marker = "<|start_header_id|>", .absent = "Cutting Knowledge Date"},
        {.marker = "Cutting Knowledge Date", .absent = "strftime_now"},
        {.marker = "Cutting Knowledge Date"},
    };
    return turns_score_variants(self, variants, 3, NULL, probe, why, why_bytes);
}

static lathe_status check(const lathe_host *host, const lathe_conversation *talk)
{
    if (talk->n_tools > 0)
        return turns_refuse(host, talk, 0, "tools are rendered by the template");
    for (int32_t i = 0; i < talk->n_messages; i++) {
        const lathe_chat_message *m = &talk->messages[i];
        if (m->role > LATHE_CHAT_ASSISTANT)
            return turns_refuse(host, talk, i, "this role is rendered by the template");
        if (m->content.data == NULL || m->n_calls > 0)
            return turns_refuse(host, talk, i, "calls of tools are rendered by the template");
    }
    return LATHE_OK;
}

/* The system message with its dates. */
static void put_dated(turns_out *out, const lathe_conversation *talk, int32_t variant)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char day[32] = "26 Jul 2024";
    if (variant == TODAY && talk->month >= 1 && talk->month <= 12)
        snprintf(day, sizeof day, "%02d %s %d", talk->day, months[talk->month - 1], talk->year);
    turns_mark(out, "<|start_header_id|>system<|end_header_id|>\n\n"
                    "Cutting Knowledge Date: December 2023\nToday Date: ");
    turns_mark(out, day);
    turns_mark(out, "\n\n");
    if (talk->messages[0].role == LATHE_CHAT_SYSTEM)
        turns_text(out, turns_trim(talk->messages[0].content));
    turns_mark(out, "<|eot_id|>");
}

static lathe_status render(void *self, const lathe_conversation *talk, const lathe_piece_sink *sink)
{
    static const char *const names[] = {"system", "user", "assistant"};
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x->host, talk);
    if (status != LATHE_OK)
        return status;
    const int is_dated = x->variant != PLAIN;
    turns_token(&out, talk->bos);
    if (is_dated)
        put_dated(&out, talk, x->variant);
    for (int32_t i = is_dated && talk->messages[0].role == LATHE_CHAT_SYSTEM; i < talk->n_messages;
         i++) {
        const lathe_chat_message *m = &talk->messages[i];
        out.message = i;
        turns_mark(&out, "<|start_header_id|>");
        turns_mark(&out, names[m->role]);
        turns_mark(&out, "<|end_header_id|>\n\n");
        out.trained = m->role == LATHE_CHAT_ASSISTANT;
        turns_text(&out, turns_trim(m->content));
        turns_mark(&out, "<|eot_id|>");
        out.trained = 0;
    }
    out.message = -1;
    if (talk->prompt)
        turns_mark(&out, "<|start_header_id|>assistant<|end_header_id|>\n\n");
    return out.status;
}

TURNS_PLUGIN("llama3", LATHE_RENDERER_EXTENDS, "Llama 3, 3.1, 3.2 and 3.3",
             "chat templates of meta-llama/Meta-Llama-3-8B-Instruct and Llama-3.2-3B-Instruct");
