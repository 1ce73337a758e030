/* The substitute graph itself: values by hand, refusals, derivatives, detached values. */
#include <criterion/criterion.h>

#include "mock_graph.h"

static lathe_val node2(lathe_graph *g, int32_t op, lathe_op_attrs attrs, lathe_val a, lathe_val b)
{
    const lathe_val in[2] = {a, b};
    lathe_val y = LATHE_NONE;
    cr_assert_eq(mock_api()->node(g, op, &attrs, in, b == LATHE_NONE ? 1 : 2, &y, 1, -1, "n"),
                 LATHE_OK, "%s", mock_error(g));
    return y;
}

Test(mock_graph, linear_and_matmul_agree_with_hand_work)
{
    lathe_graph *g = mock_create(LATHE_F32);
    const double x[2] = {1, 2}, w[6] = {1, 0, 0, 1, 3, 4}, b[3] = {10, 20, 30};
    const lathe_val vx = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 2), x);
    const lathe_val vw = mock_input(g, "w", lathe_desc_2d(LATHE_F32, 3, 2), w);
    const lathe_val vb = mock_input(g, "b", lathe_desc_1d(LATHE_F32, 3), b);
    lathe_val y;
    cr_assert_eq(mock_api()->linear(g, vx, vw, vb, "l", &y), LATHE_OK);
    const lathe_val gram =
        node2(g, LATHE_OP_MATMUL, (lathe_op_attrs){.alpha = 2, .trans_a = 1}, vw, vw);
    mock_eval(g);
    const double want[3] = {11, 22, 41}, want_gram[4] = {20, 24, 24, 34};
    for (int i = 0; i < 3; i++)
        cr_expect_eq(mock_data(g, y)[i], want[i]);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(mock_data(g, gram)[i], want_gram[i]);
    mock_destroy(g);
}

Test(mock_graph, gradient_of_a_chain_and_of_what_is_detached)
{
    lathe_graph *g = mock_create(LATHE_F32);
    const double x[2] = {3, -1};
    const lathe_val vx = mock_input(g, "x", lathe_desc_1d(LATHE_F32, 2), x);
    lathe_val held;
    cr_assert_eq(mock_api()->detach(g, vx, &held), LATHE_OK);
    const lathe_val square = node2(g, LATHE_OP_MUL, (lathe_op_attrs){0}, vx, vx);
    const lathe_val half = node2(g, LATHE_OP_MUL, (lathe_op_attrs){0}, vx, held);
    const lathe_val both = node2(g, LATHE_OP_ADD, (lathe_op_attrs){0}, square, half);
    const lathe_val sum = node2(g, LATHE_OP_SUM, (lathe_op_attrs){0}, both, LATHE_NONE);
    /* d(x^2 + x*[x]) = 2x + x */
    cr_expect_float_eq(mock_gradient(g, sum, vx, 0, 1e-4), 9.0, 1e-8);
    cr_expect_float_eq(mock_gradient(g, sum, vx, 1, 1e-4), -3.0, 1e-8);
    mock_destroy(g);
}

Test(mock_graph, refuses_shapes_dtypes_and_unknown_ops)
{
    lathe_graph *g = mock_create(LATHE_BF16);
    const lathe_val a = mock_input(g, "a", lathe_desc_2d(LATHE_F32, 2, 3), NULL);
    const lathe_val b = mock_input(g, "b", lathe_desc_2d(LATHE_BF16, 2, 3), NULL);
    const lathe_val c = mock_input(g, "c", lathe_desc_1d(LATHE_F32, 6), NULL);
    const lathe_val dtypes[2] = {a, b}, shapes[2] = {a, c};
    lathe_val y;
    cr_expect_eq(mock_api()->node(g, LATHE_OP_ADD, NULL, dtypes, 2, &y, 1, -1, ""), LATHE_E_DTYPE);
    cr_expect_eq(mock_api()->node(g, LATHE_OP_ADD, NULL, shapes, 2, &y, 1, -1, ""), LATHE_E_SHAPE);
    cr_expect_eq(mock_api()->node(g, LATHE_OP_MATMUL, NULL, dtypes, 2, &y, 1, -1, ""),
                 LATHE_E_SHAPE);
    cr_expect_eq(mock_api()->node(g, LATHE_OP_SWIGLU, NULL, shapes, 2, &y, 1, -1, ""),
                 LATHE_E_UNSUPPORTED);
    cr_expect_eq(mock_api()->node(g, LATHE_OP_SUM, NULL, &b, 1, &y, 1, -1, ""), LATHE_E_DTYPE);
    cr_expect_eq(mock_n_nodes(g), 0);
    mock_destroy(g);
}

Test(mock_graph, in_place_lincomb_takes_the_dtype_of_the_memory_it_takes)
{
    lathe_graph *g = mock_create(LATHE_BF16);
    const double f[1] = {1.0009765625}, h[1] = {2};
    const lathe_val in[2] = {mock_input(g, "a", lathe_desc_1d(LATHE_F32, 1), f),
                             mock_input(g, "b", lathe_desc_1d(LATHE_BF16, 1), h)};
    const lathe_op_attrs attrs = {.alpha = 1, .beta = 0};
    lathe_val y;
    cr_assert_eq(mock_api()->node(g, LATHE_OP_LINCOMB, &attrs, in, 2, &y, 1, 1, ""), LATHE_OK);
    cr_expect_eq(mock_desc(g, y).dtype, LATHE_BF16);
    mock_round(g, 1);
    mock_eval(g);
    cr_expect_eq(mock_data(g, y)[0], 1.0); /* 1 + 2^-10 is below half an ulp of bf16 */
    mock_destroy(g);
}
