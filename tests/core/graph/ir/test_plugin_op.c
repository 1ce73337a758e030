/* Ops of plugins in a graph: by name, with attributes, derivative, recomputation, plan and dump as
 * the core's. */
#include "graph/ir/dump.h"
#include "graph/ir/flops.h"
#include "graph/ir/plugin_op.h"
#include "plug/op_library.h"
#include "support/graph_fixture.h"

enum { N = 12, C = 5, K = 3, T = 6 };

static void open_with_ops(fixture *f)
{
    fixture_open(f, LATHE_F32);
    f->params.ops = lathe_registry_ops(f->registry);
}

static lathe_val conv(fixture *f, lathe_val x, const lathe_op_attr *attrs, int32_t n_attrs)
{
    const lathe_val in[3] = {x, fixture_matrix(f, "w", C, K), fixture_vector(f, "b", C)};
    lathe_val y = LATHE_NONE;
    OK(lathe_graph_api_get()->op(f->g, "short_conv", attrs, n_attrs, in, 3, &y, 1, "conv"));
    return y;
}

static const lathe_op_attr rows[] = {LATHE_ATTR_INT("tokens", T)};

Test(plugin_op, derivative_is_that_of_the_loss)
{
    fixture f;
    open_with_ops(&f);
    const lathe_val x = fixture_matrix(&f, "x", N, C);
    const lathe_val y = conv(&f, x, rows, 1);
    /* x has two uses, so that the backward adds to a gradient */
    fixture_finish(&f, fixture_loss(&f, fixture_binary(&f, LATHE_OP_MUL, y, x)));
    fixture_check(&f);
    fixture_close(&f);
}

/* Two convolutions in one layer, whose backward reads recomputed values. */
static void build_two(fixture *f, int32_t recompute)
{
    open_with_ops(f);
    const lathe_val x = fixture_matrix(f, "x", N, C);
    lathe_graph_set_layer(f->g, 0, LATHE_BLOCK_ATTENTION);
    const lathe_val in[2] = {fixture_unary(f, LATHE_OP_TANH, x), fixture_matrix(f, "w", C, K)};
    lathe_val y, z;
    OK(lathe_graph_api_get()->op(f->g, "short_conv", rows, 1, in, 2, &y, 1, "first"));
    const lathe_val again[2] = {y, in[1]};
    OK(lathe_graph_api_get()->op(f->g, "short_conv", rows, 1, again, 2, &z, 1, "second"));
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    OK(fixture_derive(f, fixture_loss(f, z)));
    fixture_passes(f, FIXTURE_DEAD, recompute);
}

static int count(const lathe_graph *g, const char *name, int32_t phase)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].phase == phase &&
             strcmp(lathe_op_info_get(g->nodes[i].op)->name, name) == 0;
    return n;
}

Test(plugin_op, is_recomputed_as_an_op_of_the_core)
{
    static const int32_t modes[] = {LATHE_RECOMPUTE_NONE, LATHE_RECOMPUTE_POINTWISE,
                                    LATHE_RECOMPUTE_ATTENTION, LATHE_RECOMPUTE_LAYER};
    static const int recomputed[] = {0, 1, 1, 1}; /* the second's result is what the loss reads */
    double loss = 0.0;
    float *first[2] = {NULL, NULL};
    for (int i = 0; i < 4; i++) {
        fixture f;
        build_two(&f, modes[i]);
        cr_expect_eq(count(f.g, "short_conv", LATHE_PHASE_FORWARD), 2);
        cr_expect_eq(count(f.g, "short_conv_bwd", LATHE_PHASE_BACKWARD), 2);
        cr_expect_eq(count(f.g, "short_conv", LATHE_PHASE_RECOMPUTE), recomputed[i], "mode %d: %d",
                     i, count(f.g, "short_conv", LATHE_PHASE_RECOMPUTE));
        fixture_place(&f);
        const double got = fixture_run(&f, 0);
        cr_expect(i == 0 || got == loss);
        loss = got;
        for (int32_t p = 0; p < 2; p++) {
            float *g = fixture_gradient(&f, p);
            const int64_t bytes = 4 * lathe_desc_count(&f.params.rows[p]->desc);
            if (i == 0)
                first[p] = g;
            else {
                cr_expect_eq(memcmp(first[p], g, (size_t)bytes), 0, "mode %d, parameter %d", i, p);
                free(g);
            }
        }
        fixture_close(&f);
    }
    free(first[0]);
    free(first[1]);
}

