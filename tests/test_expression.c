/* lathe/kit/expression.h: values by hand, and what follows a node that fails. */
#include <criterion/criterion.h>

#include "lathe/kit/expression.h"
#include "mock_graph.h"

Test(expression, gives_the_values_that_it_writes)
{
    lathe_graph *g = mock_create(LATHE_F32);
    const double x[3] = {-2, 1, 5}, w[3] = {1, 0, 2};
    const lathe_val vx = mock_input(g, "x", lathe_desc_1d(LATHE_F32, 3), x);
    const lathe_val vw = mock_input(g, "w", lathe_desc_1d(LATHE_F32, 3), w);
    lathe_expression e = {mock_api(), g, "e", LATHE_OK};
    const lathe_val line = lathe_expr_affine(&e, 3.0, vx, 1.0);
    const lathe_val bounded = lathe_expr_clamp(&e, -1.0, vx, 4.0);
    const lathe_val sum = lathe_expr_weighted_sum(&e, vx, vw);
    cr_assert_eq(e.status, LATHE_OK);
    mock_eval(g);
    const double want_line[3] = {-5, 4, 16}, want_bounded[3] = {-1, 1, 4};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(mock_data(g, line)[i], want_line[i]);
        cr_expect_eq(mock_data(g, bounded)[i], want_bounded[i]);
    }
    cr_expect_eq(mock_data(g, sum)[0], 8.0);
    mock_destroy(g);
}

Test(expression, keeps_the_first_failure_and_adds_nothing_after_it)
{
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_val x = mock_input(g, "x", lathe_desc_1d(LATHE_F32, 3), NULL);
    const lathe_val y = mock_input(g, "y", lathe_desc_1d(LATHE_F32, 4), NULL);
    lathe_expression e = {mock_api(), g, "e", LATHE_OK};
    const lathe_val sum = lathe_expr_two(&e, LATHE_OP_ADD, x, y);
    cr_expect_eq(sum, LATHE_NONE);
    cr_expect_eq(e.status, LATHE_E_SHAPE);
    cr_expect_eq(lathe_expr_one(&e, LATHE_OP_EXP, sum), LATHE_NONE);
    cr_expect_eq(lathe_expr_detach(&e, sum), LATHE_NONE);
    cr_expect_eq(e.status, LATHE_E_SHAPE);
    cr_expect_eq(mock_n_nodes(g), 0);
    mock_destroy(g);
}
