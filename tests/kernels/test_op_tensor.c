/* The ops of lathe/op.h on cases worked by hand: ties, NaN, infinities, indices outside the
 * range. Larger cases in every dtype are in core/graph/ops; `lathe plugin check` runs them. */
#include "kernels/op_harness.h"

static const double *hand[LATHE_OP_MAX_OUT]; /* expected outputs */

static void by_hand(const op_case *c, double *const *in, double *const *want)
{
    (void)in;
    for (int32_t i = 0; i < c->n_out; i++)
        for (int64_t k = 0; k < lathe_desc_count(&c->out[i]); k++)
            want[i][k] = hand[i][k];
}

static void give(op_case *c, int32_t i, lathe_desc d, const double *values)
{
    op_input(c, i, d, 0.0, 1.0);
    memcpy(c->value[i], values, (size_t)lathe_desc_count(&d) * sizeof *values);
}

/* Checks an op with one output on f32 vectors of n numbers. */
static void check_vectors(int32_t op, lathe_op_attrs attrs, int64_t n, int32_t n_in,
                          const double *const *in, const double *want)
{
    op_case c = {.op = op, .attrs = attrs, .reference = by_hand, .slack = 0x1p-22};
    for (int32_t i = 0; i < n_in; i++)
        give(&c, i, lathe_desc_1d(LATHE_F32, n), in[i]);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, n));
    hand[0] = want;
    op_check(&c);
}

static const lathe_op_attrs none;

Test(op_tensor, exp_and_log_at_their_ends)
{
    const double x[4] = {0.0, -INFINITY, INFINITY, NAN}, y[4] = {1.0, 0.0, INFINITY, NAN};
    check_vectors(LATHE_OP_EXP, none, 4, 1, (const double *const[]){x}, y);
    const double u[4] = {1.0, 0.0, INFINITY, -1.0}, v[4] = {0.0, -INFINITY, INFINITY, NAN};
    check_vectors(LATHE_OP_LOG, none, 4, 1, (const double *const[]){u}, v);
}

Test(op_tensor, abs_has_the_slope_0_at_0)
{
    const double dy[3] = {2.0, 3.0, 5.0}, x[3] = {-0.5, 0.0, 0.5}, dx[3] = {-2.0, 0.0, 5.0};
    check_vectors(LATHE_OP_ABS_BWD, none, 3, 2, (const double *const[]){dy, x}, dx);
}

Test(op_tensor, min_and_max_keep_nan_of_either_side)
{
    const double a[4] = {1.0, NAN, 3.0, -0.5}, b[4] = {2.0, 1.0, NAN, -0.5};
    const double least[4] = {1.0, NAN, NAN, -0.5}, max[4] = {2.0, NAN, NAN, -0.5};
    check_vectors(LATHE_OP_MIN, none, 4, 2, (const double *const[]){a, b}, least);
    check_vectors(LATHE_OP_MAX, none, 4, 2, (const double *const[]){a, b}, max);
}

Test(op_tensor, less_is_0_for_equal_numbers_and_nan)
{
    const double a[4] = {1.0, 2.0, NAN, 3.0}, b[4] = {2.0, 2.0, 1.0, 1.0}, y[4] = {1, 0, 0, 0};
    check_vectors(LATHE_OP_LESS, none, 4, 2, (const double *const[]){a, b}, y);
}

Test(op_tensor, where_does_not_read_the_other_side)
{
    const double condition[3] = {1.0, 0.0, 0.0}, a[3] = {2.0, NAN, INFINITY},
                 b[3] = {NAN, 3.0, 4.0};
    const double y[3] = {2.0, 3.0, 4.0};
    check_vectors(LATHE_OP_WHERE, none, 3, 3, (const double *const[]){condition, a, b}, y);
}

Test(op_tensor, clamp_takes_its_bounds_from_attributes)
{
    const lathe_op_attrs bounds = {.alpha = -1.0, .beta = 2.0};
    const double x[5] = {-3.0, -1.0, 0.5, 2.0, 2.5}, y[5] = {-1.0, -1.0, 0.5, 2.0, 2.0};
    check_vectors(LATHE_OP_CLAMP, bounds, 5, 1, (const double *const[]){x}, y);
    const double dy[5] = {1, 2, 3, 4, 5}, dx[5] = {0, 2, 3, 4, 0};
    check_vectors(LATHE_OP_CLAMP_BWD, bounds, 5, 2, (const double *const[]){dy, x}, dx);
}

Test(op_tensor, clamp_refuses_bounds_that_cross)
{
    op_case c = {.op = LATHE_OP_CLAMP, .attrs = {.alpha = 1.0, .beta = 0.5}};
    op_input(&c, 0, lathe_desc_1d(LATHE_F32, 3), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 3));
    cr_expect_eq(op_refusal(&c), LATHE_E_ARG);
    op_free(&c);
}

Test(op_tensor, softmax_of_equal_numbers_is_even_and_large_ones_do_not_overflow)
{
    const double x[8] = {3, 3, 3, 3, 1000, 1000, -1000, -INFINITY};
    const double y[8] = {0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.0, 0.0};
    op_case c = {.op = LATHE_OP_SOFTMAX, .reference = by_hand, .slack = 0x1p-22};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4), x);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4));
    hand[0] = y;
    op_check(&c);
}

Test(op_tensor, cumsum_from_either_end)
{
    const double x[4] = {1, 2, 3, 4}, y[4] = {1, 3, 6, 10}, z[4] = {10, 9, 7, 4};
    const lathe_op_attrs inverse = {.inverse = 1};
    check_vectors(LATHE_OP_CUMSUM, none, 4, 1, (const double *const[]){x}, y);
    check_vectors(LATHE_OP_CUMSUM, inverse, 4, 1, (const double *const[]){x}, z);
}

