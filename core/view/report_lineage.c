/* Writes the starts and checkpoints of the report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "files/safetensors/manifest.h"
#include "view/html.h"
#include "view/report.h"

enum { SHOWN_ROWS = 10 }; /* rows of a table; earlier rows are folded */

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

/* The part after the last '/'. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_value(const json_t *value, lathe_buffer *out)
{
    if (json_is_string(value)) {
        lathe_html_text(out, json_string_value(value));
        return;
    }
    char *text =
        value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    lathe_html_text(out, text == NULL || strcmp(text, "null") == 0 ? "unset" : text);
    free(text);
}

static void put_changes(const json_t *changed, lathe_buffer *out)
{
    const char *key;
    json_t *change;
    void *at = json_object_iter((json_t *)(uintptr_t)changed);
    for (int n = 0; at; at = json_object_iter_next((json_t *)(uintptr_t)changed, at), n++) {
        key = json_object_iter_key(at);
        change = json_object_iter_value(at);
        lathe_buffer_puts(out, n ? "<br><code>" : "<code>");
        lathe_html_text(out, key);
        lathe_buffer_puts(out, "</code> ");
        put_value(json_object_get(change, "from"), out);
        lathe_buffer_puts(out, " \xE2\x86\x92 ");
        put_value(json_object_get(change, "to"), out);
    }
}

/* Lists where the run went back, and which checkpoints it then no longer compared. */
static void put_branches(const json_t *start, lathe_buffer *out)
{
    const json_t *abandoned = json_object_get(start, "abandoned");
    const json_t *rewinds = json_object_get(start, "rewinds");
    const size_t n = json_array_size(abandoned);
    if (n > 0) {
        lathe_html_printf(out, "branch %lld begins; moved to abandoned/: ",
                          (long long)json_integer_value(json_object_get(start, "branch")));
        for (size_t i = 0; i < n; i++) {
            const char *name = json_string_value(json_array_get(abandoned, i));
            lathe_buffer_puts(out, i ? ", " : "");
            lathe_html_text(out, name ? name : "");
        }
        lathe_buffer_puts(out, "<br>");
    }
    for (size_t i = 0; i < json_array_size(rewinds); i++) {
        const json_t *r = json_array_get(rewinds, i);
        lathe_html_printf(out, "branch %lld: went back to step %lld",
                          (long long)json_integer_value(json_object_get(r, "number")),
                          (long long)json_integer_value(json_object_get(r, "step")));
        lathe_buffer_puts(out, "<br>");
    }
}

static void put_start(const lathe_run_view *v, const json_t *start, int is_last, lathe_buffer *out)
{
    char date[64], length[32];
    const double begun = lathe_time_of_text(text_of(start, "time"));
    const double ended = lathe_time_of_text(text_of(start, "end_time"));
    const char *from = text_of(start, "from"), *end = text_of(start, "end");
    const int32_t pulse = lathe_run_pulse(v);
    lathe__report_date(begun, date, sizeof date);
    lathe_duration_text(ended - begun, length, sizeof length);
    if (!end[0])
        end = is_last ? lathe_run_pulse_text(pulse) : "stopped without a word";
    lathe_buffer_puts(out, "<tr><td data-label=\"When\">");
    lathe_html_text(out, date);
    lathe_buffer_printf(out,
                        "</td><td class=\"n\" data-label=\"At step\">%lld</td>"
                        "<td data-label=\"From\">",
                        (long long)json_integer_value(json_object_get(start, "step")));
    lathe_html_text(out, from[0] ? base_name(from) : "new");
    lathe_buffer_puts(out, "</td><td data-label=\"Ended\">");
    lathe_html_text(out, end);
    if (json_is_integer(json_object_get(start, "end_step")))
        lathe_html_printf(out, " at step %lld",
                          (long long)json_integer_value(json_object_get(start, "end_step")));
    lathe_buffer_puts(out, "</td><td class=\"n\" data-label=\"After\">");
    lathe_html_text(out, length);
    lathe_buffer_puts(out, "</td><td data-label=\"Host\">");
    lathe_html_printf(out, "%.80s", text_of(start, "host"));
    lathe_buffer_puts(out, "</td><td data-label=\"Lathe\">");
    lathe_html_printf(out, "%.40s", text_of(start, "lathe"));
    lathe_buffer_puts(out, "</td><td data-label=\"Changes and messages\">");
    if (json_is_object(json_object_get(start, "changed")))
        put_changes(json_object_get(start, "changed"), out);
    put_branches(start, out);
    if (text_of(start, "message")[0]) {
        lathe_buffer_puts(out, "<div class=\"bad\">");
        lathe_html_text(out, text_of(start, "message"));
        lathe_buffer_puts(out, "</div>");
    }
    lathe_buffer_puts(out, "</td></tr>\n");
}

/* Writes a table of the starts [begin, end). */
static void put_starts(const lathe_run_view *v, const json_t *lineage, size_t begin, size_t end,
                       lathe_buffer *out)
{
    lathe_buffer_puts(
        out, "<table class=\"rows\"><tr><th>When</th><th class=\"n\">At step</th><th>From</th>"
             "<th>Ended</th><th class=\"n\">After</th><th>Host</th><th>Lathe</th>"
             "<th>Changes and messages</th></tr>\n");
    for (size_t i = begin; i < end; i++)
        put_start(v, json_array_get(lineage, i), i + 1 == json_array_size(lineage), out);
    lathe_buffer_puts(out, "</table>");
}

