/* Products of one input: no bit changes, and products that cannot be joined are left apart. */
#include "fuse_case.h"

enum { ROWS = 7, WIDTH = 24, WIDER = 40, NARROWER = 9 };

/* Variants of the network; NAMES products of x each. */
enum {
    THREE = 0,
    TWO = 1,
    FIVE = 2,        /* three are joined, then two */
    OTHER_INPUT = 3, /* the second product reads a copy of x */
    LATE_WEIGHT = 4, /* the second weight is computed after the first product */
    OTHER_BLOCK = 5, /* the second product is in another block of the layer */
    EIGHT_BITS = 6   /* the second product is in fp8 */
};

static lathe_val product(fixture *f, lathe_val x, int i, int64_t cols, int variant)
{
    char name[16];
    (void)snprintf(name, sizeof name, "w%d", i);
    lathe_val w = fixture_matrix(f, name, cols, WIDTH), y;
    (void)snprintf(name, sizeof name, "b%d", i);
    const lathe_val b = i == 1 ? LATHE_NONE : fixture_vector(f, name, cols);
    if (i == 1 && variant == LATE_WEIGHT)
        w = fixture_unary(f, LATHE_OP_COPY, w);
    if (i == 1 && variant == OTHER_INPUT)
        x = fixture_unary(f, LATHE_OP_COPY, x);
    if (i == 1 && variant == OTHER_BLOCK)
        lathe_graph_set_layer(f->g, 0, LATHE_BLOCK_MLP);
    y = fixture_linear(f, x, w, b);
    if (i == 1 && variant == EIGHT_BITS)
        f->g->nodes[f->g->n_nodes - 1].attrs.fp8 = 1;
    lathe_graph_set_layer(f->g, 0, LATHE_BLOCK_ATTENTION);
    return y;
}

/* The product of the squares of all results' sums over their columns. */
static lathe_val network(fixture *f, int variant)
{
    static const int64_t cols[] = {WIDER, NARROWER, WIDTH, 1, WIDER};
    const int n = variant == FIVE ? 5 : variant == THREE ? 3 : 2;
    lathe_val sum = LATHE_NONE, y[5];
    lathe_graph_set_layer(f->g, 0, LATHE_BLOCK_ATTENTION);
    const lathe_val x = fixture_unary(f, LATHE_OP_COPY, fixture_matrix(f, "x", ROWS, WIDTH));
    for (int i = 0; i < n; i++)
        y[i] = product(f, x, i, cols[i], variant);
    for (int i = 0; i < n; i++) {
        const lathe_val rows =
            fixture_unary(f, LATHE_OP_SUM_COLUMNS, fixture_binary(f, LATHE_OP_MUL, y[i], y[i]));
        sum = i == 0 ? rows : fixture_binary(f, LATHE_OP_ADD, sum, rows);
    }
    lathe_graph_set_layer(f->g, -1, LATHE_BLOCK_NONE);
    return fixture_loss(f, sum);
}

static void build(fixture *f, int32_t dtype, int variant, lathe_offers_fn offers)
{
    fixture_open(f, dtype);
    OK(fixture_derive(f, network(f, variant)));
    OK(lathe_pass_dead(f->g));
    if (offers)
        OK(lathe_pass_linears(f->g, offers, f));
    OK(lathe_pass_inplace(f->g));
}

Test(fuse_linears, no_bit_changes)
{
    static const int32_t dtypes[3] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int variant = THREE; variant <= FIVE; variant++) {
            fixture apart, joint;
            char what[64];
            (void)snprintf(what, sizeof what, "dtype %d, variant %d", (int)dtypes[d], variant);
            build(&apart, dtypes[d], variant, NULL);
            build(&joint, dtypes[d], variant, device_offers);
            cr_expect_eq(count_op(apart.g, LATHE_OP_LINEARS), 0);
            fixture_place(&apart);
            fixture_place(&joint);
            expect_same_bits(&apart, &joint, what);
            fixture_close(&apart);
            fixture_close(&joint);
        }
}

Test(fuse_linears, joins_up_to_three_products_of_one_input)
{
    static const int want[][3] = {{THREE, 1, 0}, {TWO, 1, 0}, {FIVE, 2, 0}}; /* joined, apart */
    for (int k = 0; k < 3; k++) {
        fixture f;
        build(&f, LATHE_BF16, want[k][0], offers_all);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEARS), want[k][1], "variant %d", want[k][0]);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR), want[k][2], "variant %d", want[k][0]);
        fixture_close(&f);
    }
}

Test(fuse_linears, leaves_products_that_cannot_be_computed_together)
{
    for (int variant = OTHER_INPUT; variant <= EIGHT_BITS; variant++) {
        fixture f;
        build(&f, LATHE_BF16, variant, offers_all);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEARS), 0, "variant %d", variant);
        cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR), 2, "variant %d", variant);
        fixture_close(&f);
    }
}

Test(fuse_linears, does_nothing_where_the_device_offers_nothing)
{
    fixture f;
    build(&f, LATHE_F32, THREE, offers_none);
    cr_expect_eq(count_op(f.g, LATHE_OP_LINEARS), 0);
    cr_expect_eq(count_op(f.g, LATHE_OP_LINEAR), 3);
    fixture_close(&f);
}
