/* Dumps: one line per node with its op, values and label; Graphviz output that only refers to its
 * own nodes. */
#include "graph/ir/desc_text.h"
#include "graph/ir/dump.h"
#include "graph/ir/op_info.h"
#include "support/graph_fixture.h"

static lathe_graph *small(fixture *f)
{
    const lathe_op_attrs twice = {.alpha = 2.0};
    fixture_open(f, LATHE_F32);
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "the.weight", 3, 4));
    lathe_val y;
    OK(lathe_graph_node(f->g, LATHE_OP_SCALE, &twice, &x, 1, &y, 1, 0, "a \"quoted\"\nlabel\\"));
    OK(fixture_derive(f, fixture_loss(f, fixture_binary(f, LATHE_OP_ADD, y, x))));
    fixture_passes(f, FIXTURE_DEAD, LATHE_RECOMPUTE_NONE);
    return f->g;
}

Test(dump, one_line_for_each_node)
{
    fixture f;
    lathe_buffer out = LATHE_BUFFER_INIT;
    const lathe_graph *g = small(&f);
    lathe_graph_dump(g, &out);
    OK(out.status);
    int32_t i = 0;
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"), i++) {
        char call[64];
        cr_assert_lt(i, g->n_nodes, "more lines than nodes");
        (void)snprintf(call, sizeof call, " = %s(", lathe_op_info_get(g->nodes[i].op)->name);
        cr_expect_eq(strtol(line, NULL, 10), i);
        cr_expect_not_null(strstr(line, call), "%s", line);
        cr_expect_not_null(strstr(line, g->nodes[i].phase == LATHE_PHASE_FORWARD ? "fwd" : "bwd"));
        for (const char *c = line; *c; c++)
            cr_expect_geq((unsigned char)*c, ' ');
    }
    cr_expect_eq(i, g->n_nodes);
    lathe_buffer_fini(&out);
    fixture_close(&f);
}

Test(dump, shows_shapes_parameters_writes_and_shared_memory)
{
    fixture f;
    lathe_buffer out = LATHE_BUFFER_INIT;
    lathe_graph_dump(small(&f), &out);
    cr_expect_not_null(strstr(out.data, ":f32[3,4]"));
    cr_expect_not_null(strstr(out.data, ":k:the.weight"));
    cr_expect_not_null(strstr(out.data, ":g:the.weight?="));
    cr_expect_not_null(strstr(out.data, "@%"));
    lathe_buffer_fini(&out);
    fixture_close(&f);
}

Test(dump, an_empty_graph_is_an_empty_text)
{
    fixture f;
    lathe_buffer out = LATHE_BUFFER_INIT;
    fixture_open(&f, LATHE_F32);
    lathe_graph_dump(f.g, &out);
    cr_expect_eq(out.len, 0);
    lathe_graph_dot(f.g, &out);
    cr_expect_not_null(strstr(out.data, "digraph lathe {"));
    lathe_buffer_fini(&out);
    fixture_close(&f);
}

/* Statements end in ';' outside strings, quotes are paired, and edges join existing nodes. */
Test(dot, is_well_formed)
{
    fixture f;
    lathe_buffer out = LATHE_BUFFER_INIT;
    const lathe_graph *g = small(&f);
    lathe_graph_dot(g, &out);
    OK(out.status);
    cr_assert_eq(strncmp(out.data, "digraph lathe {\n", 16), 0);
    cr_assert_str_eq(out.data + out.len - 2, "}\n");
    int32_t nodes = 0, edges = 0;
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
        int from, to, quoted = 0;
        for (const char *c = line; *c; c++) {
            if (*c == '\\' && quoted)
                cr_assert_neq(*++c, '\0', "%s", line);
            else if (*c == '"')
                quoted = !quoted;
        }
        cr_expect_eq(quoted, 0, "%s", line);
        if (sscanf(line, "  n%d -> n%d", &from, &to) == 2) {
            cr_expect(from >= 0 && from < to && to < g->n_nodes, "%s", line);
            edges++;
        } else if (sscanf(line, "  n%d [", &from) == 1) {
            cr_expect_eq(from, nodes++);
        }
    }
    cr_expect_eq(nodes, g->n_nodes);
    cr_expect_geq(edges, g->n_nodes - 2);
    lathe_buffer_fini(&out);
    fixture_close(&f);
}

Test(desc_text, is_cut_to_the_capacity)
{
    const lathe_desc d = {LATHE_BF16, 2, {4096, 768, 1, 1}};
    char text[32];
    cr_expect_str_eq(lathe_desc_text(&d, text, sizeof text), "bf16[4096,768]");
    cr_expect_str_eq(lathe_desc_text(&d, text, 8), "bf16[40");
    const lathe_desc scalar = {LATHE_F32, 0, {1, 1, 1, 1}};
    cr_expect_str_eq(lathe_desc_text(&scalar, text, sizeof text), "f32[]");
}
