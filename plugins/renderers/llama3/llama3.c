/* Llama 3, 3.1, 3.2 and 3.3. The later ones put dates into the system message,
 * and tools into the first question. */
#define TURNS_VERSION "0.3.0" /* 3.1 where no template tells which */

#include "shared/json_pieces.h"

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
    turns_instance *x = self;
    const int32_t result = turns_score_variants(self, variants, 3, NULL, probe, why, why_bytes);
    x->has_tools = turns_may_write(result, probe, "tools_in_user_message");
    if (result == LATHE_SCORE_NO)
        x->variant = DATED; /* 3.1: it can write tools, and always the same date */
    return result;
}

static const char no_tools[] = "Llama 3 has no text for tools and calls, 3.1 to 3.3 have";
static const char cut_tools[] = "the folder's template has no text for tools and calls";

static int has_tools(const turns_instance *x)
{
    return x->has_tools && x->variant != PLAIN;
}

static const char *why_not(const turns_instance *x, const lathe_chat_message *m)
{
    const int uses_tools = m->role == LATHE_CHAT_TOOL || m->n_calls > 0;
    if (m->role == LATHE_CHAT_OTHER)
        return "the family has no text for this role";
    if (uses_tools && !has_tools(x))
        return x->variant == PLAIN ? no_tools : cut_tools;
    if (m->n_calls > 1)
        return "the family has one call in a message";
    if (m->n_calls > 0 && (m->role != LATHE_CHAT_ASSISTANT || m->calls[0].function.data == NULL))
        return "a call is the assistant's, and has a \"function\"";
    if (m->n_calls == 0 && m->content.data == NULL)
        return "the family needs a content";
    return NULL;
}

/* The first message after the system's, whose turn also has the tools. */
static int32_t first_of(const lathe_conversation *conversation)
{
    return conversation->messages[0].role == LATHE_CHAT_SYSTEM;
}

static lathe_status check(const turns_instance *x, const lathe_conversation *conversation)
{
    const int32_t first = first_of(conversation);
    if (conversation->n_tools > 0 && !has_tools(x))
        return turns_refuse(x->host, conversation, 0, x->variant == PLAIN ? no_tools : cut_tools);
    if (conversation->n_tools > 0 && (first >= conversation->n_messages ||
                                      conversation->messages[first].role != LATHE_CHAT_USER))
        return turns_refuse(x->host, conversation, 0, "tools need a question as the first message");
    for (int32_t i = 0; i < conversation->n_messages; i++) {
        const char *why = why_not(x, &conversation->messages[i]);
        if (why != NULL)
            return turns_refuse(x->host, conversation, i, why);
    }
    return LATHE_OK;
}

/* The system message with its dates. */
static void put_dated(turns_out *out, const lathe_conversation *conversation, int32_t variant)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char day[32] = "26 Jul 2024";
    if (variant == TODAY && conversation->month >= 1 && conversation->month <= 12)
        snprintf(day, sizeof day, "%02d %s %d", conversation->day, months[conversation->month - 1],
                 conversation->year);
    turns_mark(out, "<|start_header_id|>system<|end_header_id|>\n\n");
    turns_mark(out, conversation->n_tools > 0 ? "Environment: ipython\n" : NULL);
    turns_mark(out, "Cutting Knowledge Date: December 2023\nToday Date: ");
    turns_mark(out, day);
    turns_mark(out, "\n\n");
    if (conversation->messages[0].role == LATHE_CHAT_SYSTEM)
        turns_text(out, turns_trim(conversation->messages[0].content));
    turns_mark(out, "<|eot_id|>");
}

static void put_tools(turns_out *out, const lathe_conversation *conversation)
{
    turns_mark(out, "Given the following functions, please respond with a JSON for a function call "
                    "with its proper arguments that best answers the given prompt.\n\nRespond in "
                    "the format {\"name\": function name, \"parameters\": dictionary of argument "
                    "name and its value}.Do not use variables.\n\n");
    for (int32_t i = 0; i < conversation->n_tools; i++) {
        json_put_lines(out, conversation->tools[i]);
        turns_mark(out, "\n\n");
    }
}

static void put_call(turns_out *out, const lathe_tool_call *call)
{
    turns_mark(out, "{\"name\": \"");
    turns_text(out, call->name);
    turns_mark(out, "\", \"parameters\": ");
    turns_text(out, call->arguments);
    turns_mark(out, "}");
}

static void put_message(turns_out *out, const lathe_conversation *conversation, int32_t i)
{
    static const char *const names[] = {"system", "user", "assistant", "ipython"};
    const lathe_chat_message *m = &conversation->messages[i];
    out->message = i;
    turns_mark(out, "<|start_header_id|>");
    turns_mark(out, names[m->role]);
    turns_mark(out, "<|end_header_id|>\n\n");
    if (i == first_of(conversation) && conversation->n_tools > 0)
        put_tools(out, conversation);
    out->trained = m->role == LATHE_CHAT_ASSISTANT;
    if (m->n_calls > 0)
        put_call(out, &m->calls[0]);
    else if (m->role == LATHE_CHAT_TOOL)
        json_put_quoted(out, m->content);
    else
        turns_text(out, turns_trim(m->content));
    turns_mark(out, "<|eot_id|>");
    out->trained = 0;
}

static lathe_status render(void *self, const lathe_conversation *conversation,
                           const lathe_piece_sink *sink)
{
    const turns_instance *x = self;
    turns_out out = {.sink = sink, .specials = specials, .message = -1};
    const lathe_status status = check(x, conversation);
    if (status != LATHE_OK)
        return status;
    const int is_dated = x->variant != PLAIN;
    turns_token(&out, conversation->bos);
    if (is_dated)
        put_dated(&out, conversation, x->variant);
    for (int32_t i = is_dated ? first_of(conversation) : 0; i < conversation->n_messages; i++)
        put_message(&out, conversation, i);
    out.message = -1;
    if (conversation->prompt)
        turns_mark(&out, "<|start_header_id|>assistant<|end_header_id|>\n\n");
    return out.status;
}

TURNS_PLUGIN("llama3", LATHE_RENDERER_EXTENDS, "Llama 3, 3.1, 3.2 and 3.3",
             "chat templates of meta-llama/Meta-Llama-3-8B-Instruct and Llama-3.2-3B-Instruct");
