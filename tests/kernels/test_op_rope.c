/* ROPE on the CPU device. */
#include "kernels/op_harness.h"

static void reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[1]), d = c->attrs.head_dim;
    const int64_t width = lathe_desc_count(&c->in[0]) / n;
    for (int64_t r = 0; r < n; r++)
        for (int64_t h = 0; h < width; h += d)
            for (int64_t i = 0; i < d / 2; i++) {
                const double *angles = in[2] + (int64_t)in[1][r] * d;
                const double cosine = angles[i], sine = angles[d / 2 + i];
                const double s = c->attrs.inverse ? -sine : sine;
                const double x1 = in[0][r * width + h + i], x2 = in[0][r * width + h + i + d / 2];
                want[0][r * width + h + i] = x1 * cosine - x2 * s;
                want[0][r * width + h + i + d / 2] = x2 * cosine + x1 * s;
            }
}

static op_case rope_case(int32_t dtype, int64_t n, int64_t heads, int32_t d, int64_t positions)
{
    op_case c = {.op = LATHE_OP_ROPE, .reference = reference, .slack = 1e-6};
    c.attrs.head_dim = d;
    op_input(&c, 0, lathe_desc_2d(dtype, n, heads * d), 0.0, 1.0);
    op_indices(&c, 1, n, 3, 2, positions);
    const lathe_desc table = {LATHE_F32, 3, {positions, 2, d / 2, 1}};
    op_input(&c, 2, table, 0.0, 1.0);
    for (int64_t i = 0; i < positions * d; i++) {
        const double angle = (double)(i / d) / pow(100.0, (double)(i % (d / 2)));
        c.value[2][i] = op_round(i % d < d / 2 ? cos(angle) : sin(angle), LATHE_F32);
    }
    op_output(&c, 0, lathe_desc_2d(dtype, n, heads * d));
    return c;
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
