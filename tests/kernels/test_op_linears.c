/* LINEARS: two or three products of one input give the bits of as many LINEAR ops. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
static const int64_t columns[] = {45, 7, 2000}; /* of the three results; several chunks */

static op_case joined_case(int32_t dtype, int64_t rows, int64_t width, int n)
{
    op_case c = {.op = LATHE_OP_LINEARS, .product = 1};
    op_input(&c, 0, lathe_desc_2d(dtype, rows, width), 0.0, 1.0);
    for (int i = 0; i < 3; i++) {
        if (i < n) {
            op_input(&c, 1 + 2 * i, lathe_desc_2d(dtype, columns[i], width), 0.0, 1.0);
            op_output(&c, i, lathe_desc_2d(dtype, rows, columns[i]));
        } else {
            op_absent_in(&c, 1 + 2 * i);
            op_absent_out(&c, i);
        }
        if (i == 0)
            op_input(&c, 2, lathe_desc_1d(LATHE_F32, columns[0]), 0.0, 1.0);
        else
            op_absent_in(&c, 2 + 2 * i);
    }
    return c;
}

/* Product i of a joined case alone. */
static op_case single_case(const op_case *c, int i)
{
    op_case one = {.op = LATHE_OP_LINEAR, .n_in = 3};
    const int from[3] = {0, 1 + 2 * i, 2 + 2 * i};
    for (int k = 0; k < 3; k++) {
        one.in[k] = c->in[from[k]];
        one.value[k] = c->value[from[k]];
    }
    op_output(&one, 0, c->out[i]);
    return one;
}

static void expect_bits_of_single_products(const op_build *b, const op_case *c, int n)
{
    void *joint[LATHE_OP_MAX_OUT], *one[LATHE_OP_MAX_OUT];
    op_run(b, c, 0, joint);
    for (int i = 0; i < n; i++) {
        const op_case single = single_case(c, i);
        op_run(b, &single, 0, one);
        cr_expect_eq(memcmp(joint[i], one[0], (size_t)lathe_desc_bytes(&c->out[i])), 0,
                     "%s: result %d of %d, dtype %d, %lld rows", b->plugin->name, i, n,
                     (int)c->in[0].dtype, (long long)c->in[0].dims[0]);
        op_free_outputs(&single, one);
    }
    op_free_outputs(c, joint);
}

/* Rows of decoding, of the ends of prompts, and so many that each product runs alone. */
Test(linears, has_the_bits_of_its_products)
{
    static const int64_t rows[] = {1, 2, 8, 9, 40};
    for (int d = 0; d < 3; d++)
        for (int r = 0; r < 5; r++)
            for (int n = 2; n <= 3; n++) {
                op_case c = joined_case(dtypes[d], rows[r], 67, n);
                for (int i = 0; i < N_ISAS; i++) {
                    op_build b = {0};
                    if (!op_open(op_isas[i], &b))
                        continue;
                    expect_bits_of_single_products(&b, &c, n);
                    op_close(&b);
                }
                op_free(&c);
            }
}

Test(linears, refuses_what_it_cannot_do)
{
    op_case c = joined_case(LATHE_BF16, 16, 16, 3);
    c.attrs.fp8 = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.attrs.fp8 = 0;
    c.add = 1;
    cr_expect_eq(op_refusal(&c), LATHE_E_UNSUPPORTED);
    c.add = 0;
    c.in[3] = lathe_desc_2d(LATHE_BF16, columns[1], 15);
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    c.in[3] = lathe_desc_2d(LATHE_F16, columns[1], 16);
    cr_expect_eq(op_refusal(&c), LATHE_E_DTYPE);
    c.in[3] = lathe_desc_2d(LATHE_BF16, columns[1], 16);
    c.out[2] = lathe_desc_2d(LATHE_BF16, 16, 15);
    cr_expect_eq(op_refusal(&c), LATHE_E_SHAPE);
    op_free(&c);
}
