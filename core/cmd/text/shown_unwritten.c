/* Tells what the chat template does not write of the conversations that are shown. */
#include "cmd/text/shown_unwritten.h"

static void count(lathe_record_count *c, int found, int64_t line)
{
    if (found && c->n++ == 0)
        c->first = line;
}

lathe_status lathe_shown_unwritten_add(lathe_shown_unwritten *counts,
                                       const lathe_chat_template *chat, const lathe_chat *what,
                                       const lathe_rendering *text, int64_t n_learnt, int64_t line,
                                       lathe_chat_unwritten *out)
{
    *out = (lathe_chat_unwritten){0};
    LATHE_TRY(lathe_chat_find_unwritten(chat, what, text, 0, out));
    const int is_used = n_learnt > 0 && !out->empty_answer;
    count(&counts->left, out->empty_answer, line);
    count(&counts->unwritten[LATHE_UNWRITTEN_CALLS], out->calls && is_used, line);
    count(&counts->unwritten[LATHE_UNWRITTEN_TOOLS], out->tools && is_used, line);
    count(&counts->unwritten[LATHE_UNWRITTEN_DOCUMENTS], out->documents && is_used, line);
    return LATHE_OK;
}

void lathe_shown_unwritten_put(const lathe_chat_unwritten *found, int as_json, lathe_buffer *out)
{
    const int32_t has[LATHE_N_UNWRITTEN] = {[LATHE_UNWRITTEN_CALLS] = found->calls,
                                            [LATHE_UNWRITTEN_TOOLS] = found->tools,
                                            [LATHE_UNWRITTEN_DOCUMENTS] = found->documents};
    const char *quote = as_json ? "\"" : "";
    int n = 0;
    for (int32_t what = 0; what < LATHE_N_UNWRITTEN; what++) {
        if (!has[what])
            continue;
        lathe_buffer_puts(out, n++ ? ", " : as_json ? ", \"unwritten\": [" : "; not written: ");
        lathe_buffer_printf(out, "%s%s%s", quote, lathe_unwritten_name(what), quote);
    }
    lathe_buffer_puts(out, n > 0 && as_json ? "]" : "");
    if (found->empty_answer && as_json)
        lathe_buffer_printf(out, ", \"left_out\": \"%s\"", lathe_left_name(LATHE_LEFT_CALLS));
    else if (found->empty_answer)
        lathe_buffer_puts(out, ", so training leaves it out");
}

/* Appends the place of the first conversation, and the end of the line. */
static void put_place(const lathe_record_count *c, const char *name, lathe_buffer *out)
{
    lathe_buffer_printf(out, ": %s:%lld%s\n", name, (long long)c->first, c->n > 1 ? ", ..." : "");
}

void lathe_shown_unwritten_sum(const lathe_shown_unwritten *counts, const char *name,
                               lathe_buffer *out)
{
    if (counts->left.n > 0) {
        lathe_buffer_puts(out, "lathe chat-template: training leaves out: ");
        lathe_left_put_number(LATHE_LEFT_CALLS, counts->left.n, out);
        put_place(&counts->left, name, out);
    }
    for (int32_t what = 0; what < LATHE_N_UNWRITTEN; what++) {
        if (counts->unwritten[what].n == 0)
            continue;
        lathe_buffer_puts(out, "lathe chat-template: ");
        lathe_unwritten_put_number(what, counts->unwritten[what].n, out);
        put_place(&counts->unwritten[what], name, out);
    }
}
