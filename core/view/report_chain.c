/* Draws the chain of the report: the latest checkpoint, and what it was made of, down to the first
 * weights. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/lineage/lineage.h"
#include "view/html.h"
#include "view/report.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

/* The last two parts of a path: "sft/step-00000010". */
static const char *short_name(const char *path)
{
    const char *at = path + strlen(path);
    for (int slashes = 0; at > path; at--)
        if (at[-1] == '/' && ++slashes == 2)
            break;
    return at;
}

static void put_tag(const char *class, const char *text, lathe_buffer *out)
{
    lathe_buffer_printf(out, "<span class=\"tag %s\">%s</span>", class, text);
}

static void put_damage(const json_t *list, lathe_buffer *out)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        lathe_buffer_puts(out, "<div class=\"bad\">");
        lathe_html_text(out, json_string_value(json_array_get(list, i)));
        lathe_buffer_puts(out, "</div>");
    }
}

/* "dpo, lora over frozen weights; data: 3 files, 1.2 M tokens" */
static void put_made_by(const json_t *node, lathe_buffer *out)
{
    const char *stage = text_of(json_object_get(node, "stage"), "name");
    const char *adapter = text_of(json_object_get(node, "adapter"), "name");
    const json_t *data = json_object_get(node, "data");
    const json_t *files = json_object_get(data, "files");
    lathe_buffer_puts(out, "<div>");
    lathe_html_printf(out, "stage %s", stage);
    if (adapter[0] && strcmp(adapter, "full") != 0)
        lathe_html_printf(out, ", adapter %s", adapter);
    if (json_is_object(data))
        lathe_html_printf(out, "; %lld tokens of ",
                          (long long)json_integer_value(json_object_get(data, "tokens")));
    for (size_t i = 0; i < json_array_size(files) && i < 4; i++)
        lathe_html_printf(out, "%s%s", i ? ", " : "",
                          short_name(text_of(json_array_get(files, i), "path")));
    if (json_array_size(files) > 4)
        lathe_html_printf(out, " and %lld more files",
                          (long long)json_integer_value(json_object_get(data, "n_files")) - 4);
    lathe_buffer_puts(out, "</div>");
    put_damage(json_object_get(data, "damage"), out);
}

static void put_state(const json_t *node, lathe_buffer *out)
{
    const char *state = text_of(node, "state");
    if (strcmp(text_of(node, "kind"), "checkpoint") != 0)
        put_tag("quiet", "first weights", out);
    else if (strcmp(state, "whole") == 0)
        put_tag("good", "verified", out);
    else if (strcmp(state, "damaged") == 0)
        put_tag("bad", "changed", out);
    else
        put_tag("quiet", "not checked", out);
}

static void put_parents(const json_t *node, lathe_buffer *out);

static void put_node(const json_t *node, lathe_buffer *out)
{
    const char *path = text_of(node, "path");
    lathe_buffer_puts(out, "<div class=\"card\"><b>");
    lathe_html_text(out, short_name(path));
    lathe_buffer_puts(out, "</b>");
    put_state(node, out);
    if (json_is_object(json_object_get(node, "stage")))
        put_made_by(node, out);
    if (text_of(node, "made_by")[0])
        lathe_html_printf(out, "<div>made by lathe %s</div>", text_of(node, "made_by"));
    lathe_buffer_puts(out, "<div class=\"quiet\"><code>");
    lathe_html_text(out, path);
    lathe_buffer_puts(out, "</code></div>");
    put_damage(json_object_get(node, "damage"), out);
    lathe_buffer_puts(out, "</div>\n");
    put_parents(node, out);
}

/* An arrow up to the node that was made from this one, with its roles there. */
static void put_arrow(const json_t *child, const json_t *parent, lathe_buffer *out)
{
    const json_t *roles = json_object_get(parent, "roles");
    lathe_buffer_puts(out, "<div class=\"quiet\">\xE2\x86\x91 ");
    for (size_t i = 0; i < json_array_size(roles); i++) {
        const char *role = json_string_value(json_array_get(roles, i));
        lathe_html_printf(out, "%s%s", i ? ", " : "", role ? role : "?");
    }
    lathe_html_printf(out, " of %s", short_name(text_of(child, "path")));
    lathe_buffer_puts(out, "</div>\n");
}

static void put_parents(const json_t *node, lathe_buffer *out)
{
    const json_t *list = json_object_get(node, "parents");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *parent = json_array_get(list, i), *found = json_object_get(parent, "node");
        put_arrow(node, parent, out);
        put_damage(json_object_get(parent, "damage"), out);
        if (json_is_object(found)) {
            put_node(found, out);
            continue;
        }
        lathe_buffer_puts(out, "<div class=\"card\"><b>");
        lathe_html_text(out, short_name(text_of(parent, "path")));
        lathe_buffer_puts(out, "</b>");
        put_tag("quiet", "not there", out);
        lathe_buffer_puts(out, "<div class=\"quiet\"><code>");
        lathe_html_text(out, text_of(parent, "path"));
        lathe_buffer_puts(out, "</code></div></div>\n");
    }
}

lathe_status lathe__report_chain(const lathe_run_view *v, int32_t verify, lathe_buffer *out)
{
    json_t *node = NULL;
    int64_t n_damaged = 0;
    if (v->n_checkpoints == 0)
        return LATHE_OK;
    const lathe_status status = lathe_lineage_read(v->dir, verify, &node, &n_damaged);
    if (status == LATHE_E_NOMEM)
        return status;
    lathe_error_clear(); /* the table of checkpoints says what is wrong with them */
    if (status != LATHE_OK)
        return LATHE_OK;
    lathe_buffer_puts(out, "<section id=\"lineage\"><h2>Lineage</h2><div class=\"stack\">\n");
    put_node(node, out);
    lathe_buffer_puts(out, "</div></section>\n");
    json_decref(node);
    return out->status;
}
