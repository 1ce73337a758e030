/* LINEAR, LINEAR_DX, LINEAR_DW and MATMUL of the CPU device. */
#include "kernels/op_harness.h"

static void linear_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t o = c->in[1].dims[0], i = c->in[1].dims[1], n = lathe_desc_count(&c->in[0]) / i;
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < o; j++) {
            double sum = in[2] == NULL ? 0.0 : in[2][j];
            for (int64_t k = 0; k < i; k++)
                sum += in[0][r * i + k] * in[1][j * i + k];
            want[0][r * o + j] = sum;
        }
}

static void dx_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t o = c->in[1].dims[0], i = c->in[1].dims[1], n = lathe_desc_count(&c->in[0]) / o;
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < o; j++)
            for (int64_t k = 0; k < i; k++)
                want[0][r * i + k] += in[0][r * o + j] * in[1][j * i + k];
}

static void dw_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = c->in[0].dims[0], o = c->in[0].dims[1], i = c->in[1].dims[1];
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < o; j++) {
            if (c->out[1].dtype != LATHE_ABSENT)
                want[1][j] += in[0][r * o + j];
            for (int64_t k = 0; k < i; k++)
                want[0][j * i + k] += in[0][r * o + j] * in[1][r * i + k];
        }
}

static void linear_case(int32_t dtype, int64_t n, int64_t i, int64_t o, int bias)
{
    op_case c = {
        .op = LATHE_OP_LINEAR, .product = 1, .reference = linear_reference, .slack = slack_of(i)};
    op_input(&c, 0, lathe_desc_2d(dtype, n, i), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, o, i), 0.0, 1.0);
    if (bias)
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, o), 0.0, 1.0);
    else
        op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(dtype, n, o));
    op_check(&c);
}

static void dx_case(int32_t dtype, int64_t n, int64_t i, int64_t o)
{
    op_case c = {.op = LATHE_OP_LINEAR_DX,
                 .product = 1,
                 .reference = dx_reference,
                 .slack = slack_of(o),
                 .add = 1};
    op_input(&c, 0, lathe_desc_2d(dtype, n, o), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, o, i), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(dtype, n, i));
    op_check(&c);
}

static void dw_case_as(int32_t dtype, int32_t dw, int64_t n, int64_t i, int64_t o, int bias)
{
    op_case c = {.op = LATHE_OP_LINEAR_DW,
                 .product = 1,
                 .reference = dw_reference,
                 .slack = slack_of(n),
                 .add = 1};
    op_input(&c, 0, lathe_desc_2d(dtype, n, o), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, n, i), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(dw, o, i));
    if (bias)
        op_output(&c, 1, lathe_desc_1d(LATHE_F32, o));
    else
        op_absent_out(&c, 1);
    op_check(&c);
}

static void dw_case(int32_t dtype, int64_t n, int64_t i, int64_t o, int bias)
{
    dw_case_as(dtype, LATHE_F32, n, i, o, bias);
}

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

Test(linear, agrees_with_a_case_worked_by_hand)
{
    op_case c = {.op = LATHE_OP_LINEAR, .product = 1, .reference = linear_reference};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 1, 2), 0.0, 0.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, 2, 2), 0.0, 0.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, 2), 0.0, 0.0);
    const double x[2] = {1, 2}, w[4] = {3, 4, 5, 6}, b[2] = {0.5, -1};
    memcpy(c.value[0], x, sizeof x);
    memcpy(c.value[1], w, sizeof w);
    memcpy(c.value[2], b, sizeof b);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 1, 2));
    double y[2], *want[1] = {y};
    linear_reference(&c, c.value, want);
    cr_assert_eq(y[0], 11.5); /* 1*3 + 2*4 + 0.5 */
    cr_assert_eq(y[1], 16.0); /* 1*5 + 2*6 - 1 */
    op_check(&c);
}

Test(linear, agrees_at_odd_sizes_and_one_row)
{
    for (int d = 0; d < 3; d++) {
        linear_case(dtypes[d], 37, 67, 45, 1);
        linear_case(dtypes[d], 1, 33, 129, 0);
        linear_case(dtypes[d], 300, 64, 1, 1);
        linear_case(dtypes[d], 5, 1, 3, 0);
    }
}

/* With few rows, the kernel reads the weight's rows as stored: whole steps, tails of every length,
 * one to nine rows. */
Test(linear, of_a_few_rows_reads_weights_of_any_width_in_their_own_dtype)
{
    static const int64_t widths[] = {1, 15, 16, 31, 32, 33, 63, 64, 65, 127, 200, 577};
    for (int d = 0; d < 3; d++) {
        for (int w = 0; w < 12; w++)
            linear_case(dtypes[d], 1, widths[w], 35, w & 1);
        for (int64_t rows = 2; rows <= 9; rows++)
            linear_case(dtypes[d], rows, 131, 7, 1);
        linear_case(dtypes[d], 1, 576, 2000, 0); /* several chunks */
    }
}

