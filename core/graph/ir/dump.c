/* Writes a graph as text or for Graphviz. */
#include "graph/ir/dump.h"

#include "graph/ir/desc_text.h"
#include "graph/ir/op_info.h"

static const char kind_letters[] =
    "tickmgqsp"; /* temp input const param(k) master grad plane(q) state planes */

/* Writes a label on one line; for Graphviz, escapes quotes and backslashes. */
static void put_label(const char *label, int escape, lathe_buffer *out)
{
    for (const char *c = label; *c; c++) {
        if (escape && (*c == '"' || *c == '\\'))
            lathe_buffer_puts(out, "\\");
        if ((unsigned char)*c < ' ')
            lathe_buffer_puts(out, " ");
        else
            lathe_buffer_append(out, c, 1);
    }
}

static void put_value(const lathe_graph *g, lathe_val v, lathe_buffer *out)
{
    char text[80];
    if (v == LATHE_NONE) {
        lathe_buffer_puts(out, "-");
        return;
    }
    const lathe_ir_value *value = &g->values[v];
    lathe_buffer_printf(out, "%%%d", v);
    if (value->kind == LATHE_VALUE_TEMP)
        lathe_buffer_printf(out, "%s:%s", value->on_host ? ":host" : "",
                            lathe_desc_text(&value->desc, text, sizeof text));
    else
        lathe_buffer_printf(out, ":%c:%s", kind_letters[value->kind], value->name);
    if (value->share != LATHE_NONE)
        lathe_buffer_printf(out, "@%%%d", lathe_graph_root(g, v));
}

void lathe_graph_dump(const lathe_graph *g, lathe_buffer *out)
{
    static const char *const phases[] = {"fwd", "bwd", "re"};
    static const char *const writes[] = {"", "+=", "?="};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        lathe_buffer_printf(out, "%5d %-3s L%-3d ", i, phases[n->phase], n->layer);
        for (int32_t k = 0; k < n->n_out; k++) {
            lathe_buffer_puts(out, k ? ", " : "");
            put_value(g, n->out[k], out);
            lathe_buffer_puts(out, writes[n->write[k]]);
        }
        lathe_buffer_printf(out, " = %s%s(", lathe_op_info_get(n->op)->name,
                            n->attrs.fp8 ? "[fp8]" : "");
        for (int32_t k = 0; k < n->n_in; k++) {
            lathe_buffer_puts(out, k ? ", " : "");
            put_value(g, n->in[k], out);
        }
        lathe_buffer_puts(out, ")  # ");
        put_label(n->label, 0, out);
        lathe_buffer_puts(out, "\n");
    }
}

void lathe_graph_dot(const lathe_graph *g, lathe_buffer *out)
{
    static const char *const colours[] = {"#e8f0fe", "#fce8e6", "#fef7e0"};
    lathe_buffer_puts(out, "digraph lathe {\n  rankdir=TB; node [shape=box, style=filled];\n");
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        lathe_buffer_printf(out, "  n%d [label=\"%s\\n", i, lathe_op_info_get(n->op)->name);
        put_label(n->label, 1, out);
        lathe_buffer_printf(out, "\", fillcolor=\"%s\"];\n", colours[n->phase]);
        for (int32_t k = 0; k < n->n_in; k++) {
            if (n->in[k] == LATHE_NONE || g->values[n->in[k]].node < 0)
                continue;
            char text[80];
            lathe_buffer_printf(out, "  n%d -> n%d [label=\"%s\"];\n", g->values[n->in[k]].node, i,
                                lathe_desc_text(&g->values[n->in[k]].desc, text, sizeof text));
        }
    }
    lathe_buffer_puts(out, "}\n");
}
