/* GELU fused with its neighbours: no bit changes, no more memory is planned, and nodes that must
 * stay separate do. */
#include "fuse_case.h"
#include "graph/ir/flops.h"
#include "lathe/fp8.h"

enum { LAYERS = 3, ROWS = 16, WIDTH = 16 };

/* Variant of the network; each has a reason not to fuse something. */
enum {
    PLAIN = 0,
    ADAPTED_UP = 1,   /* the product before GELU is added to */
    ADAPTED_DOWN = 2, /* the product after GELU is added to, so its gradient has two parts */
    FP8 = 3,
    READ_TWICE = 4, /* the loss also reads GELU's result */
    SEEN = 5,       /* the product's result is an output of the graph */
    BETWEEN = 6 /* an input of the second product's derivative changes before GELU's derivative */
};

static lathe_val matrix(fixture *f, const char *name, int layer, int64_t rows, int64_t cols)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s%d", name, layer);
    return cols > 0 ? fixture_matrix(f, text, rows, cols) : fixture_vector(f, text, rows);
}

/* A second product beside w's, as in LoRA. */
static lathe_val beside(fixture *f, lathe_val y, lathe_val x, const char *name, int layer,
                        int64_t rows, int64_t cols)
{
    const lathe_val other = fixture_linear(f, x, matrix(f, name, layer, rows, cols), LATHE_NONE);
    return fixture_binary(f, LATHE_OP_ADD, y, other);
}

static lathe_val mlp(fixture *f, lathe_val x, int layer, int variant)
{
    const lathe_op_attrs norm = {.eps = 1e-5f};
    const lathe_val gain = matrix(f, "gain", layer, WIDTH, 0);
    const lathe_val up = matrix(f, "up", layer, 4 * WIDTH, WIDTH);
    const lathe_val bias = matrix(f, "bias", layer, 4 * WIDTH, 0);
    const lathe_val down = matrix(f, "down", layer, WIDTH, 4 * WIDTH);
    const lathe_val shift = matrix(f, "shift", layer, WIDTH, 0);
    lathe_graph_set_layer(f->g, layer, LATHE_BLOCK_MLP);
    const lathe_val in = fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE);
    lathe_val z = fixture_linear(f, in, up, bias);
    if (variant == ADAPTED_UP)
        z = beside(f, z, in, "up_beside", layer, 4 * WIDTH, WIDTH);
    if (variant == SEEN)
        lathe_graph_output(f->g, z);
    const lathe_val h = fixture_unary(f, LATHE_OP_GELU_TANH, z);
    const lathe_val between = variant == BETWEEN
                                  ? fixture_node(f, LATHE_OP_RMSNORM, &norm, x, gain, LATHE_NONE)
                                  : LATHE_NONE;
    lathe_val y = fixture_linear(f, h, down, shift);
    if (variant == BETWEEN)
        x = fixture_binary(f, LATHE_OP_ADD, x, between);
    if (variant == ADAPTED_DOWN)
        y = beside(f, y, h, "down_beside", layer, WIDTH, 4 * WIDTH);
    if (variant == READ_TWICE)
        y = beside(f, y, fixture_unary(f, LATHE_OP_SIGMOID, h), "twice", layer, WIDTH, 4 * WIDTH);
    return fixture_binary(f, LATHE_OP_ADD, x, y);
}

