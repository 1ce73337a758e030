/* latent_kv by hand. */
#include "lathe/op_plugin.h"
#include "support/plugin_fixture.h"

static const lathe_device_info cpu = {.size = sizeof cpu, .n_workers = 1, .host_memory = 1};
static const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};

static void run(const lathe_op_kernel *kernel, void *self, const lathe_desc *in, int32_t n_in,
                const lathe_desc *out, const void *const *x, void *const *y)
{
    const lathe_op_call call = {.size = sizeof call,
                                .in = in,
                                .out = out,
                                .n_in = n_in,
                                .n_out = 2,
                                .may_overwrite = ~0u,
                                .n_threads = 1,
                                .device = &cpu};
    const lathe_kernel_args args = {.size = sizeof args, .in = x, .out = y};
    cr_assert_eq(kernel->run(self, &call, &args), LATHE_OK, "%s", lathe_test_message);
}

static void expect(const float *got, const float *want, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        cr_expect(got[i] == want[i], "%s[%d] is %g, expected %g", name, i, (double)got[i],
                  (double)want[i]);
}

/* Two heads with one key channel, two of the value, and one that both share. */
Test(latent_kv, keys_end_with_what_the_heads_share)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "heads=2 key_dim=1 value_dim=2", &self), LATHE_OK);
    const lathe_desc in[2] = {lathe_desc_2d(LATHE_F32, 2, 6), lathe_desc_2d(LATHE_F32, 2, 1)};
    lathe_desc out[2] = {absent, absent};
    cr_assert_eq(table->shape(self, in, out), LATHE_OK);
    cr_expect(out[0].dims[0] == 2 && out[0].dims[1] == 4 && out[1].dims[1] == 4);
    const float kv[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, shared[2] = {-1, -2};
    const float want_k[8] = {1, -1, 4, -1, 7, -2, 10, -2}, want_v[8] = {2, 3, 5, 6, 8, 9, 11, 12};
    float k[8], v[8];
    run(&table->kernels[0], self, in, 2, out, (const void *const[]){kv, shared},
        (void *const[]){k, v});
    expect(k, want_k, 8, "k");
    expect(v, want_v, 8, "v");
    plugin->destroy(self);
}

/* dk = k and dv = v of the test above: the gradient of kv is kv, that of the shared channel is the
 * sum of both heads'. */
Test(latent_kv, the_gradient_of_what_is_shared_is_a_sum)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "heads=2 key_dim=1 value_dim=2", &self), LATHE_OK);
    const lathe_desc rows = lathe_desc_2d(LATHE_F32, 2, 4);
    const lathe_desc out[2] = {lathe_desc_2d(LATHE_F32, 2, 6), lathe_desc_2d(LATHE_F32, 2, 1)};
    const float dk[8] = {1, -1, 4, -1, 7, -2, 10, -2}, dv[8] = {2, 3, 5, 6, 8, 9, 11, 12};
    const float want[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, want_shared[2] = {-2, -4};
    const float no_keys[12] = {0, 2, 3, 0, 5, 6, 0, 8, 9, 0, 11, 12}, zero[2] = {0, 0};
    float dkv[12], shared[2];
    for (int has_dk = 1; has_dk >= 0; has_dk--) { /* without it, keys count as 0 */
        const lathe_desc in[6] = {has_dk ? rows : absent, rows, absent, absent, absent, absent};
        run(&table->backward->kernels[0], self, in, 6, out,
            (const void *const[]){has_dk ? dk : NULL, dv, NULL, NULL, NULL, NULL},
            (void *const[]){dkv, shared});
        expect(dkv, has_dk ? want : no_keys, 12, "dkv");
        expect(shared, has_dk ? want_shared : zero, 2, "dshared");
    }
    plugin->destroy(self);
}

Test(latent_kv, refuses_shapes_that_do_not_fit)
{
    const lathe_plugin *const plugin = fixture_plugin();
    const lathe_op_v1 *const table = plugin->table;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, "heads=2 key_dim=1 value_dim=2", &self), LATHE_OK);
    lathe_desc in[2] = {lathe_desc_2d(LATHE_F32, 2, 8), lathe_desc_2d(LATHE_F32, 2, 1)};
    lathe_desc out[2] = {absent, absent};
    cr_expect_eq(table->shape(self, in, out), LATHE_E_SHAPE);
    in[0].dims[1] = 6;
    in[1].dims[0] = 3;
    cr_expect_eq(table->shape(self, in, out), LATHE_E_SHAPE);
    plugin->destroy(self);
}