Test(op_tensor, gather_of_no_row_is_zero_and_scatter_adds_up)
{
    const double x[6] = {1, 2, 3, 4, 5, 6}, index[3] = {2, -1, 2};
    const double gathered[6] = {5, 6, 0, 0, 5, 6}, scattered[8] = {0, 0, 0, 0, 6, 8, 0, 0};
    op_case c = {.op = LATHE_OP_GATHER, .reference = by_hand};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 3, 2), x);
    give(&c, 1, lathe_desc_1d(LATHE_I32, 3), index);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 3, 2));
    hand[0] = gathered;
    op_check(&c);
    op_case s = {.op = LATHE_OP_SCATTER, .attrs = {.count = 4}, .reference = by_hand};
    give(&s, 0, lathe_desc_2d(LATHE_F32, 3, 2), x);
    give(&s, 1, lathe_desc_1d(LATHE_I32, 3), index);
    op_output(&s, 0, lathe_desc_2d(LATHE_F32, 4, 2));
    hand[0] = scattered;
    op_check(&s);
}

Test(op_tensor, topk_takes_the_first_of_equal_numbers_and_never_nan)
{
    const double x[8] = {1, 7, NAN, 7, NAN, 2, NAN, NAN};
    const double y[6] = {7, 7, 1, 2, NAN, NAN}, index[6] = {1, 3, 0, 1, -1, -1};
    op_case c = {.op = LATHE_OP_TOPK, .attrs = {.count = 3}, .reference = by_hand};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4), x);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 3));
    op_output(&c, 1, lathe_desc_2d(LATHE_I32, 2, 3));
    hand[0] = y;
    hand[1] = index;
    op_check(&c);
}

/* Two groups of three, of which a row chooses one: in row 0 the second, since 6 + 4 is more than
 * 9 + 0, in row 1 the first, since 9 + 1 is as much. The bias decides, and is not in y. NaN is
 * never chosen. */
Test(op_tensor, experts_are_chosen_by_their_bias_within_the_best_groups)
{
    const double x[12] = {9, 0, -1, 2, 2, NAN, 9, 1, -1, 2, 2, 3}, bias[6] = {0, 0, 0, 2, 4, 0};
    const double y[4] = {2, 2, 9, 1}, index[4] = {4, 3, 0, 1};
    op_case c = {.op = LATHE_OP_EXPERT_CHOICE,
                 .attrs = {.count = 2, .batch = 2, .start = 1},
                 .reference = by_hand};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 6), x);
    give(&c, 1, lathe_desc_1d(LATHE_F32, 6), bias);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 2));
    op_output(&c, 1, lathe_desc_2d(LATHE_I32, 2, 2));
    hand[0] = y;
    hand[1] = index;
    op_check(&c);
}

Test(op_tensor, topk_refuses_more_than_a_row_has)
{
    op_case c = {.op = LATHE_OP_TOPK, .attrs = {.count = 5}};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 5));
    op_output(&c, 1, lathe_desc_2d(LATHE_I32, 2, 5));
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}

/* W = [[0, 0], [0, 0]]: two tokens with equal probability have the entropy log 2; rows with target
 * -1 give 0. */
Test(op_tensor, entropy_of_an_even_choice_is_log_2)
{
    const double x[4] = {1, 2, 3, 4}, w[4] = {0}, targets[2] = {0, -1};
    const double h[2] = {0.69314718055994531, 0.0};
    op_case c = {.op = LATHE_OP_HEAD_ENTROPY, .reference = by_hand, .slack = 0x1p-22};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 2), x);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 2, 2), w);
    give(&c, 2, lathe_desc_1d(LATHE_I32, 2), targets);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, 2));
    hand[0] = h;
    op_check(&c);
}

/* Two blocks: [1 2; 3 4] and [5 6; 7 8], each times its transpose. */
Test(op_tensor, block_matmul_multiplies_block_by_block)
{
    const double a[8] = {1, 2, 5, 6, 3, 4, 7, 8}, y[8] = {5, 11, 61, 83, 11, 25, 83, 113};
    op_case c = {.op = LATHE_OP_BLOCK_MATMUL,
                 .attrs = {.alpha = 1.0, .trans_b = 1, .count = 2},
                 .reference = by_hand};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4), a);
    give(&c, 1, lathe_desc_2d(LATHE_F32, 2, 4), a);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4));
    hand[0] = y;
    op_check(&c);
}

Test(op_tensor, block_matmul_refuses_blocks_of_unequal_width)
{
    op_case c = {.op = LATHE_OP_BLOCK_MATMUL, .attrs = {.alpha = 1.0, .count = 2}};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 2, 5), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, 2, 4), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 4));
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}

Test(op_tensor, skew_writes_both_sides_of_the_diagonal_and_inverse_takes_their_difference)
{
    const double x[6] = {1, 2, 3, 4, 5, 6};
    const double y[18] = {0, 1, 2, 0, 4, 5, -1, 0, 3, -4, 0, 6, -2, -3, 0, -5, -6, 0};
    const double twice[6] = {2, 4, 6, 8, 10, 12};
    op_case c = {.op = LATHE_OP_SKEW, .reference = by_hand};
    give(&c, 0, lathe_desc_2d(LATHE_F32, 2, 3), x);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 3, 6));
    hand[0] = y;
    op_check(&c);
    op_case d = {.op = LATHE_OP_SKEW, .attrs = {.inverse = 1}, .reference = by_hand};
    give(&d, 0, lathe_desc_2d(LATHE_F32, 3, 6), y);
    op_output(&d, 0, lathe_desc_2d(LATHE_F32, 2, 3));
    hand[0] = twice;
    op_check(&d);
}