static lathe_val network(fixture *f, int variant)
{
    lathe_val x = fixture_unary(f, LATHE_OP_COPY, matrix(f, "x", 0, ROWS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++)
        x = mlp(f, x, layer, variant);
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    if (variant == FP8) /* as lathe_pass_fp8 marks them */
        for (int32_t i = 0; i < f->g->n_nodes; i++)
            if (f->g->nodes[i].op == LATHE_OP_LINEAR)
                f->g->nodes[i].attrs.fp8 = LATHE_FP8_TENSORWISE;
    return fixture_loss(f, x);
}

/* Builds the network with its derivative and passes, not yet placed. offers NULL: without
 * fusion. */
static void build(fixture *f, int32_t dtype, int variant, int32_t recompute, lathe_offers_fn offers)
{
    fixture_open(f, dtype);
    OK(fixture_derive(f, network(f, variant)));
    OK(lathe_pass_recompute(f->g, recompute));
    OK(lathe_pass_dead(f->g));
    if (offers)
        OK(lathe_pass_gelu(f->g, offers, f));
    OK(lathe_pass_inplace(f->g));
}

static void expect_no_growth(const fixture *apart, const fixture *joint, int32_t recompute,
                             const char *what)
{
    const lathe_plan *a = lathe_exec_plan(apart->exec), *j = lathe_exec_plan(joint->exec);
    cr_expect_leq(j->activation_bytes, a->activation_bytes, "%s: %lld of %lld", what,
                  (long long)j->activation_bytes, (long long)a->activation_bytes);
    cr_expect_leq(j->arena_bytes, a->arena_bytes, "%s: %lld of %lld with scratch", what,
                  (long long)j->arena_bytes, (long long)a->arena_bytes);
    if (recompute == LATHE_RECOMPUTE_NONE) /* the gradient of h is the largest value */
        cr_expect_lt(j->activation_bytes, a->activation_bytes, "%s", what);
}

Test(fuse_gelu, no_bit_changes_and_no_byte_more_is_planned)
{
    static const int32_t dtypes[3] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int32_t mode = LATHE_RECOMPUTE_NONE; mode <= LATHE_RECOMPUTE_POINTWISE; mode++) {
            fixture apart, joint;
            char what[48];
            (void)snprintf(what, sizeof what, "dtype %d, recompute %d", (int)dtypes[d], (int)mode);
            build(&apart, dtypes[d], PLAIN, mode, NULL);
            build(&joint, dtypes[d], PLAIN, mode, device_offers);
            const int again = count_op(apart.g, LATHE_OP_GELU_TANH) > LAYERS;
            /* LINEAR is recomputed too */
            const int whole = again && mode != LATHE_RECOMPUTE_POINTWISE;
            cr_expect_eq(count_op(joint.g, LATHE_OP_LINEAR_GELU), whole ? 2 * LAYERS : LAYERS);
            cr_expect_eq(count_op(joint.g, LATHE_OP_GELU_TANH), again && !whole ? LAYERS : 0);
            cr_expect_eq(count_op(joint.g, LATHE_OP_LINEAR_DX_GELU), LAYERS);
            cr_expect_eq(count_op(joint.g, LATHE_OP_GELU_TANH_BWD), 0);
            fixture_place(&apart);
            fixture_place(&joint);
            expect_no_growth(&apart, &joint, mode, what);
            expect_same_bits(&apart, &joint, what);
            fixture_close(&apart);
            fixture_close(&joint);
        }
}

/* Not on the emulated GPU, where it would take minutes; other tests compare its bits with those of
 * ops whose gradients are checked by differences. */
#ifndef FIXTURE_GPU
Test(fuse_gelu, gradients_agree_with_differences)
{
    fixture f;
    build(&f, LATHE_F32, PLAIN, LATHE_RECOMPUTE_NONE, device_offers);
    fixture_place(&f);
    fixture_check(&f);
    fixture_close(&f);
}
#endif

/* Expected fusions of each variant: GELU with the product before it and with the one after it. */
typedef struct expectation {
    int variant, forward, backward;
} expectation;

static const expectation expectations[] = {
    {PLAIN, LAYERS, LAYERS}, {ADAPTED_UP, 0, LAYERS}, {ADAPTED_DOWN, LAYERS, 0}, {FP8, 0, 0},
    {READ_TWICE, LAYERS, 0}, {SEEN, LAYERS, LAYERS},  {BETWEEN, LAYERS, 0}};

Test(fuse_gelu, leaves_what_something_is_added_to_and_what_is_in_fp8)
{
    for (size_t i = 0; i < sizeof expectations / sizeof expectations[0]; i++) {
        const expectation *e = &expectations[i];
        fixture f;
        build(&f, LATHE_BF16, e->variant, LATHE_RECOMPUTE_NONE, offers_all);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR_GELU), e->forward, "variant %d", e->variant);
        cr_expect_eq(count_op(f.g, LATHE_OP_GELU_TANH), LAYERS - e->forward, "variant %d",
                     e->variant);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR_DX_GELU), e->backward, "variant %d", e->variant);
        cr_expect_eq(count_op(f.g, LATHE_OP_GELU_TANH_BWD), LAYERS - e->backward, "variant %d",
                     e->variant);
        fixture_close(&f);
    }
}