/* More rows, columns and products than fit a block of a packed product, none a multiple of a
 * tile. */
Test(linear, agrees_over_several_packed_blocks)
{
    for (int d = 1; d < 3; d++) {
        linear_case(dtypes[d], 97, 321, 517, 1);
        linear_case(dtypes[d], 211, 700, 37, 1);
        dx_case(dtypes[d], 97, 517, 321);
        dw_case_as(dtypes[d], dtypes[d], 333, 517, 101, 0);
        dw_case(dtypes[d], 650, 61, 211, 0);
    }
}

/* A sum so long that the right operand is packed in several turns. */
Test(linear, agrees_where_the_right_side_is_packed_in_turns)
{
    linear_case(LATHE_BF16, 9, 8200, 530, 0);
}

Test(linear_dx, agrees_and_adds)
{
    for (int d = 0; d < 3; d++) {
        dx_case(dtypes[d], 37, 67, 45);
        dx_case(dtypes[d], 1, 33, 129);
        dx_case(dtypes[d], 300, 3, 1);
    }
}

Test(linear_dw, agrees_and_adds_with_and_without_bias)
{
    for (int d = 0; d < 3; d++) {
        dw_case(dtypes[d], 37, 67, 45, 1);
        dw_case(dtypes[d], 1, 33, 29, 1);
        dw_case(dtypes[d], 700, 17, 19, 1); /* several partials and blocks */
        dw_case(dtypes[d], 64, 96, 32, 0);
    }
}

Test(linear_dw, does_not_depend_on_the_workers_in_a_long_sum)
{
    for (int d = 0; d < 3; d++)
        dw_case(dtypes[d], 4096, 64, 48, 1);
}

/* Large enough for oneDNN's gemm to compute the transposed product, and for several partial sums of
 * db. */
Test(linear_dw, agrees_for_a_large_weight)
{
    for (int d = 0; d < 3; d++)
        dw_case(dtypes[d], 1100, 520, 515, 1);
}

/* A transposed left operand that needs several packed blocks of 4 Mi elements. */
Test(linear_dw, agrees_over_several_packed_blocks)
{
    dw_case(LATHE_BF16, 9000, 8, 1000, 0);
    dw_case(LATHE_F16, 9000, 8, 1000, 0);
}

/* The sum of old value and product is rounded once. */
Test(linear_dw, agrees_in_the_dtype_of_what_it_multiplies)
{
    for (int d = 1; d < 3; d++) {
        dw_case_as(dtypes[d], dtypes[d], 37, 67, 45, 1);
        dw_case_as(dtypes[d], dtypes[d], 1, 33, 29, 0);
        dw_case_as(dtypes[d], dtypes[d], 4096, 64, 48, 1);
        dw_case_as(dtypes[d], dtypes[d], 1100, 520, 515, 1);
        dw_case_as(dtypes[d], dtypes[d], 9000, 8, 1000, 0);
    }
}

Test(linear_dw, refuses_a_third_dtype)
{
    op_case c = {.op = LATHE_OP_LINEAR_DW};
    op_input(&c, 0, lathe_desc_2d(LATHE_BF16, 4, 3), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_BF16, 4, 5), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F16, 3, 5));
    op_absent_out(&c, 1);
    cr_assert_eq(op_refusal(&c), LATHE_E_DTYPE);
    op_free(&c);
}

static void matmul_reference(const op_case *c, double *const *in, double *const *want)
{
    const int ta = c->attrs.trans_a, tb = c->attrs.trans_b;
    const int64_t m = c->out[0].dims[0], n = c->out[0].dims[1], kk = c->in[0].dims[!ta];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < kk; k++)
                want[0][i * n + j] += c->attrs.alpha * in[0][ta ? k * m + i : i * kk + k] *
                                      in[1][tb ? j * kk + k : k * n + j];
}

Test(matmul, agrees_for_every_transposition_and_alpha)
{
    for (int d = 0; d < 3; d++)
        for (int t = 0; t < 4; t++) {
            const int64_t m = 23, n = 31, k = 300;
            op_case c = {.op = LATHE_OP_MATMUL,
                         .product = 1,
                         .reference = matmul_reference,
                         .slack = slack_of(k),
                         .add = 1};
            c.attrs.alpha = t == 0 ? 1.0 : -0.75;
            c.attrs.trans_a = t & 1;
            c.attrs.trans_b = t >> 1;
            op_input(&c, 0, t & 1 ? lathe_desc_2d(dtypes[d], k, m) : lathe_desc_2d(dtypes[d], m, k),
                     0.0, 1.0);
            op_input(&c, 1,
                     t >> 1 ? lathe_desc_2d(dtypes[d], n, k) : lathe_desc_2d(dtypes[d], k, n), 0.0,
                     1.0);
            op_output(&c, 0, lathe_desc_2d(dtypes[d], m, n));
            op_check(&c);
        }
}

