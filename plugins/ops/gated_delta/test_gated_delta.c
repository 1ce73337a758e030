/* gated_delta: by hand, against transformers, and in parts. */
#include "support/scan_fixture.h"

enum { N = 140, T = 70, H = 2, DK = 8, DV = 6 };

Test(gated_delta, forgets_and_corrects)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=3 heads=1 scale=1.0", &self), LATHE_OK);
    const lathe_desc one = lathe_desc_2d(LATHE_F32, 3, 1);
    const lathe_desc in[6] = {one, one, one, one, one, lathe_desc_1d(LATHE_I32, 3)};
    const float q[3] = {1, 1, 1}, k[3] = {1, 1, 2}, v[3] = {8, 8, 3}, beta[3] = {0.5f, 0.5f, 1},
                g[3] = {0, -0.69314718f, 0};
    const int32_t doc_start[3] = {0, 0, 2};
    /* by hand: S = 0 + 0.5 (8 - 0) = 4; S = 2 + 0.5 (8 - 2) = 5; a document: S = 2 (3 - 0) = 6 */
    const float want[3] = {4, 5, 6};
    float o[3];
    lathe_desc out = absent;
    cr_assert_eq(table->shape(self, in, &out), LATHE_OK);
    const lathe_op_call call = {.in = in, .n_in = 6, .out = &out, .n_out = 1};
    run(&table->kernels[0], self, call, (const void *const[]){q, k, v, g, beta, doc_start},
        (void *const[]){o});
    for (int i = 0; i < 3; i++)
        cr_expect_float_eq(o[i], want[i], 1e-6f, "%d: %g", i, (double)o[i]);
    plugin->destroy(self);
}

/* tests/golden/gated_delta.py */
typedef struct golden {
    float *data, *q, *k, *v, *g, *beta, *dout, *o, *gradients[5], *recurrent;
} golden;

static const int64_t counts[5] = {N * DK, N *DK, N *H *DV, N *H, N *H};

static golden read_golden(void)
{
    int64_t bytes;
    golden x = {.data = fixture_golden("gated_delta.f32", &bytes)};
    float *at = x.data, **const in[5] = {&x.q, &x.k, &x.v, &x.g, &x.beta};
    for (int i = 0; i < 5; at += counts[i++])
        *in[i] = at;
    x.dout = at;
    x.o = x.dout + N * H * DV;
    at = x.o + N * H * DV;
    for (int i = 0; i < 5; at += counts[i++])
        x.gradients[i] = at;
    x.recurrent = at;
    cr_assert_eq(bytes, 4 * (at + T * H * DV - x.data));
    return x;
}

static const lathe_desc golden_in[6] = {
    {LATHE_F32, 2, {N, DK, 1, 1}}, {LATHE_F32, 2, {N, DK, 1, 1}}, {LATHE_F32, 2, {N, H *DV, 1, 1}},
    {LATHE_F32, 2, {N, H, 1, 1}},  {LATHE_F32, 2, {N, H, 1, 1}},  {LATHE_ABSENT, 0, {1, 1, 1, 1}}};

Test(gated_delta, agrees_with_transformers)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    const golden x = read_golden();
    const lathe_desc out = golden_in[2];
    static float o[N * H * DV], got[5][N * H * DV];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=70 heads=2 key_heads=1", &self), LATHE_OK);
    const lathe_op_call forward = {.in = golden_in, .n_in = 6, .out = &out, .n_out = 1};
    const lathe_desc in[8] = {out,          golden_in[0], golden_in[1], golden_in[2],
                              golden_in[3], golden_in[4], absent,       absent};
    const lathe_op_call backward = {.in = in, .n_in = 8, .out = golden_in, .n_out = 6};
    for (int32_t i = 0; i < table->n_kernels; i++) {
        if (!takes(&table->kernels[i], self, &forward))
            continue;
        run(&table->kernels[i], self, forward,
            (const void *const[]){x.q, x.k, x.v, x.g, x.beta, NULL}, (void *const[]){o});
        cr_expect_leq(difference(o, x.o, N * H * DV), 2e-6, "%s", table->kernels[i].name);
        run(&table->backward->kernels[i], self, backward,
            (const void *const[]){x.dout, x.q, x.k, x.v, x.g, x.beta, NULL, NULL},
            (void *const[]){got[0], got[1], got[2], got[3], got[4], NULL});
        for (int j = 0; j < 5; j++)
            cr_expect_leq(difference(got[j], x.gradients[j], counts[j]), 4e-6,
                          "%s: gradient %d: %g", table->kernels[i].name, j,
                          difference(got[j], x.gradients[j], counts[j]));
    }
    free(x.data);
    plugin->destroy(self);
}

