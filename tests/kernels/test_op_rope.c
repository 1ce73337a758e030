/* ROPE on the CPU device. */
#include "kernels/op_harness.h"

static void reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[1]), d = c->attrs.head_dim;
    const int64_t width = lathe_desc_count(&c->in[0]) / n, half = c->in[2].dims[2];
    memcpy(want[0], in[0], (size_t)(n * width) * sizeof **want);
    for (int64_t r = 0; r < n; r++)
        for (int64_t h = 0; h < width; h += d)
            for (int64_t i = 0; i < half; i++) {
                const double *angles = in[2] + (int64_t)in[1][r] * 2 * half;
                const double cosine = angles[i], sine = angles[half + i];
                const double s = c->attrs.inverse ? -sine : sine;
                const int64_t at =
                    r * width + h + c->attrs.start + (c->attrs.interleaved ? 2 * i : i);
                const int64_t other = at + (c->attrs.interleaved ? 1 : half);
                const double x1 = in[0][at], x2 = in[0][other];
                want[0][at] = x1 * cosine - x2 * s;
                want[0][other] = x2 * cosine + x1 * s;
            }
}

/* The first r of the d elements of each head are rotated. */
static op_case partial_case(int32_t dtype, int64_t n, int64_t heads, int32_t d, int32_t r,
                            int64_t positions)
{
    op_case c = {.op = LATHE_OP_ROPE, .reference = reference, .slack = 1e-6};
    c.attrs.head_dim = d;
    op_input(&c, 0, lathe_desc_2d(dtype, n, heads * d), 0.0, 1.0);
    op_indices(&c, 1, n, 3, 2, positions);
    const lathe_desc table = {LATHE_F32, 3, {positions, 2, r / 2, 1}};
    op_input(&c, 2, table, 0.0, 1.0);
    for (int64_t i = 0; i < positions * r; i++) {
        const double angle = (double)(i / r) / pow(100.0, (double)(i % (r / 2)));
        c.value[2][i] = op_round(i % r < r / 2 ? cos(angle) : sin(angle), LATHE_F32);
    }
    op_output(&c, 0, lathe_desc_2d(dtype, n, heads * d));
    return c;
}

static op_case rope_case(int32_t dtype, int64_t n, int64_t heads, int32_t d, int64_t positions)
{
    return partial_case(dtype, n, heads, d, d, positions);
}

Test(rope, agrees_forward_and_inverse_in_place_and_out_of_place)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 4; variant++) {
            op_case c = rope_case(dtypes[d], 67, 3, variant == 0 ? 2 : 22, 31);
            c.attrs.inverse = variant & 1;
            c.in_place = variant >> 1;
            op_check(&c);
        }
}

Test(rope, agrees_for_heads_of_whole_packs)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 2; variant++) {
            op_case c = rope_case(dtypes[d], 19, 5, 32, 31);
            c.attrs.inverse = variant;
            c.in_place = variant;
            c.add = !variant;
            op_check(&c);
        }
}

Test(rope, rotates_as_many_leading_elements_of_a_head_as_the_table_has)
{
    static const int32_t sizes[][2] = {{22, 6}, {32, 16}, {64, 16}, {12, 8}, {7, 4}, {80, 32}};
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int variant = 0; variant < 8; variant++) {
                op_case c = partial_case(dtypes[d], 19, 3, sizes[s][0], sizes[s][1], 31);
                c.attrs.inverse = variant & 1;
                c.in_place = variant >> 1 & 1;
                c.add = variant % 4 == 1;
                c.attrs.interleaved = variant >> 2;
                op_check(&c);
            }
}

Test(rope, rotates_what_follows_the_first_elements_of_a_head)
{
    static const int32_t sizes[][3] = {{22, 6, 5}, {32, 16, 16}, {64, 16, 32}, {3, 2, 1}};
    for (int32_t dtype = LATHE_F32; dtype <= LATHE_F16; dtype++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int variant = 0; variant < 8; variant++) {
                op_case c = partial_case(dtype, 19, 3, sizes[s][0], sizes[s][1], 31);
                c.attrs.start = sizes[s][2];
                c.attrs.inverse = variant & 1;
                c.in_place = variant >> 1 & 1;
                c.add = variant % 4 == 1;
                c.attrs.interleaved = variant >> 2;
                op_check(&c);
            }
}

Test(rope, rotates_the_pairs_of_whole_heads_if_they_are_interleaved)
{
    const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 4; variant++) {
            op_case c = rope_case(dtypes[d], 19, 5, variant < 2 ? 32 : 22, 31);
            c.attrs.interleaved = 1;
            c.attrs.inverse = variant & 1;
            c.in_place = variant & 1;
            c.add = !c.in_place;
            op_check(&c);
        }
}

Test(rope, of_interleaved_pairs_by_hand)
{
    /* one head of 4 that turns by a quarter: (1, 2, 3, 4) becomes (-2, 1, -4, 3) */
    op_case c = rope_case(LATHE_F32, 1, 1, 4, 4);
    const double x[4] = {1.0, 2.0, 3.0, 4.0}, quarter[4] = {0.0, 0.0, 1.0, 1.0};
    const double want[4] = {-2.0, 1.0, -4.0, 3.0};
    double y[4], *const out[1] = {y};
    c.attrs.interleaved = 1;
    memcpy(c.value[0], x, sizeof x);
    memcpy(c.value[2] + 4 * (int64_t)c.value[1][0], quarter, sizeof quarter);
    reference(&c, c.value, out);
    cr_assert_arr_eq(y, want, sizeof want);
    op_check(&c);
}

Test(rope, of_a_part_by_hand)
{
    /* one head of 4, of which 2 turn by a quarter: (1, 2, 3, 4) becomes (-2, 1, 3, 4) */
    op_case c = partial_case(LATHE_F32, 1, 1, 4, 2, 4);
    const double x[4] = {1.0, 2.0, 3.0, 4.0}, quarter[2] = {0.0, 1.0};
    const double want[4] = {-2.0, 1.0, 3.0, 4.0};
    double y[4], *const out[1] = {y};
    memcpy(c.value[0], x, sizeof x);
    memcpy(c.value[2] + 2 * (int64_t)c.value[1][0], quarter, sizeof quarter);
    reference(&c, c.value, out);
    cr_assert_arr_eq(y, want, sizeof want);
    op_check(&c);
}

Test(rope, the_inverse_undoes_the_rotation)
{
    op_case c = rope_case(LATHE_F32, 5, 2, 8, 9);
    double *there = calloc(5 * 16, sizeof *there), *back = calloc(5 * 16, sizeof *back);
    double *const first[1] = {there}, *const second[1] = {back};
    reference(&c, c.value, first);
    double *const in[3] = {there, c.value[1], c.value[2]};
    c.attrs.inverse = 1;
    reference(&c, in, second);
    for (int i = 0; i < 5 * 16; i++)
        cr_assert_float_eq(back[i], c.value[0][i], 1e-6);
    free(there);
    free(back);
    op_check(&c);
}

Test(rope, refuses_an_odd_head)
{
    op_case c = rope_case(LATHE_F32, 4, 1, 6, 8);
    c.attrs.head_dim = 3;
    cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}

Test(rope, refuses_a_table_that_is_larger_than_a_head)
{
    op_case c = rope_case(LATHE_F32, 4, 2, 8, 8);
    c.attrs.head_dim = 4;
    cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}