Test(linear, refuses_shapes_that_do_not_agree)
{
    op_case c = {.op = LATHE_OP_LINEAR};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 4, 5), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_F32, 3, 6), 0.0, 1.0);
    op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 4, 3));
    cr_assert_eq(op_refusal(&c), LATHE_E_SHAPE);
    c.in[1] = lathe_desc_2d(LATHE_BF16, 3, 5);
    cr_assert_eq(op_refusal(&c), LATHE_E_DTYPE);
    op_free(&c);
}

Test(attention, is_left_to_its_own_plugins)
{
    op_case c = {.op = LATHE_OP_ATTENTION};
    op_input(&c, 0, lathe_desc_2d(LATHE_F32, 4, 8), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, 4, 8));
    cr_assert_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    op_free(&c);
}

/* Products of few rows pack their input whole, products of many rows the weight. Both add in the
 * same order, over several parts of the sum. oneDNN multiplies bf16 on cpu_avx512_bf16. */
Test(linear, of_few_rows_has_the_bits_of_the_same_rows_among_many)
{
    enum { FEW = 100, MANY = 600, WIDTH = 700, COLUMNS = 650 };
    const size_t bytes = (size_t)FEW * COLUMNS * 2;
    for (int32_t d = 1; d < 3; d++) {
        op_case many = {.op = LATHE_OP_LINEAR};
        op_input(&many, 0, lathe_desc_2d(dtypes[d], MANY, WIDTH), 0.0, 1.0);
        op_input(&many, 1, lathe_desc_2d(dtypes[d], COLUMNS, WIDTH), 0.0, 1.0);
        op_input(&many, 2, lathe_desc_1d(LATHE_F32, COLUMNS), 0.0, 1.0);
        op_output(&many, 0, lathe_desc_2d(dtypes[d], MANY, COLUMNS));
        op_case few = many;
        few.in[0].dims[0] = few.out[0].dims[0] = FEW;
        for (int i = 0; i < N_ISAS; i++) {
            void *all[LATHE_OP_MAX_OUT], *some[LATHE_OP_MAX_OUT];
            op_build b = {0};
            if ((dtypes[d] == LATHE_BF16 && strcmp(op_isas[i], "cpu_avx512_bf16") == 0) ||
                !op_open(op_isas[i], &b))
                continue;
            op_run(&b, &many, 0, all);
            op_run(&b, &few, 0, some);
            cr_expect_eq(memcmp(all[0], some[0], bytes), 0, "%s, dtype %d", b.plugin->name,
                         (int)dtypes[d]);
            op_free_outputs(&many, all);
            op_free_outputs(&few, some);
            op_close(&b);
        }
        op_free(&many);
    }
}

static op_case invariant_case(int32_t dtype, int64_t rows, int64_t width, int64_t columns)
{
    op_case c = {.op = LATHE_OP_LINEAR,
                 .product = 1,
                 .reference = linear_reference,
                 .slack = slack_of(width),
                 .attrs.invariant = 1};
    op_input(&c, 0, lathe_desc_2d(dtype, rows, width), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, columns, width), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, columns), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(dtype, rows, columns));
    return c;
}

Test(linear, that_is_invariant_is_the_product)
{
    static const int64_t rows[] = {1, 7, 16, 70};
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            op_case c = invariant_case(dtypes[d], rows[i], 331, 101);
            op_check(&c);
        }
}

/* Compares the first rows of products of 1 to MOST rows with those of one product of MOST rows. */
static void check_invariance(const op_build *b, int32_t dtype, int64_t width)
{
    enum { MAX = 150, COLUMNS = 101 };
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 64, 65, 100};
    op_case many = invariant_case(dtype, MAX, width, COLUMNS);
    void *all[LATHE_OP_MAX_OUT], *some[LATHE_OP_MAX_OUT];
    op_run(b, &many, 0, all);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        op_case few = many;
        few.in[0].dims[0] = few.out[0].dims[0] = rows[i];
        op_run(b, &few, 0, some);
        const size_t bytes = (size_t)(rows[i] * COLUMNS * lathe_dtype_bytes(dtype));
        cr_expect_eq(memcmp(all[0], some[0], bytes), 0, "%s, dtype %d, width %lld, %lld rows",
                     b->plugin->name, (int)dtype, (long long)width, (long long)rows[i]);
        op_free_outputs(&few, some);
    }
    op_free_outputs(&many, all);
    op_free(&many);
}

Test(linear, that_is_invariant_gives_a_row_the_same_bits_among_any_number_of_rows)
{
    static const int64_t widths[] = {5, 64, 331, 576};
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        for (int d = 0; d < 3; d++)
            for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
                check_invariance(&b, dtypes[d], widths[w]);
        op_close(&b);
    }
}
