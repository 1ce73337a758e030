/* AdamW: by hand, against torch.optim.AdamW, against the scalar formula, and refusals. */
#include "support/optimizer_case.h"

static const lathe_optimizer_v1 *make(const char *settings, void **self)
{
    const lathe_plugin *const plugin = fixture_plugin();
    cr_assert_eq(lathe_test_create(plugin, settings, self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

Test(adamw, first_step_moves_by_lr_against_the_gradient)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("lr=0.1 weight_decay=0.5 eps=1e-30", &self);
    optimizer_case c = {0};
    case_add(&c, 1, 3, 2, 1.0);
    const float g[3] = {2.0f, -3.0f, 0.5f};
    for (int i = 0; i < 3; i++) {
        c.tensors[0].param[i] = 2.0f;
        c.grads[0][i] = 4.0f * g[i]; /* undone by the gradient scale */
    }
    case_scalars(&c, table, self, 1, 0.1, 0.25);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    /* by hand: m/bias1 = g, sqrt(v/bias2) = |g|, so p = 2*(1 - 0.1*0.5) - 0.1*sign(g) */
    const float want[3] = {1.8f, 2.0f, 1.8f};
    const float *const m = c.tensors[0].slots[0], *const v = c.tensors[0].slots[1];
    for (int i = 0; i < 3; i++) {
        cr_assert_float_eq(c.tensors[0].param[i], want[i], 1e-6f, "%d: %.9g", i,
                           (double)c.tensors[0].param[i]);
        cr_assert_float_eq(m[i], 0.1f * g[i], 1e-7f);
        cr_assert_float_eq(v[i], 0.001f * g[i] * g[i], 1e-8f);
    }
    case_free(&c);
}

Test(adamw, follows_torch_for_300_steps)
{
    void *self;
    const lathe_optimizer_v1 *const table =
        make("lr=1e-3 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1", &self);
    optimizer_case c = {0};
    case_add(&c, 17, 5, 2, 1.0);
    case_add(&c, 33, 1, 2, 0.0);
    case_add(&c, 1, 1, 2, 0.0);
    case_add(&c, 40, 41, 2, 1.0);
    for (int64_t step = 1; step <= 300; step++) {
        case_scalars(&c, table, self, step, 1e-3 * (1.0 - (double)step / 400.0), 1.0);
        for (int32_t k = 0; k < c.n_tensors; k++)
            case_gradient((uint64_t)k, (uint64_t)step, c.grads[k], c.tensors[k].n);
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
    }
    int64_t bytes;
    float *const golden = fixture_golden("adamw.f32", &bytes);
    const float *want = golden;
    /* Both round every step to f32 (6e-8); the parameters walk up to 0.2 in steps of 1e-3, so the
     * error is taken relative to |p| + 0.2. Moments: a geometric sum of roundings. */
    const double scale[3] = {0.2, 0.05, 0.05};
    double worst[3] = {0};
    for (int what = 0; what < 3; what++)
        for (int32_t k = 0; k < c.n_tensors; k++) {
            const lathe_optimizer_tensor *const x = &c.tensors[k];
            const float *const got = what == 0 ? x->param : x->slots[what - 1];
            for (int64_t i = 0; i < x->n; i++, want++) {
                const double error =
                    fabs((double)got[i] - (double)*want) / (fabs((double)*want) + scale[what]);
                worst[what] = error > worst[what] ? error : worst[what];
            }
        }
    cr_log_info("worst relative error: p %.2g m %.2g v %.2g", worst[0], worst[1], worst[2]);
    cr_assert_eq((char *)golden + bytes, (const char *)want, "golden has other shapes");
    for (int what = 0; what < 3; what++)
        cr_assert_lt(worst[what], 1e-6, "%s: %.3g", what ? what == 1 ? "m" : "v" : "p",
                     worst[what]);
    free(golden);
    case_free(&c);
}

/* One element, one step, in the order of the plugin's formula: bit for bit. */
static void reference(const float *s, float lr, float decay, float *p, float g, float *m, float *v)
{
    const float *const u = s + LATHE_SCALAR_USER;
    *m = fmaf(u[0], g - *m, *m);
    *v = fmaf(u[2] * g, g, u[1] * *v);
    *p = fmaf(-(lr * u[5]), *m / fmaf(sqrtf(*v), u[6], u[3]), *p * fmaf(-lr, decay, 1.0f));
}

Test(adamw, loop_over_chunks_and_tensors_is_the_scalar_formula_bit_for_bit)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("lr=0.01 weight_decay=0.1", &self);
    optimizer_case c = {0};
    const int64_t n[6] = {16384, 1, 0, 16385, 50001, 7}; /* chunk edges, empty, odd */
    for (int k = 0; k < 6; k++)
        case_add(&c, n[k], 1, 2, k % 2 ? 0.5 : 0.0);
    c.tensors[3].lr_mult = 3.0;
    c.tensors[4].shadow = calloc(50001, sizeof(uint16_t));
    case_scalars(&c, table, self, 1, 0.01, 0.125);
    for (int32_t k = 0; k < 6; k++)
        case_gradient((uint64_t)k, 20, c.grads[k], n[k]);
    const int64_t allocs = lathe_test_allocs;
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    cr_assert_eq(lathe_test_allocs, allocs, "a step allocated");
    for (int32_t k = 0; k < 6; k++) {
        const lathe_optimizer_tensor *const x = &c.tensors[k];
        const float lr = c.scalars[LATHE_SCALAR_LR] * (float)x->lr_mult;
        const float decay = c.scalars[LATHE_SCALAR_USER + 4] * (float)x->weight_decay_mult;
        for (int64_t i = 0; i < x->n; i++) {
            float p = case_uniform((uint64_t)k, 0, i), m = 0, v = 0;
            reference(c.scalars, lr, decay, &p, c.grads[k][i] * 0.125f, &m, &v);
            cr_assert(memcmp(&p, &x->param[i], 4) == 0, "tensor %d element %lld: %.9g, want %.9g",
                      k, (long long)i, (double)x->param[i], (double)p);
            cr_assert(memcmp(&v, (float *)x->slots[1] + i, 4) == 0);
            if (x->shadow != NULL)
                cr_assert_eq(x->shadow[i], lathe_f32_to_bf16(p));
        }
    }
    case_free(&c);
}

Test(adamw, finds_the_tensor_of_each_chunk_among_a_thousand)
{
    enum { N = 1000 };
    void *self;
    const lathe_optimizer_v1 *const table = make("lr=1 weight_decay=0 eps=1e-30", &self);
    static lathe_optimizer_tensor tensors[N];
    static float memory[N][4][3];
    for (int k = 0; k < N; k++) {
        float(*const m)[3] = memory[k];
        for (int i = 0; i < 3; i++)
            m[1][i] = k % 2 ? 1.0f : -1.0f;
        tensors[k] = (lathe_optimizer_tensor){
            .param = m[0], .grad = m[1], .slots = {m[2], m[3]}, .n = k % 4, .lr_mult = k};
    }
    optimizer_case c = {0};
    case_scalars(&c, table, self, 1, 1.0, 1.0);
    const lathe_optimizer_step s = {
        .size = sizeof s, .n_tensors = N, .tensors = tensors, .scalars = c.scalars, .step = 1};
    cr_assert_eq(table->step(self, &s), LATHE_OK);
    for (int k = 0; k < N; k++)
        for (int i = 0; i < 3; i++) {
            const double want = i < k % 4 ? (k % 2 ? -k : k) : 0;
            cr_assert_float_eq((double)memory[k][0][i], want, 1e-3, "tensor %d element %d", k, i);
        }
}

Test(adamw, nan_gradient_shows_and_stays_in_its_element)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("", &self);
    optimizer_case c = {0};
    case_add(&c, 1, 40, 2, 1.0);
    c.grads[0][17] = NAN;
    case_scalars(&c, table, self, 1, 1e-3, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(isnan(c.tensors[0].param[i]) != 0, i == 17);
    case_free(&c);
}

Test(adamw, refuses_bad_settings_and_missing_memory)
{
    const lathe_plugin *const plugin = fixture_plugin();
    static const char *const bad[] = {"state_dtype=fp16", "lr=-1",           "lr=nan",
                                      "beta1=1",          "beta1=-0.1",      "beta2=1.5",
                                      "eps=-1e-8",        "weight_decay=-1", "beta2=nan"};
    void *self;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        cr_assert_eq(lathe_test_create(plugin, bad[k], &self), LATHE_E_CONFIG, "took %s", bad[k]);
        cr_assert(strncmp(lathe_test_message, bad[k], strcspn(bad[k], "=")) == 0, "%s",
                  lathe_test_message);
        cr_assert(self == NULL);
    }
    const lathe_optimizer_v1 *const table = make("", &self);
    optimizer_case c = {0};
    case_add(&c, 2, 2, 2, 1.0);
    case_scalars(&c, table, self, 1, 1e-3, 1.0);
    float *const grad = c.grads[0];
    c.tensors[0].grad = NULL;
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_E_ARG);
    c.tensors[0].grad = grad;
    void *const slot = c.tensors[0].slots[1];
    c.tensors[0].slots[1] = NULL;
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_E_ARG);
    cr_assert(strstr(lathe_test_message, "slot 1") != NULL, "%s", lathe_test_message);
    c.tensors[0].slots[1] = slot;
    plugin->destroy(self);
    plugin->destroy(NULL);
    case_free(&c);
}

