/* Writes plan, configuration, plugins and machine of the report, from run.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "view/html.h"
#include "view/report.h"
#include "view/svg_plot.h"

/* jansson's iterators need a writable object. */
static json_t *writable(const json_t *value)
{
    return (json_t *)(uintptr_t)value;
}

static void put_value(const json_t *value, lathe_buffer *out)
{
    if (json_is_string(value)) {
        lathe_html_text(out, json_string_value(value));
        return;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    lathe_html_text(out, text);
    free(text);
}

static void put_memory(const lathe_run_view *v, lathe_buffer *out)
{
    json_t *memory = writable(lathe_run_view_get(v, "plan.memory"));
    const double total = lathe_run_view_number(v, "plan.memory_bytes");
    const char *name;
    json_t *bytes;
    int i = 0;
    char text[32];
    lathe_axis_text(total, 0.0, LATHE_UNIT_BYTES, text, sizeof text);
    lathe_buffer_printf(
        out, "<div class=\"card wide\"><h3>Memory, %s at most</h3><div class=\"bar\">", text);
    json_object_foreach(memory, name, bytes) lathe_buffer_printf(
        out, "<i style=\"width:%.2f%%;background:var(--c%d)\"></i>",
        total > 0.0 ? 100.0 * json_number_value(bytes) / total : 0.0, i++ % LATHE_SVG_COLORS);
    lathe_buffer_puts(out, "</div><table>\n");
    i = 0;
    json_object_foreach(memory, name, bytes)
    {
        const double n = json_number_value(bytes);
        lathe_axis_text(n, 0.0, LATHE_UNIT_BYTES, text, sizeof text);
        lathe_buffer_printf(
            out, "<tr><td><span class=\"swatch\" style=\"background:var(--c%d)\"></span>",
            i++ % LATHE_SVG_COLORS);
        lathe_html_text(out, name);
        lathe_buffer_printf(out,
                            "</td><td class=\"n\">%s</td><td class=\"n quiet\">%.1f%%</td></tr>\n",
                            text, total > 0.0 ? 100.0 * n / total : 0.0);
    }
    lathe_buffer_puts(out, "</table></div>\n");
}

/* Writes a row of two cells, or nothing if the number is missing. The letter of its size is added
 * to the unit: 14.5 GFLOP. */
static void put_number(const lathe_run_view *v, const char *name, const char *path,
                       const char *unit, lathe_buffer *out)
{
    const double value = lathe_run_view_number(v, path);
    char text[32], size[2] = "";
    if (!isfinite(value))
        return;
    lathe_axis_text(value, 0.0, unit[0] ? LATHE_UNIT_NONE : LATHE_UNIT_COUNT, text, sizeof text);
    const size_t n = strlen(text);
    if (unit[0] && n > 0 && lathe_is_one_of(text[n - 1], "kMGTP")) {
        size[0] = text[n - 1];
        text[n - 1] = '\0';
    }
    lathe_buffer_puts(out, "<tr><td>");
    lathe_html_text(out, name);
    lathe_buffer_puts(out, "</td><td class=\"n\">");
    lathe_html_printf(out, "%s%s%s%s", text, unit[0] ? " " : "", size, unit);
    lathe_buffer_puts(out, "</td></tr>\n");
}

void lathe__report_plan(const lathe_run_view *v, lathe_buffer *out)
{
    if (lathe_run_view_get(v, "plan") == NULL)
        return;
    lathe_buffer_puts(out, "<section id=\"plan\"><h2>Plan</h2><div class=\"grid\">\n");
    put_memory(v, out);
    lathe_buffer_puts(out, "<div class=\"card\"><h3>Model</h3><table>\n");
    put_number(v, "parameters", "model.parameters", "", out);
    put_number(v, "trained", "model.trained_parameters", "", out);
    put_number(v, "layers", "model.layers", "", out);
    put_number(v, "width", "model.width", "", out);
    put_number(v, "heads", "model.heads", "", out);
    put_number(v, "key and value heads", "model.kv_heads", "", out);
    put_number(v, "vocabulary", "model.vocab", "", out);
    lathe_buffer_puts(out, "</table></div>\n<div class=\"card\"><h3>Work</h3><table>\n");
    put_number(v, "a step", "plan.flops_per_step", "FLOP", out);
    put_number(v, "tokens of a step", "plan.tokens_per_step", "", out);
    put_number(v, "nodes of the graph", "plan.nodes", "", out);
    put_number(v, "peak, measured at the start", "plan.peak_flops", "FLOP/s", out);
    lathe_buffer_puts(out, "<tr><td>attention</td><td class=\"n\">");
    lathe_html_text(out, lathe_run_view_text(v, "attention"));
    lathe_buffer_puts(out, "</td></tr><tr><td>precision</td><td class=\"n\">");
    lathe_html_text(out, lathe_run_view_text(v, "precision.used"));
    lathe_buffer_puts(out, "</td></tr></table></div>\n</div></section>\n");
}

static void put_plugins(const lathe_run_view *v, lathe_buffer *out)
{
    const json_t *plugins = lathe_run_view_get(v, "plugins");
    if (json_array_size(plugins) == 0)
        return;
    lathe_buffer_puts(out, "<section id=\"plugins\"><h2>Plugins</h2><div class=\"card "
                           "scroll\"><table><tr><th>Kind</th>"
                           "<th>Name</th><th>Version</th><th>SHA-256</th></tr>\n");
    for (size_t i = 0; i < json_array_size(plugins); i++) {
        const json_t *p = json_array_get(plugins, i);
        static const char *const keys[] = {"kind", "name", "version", "sha256"};
        lathe_buffer_puts(out, "<tr>");
        for (int k = 0; k < 4; k++) {
            lathe_buffer_puts(out, k == 3 ? "<td><code>" : "<td>");
            lathe_html_text(out, json_string_value(json_object_get(p, keys[k])));
            lathe_buffer_puts(out, k == 3 ? "</code></td>" : "</td>");
        }
        lathe_buffer_puts(out, "</tr>\n");
    }
    lathe_buffer_puts(out, "</table></div></section>\n");
}

static void put_keys(const char *title, const json_t *table, lathe_buffer *out)
{
    const char *key;
    json_t *value;
    if (json_object_size(table) == 0)
        return;
    lathe_buffer_puts(out, "<div class=\"card\"><h3>");
    lathe_html_text(out, title);
    lathe_buffer_puts(out, "</h3><table>\n");
    json_object_foreach(writable(table), key, value)
    {
        lathe_buffer_puts(out, "<tr><td>");
        lathe_html_text(out, key);
        lathe_buffer_puts(out, "</td><td><code>");
        put_value(value, out);
        lathe_buffer_puts(out, "</code></td></tr>\n");
    }
    lathe_buffer_puts(out, "</table></div>\n");
}

void lathe__report_setup(const lathe_run_view *v, lathe_buffer *out)
{
    const char *name;
    json_t *table;
    json_t *config = writable(lathe_run_view_get(v, "config"));
    put_plugins(v, out);
    if (lathe_run_view_get(v, "machine")) {
        lathe_buffer_puts(out, "<section id=\"machine\"><h2>Machine</h2><div class=\"keys\">\n");
        put_keys("of the last start", lathe_run_view_get(v, "machine"), out);
        lathe_buffer_puts(out, "</div></section>\n");
    }
    if (json_object_size(config) == 0)
        return;
    lathe_buffer_puts(out,
                      "<section id=\"configuration\"><h2>Configuration</h2><div class=\"keys\">\n");
    json_object_foreach(config, name, table) put_keys(name, table, out);
    lathe_buffer_puts(out, "</div></section>\n");
}
