/* Writes the samples and events of the report. */
#include <string.h>

#include "base/fs.h"
#include "view/html.h"
#include "view/jsonl_tail.h"
#include "view/report.h"

enum { MAX_SAMPLES = 24, MAX_EVENTS = 100, MAX_TEXT = 4000 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

/* Writes at most MAX_TEXT bytes, cut between characters. */
static void put_cut(const char *text, lathe_buffer *out)
{
    size_t n = strlen(text);
    if (n <= MAX_TEXT) {
        lathe_html_text(out, text);
        return;
    }
    for (n = MAX_TEXT; n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80; n--)
        ;
    lathe_html_text_n(out, text, (int64_t)n);
    lathe_buffer_puts(out, " \xE2\x80\xA6");
}

static lathe_status read_tail(const lathe_run_view *v, const char *name, int32_t keep,
                              lathe_jsonl_tail *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, v->dir, name);
    *out = (lathe_jsonl_tail){0};
    const lathe_status status = path ? lathe_jsonl_tail_read(path, keep, out) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    return status;
}

static void put_more(const lathe_jsonl_tail *tail, const char *name, lathe_buffer *out)
{
    if (tail->n_all <= tail->n && tail->n_bad == 0)
        return;
    lathe_buffer_puts(out, "<p class=\"quiet\">");
    if (tail->n_all > tail->n)
        lathe_html_printf(out, "The last %d of %lld in %s. ", tail->n, (long long)tail->n_all,
                          name);
    if (tail->n_bad > 0)
        lathe_html_printf(out, "Lines of %s that cannot be read: %lld.", name,
                          (long long)tail->n_bad);
    lathe_buffer_puts(out, "</p>\n");
}

lathe_status lathe__report_samples(const lathe_run_view *v, lathe_buffer *out)
{
    lathe_jsonl_tail tail;
    const lathe_status status = read_tail(v, "samples.jsonl", MAX_SAMPLES, &tail);
    if (tail.n > 0 || tail.n_bad > 0)
        lathe_buffer_puts(out, "<section id=\"samples\"><h2>Samples</h2><div class=\"stack\">\n");
    for (int32_t i = tail.n; i-- > 0;) { /* the newest first */
        const json_t *step = json_object_get(tail.items[i], "step");
        lathe_buffer_puts(out, "<div class=\"card\"><h3>");
        if (json_is_integer(step))
            lathe_html_printf(out, "Step %lld", (long long)json_integer_value(step));
        lathe_buffer_puts(out, "</h3><pre><span class=\"prompt\">");
        put_cut(text_of(tail.items[i], "prompt"), out);
        lathe_buffer_puts(out, "</span>");
        put_cut(text_of(tail.items[i], "text"), out);
        lathe_buffer_puts(out, "</pre></div>\n");
    }
    if (tail.n > 0 || tail.n_bad > 0) {
        lathe_buffer_puts(out, "</div>");
        put_more(&tail, "samples.jsonl", out);
        lathe_buffer_puts(out, "</section>\n");
    }
    lathe_jsonl_tail_fini(&tail);
    return status;
}

lathe_status lathe__report_events(const lathe_run_view *v, lathe_buffer *out)
{
    lathe_jsonl_tail tail;
    const lathe_status status = read_tail(v, "events.jsonl", MAX_EVENTS, &tail);
    if (tail.n > 0 || tail.n_bad > 0)
        lathe_buffer_puts(
            out, "<section id=\"warnings\"><h2>Warnings and errors</h2><div class=\"card scroll\">"
                 "<table><tr><th>When</th><th>What</th></tr>\n");
    for (int32_t i = tail.n; i-- > 0;) {
        char date[64];
        const int is_error = strcmp(text_of(tail.items[i], "level"), "error") == 0;
        lathe__report_date(lathe_time_of_text(text_of(tail.items[i], "time")), date, sizeof date);
        lathe_buffer_puts(out, "<tr><td style=\"white-space:nowrap\">");
        lathe_html_text(out, date);
        lathe_buffer_printf(out, "</td><td class=\"%s\">", is_error ? "bad" : "warn");
        put_cut(text_of(tail.items[i], "text"), out);
        lathe_buffer_puts(out, "</td></tr>\n");
    }
    if (tail.n > 0 || tail.n_bad > 0) {
        lathe_buffer_puts(out, "</table>");
        put_more(&tail, "events.jsonl", out);
        lathe_buffer_puts(out, "</div></section>\n");
    }
    lathe_jsonl_tail_fini(&tail);
    return status;
}