/* A constant gradient of 1: v = 1 - 0.999^t. With rounding to nearest, v would stop at 1/4, where a
 * step of 0.001*(1 - v) is below half a unit. With stochastic rounding the mean of n elements is
 * right within 5 sigma: one rounding is off by at most a unit, 2^-8 v, with a variance of at most a
 * quarter of its square; t of them decay with 0.999, so at most 1/(1 - 0.999^2) add up. */
Test(adamw, bf16_moments_follow_a_slow_average)
{
    enum { N = 4000, STEPS = 1500 };
    void *self;
    const lathe_optimizer_v1 *const table = make("lr=1e-3 state_dtype=bf16", &self);
    const lathe_param_info info = {.size = sizeof info, .desc = lathe_desc_1d(LATHE_F32, N)};
    lathe_slot slots[LATHE_MAX_SLOTS];
    cr_assert_eq(table->slots(self, &info, slots), 2);
    cr_assert_eq(lathe_desc_bytes(&slots[0].desc), 2 * N);
    cr_assert_eq(lathe_desc_bytes(&slots[1].desc), 2 * N);
    optimizer_case c = {0};
    case_add(&c, N, 1, 2, 0.0);
    c.tensors[0].half_slots = 3;
    for (int i = 0; i < N; i++)
        c.grads[0][i] = 1.0f;
    for (int64_t step = 1; step <= STEPS; step++) {
        case_scalars(&c, table, self, step, 1e-3, 1.0);
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
    }
    const uint16_t *const v = c.tensors[0].slots[1];
    double mean = 0.0, n_up = 0.0;
    for (int i = 0; i < N; i++) {
        mean += (double)lathe_bf16_to_f32(v[i]) / N;
        n_up += v[i] > v[0];
    }
    const double want = 1.0 - pow(0.999, STEPS);
    const double sigma = 0x1p-8 * want / 2.0 / sqrt(1.0 - 0.999 * 0.999) / sqrt((double)N);
    cr_assert_float_eq(mean, want, 5.0 * sigma, "%g, expected %g within %g", mean, want,
                       5.0 * sigma);
    cr_assert(n_up > 0, "every element was rounded alike");
    case_free(&c);
    fixture_plugin()->destroy(self);
}

Test(adamw, f16_shadow_is_the_parameter_rounded)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("lr=0.1", &self);
    optimizer_case c = {0};
    case_add(&c, 1, 3001, 2, 1.0);
    case_gradient(1, 1, c.grads[0], 3001);
    c.tensors[0].shadow = calloc(3001, sizeof(uint16_t));
    c.tensors[0].shadow_dtype = LATHE_F16;
    case_scalars(&c, table, self, 1, 0.1, 1.0);
    cr_assert_eq(case_step(&c, table, self, 1), LATHE_OK);
    for (int i = 0; i < 3001; i++)
        cr_assert_eq(c.tensors[0].shadow[i], lathe_f32_to_f16(c.tensors[0].param[i]));
    case_free(&c);
    fixture_plugin()->destroy(self);
}

Test(adamw, embedded_image_is_a_fatbin_where_nvcc_built_one)
{
    const lathe_optimizer_v1 *const table = fixture_plugin()->table;
    if (table->cuda_image == NULL)
        cr_skip_test("built without nvcc");
    uint32_t magic;
    memcpy(&magic, table->cuda_image, sizeof magic);
    cr_assert_eq(magic, 0xBA55ED50u, "%08x", magic);
}