Test(fuse_gelu, every_variant_has_the_bits_of_what_is_apart)
{
    for (int variant = ADAPTED_UP; variant <= BETWEEN; variant++) {
        fixture apart, joint;
        char what[32];
        if (variant == FP8)
            continue; /* not offered by every device */
        (void)snprintf(what, sizeof what, "variant %d", variant);
        build(&apart, LATHE_BF16, variant, LATHE_RECOMPUTE_POINTWISE, NULL);
        build(&joint, LATHE_BF16, variant, LATHE_RECOMPUTE_POINTWISE, device_offers);
        fixture_place(&apart);
        fixture_place(&joint);
        expect_no_growth(&apart, &joint, LATHE_RECOMPUTE_POINTWISE, what);
        expect_same_bits(&apart, &joint, what);
        fixture_close(&apart);
        fixture_close(&joint);
    }
}

Test(fuse_gelu, does_nothing_where_the_device_offers_nothing)
{
    fixture apart, asked;
    build(&apart, LATHE_F32, PLAIN, LATHE_RECOMPUTE_NONE, NULL);
    build(&asked, LATHE_F32, PLAIN, LATHE_RECOMPUTE_NONE, offers_none);
    cr_assert_eq(apart.g->n_nodes, asked.g->n_nodes);
    for (int32_t i = 0; i < apart.g->n_nodes; i++)
        cr_expect_eq(apart.g->nodes[i].op, asked.g->nodes[i].op);
    fixture_close(&apart);
    fixture_close(&asked);
}

/* Without a derivative no node reads z, so it is not stored. */
Test(fuse_gelu, a_forward_alone_does_not_store_what_gelu_takes)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    f.loss = network(&f, PLAIN);
    lathe_graph_output(f.g, f.loss);
    OK(lathe_pass_dead(f.g));
    OK(lathe_pass_gelu(f.g, offers_all, NULL));
    for (int32_t i = 0; i < f.g->n_nodes; i++)
        if (f.g->nodes[i].op == LATHE_OP_LINEAR_GELU)
            cr_expect_eq(f.g->nodes[i].out[1], LATHE_NONE);
    cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR_GELU), LAYERS);
    fixture_close(&f);
}

/* Fusion does not change the counted work. */
Test(fuse_gelu, the_products_count_as_they_did)
{
    fixture apart, joint;
    build(&apart, LATHE_F32, PLAIN, LATHE_RECOMPUTE_LAYER, NULL);
    build(&joint, LATHE_F32, PLAIN, LATHE_RECOMPUTE_LAYER, offers_all);
    for (int32_t with = 0; with < 2; with++)
        cr_expect_eq(lathe_graph_flops(apart.g, with), lathe_graph_flops(joint.g, with));
    fixture_close(&apart);
    fixture_close(&joint);
}

Test(fuse_gelu, an_op_of_two_has_no_derivative_of_its_own)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val in[3] = {matrix(&f, "x", 0, 4, 6), matrix(&f, "w", 0, 8, 6), LATHE_NONE};
    lathe_val out[2];
    OK(lathe_graph_node(f.g, LATHE_OP_LINEAR_GELU, NULL, in, 3, out, 2, -1, "both"));
    cr_expect_eq(fixture_derive(&f, fixture_loss(&f, out[0])), LATHE_E_UNSUPPORTED);
    cr_expect(strstr(lathe_error_message(), "linear_gelu 'both'"), "%s", lathe_error_message());
    fixture_close(&f);
}

Test(fuse_gelu, shapes_that_do_not_agree_are_refused)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    const lathe_val x = matrix(&f, "x", 0, 4, 6), w = matrix(&f, "w", 0, 8, 6);
    const lathe_val dy = matrix(&f, "dy", 0, 4, 8);
    const lathe_val forward[3] = {x, matrix(&f, "v", 0, 8, 5), LATHE_NONE};
    const lathe_val backward[3] = {dy, w, dy}, without[3] = {dy, w, LATHE_NONE};
    lathe_val out[2];
    cr_expect_eq(lathe_graph_node(f.g, LATHE_OP_LINEAR_GELU, NULL, forward, 3, out, 2, -1, "a"),
                 LATHE_E_SHAPE);
    cr_expect_eq(lathe_graph_node(f.g, LATHE_OP_LINEAR_DX_GELU, NULL, backward, 3, out, 1, -1, "b"),
                 LATHE_E_SHAPE);
    cr_expect_eq(lathe_graph_node(f.g, LATHE_OP_LINEAR_DX_GELU, NULL, without, 3, out, 1, -1, "c"),
                 LATHE_E_SHAPE);
    const lathe_val right[3] = {dy, w, x};
    OK(lathe_graph_node(f.g, LATHE_OP_LINEAR_DX_GELU, NULL, right, 3, out, 1, -1, "d"));
    cr_expect_eq(f.g->values[out[0]].desc.dims[1], 6);
    fixture_close(&f);
}