/* Parts of the first row: one token, 3, 1, 60 (up to the end of a chunk and beyond), 5. */
Test(gated_delta, has_the_same_bits_in_parts)
{
    static const int parts[] = {1, 3, 1, 60, 5};
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    const golden x = read_golden();
    const lathe_desc out = golden_in[2];
    static float whole[N * H * DV], o[N * H * DV];
    void *self, *part;
    char settings[64];
    lathe_desc each;
    cr_assert_eq(lathe_test_create(plugin, "tokens=70 heads=2 key_heads=1", &self), LATHE_OK);
    cr_assert_eq(table->state->shape(self, golden_in, &each), LATHE_OK);
    cr_assert(each.dtype == LATHE_F32 && each.rank == 2 && each.dims[0] == H);
    float *const states = malloc((size_t)lathe_desc_bytes(&each));
    const lathe_op_call forward = {.in = golden_in, .n_in = 6, .out = &out, .n_out = 1};
    for (int32_t i = 0; i < table->n_kernels; i++) {
        const lathe_op_kernel *const kernel = &table->kernels[i];
        if (!takes(kernel, self, &forward))
            continue;
        run(kernel, self, forward, (const void *const[]){x.q, x.k, x.v, x.g, x.beta, NULL},
            (void *const[]){whole});
        memset(states, 0, (size_t)lathe_desc_bytes(&each));
        for (int p = 0, t = 0; p < 5; t += parts[p++]) {
            const int n = parts[p];
            const int32_t slot = 0;
            lathe_desc in[8], to[2] = {lathe_desc_2d(LATHE_F32, n, H * DV)};
            memcpy(in, golden_in, sizeof golden_in);
            for (int j = 0; j < 5; j++)
                in[j].dims[0] = n;
            in[6] = lathe_desc_1d(LATHE_I32, 1);
            in[7] = to[1] = (lathe_desc){LATHE_F32, 3, {1, each.dims[0], each.dims[1], 1}};
            (void)snprintf(settings, sizeof settings, "tokens=%d heads=2 key_heads=1", n);
            cr_assert_eq(lathe_test_create(plugin, settings, &part), LATHE_OK);
            run(kernel, part, (lathe_op_call){.in = in, .n_in = 8, .out = to, .n_out = 2},
                (const void *const[]){x.q + t * DK, x.k + t * DK, x.v + t * H * DV, x.g + t * H,
                                      x.beta + t * H, NULL, &slot, states},
                (void *const[]){o + t * H * DV, states});
            plugin->destroy(part);
        }
        cr_expect_eq(memcmp(o, whole, T * H * DV * sizeof *o), 0, "%s", kernel->name);
        cr_expect_leq(difference(o, x.recurrent, T * H * DV), 2e-6, "%s", kernel->name);
    }
    free(states);
    free(x.data);
    plugin->destroy(self);
}

Test(gated_delta, refuses_shapes_that_do_not_fit)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    lathe_desc in[6], out = absent;
    void *self;
    memcpy(in, golden_in, sizeof in);
    cr_expect_eq(lathe_test_create(plugin, "tokens=4 heads=4 key_heads=3", &self), LATHE_E_CONFIG);
    cr_expect_str_eq(lathe_test_message, "key_heads is 3; it must divide heads, 4");
    cr_assert_eq(lathe_test_create(plugin, "tokens=3 heads=2 key_heads=1", &self), LATHE_OK);
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    cr_expect_str_eq(lathe_test_message, "q has 140 tokens, no multiple of rows of 3");
    in[3].dims[1] = 1;
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    cr_expect_str_eq(lathe_test_message, "expected g, beta f32[N,2] and doc_start i32[N]");
    plugin->destroy(self);
}