Test(plugin_op, has_a_place_in_dump_and_flops)
{
    fixture f;
    lathe_buffer text = LATHE_BUFFER_INIT;
    open_with_ops(&f);
    (void)conv(&f, fixture_matrix(&f, "x", N, C), rows, 1);
    lathe_graph_dump(f.g, &text);
    cr_expect_neq(strstr(text.data, "= short_conv("), NULL, "%s", text.data);
    cr_expect_eq(lathe_graph_flops(f.g, 0), 2.0 * N * C * K);
    const lathe_component *used[LATHE_MOST_OPS];
    cr_expect_eq(lathe_ops_used(&f.params, f.g, used, LATHE_MOST_OPS), 1);
    cr_expect_str_eq(used[0]->plugin->name, "short_conv");
    lathe_buffer_fini(&text);
    fixture_close(&f);
}

static void refuses(fixture *f, const char *name, const lathe_op_attr *attrs, int32_t n_attrs,
                    const lathe_val *in, int32_t n_in, lathe_status want, const char *text)
{
    lathe_val y = LATHE_NONE;
    lathe_error_clear();
    cr_expect_eq(lathe_graph_api_get()->op(f->g, name, attrs, n_attrs, in, n_in, &y, 1, "conv"),
                 want, "%s", lathe_error_message());
    cr_expect_neq(strstr(lathe_error_message(), text), NULL, "%s", lathe_error_message());
}

Test(plugin_op, refusals_name_op_attribute_and_shapes)
{
    fixture f;
    open_with_ops(&f);
    const lathe_val in[2] = {fixture_matrix(&f, "x", N, C), fixture_matrix(&f, "w", C, K)};
    const lathe_op_attr unknown[] = {LATHE_ATTR_INT("tokns", T)};
    const lathe_op_attr text[] = {LATHE_ATTR_STRING("tokens", "six")};
    const lathe_op_attr choice[] = {LATHE_ATTR_INT("tokens", T),
                                    LATHE_ATTR_STRING("activation", "gelu")};
    const lathe_op_attr seven[] = {LATHE_ATTR_INT("tokens", 7)};
    const int32_t n = f.g->n_nodes;
    refuses(&f, "short_konv", rows, 1, in, 2, LATHE_E_NOT_FOUND, "short_conv");
    refuses(&f, "short_conv", unknown, 1, in, 2, LATHE_E_CONFIG, "tokns");
    refuses(&f, "short_conv", NULL, 0, in, 2, LATHE_E_CONFIG, "short_conv.tokens is required");
    refuses(&f, "short_conv", text, 1, in, 2, LATHE_E_CONFIG, "tokens");
    refuses(&f, "short_conv", choice, 2, in, 2, LATHE_E_CONFIG, "activation");
    refuses(&f, "short_conv", seven, 1, in, 2, LATHE_E_SHAPE,
            "op short_conv 'conv' of (x f32[12,5], w f32[5,3]");
    refuses(&f, "short_conv", rows, 1, in, 1, LATHE_E_SHAPE, "its input w is absent");
    refuses(&f, "tanh", unknown, 1, in, 1, LATHE_E_CONFIG, "op tanh has no attribute 'tokns'");
    cr_expect_eq(f.g->n_nodes, n);
    lathe_val y;
    OK(lathe_graph_api_get()->op(f.g, "tanh", NULL, 0, in, 1, &y, 1, "of the core"));
    cr_expect_eq(f.g->nodes[n].op, LATHE_OP_TANH);
    const lathe_op_attr scale[] = {LATHE_ATTR_FLOAT("alpha", 2.0), LATHE_ATTR_INT("beta", 1)};
    OK(lathe_graph_api_get()->op(f.g, "scale", scale, 2, in, 1, &y, 1, "of the core"));
    cr_expect_eq(f.g->nodes[n + 1].attrs.alpha, 2.0);
    cr_expect_eq(f.g->nodes[n + 1].attrs.beta, 1.0);
    f.params.ops = NULL;
    refuses(&f, "short_conv", rows, 1, in, 2, LATHE_E_NOT_FOUND, "this graph has no plugins");
    fixture_close(&f);
}
