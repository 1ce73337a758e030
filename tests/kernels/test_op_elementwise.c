/* ADD SUB MUL SCALE SCALE_BY LINCOMB CAST COPY and APPLY_UPDATE on the CPU device. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static void reference(const op_case *c, double *const *in, double *const *want)
{
    const double alpha = c->attrs.alpha, beta = c->attrs.beta;
    for (int64_t i = 0; i < lathe_desc_count(&c->in[0]); i++) {
        const double x = in[0][i], y = c->n_in > 1 && c->op != LATHE_OP_SCALE_BY ? in[1][i] : 0.0;
        switch (c->op) {
        case LATHE_OP_ADD:
            want[0][i] = x + y;
            break;
        case LATHE_OP_SUB:
            want[0][i] = x - y;
            break;
        case LATHE_OP_MUL:
            want[0][i] = x * y;
            break;
        case LATHE_OP_SCALE:
            want[0][i] = alpha * x + beta;
            break;
        case LATHE_OP_SCALE_BY:
            want[0][i] = x * in[1][c->attrs.start];
            break;
        case LATHE_OP_LINCOMB:
            want[0][i] = alpha * x + beta * y;
            break;
        case LATHE_OP_APPLY_UPDATE:
            want[0][i] = x - in[2][c->attrs.start] * (alpha * y + beta * x);
            break;
        default: /* CAST, COPY */
            want[0][i] = x;
        }
    }
}

static op_case make(int32_t op, int32_t x_dtype, int32_t y_dtype, int32_t out_dtype, int64_t n,
                    int add)
{
    op_case c = {.op = op, .reference = reference, .slack = 1e-6, .add = add};
    c.attrs.alpha = 0.75;
    c.attrs.beta = -1.25;
    op_input(&c, 0, lathe_desc_1d(x_dtype, n), 0.0, 1.0);
    if (y_dtype >= 0)
        op_input(&c, 1, lathe_desc_1d(y_dtype, n), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_1d(out_dtype, n));
    return c;
}

static const int64_t sizes[] = {1, 1025, 40003};

Test(elementwise, sums_and_products_agree_in_place_and_added)
{
    const int32_t ops[] = {LATHE_OP_ADD, LATHE_OP_SUB, LATHE_OP_MUL};
    for (int o = 0; o < 3; o++)
        for (int d = 0; d < 3; d++)
            for (int s = 0; s < 3; s++) {
                op_case c = make(ops[o], dtypes[d], dtypes[d], dtypes[d], sizes[s], 1);
                op_check(&c);
                op_case in_place = make(ops[o], dtypes[d], dtypes[d], dtypes[d], sizes[s], 0);
                in_place.in_place = 1;
                op_check(&in_place);
            }
}

Test(elementwise, scale_and_lincomb_agree)
{
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++) {
            op_case scale = make(LATHE_OP_SCALE, dtypes[d], -1, dtypes[d], sizes[s], 1);
            op_check(&scale);
            for (int e = 0; e < 6; e++) {
                op_case c =
                    make(LATHE_OP_LINCOMB, dtypes[d], dtypes[e % 3], dtypes[e % 3], sizes[s], 0);
                c.in_place = e / 3 ? 2 : 0; /* the memory of y, which has the dtype of the output */
                op_check(&c);
            }
        }
}

Test(elementwise, scale_by_takes_the_scalar_at_start)
{
    op_case c = make(LATHE_OP_SCALE_BY, LATHE_F32, -1, LATHE_F32, 1025, 0);
    op_input(&c, 1, lathe_desc_1d(LATHE_F32, 3), 0.0, 1.0);
    c.attrs.start = 2;
    op_check(&c);
    op_case bad = make(LATHE_OP_SCALE_BY, LATHE_F32, -1, LATHE_F32, 4, 0);
    op_input(&bad, 1, lathe_desc_1d(LATHE_F32, 3), 0.0, 1.0);
    bad.attrs.start = 3;
    cr_assert_eq(op_refusal(&bad), LATHE_E_SHAPE);
    op_free(&bad);
}

Test(elementwise, casts_round_to_nearest_even_and_copies_are_exact)
{
    for (int e = 0; e < 9; e++)
        for (int s = 0; s < 3; s++) {
            op_case cast = make(LATHE_OP_CAST, dtypes[e % 3], -1, dtypes[e / 3], sizes[s], e & 1);
            op_check(&cast);
            op_case copy = make(LATHE_OP_COPY, dtypes[e % 3], -1, dtypes[e % 3], sizes[s], e > 5);
            op_check(&copy);
        }
}

Test(apply_update, steps_against_the_update_with_decay)
{
    for (int d = 0; d < 3; d++) {
        op_case c = make(LATHE_OP_APPLY_UPDATE, LATHE_F32, dtypes[d], LATHE_F32, 5003, 0);
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, 4), 0.0, 1.0);
        c.attrs.start = 1;
        c.in_place = 1;
        op_check(&c);
    }
}

/* f16 by hand: 1, -2, 65504 (the largest), 2^-24 (the smallest), 1 + 2^-11 (a tie, to even). */
Test(cast, to_and_from_f16_is_exact_at_the_edges)
{
    const float x[5] = {1.0f, -2.0f, 65504.0f, 0x1p-24f, 1.0f + 0x1p-11f};
    const uint16_t bits[5] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x3c00};
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        const lathe_op_attrs attrs = {0};
        const lathe_desc wide = lathe_desc_1d(LATHE_F32, 5), half = lathe_desc_1d(LATHE_F16, 5);
        lathe_kernel_problem p = {.size = sizeof p,
                                  .op = LATHE_OP_CAST,
                                  .attrs = &attrs,
                                  .in = &wide,
                                  .out = &half,
                                  .n_in = 1,
                                  .n_out = 1,
                                  .may_overwrite = 1,
                                  .n_threads = 1};
        lathe_kernel *k = NULL;
        int64_t scratch = 0;
        uint16_t h[5];
        float back[5];
        const void *in[1] = {x};
        void *out[1] = {h};
        const lathe_kernel_args args = {.size = sizeof args, .in = in, .out = out};
        cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_OK);
        cr_assert_eq(b.device->kernel_run(b.self, k, &args), LATHE_OK);
        b.device->kernel_destroy(b.self, k);
        cr_assert_eq(memcmp(h, bits, sizeof h), 0);
        p.in = &half;
        p.out = &wide;
        in[0] = h;
        out[0] = back;
        cr_assert_eq(b.device->kernel_create(b.self, &p, &k, &scratch), LATHE_OK);
        cr_assert_eq(b.device->kernel_run(b.self, k, &args), LATHE_OK);
        b.device->kernel_destroy(b.self, k);
        cr_assert_eq(memcmp(back, x, 4 * sizeof(float)), 0);
        cr_assert_eq(back[4], 1.0f);
        op_close(&b);
    }
}
