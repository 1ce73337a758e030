/* mamba2: by hand, against transformers, and in parts. */
#include "support/scan_fixture.h"

enum { N = 140, T = 70, G = 2, H = 4, S = 7, P = 3 };

Test(mamba2, forgets_adds_and_skips)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=3 heads=1", &self), LATHE_OK);
    const lathe_desc one = lathe_desc_2d(LATHE_F32, 3, 1);
    const lathe_desc in[7] = {one, one, one, one, one, lathe_desc_1d(LATHE_I32, 3), one};
    const float c[3] = {1, 2, 1}, b[3] = {1, 3, 2}, x[3] = {8, 4, 3}, dt[3] = {0.5f, 0.25f, 1},
                decay[3] = {0, -0.69314718f, -1}, skip[3] = {10, 0, 1};
    const int32_t doc_start[3] = {0, 0, 2};
    /* by hand: S = 0.5*8*1 = 4, y = 4 + 10*8; S = 4/2 + 0.25*4*3 = 5, y = 2*5; a document: S = 3*2,
     * y = 6 + 3 */
    const float want[3] = {84, 10, 9};
    float y[3];
    lathe_desc out = absent;
    cr_assert_eq(table->shape(self, in, &out), LATHE_OK);
    const lathe_op_call call = {.in = in, .n_in = 7, .out = &out, .n_out = 1};
    run(&table->kernels[0], self, call, (const void *const[]){c, b, x, decay, dt, doc_start, skip},
        (void *const[]){y});
    for (int i = 0; i < 3; i++)
        cr_expect_float_eq(y[i], want[i], 1e-5f, "%d: %g", i, (double)y[i]);
    plugin->destroy(self);
}

/* tests/golden/mamba2.py */
typedef struct golden {
    float *data, *c, *b, *x, *decay, *dt, *skip, *dy, *y, *dc, *db, *dx, *ddt, *dskip, *a,
        *recurrent;
} golden;

static golden read_golden(void)
{
    int64_t bytes;
    golden g = {.data = fixture_golden("mamba2.f32", &bytes)};
    float **const parts[15] = {&g.c,  &g.b,  &g.x,  &g.decay, &g.dt,    &g.skip, &g.dy,       &g.y,
                               &g.dc, &g.db, &g.dx, &g.ddt,   &g.dskip, &g.a,    &g.recurrent};
    const int64_t counts[15] = {N * G * S, N * G * S, N * H * P, N * H,     N * H,
                                N * H,     N * H * P, N * H * P, N * G * S, N * G * S,
                                N * H * P, N * H,     H,         H,         T * H * P};
    float *at = g.data;
    for (int i = 0; i < 15; at += counts[i++])
        *parts[i] = at;
    cr_assert_eq(bytes, 4 * (at - g.data));
    return g;
}

static const lathe_desc golden_in[7] = {
    {LATHE_F32, 2, {N, G *S, 1, 1}}, {LATHE_F32, 2, {N, G *S, 1, 1}},
    {LATHE_F32, 2, {N, H *P, 1, 1}}, {LATHE_F32, 2, {N, H, 1, 1}},
    {LATHE_F32, 2, {N, H, 1, 1}},    {LATHE_ABSENT, 0, {1, 1, 1, 1}},
    {LATHE_F32, 2, {N, H, 1, 1}}};

Test(mamba2, agrees_with_transformers)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    const golden g = read_golden();
    const lathe_desc out = golden_in[2];
    static float y[N * H * P], dc[N * G * S], db[N * G * S], dx[N * H * P], ddecay[N * H],
        ddt[N * H], dskip[N * H];
    float sum[H];
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "tokens=70 heads=4 groups=2", &self), LATHE_OK);
    const lathe_op_call forward = {.in = golden_in, .n_in = 7, .out = &out, .n_out = 1};
    lathe_desc in[9] = {out};
    memcpy(in + 1, golden_in, sizeof golden_in);
    in[8] = absent;
    const lathe_op_call backward = {.in = in, .n_in = 9, .out = golden_in, .n_out = 7};
    for (int32_t i = 0; i < table->n_kernels; i++) {
        const char *const name = table->kernels[i].name;
        if (!takes(&table->kernels[i], self, &forward))
            continue;
        run(&table->kernels[i], self, forward,
            (const void *const[]){g.c, g.b, g.x, g.decay, g.dt, NULL, g.skip}, (void *const[]){y});
        cr_expect_leq(difference(y, g.y, N * H * P), 2e-6, "%s", name);
        run(&table->backward->kernels[i], self, backward,
            (const void *const[]){g.dy, g.c, g.b, g.x, g.decay, g.dt, NULL, g.skip, NULL},
            (void *const[]){dc, db, dx, ddecay, ddt, NULL, dskip});
        memset(sum, 0, sizeof sum);
        for (int j = 0; j < N * H; j++) { /* decay = dt A; skip is D of every token */
            ddt[j] += g.a[j % H] * ddecay[j];
            sum[j % H] += dskip[j];
        }
        cr_expect_leq(difference(dc, g.dc, N * G * S), 4e-6, "%s: C", name);
        cr_expect_leq(difference(db, g.db, N * G * S), 4e-6, "%s: B", name);
        cr_expect_leq(difference(dx, g.dx, N * H * P), 4e-6, "%s: x", name);
        cr_expect_leq(difference(ddt, g.ddt, N * H), 4e-6, "%s: dt", name);
        cr_expect_leq(difference(sum, g.dskip, H), 4e-6, "%s: D", name);
    }
    free(g.data);
    plugin->destroy(self);
}

