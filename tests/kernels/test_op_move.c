/* SLICE, SLICE_BWD, KV_APPEND and TRANSPOSE on the CPU device: ops that only move memory. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static void slice_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t row = lathe_desc_count(&c->in[0]) / c->in[0].dims[0];
    for (int64_t i = 0; i < c->attrs.count * row; i++)
        want[0][i] = in[0][c->attrs.start * row + i];
}

static void slice_bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t row = lathe_desc_count(&c->out[0]) / c->out[0].dims[0];
    for (int64_t i = 0; i < c->attrs.count * row; i++)
        want[0][c->attrs.start * row + i] = in[0][i];
}

Test(slice, takes_rows_and_its_derivative_puts_them_back)
{
    const int64_t starts[] = {0, 3, 9}, counts[] = {1, 4, 2};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++) {
            op_case c = {.op = LATHE_OP_SLICE, .reference = slice_reference, .add = 1};
            c.attrs.start = starts[s];
            c.attrs.count = counts[s];
            op_input(&c, 0, lathe_desc_2d(dtypes[d], 11, 7), 0.0, 1.0);
            op_output(&c, 0, lathe_desc_2d(dtypes[d], counts[s], 7));
            op_check(&c);
            op_case b = {.op = LATHE_OP_SLICE_BWD, .reference = slice_bwd_reference, .add = 1};
            b.attrs.start = starts[s];
            b.attrs.count = counts[s];
            op_input(&b, 0, lathe_desc_2d(dtypes[d], counts[s], 7), 0.0, 1.0);
            op_output(&b, 0, lathe_desc_2d(dtypes[d], 11, 7));
            op_check(&b);
        }
}

Test(slice, refuses_rows_that_do_not_exist)
{
    op_case c = {.op = LATHE_OP_SLICE};
    c.attrs.start = 10;
    c.attrs.count = 2;
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 11, 7), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 2, 7));
    cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}

static void append_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t b = c->in[0].dims[0], p = c->in[0].dims[1], w = c->in[0].dims[2];
    const int64_t tq = lathe_desc_count(&c->in[1]) / (b * w);
    memcpy(want[0], in[0], (size_t)(b * p * w) * sizeof(double));
    for (int64_t i = 0; i < b * tq * w; i++) {
        const int64_t row = i / (tq * w), t = i / w % tq;
        want[0][(row * p + (int64_t)in[2][row] - tq + t) * w + i % w] = in[1][i];
    }
}

Test(kv_append, copies_rows_of_whole_packs)
{
    for (int d = 0; d < 3; d++) {
        op_case c = {.op = LATHE_OP_KV_APPEND, .reference = append_reference, .in_place = 1};
        op_input(&c, 0, (lathe_desc){dtypes[d], 3, {3, 9, 32, 1}}, 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(dtypes[d], 6, 32), 0.0, 1.0);
        op_indices(&c, 2, 3, 2, 3, 10);
        op_output(&c, 0, (lathe_desc){dtypes[d], 3, {3, 9, 32, 1}});
        op_check(&c);
    }
}

Test(kv_append, writes_the_last_rows_of_each_sequence)
{
    for (int d = 0; d < 3; d++)
        for (int64_t tq = 1; tq < 6; tq += 2) {
            op_case c = {.op = LATHE_OP_KV_APPEND, .reference = append_reference, .in_place = 1};
            op_input(&c, 0, (lathe_desc){dtypes[d], 3, {3, 9, 10, 1}}, 0.0, 1.0);
            op_input(&c, 1, lathe_desc_2d(dtypes[d], 3 * tq, 10), 0.0, 1.0);
            op_indices(&c, 2, 3, 5, 2, 10);
            op_output(&c, 0, (lathe_desc){dtypes[d], 3, {3, 9, 10, 1}});
            op_check(&c);
        }
}

/* Three sequences in blocks of 4 rows of a cache of 7 blocks: their lengths, then their blocks. */
static const double tables[3][4] = {{5, 2, 0, 5}, {12, 6, 3, 1}, {3, 4, 0, 0}};

static void append_in_blocks_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t w = c->in[0].dims[2];
    memcpy(want[0], in[0], (size_t)(7 * 4 * w) * sizeof(double));
    for (int64_t i = 0; i < 3 * 3 * w; i++) {
        const double *table = tables[i / (3 * w)];
        const int64_t at = (int64_t)table[0] - 3 + i / w % 3, block = (int64_t)table[1 + at / 4];
        want[0][(block * 4 + at % 4) * w + i % w] = in[1][i];
    }
}

Test(kv_append, follows_the_blocks_of_each_sequence)
{
    for (int d = 0; d < 6; d++) {
        const int64_t w = d < 3 ? 32 : 5;
        op_case c = {
            .op = LATHE_OP_KV_APPEND, .reference = append_in_blocks_reference, .in_place = 1};
        op_input(&c, 0, (lathe_desc){dtypes[d % 3], 3, {7, 4, w, 1}}, 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(dtypes[d % 3], 9, w), 0.0, 1.0);
        op_indices(&c, 2, 12, 2, 3, 10);
        c.in[2] = lathe_desc_2d(LATHE_I32, 3, 4);
        memcpy(c.value[2], tables, sizeof tables);
        op_output(&c, 0, (lathe_desc){dtypes[d % 3], 3, {7, 4, w, 1}});
        op_check(&c);
    }
}

static void transpose_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t r = c->in[0].dims[0], s = c->in[0].dims[1];
    for (int64_t i = 0; i < r * s; i++)
        want[0][i % s * r + i / s] = in[0][i];
}

Test(transpose, agrees_at_odd_sizes)
{
    const int32_t types[] = {LATHE_F32, LATHE_BF16, LATHE_F16, LATHE_I32, LATHE_I64};
    for (int d = 0; d < 5; d++)
        for (int64_t r = 1; r < 200; r = 5 * r + 2) {
            op_case c = {.op = LATHE_OP_TRANSPOSE, .reference = transpose_reference};
            op_input(&c, 0, lathe_desc_2d(types[d], r, 45), 0.0, 100.0);
            for (int64_t i = 0; i < r * 45; i++)
                c.value[0][i] = op_round(c.value[0][i], types[d]);
            op_output(&c, 0, lathe_desc_2d(types[d], 45, r));
            op_check(&c);
        }
}