void lathe__report_starts(const lathe_run_view *v, lathe_buffer *out)
{
    const json_t *lineage = lathe_run_view_get(v, "lineage");
    const size_t n = json_array_size(lineage);
    if (n == 0)
        return;
    const size_t n_folded = n > SHOWN_ROWS ? n - SHOWN_ROWS : 0;
    lathe_buffer_puts(out, "<section id=\"starts\"><h2>Starts</h2><div class=\"card scroll\">");
    if (n_folded > 0) {
        lathe_buffer_printf(out, "<details><summary>%zu earlier starts</summary>", n_folded);
        put_starts(v, lineage, 0, n_folded, out);
        lathe_buffer_puts(out, "</details>");
    }
    put_starts(v, lineage, n_folded, n, out);
    lathe_buffer_puts(out, "</div></section>\n");
}

/* Returns 1 if the checkpoint records that it was read back and compared before it got its name. */
static int was_read_back(const char *path)
{
    char *meta = NULL;
    json_t *root = NULL;
    int answer = 0;
    if (lathe_manifest_meta(path, &meta) == LATHE_OK && meta &&
        lathe_json_load("manifest", meta, (int64_t)strlen(meta), &root) == LATHE_OK)
        answer = json_is_true(json_object_get(root, "read_back"));
    json_decref(root);
    free(meta);
    return answer;
}

static void put_verdict(const char *path, int32_t verify, lathe_buffer *out)
{
    if (!verify) {
        lathe_buffer_puts(out, "<span class=\"quiet\">not checked</span>");
    } else if (lathe_manifest_verify(path) == LATHE_OK) {
        lathe_buffer_puts(out, "<span class=\"good\">verified</span>");
        if (was_read_back(path))
            lathe_buffer_puts(out, "<span class=\"quiet\">, read back when written</span>");
    } else {
        lathe_buffer_puts(out, "<span class=\"bad\">");
        lathe_html_text(out, lathe_error_message());
        lathe_buffer_puts(out, "</span>");
    }
    lathe_error_clear();
}

static void put_checkpoint(const lathe_run_view *v, const lathe_checkpoint_view *c, int32_t verify,
                           lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char date[64], size[32], loss[32];
    const char *path = lathe_path_join(&arena, v->dir, c->name);
    lathe__report_date(c->written, date, sizeof date);
    lathe_axis_text((double)c->bytes, 0.0, LATHE_UNIT_BYTES, size, sizeof size);
    lathe_axis_text(c->eval_loss, 0.0, LATHE_UNIT_NONE, loss, sizeof loss);
    lathe_buffer_puts(out, "<tr><td data-label=\"Folder\"><code>");
    lathe_html_text(out, c->name);
    lathe_buffer_puts(out, "</code>");
    if (c->is_best)
        lathe_buffer_puts(out, "<span class=\"tag good\">best</span>");
    if (c->is_latest)
        lathe_buffer_puts(out, "<span class=\"tag quiet\">latest</span>");
    lathe_buffer_printf(out,
                        "</td><td class=\"n\" data-label=\"Step\">%lld</td>"
                        "<td class=\"n\" data-label=\"Validation loss\">%s</td>"
                        "<td data-label=\"Written\">%s</td>",
                        (long long)c->step, loss, date);
    lathe_buffer_printf(out, "<td class=\"n\" data-label=\"Size\">%s</td><td data-label=\"Files\">",
                        size);
    put_verdict(path ? path : "", verify, out);
    lathe_buffer_puts(out, "</td></tr>\n");
    lathe_arena_fini(&arena);
}

/* Returns 1 if the checkpoint is in the unfolded table: the best, the latest and the last ones. */
static int is_shown(const lathe_run_view *v, int64_t i)
{
    const lathe_checkpoint_view *c = &v->checkpoints[i];
    return c->is_best || c->is_latest || i >= v->n_checkpoints - SHOWN_ROWS;
}

static void put_checkpoints(const lathe_run_view *v, int shown, int32_t verify, lathe_buffer *out)
{
    lathe_buffer_puts(out, "<table class=\"rows\"><tr><th>Folder</th><th class=\"n\">Step</th>"
                           "<th class=\"n\">Validation loss</th><th>Written</th>"
                           "<th class=\"n\">Size</th><th>Files</th></tr>\n");
    for (int64_t i = 0; i < v->n_checkpoints; i++)
        if (is_shown(v, i) == shown)
            put_checkpoint(v, &v->checkpoints[i], verify, out);
    lathe_buffer_puts(out, "</table>");
}

void lathe__report_checkpoints(const lathe_run_view *v, int32_t verify, lathe_buffer *out)
{
    int64_t n_folded = 0;
    if (v->n_checkpoints == 0)
        return;
    for (int64_t i = 0; i < v->n_checkpoints; i++)
        n_folded += !is_shown(v, i);
    lathe_buffer_puts(
        out, "<section id=\"checkpoints\"><h2>Checkpoints</h2><div class=\"card scroll\">");
    if (n_folded > 0) {
        lathe_buffer_printf(out, "<details><summary>%lld earlier checkpoints</summary>",
                            (long long)n_folded);
        put_checkpoints(v, 0, verify, out);
        lathe_buffer_puts(out, "</details>");
    }
    put_checkpoints(v, 1, verify, out);
    lathe_buffer_puts(out, "</div></section>\n");
}