/* Parts of the first row: one token, 3, 1, 60 (up to the end of a chunk and beyond), 5. */
Test(mamba2, has_the_same_bits_in_parts)
{
    static const int parts[] = {1, 3, 1, 60, 5};
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    const golden g = read_golden();
    const lathe_desc out = golden_in[2];
    static float whole[N * H * P], y[N * H * P];
    void *self, *part;
    char settings[64];
    lathe_desc each;
    cr_assert_eq(lathe_test_create(plugin, "tokens=70 heads=4 groups=2", &self), LATHE_OK);
    cr_assert_eq(table->state->shape(self, golden_in, &each), LATHE_OK);
    cr_assert(each.dtype == LATHE_F32 && each.rank == 2 && each.dims[0] == H);
    float *const states = malloc((size_t)lathe_desc_bytes(&each));
    const lathe_op_call forward = {.in = golden_in, .n_in = 7, .out = &out, .n_out = 1};
    for (int32_t i = 0; i < table->n_kernels; i++) {
        const lathe_op_kernel *const kernel = &table->kernels[i];
        if (!takes(kernel, self, &forward))
            continue;
        run(kernel, self, forward,
            (const void *const[]){g.c, g.b, g.x, g.decay, g.dt, NULL, g.skip},
            (void *const[]){whole});
        memset(states, 0, (size_t)lathe_desc_bytes(&each));
        for (int p = 0, t = 0; p < 5; t += parts[p++]) {
            const int n = parts[p];
            const int32_t slot = 0;
            lathe_desc in[9], to[2] = {lathe_desc_2d(LATHE_F32, n, H * P)};
            memcpy(in, golden_in, sizeof golden_in);
            for (int j = 0; j < 7; j++)
                in[j].dims[0] = n;
            in[7] = lathe_desc_1d(LATHE_I32, 1);
            in[8] = to[1] = (lathe_desc){LATHE_F32, 3, {1, each.dims[0], each.dims[1], 1}};
            (void)snprintf(settings, sizeof settings, "tokens=%d heads=4 groups=2", n);
            cr_assert_eq(lathe_test_create(plugin, settings, &part), LATHE_OK);
            run(kernel, part, (lathe_op_call){.in = in, .n_in = 9, .out = to, .n_out = 2},
                (const void *const[]){g.c + t * G * S, g.b + t * G * S, g.x + t * H * P,
                                      g.decay + t * H, g.dt + t * H, NULL, g.skip + t * H, &slot,
                                      states},
                (void *const[]){y + t * H * P, states});
            plugin->destroy(part);
        }
        cr_expect_eq(memcmp(y, whole, T * H * P * sizeof *y), 0, "%s", kernel->name);
        cr_expect_leq(difference(y, g.recurrent, T * H * P), 2e-6, "%s", kernel->name);
    }
    free(states);
    free(g.data);
    plugin->destroy(self);
}

Test(mamba2, refuses_shapes_that_do_not_fit)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    lathe_desc in[7], out = absent;
    void *self;
    memcpy(in, golden_in, sizeof in);
    cr_expect_eq(lathe_test_create(plugin, "tokens=4 heads=4 groups=3", &self), LATHE_E_CONFIG);
    cr_assert_eq(lathe_test_create(plugin, "tokens=70 heads=4 groups=2", &self), LATHE_OK);
    cr_expect_eq(table->shape(self, in, &out), LATHE_OK);
    in[6].dims[1] = 1;
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    in[6] = absent;
    in[3].dims[0] = 70;
    cr_expect_eq(table->shape(self, in, &out), LATHE_E_SHAPE);
    plugin->destroy(self);
}
