/* short_conv: by hand, and against PyTorch. */
#include "lathe/op_plugin.h"
#include "support/plugin_fixture.h"

static const lathe_device_info cpu = {.size = sizeof cpu, .n_workers = 1, .host_memory = 1};

static lathe_op_call call_of(const lathe_desc *in, int32_t n_in, const lathe_desc *out,
                             int32_t n_out)
{
    return (lathe_op_call){.size = sizeof(lathe_op_call),
                           .in = in,
                           .out = out,
                           .n_in = n_in,
                           .n_out = n_out,
                           .may_overwrite = ~0u,
                           .n_threads = 1,
                           .device = &cpu};
}

static void run(const lathe_op_kernel *kernel, void *self, const lathe_op_call *call,
                const void *const *in, void *const *out)
{
    const lathe_kernel_args args = {.size = sizeof args, .in = in, .out = out};
    cr_assert_eq(kernel->run(self, call, &args), LATHE_OK, "%s", lathe_test_message);
}

Test(short_conv, sees_neither_later_tokens_nor_other_documents)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=3 activation=none", &self), LATHE_OK);
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    const lathe_desc in[4] = {lathe_desc_2d(LATHE_F32, 6, 1), lathe_desc_2d(LATHE_F32, 1, 2),
                              absent, lathe_desc_1d(LATHE_I32, 6)};
    lathe_desc out = absent;
    cr_assert_eq(table->shape(self, in, &out), LATHE_OK);
    cr_expect(out.dtype == LATHE_F32 && out.rank == 2 && out.dims[0] == 6 && out.dims[1] == 1);
    const float x[6] = {1, 2, 3, 4, 5, 6}, w[2] = {10, 1};
    const int32_t doc_start[6] = {0, 0, 0, 0, 1, 1};
    /* by hand: w[1] is the tap of the token itself; token 4 begins a document, token 3 a row */
    const float want[6] = {1, 12, 23, 4, 5, 56};
    float y[6];
    const lathe_op_call call = call_of(in, 4, &out, 1);
    run(&table->kernels[0], self, &call, (const void *const[]){x, w, NULL, doc_start},
        (void *const[]){y});
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq(y[i], want[i], 1e-6f, "%d: %g", i, (double)y[i]);
    plugin->destroy(self);
}

Test(short_conv, agrees_with_pytorch)
{
    enum { N = 14, C = 5, K = 4 };
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    int64_t bytes;
    cr_assert_eq(lathe_test_create(plugin, "tokens=7", &self), LATHE_OK);
    float *const data = fixture_golden("short_conv.f32", &bytes);
    cr_assert_eq(bytes, 4 * (4 * N * C + 2 * C * K + 2 * C));
    const float *const x = data, *const w = x + N * C, *const b = w + C * K, *const dy = b + C,
                       *const want = dy + N * C;
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}},
                     rows = lathe_desc_2d(LATHE_F32, N, C);
    const lathe_desc of[4] = {rows, lathe_desc_2d(LATHE_F32, C, K), lathe_desc_1d(LATHE_F32, C),
                              absent};
    float got[2 * N * C + C * K + C];
    float *const dx = got + N * C, *const dw = dx + N * C, *const db = dw + C * K;
    const lathe_op_call forward = call_of(of, 4, &rows, 1);
    run(&table->kernels[0], self, &forward, (const void *const[]){x, w, b, NULL},
        (void *const[]){got});
    const lathe_desc in[6] = {rows, of[0], of[1], of[2], absent, absent};
    const lathe_op_call backward = call_of(in, 6, of, 4);
    run(&table->backward->kernels[0], self, &backward,
        (const void *const[]){dy, x, w, b, NULL, NULL}, (void *const[]){dx, dw, db, NULL});
    for (int i = 0; i < 2 * N * C + C * K + C; i++)
        cr_expect_float_eq(got[i], want[i], 4e-6f, "%d: %g, %g", i, (double)got[i],
                           (double)want[i]);
    free(data);
    plugin->destroy(self);
}

Test(short_conv, refuses_shapes_that_do_not_fit)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=4", &self), LATHE_OK);
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    lathe_desc in[4] = {lathe_desc_2d(LATHE_F32, 6, 3), lathe_desc_2d(LATHE_F32, 3, 2), absent,
                        absent};
    lathe_desc out = absent;
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    cr_expect_str_eq(lathe_test_message, "x has 6 tokens, no multiple of rows of 4");
    in[0].dims[0] = 8;
    in[1].dims[1] = 17;
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    cr_expect_str_eq(lathe_test_message, "w has 17 taps, expected at most 16");
    plugin->destroy(self);
}
