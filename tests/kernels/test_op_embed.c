/* EMBED and its derivative on the CPU device. */
#include "kernels/op_harness.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

static void reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[0]), w = c->in[1].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        want[0][i] = in[1][(int64_t)in[0][i / w] * w + i % w];
}

static void bwd_reference(const op_case *c, double *const *in, double *const *want)
{
    const int64_t n = lathe_desc_count(&c->in[1]), w = c->out[0].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        want[0][(int64_t)in[1][i / w] * w + i % w] += in[0][i];
}

Test(embed, copies_the_rows_of_the_tokens)
{
    for (int d = 0; d < 3; d++) {
        op_case c = {.op = LATHE_OP_EMBED, .reference = reference};
        op_indices(&c, 0, 301, 2, 7, 53);
        op_input(&c, 1, lathe_desc_2d(dtypes[d], 53, 77), 0.0, 1.0);
        op_output(&c, 0, lathe_desc_2d(dtypes[d], 301, 77));
        op_check(&c);
    }
}

Test(embed_bwd, adds_the_rows_of_repeated_tokens)
{
    for (int d = 0; d < 3; d++) {
        op_case c = {.op = LATHE_OP_EMBED_BWD, .reference = bwd_reference, .slack = 1e-5, .add = 1};
        op_input(&c, 0, lathe_desc_2d(dtypes[d], 301, 77), 0.0, 1.0);
        op_indices(&c, 1, 301, 2, 7, 53);
        op_output(&c, 0, lathe_desc_2d(LATHE_F32, 60, 77)); /* rows from 53 on have no token */
        op_check(&c);
    }
}

Test(embed_bwd, adds_rows_of_whole_packs)
{
    for (int d = 0; d < 3; d++) {
        op_case c = {.op = LATHE_OP_EMBED_BWD, .reference = bwd_reference, .slack = 1e-5, .add = 1};
        op_input(&c, 0, lathe_desc_2d(dtypes[d], 1301, 40), 0.0, 1.0);
        op_indices(&c, 1, 1301, 2, 7, 903);
        op_output(&c, 0, lathe_desc_2d(LATHE_F32, 903, 40));
        op_check(&c);
    }
}

Test(embed, refuses_a_token_outside_the_vocabulary)
{
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        op_case c = {.op = LATHE_OP_EMBED};
        op_indices(&c, 0, 3, 0, 1, 5);
        op_input(&c, 1, lathe_desc_2d(LATHE_F32, 5, 4), 0.0, 1.0);
        op_output(&c, 0, lathe_desc_2d(LATHE_F32, 3, 4));
        const lathe_kernel_problem problem = op_problem(&c);
        lathe_kernel *k = NULL;
        int64_t scratch = 0;
        cr_assert_eq(b.device->kernel_create(b.self, &problem, &k, &scratch), LATHE_OK);
        const int32_t tokens[3] = {0, 5, 1};
        const float w[20] = {0};
        float y[12];
        const void *in[2] = {tokens, w};
        void *out[1] = {y};
        const lathe_kernel_args args = {.size = sizeof args, .in = in, .out = out};
        cr_assert_eq(b.device->kernel_run(b.self, k, &args), LATHE_E_ARG);
        b.device->kernel_destroy(b.self, k);
        op_close(&b);
        op_free(&c);
    }
}
