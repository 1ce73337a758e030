/* The tests of every attention backend. The includer defines ATTENTION_ISAS, a list of values of
 * the plugin's `isa` field (NULL: its default); values that this machine does not support are
 * skipped. */
#ifndef LATHE_TESTS_ATTENTION_SUITE_H
#define LATHE_TESTS_ATTENTION_SUITE_H

#include "attention_cases.h"
#include "plug/host_table.h"

static const char *const attention_isas[] = {ATTENTION_ISAS};
#define ATTENTION_N_ISAS (sizeof attention_isas / sizeof attention_isas[0])

/* Runs the case in every dtype on every instruction set; on the emulated GPU, which is slow, in one
 * dtype after another by turns. */
static inline void attention_try_everywhere(attention_case c)
{
    int tried = 0;
#ifdef ATTENTION_ON_DEVICE
    static int32_t turn;
    if (attention_is_emulated()) {
        void *self = attention_instance(lathe_host_get(), NULL);
        c.dtype = ATTENTION_FIRST_DTYPE + turn++ % (LATHE_F16 + 1 - ATTENTION_FIRST_DTYPE);
        attention_try(self, &c);
        attention_plugin()->destroy(self);
        return;
    }
#endif
    for (size_t i = 0; i < ATTENTION_N_ISAS; i++) {
        void *self = attention_instance(attention_host(2), attention_isas[i]);
        for (int32_t dtype = ATTENTION_FIRST_DTYPE; self && dtype <= LATHE_F16; dtype++) {
            c.dtype = dtype;
            attention_try(self, &c);
            tried++;
        }
        attention_plugin()->destroy(self);
    }
    cr_assert(tried > LATHE_F16 - ATTENTION_FIRST_DTYPE);
}

#define ATTENTION_CASE(B, TQ, TK, H, HKV, D)                                                       \
    .batch = (B), .t_q = (TQ), .t_k = (TK), .heads = (H), .kv_heads = (HKV), .dim = (D)

Test(attention, two_keys_by_hand)
{
    /* q.k = 0 and ln 3 (D = 1, scale 1): weights 1/4 and 3/4; o = 1/4*4 + 3/4*8 = 7; lse = ln 4.
     * do = 1: dv = weights; dp = v; delta = 7; ds = 1/4*(4-7), 3/4*(8-7) = -+3/4;
     * dq = 3/4 ln 3; dk = ds * q. */
    const float ln3 = 1.0986123f;
    float q[1] = {1.0f}, k[2] = {0.0f, ln3}, v[2] = {4.0f, 8.0f}, o[1], lse[1], g[1] = {1.0f};
    float dq[1], dk[2], dv[2];
    const lathe_attention_problem p = {.size = sizeof p,
                                       .dtype = LATHE_F32,
                                       .batch = 1,
                                       .t_q = 1,
                                       .t_k = 2,
                                       .n_heads = 1,
                                       .n_kv_heads = 1,
                                       .head_dim = 1,
                                       .n_threads = 1,
                                       .scale = 1.0f,
                                       .q_stride = 1,
                                       .k_stride = 1,
                                       .v_stride = 1,
                                       .o_stride = 1,
                                       .dq_stride = 1,
                                       .dk_stride = 1,
                                       .dv_stride = 1,
                                       .need_backward = 1,
                                       .device = attention_device()};
    const lathe_attention_args a = {.size = sizeof a,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .o = o,
                                    .lse = lse,
                                    .d_o = g,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv};
    void *self = attention_instance(lathe_host_get(), NULL);
    cr_assert(self);
    if (attention_is_refused(self, &p)) {
        attention_plugin()->destroy(self);
        return;
    }
    cr_assert(attention_call(self, &p, a, 0) == LATHE_OK);
    cr_assert(attention_call(self, &p, a, 1) == LATHE_OK);
    const float got[7] = {o[0], lse[0], dv[0], dv[1], dq[0], dk[0], dk[1]};
    const float want[7] = {7.0f, 1.3862944f, 0.25f, 0.75f, 0.75f * ln3, -0.75f, 0.75f};
    for (int i = 0; i < 7; i++)
        cr_assert(fabsf(got[i] - want[i]) <= 4e-6f, "%d: %g, expected %g", i, (double)got[i],
                  (double)want[i]);
    attention_plugin()->destroy(self);
}

/* Checks the double reference itself: its gradients against central differences of its loss
 * sum(o*do). h = 1e-4 on values of order 1: truncation about h^2 = 1e-8, cancellation 1e-16/h =
 * 1e-12. */
static inline void attention_check_reference(attention_case c)
{
    attention_memory m;
    attention_memory_init(&m, &c);
    const int64_t nq = 2 * 9 * 4 * 5, nk = 2 * 9 * 2 * 5;
    attention_exact(&m, 1);
    double *grads = attention_doubles(nq + 2 * nk);
    memcpy(grads, m.x_dq, (size_t)nq * 8);
    memcpy(grads + nq, m.x_dk, (size_t)nk * 8);
    memcpy(grads + nq + nk, m.x_dv, (size_t)nk * 8);
    for (int64_t i = 0; i < nq + 2 * nk; i += 7) {
        double *x = i < nq ? m.x_q + i : i < nq + nk ? m.x_k + i - nq : m.x_v + i - nq - nk;
        const double h = 1e-4, was = *x;
        double loss[2] = {0.0, 0.0};
        for (int side = 0; side < 2; side++) {
            *x = was + (side ? h : -h);
            attention_exact(&m, 0);
            for (int64_t j = 0; j < nq; j++)
                loss[side] += m.x_o[j] * m.x_do[j];
        }
        *x = was;
        const double slope = (loss[1] - loss[0]) / (2.0 * h);
        cr_assert(fabs(slope - grads[i]) <= 1e-6 * (1.0 + fabs(slope)), "%lld: %g, expected %g",
                  (long long)i, grads[i], slope);
    }
    free(grads);
    attention_memory_fini(&m);
}

Test(attention, reference_gradients_match_finite_differences)
{
    for (int32_t bounded = 0; bounded <= ATTENTION_IRREGULAR; bounded++)
        attention_check_reference((attention_case){ATTENTION_CASE(2, 9, 9, 4, 2, 5),
                                                   .causal = bounded == 0, .window = 6, .packed = 1,
                                                   .softcap = 2.0f, .bounded = bounded});
}

Test(attention, reference_gradients_with_slopes_match_finite_differences)
{
    attention_check_reference((attention_case){ATTENTION_CASE(2, 9, 9, 4, 2, 5), .causal = 1,
                                               .packed = 1, .softcap = 2.0f, .alibi = 1});
}

/* Slopes of ALiBi with and without documents, windows, soft-cap and causality. */
Test(attention, slopes_are_exact)
{
    for (int mix = 0; mix < 16; mix++)
        attention_try_everywhere((attention_case){
            ATTENTION_CASE(2, 130, 130, 6, 2, 16), .causal = !(mix & 1), .window = mix & 2 ? 37 : 0,
            .packed = mix & 4, .softcap = mix & 8 ? 1.5f : 0.0f, .alibi = 1,
            .accumulate = mix & 4 ? 5 : 0});
    for (int32_t bounded = ATTENTION_TWO_WAY; bounded <= ATTENTION_IRREGULAR; bounded++)
        attention_try_everywhere(
            (attention_case){ATTENTION_CASE(2, 90, 90, 2, 1, 32), .alibi = 1, .bounded = bounded});
}

Test(attention, slopes_with_other_lengths_are_exact)
{
    const int64_t lengths[][2] = {{1, 1}, {1, 90}, {3, 300}, {5, 130}, {70, 200}, {130, 33}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int cached = 0; cached < 2; cached++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(2, lengths[i][0], lengths[i][1], 4, 2, 32), .causal = 1, .alibi = 1,
                .cached = cached, .forward_only = cached});
}

Test(attention, reference_gradients_with_sinks_match_finite_differences)
{
    attention_check_reference((attention_case){ATTENTION_CASE(2, 9, 9, 4, 2, 5), .causal = 1,
                                               .window = 6, .packed = 1, .sinks = 1});
}

/* Sinks with and without documents, windows, soft-cap and causality. */
Test(attention, sinks_are_exact)
{
    for (int mix = 0; mix < 16; mix++)
        attention_try_everywhere((attention_case){
            ATTENTION_CASE(2, 130, 130, 6, 2, 16), .causal = !(mix & 1), .window = mix & 2 ? 37 : 0,
            .packed = mix & 4, .softcap = mix & 8 ? 1.5f : 0.0f, .alibi = mix == 9, .sinks = 1,
            .accumulate = mix & 4 ? 5 : 0});
    for (int32_t bounded = ATTENTION_TWO_WAY; bounded <= ATTENTION_IRREGULAR; bounded++)
        attention_try_everywhere(
            (attention_case){ATTENTION_CASE(2, 90, 90, 2, 1, 32), .sinks = 1, .bounded = bounded});
}

Test(attention, sinks_with_other_lengths_are_exact)
{
    const int64_t lengths[][2] = {{1, 1}, {1, 90}, {3, 300}, {5, 130}, {70, 200}, {130, 33}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int cached = 0; cached < 2; cached++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(2, lengths[i][0], lengths[i][1], 4, 2, 32), .causal = 1, .sinks = 1,
                .window = 50, .cached = cached, .forward_only = cached});
}

/* Bounds with and without documents, windows and causality; tiles without any visible key between
 * tiles with some. */
Test(attention, last_keys_are_exact)
{
    for (int32_t bounded = ATTENTION_TWO_WAY; bounded <= ATTENTION_IRREGULAR; bounded++)
        for (int mix = 0; mix < 8; mix++)
            attention_try_everywhere(
                (attention_case){ATTENTION_CASE(2, 150, 150, 2, 1, 16), .bounded = bounded,
                                 .packed = mix & 1, .window = mix & 2 ? 37 : 0, .causal = mix == 7,
                                 .softcap = mix & 4 ? 1.5f : 0.0f, .accumulate = mix & 1 ? 5 : 0});
}

Test(attention, last_keys_with_other_lengths_are_exact)
{
    const int64_t lengths[][2] = {{1, 1}, {1, 90}, {5, 130}, {70, 200}, {130, 33}, {300, 300}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int32_t bounded = ATTENTION_TWO_WAY; bounded <= ATTENTION_IRREGULAR; bounded++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(2, lengths[i][0], lengths[i][1], 2, 2, 32), .bounded = bounded});
}

/* A bound that causality implies changes no bit. */
Test(attention, a_bound_that_says_causal_gives_the_bits_of_causal)
{
    for (size_t i = 0; i < ATTENTION_N_ISAS; i++) {
        void *self = attention_instance(attention_host(2), attention_isas[i]);
        attention_case c = {ATTENTION_CASE(2, 90, 90, 2, 1, 32), .dtype = ATTENTION_FIRST_DTYPE,
                            .causal = 1, .packed = 1};
        attention_memory m[2];
        int ran = self != NULL;
        for (int k = 0; k < 2 && ran; k++) {
            attention_memory_init(&m[k], &c);
            for (int64_t t = 0; k == 1 && t < 180; t++)
                m[k].key_end[t] = (int32_t)(t % 90 + 1);
            ran = attention_run(self, &m[k], &c);
            if (!ran) {
                for (int n = 0; n <= k; n++)
                    attention_memory_fini(&m[n]);
            }
            c.causal = 0;
            c.bounded = ATTENTION_IRREGULAR;
        }
        for (int k = 0; ran && k < 8; k++)
            if (k == 1 || (k >= 4 && k <= 6)) /* dq; dk dv o */
                cr_assert(memcmp(m[0].store[k], m[1].store[k],
                                 (size_t)(180 *
                                          (k == 1   ? m[0].p.q_stride
                                           : k == 6 ? m[0].p.o_stride
                                                    : m[0].p.k_stride) *
                                          lathe_dtype_bytes(c.dtype))) == 0,
                          "tensor %d", k);
        for (int k = 0; ran && k < 2; k++)
            attention_memory_fini(&m[k]);
        attention_plugin()->destroy(self);
    }
}

Test(attention, every_mix_of_masks_is_exact)
{
    for (int mix = 0; mix < 16; mix++)
        attention_try_everywhere((attention_case){
            ATTENTION_CASE(2, 130, 130, 2, 1, 16), .causal = mix & 1, .window = mix & 2 ? 37 : 0,
            .packed = mix & 4, .softcap = mix & 8 ? 1.5f : 0.0f});
}

Test(attention, odd_lengths_are_exact)
{
    const int64_t lengths[] = {1, 2, 7, 31, 65, 97, 129, 200};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int causal = 0; causal < 2; causal++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(1, lengths[i], lengths[i], 2, 2, 24), .causal = causal});
}

Test(attention, unequal_lengths_are_exact)
{
    const int64_t lengths[][2] = {{1, 90}, {5, 130}, {70, 200}, {130, 33}, {8, 64}, {12, 1}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int causal = 0; causal < 2; causal++)
            attention_try_everywhere(
                (attention_case){ATTENTION_CASE(2, lengths[i][0], lengths[i][1], 2, 1, 32),
                                 .causal = causal, .window = 50 * causal});
}

Test(attention, head_sizes_are_exact)
{
    const int32_t sizes[] = {1, 3, 16, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        attention_try_everywhere(
            (attention_case){ATTENTION_CASE(1, 101, 101, 1, 1, sizes[i]), .causal = 1});
}

/* Latent attention has values of another size than keys. */
Test(attention, values_of_another_size_are_exact)
{
    const int32_t sizes[][2] = {{24, 16}, {1, 5}, {192, 128}, {16, 80}, {3, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        attention_try_everywhere((attention_case){
            ATTENTION_CASE(2, 101, 101, 4, 2, sizes[i][0]), .value_dim = sizes[i][1],
            .causal = i != 1, .packed = i == 2, .sinks = i == 3, .accumulate = i == 0 ? 7 : 0});
    const int64_t lengths[][2] = {{1, 90}, {3, 300}, {5, 130}, {70, 200}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int wide = 0; wide < 2; wide++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(2, lengths[i][0], lengths[i][1], 17, 17, wide ? 8 : 40),
                .value_dim = wide ? 40 : 8, .causal = 1, .cached = 1, .forward_only = 1});
}

Test(attention, query_heads_share_key_heads)
{
    const int32_t groups[][2] = {{8, 1}, {6, 2}, {6, 3}, {20, 20}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        attention_try_everywhere((attention_case){
            ATTENTION_CASE(2, 50, 50, groups[i][0], groups[i][1], 16), .causal = 1});
}

Test(attention, fused_columns_and_accumulation)
{
    for (uint32_t add = 0; add < 8; add++)
        attention_try_everywhere((attention_case){ATTENTION_CASE(2, 67, 67, 4, 2, 16), .causal = 1,
                                                  .fused = 1, .accumulate = add});
}

/* 200 tokens, split over 1 and 3 workers in opposite orders, give the same bits; with few heads and
 * with many. The emulated GPU, which is slow, changes the order of its own threads at each
 * launch. */
Test(attention, bits_do_not_depend_on_threads)
{
    int32_t most = 33;
#ifdef ATTENTION_ON_DEVICE
    most = attention_is_emulated() ? 17 : most;
#endif
    for (int32_t heads = 1; heads <= most; heads += 16) {
        attention_case c = {ATTENTION_CASE(1, 200, 200, heads, heads, 32), .dtype = LATHE_BF16,
                            .causal = 1, .packed = heads == 17};
        attention_memory m[3];
        for (int run = 0; run < 3; run++) {
            const lathe_host *host = run < 2 ? attention_host(run ? 3 : 1) : lathe_host_get();
            void *self = attention_instance(host, NULL);
            attention_memory_init(&m[run], &c);
            cr_assert(attention_run(self, &m[run], &c));
            attention_plugin()->destroy(self);
        }
        const size_t row = 2 * 200, head = (size_t)heads;
        for (int run = 1; run < 3; run++) {
            cr_assert(memcmp(m[0].o, m[run].o, row * (head * 32 + ATTENTION_O_GAP)) == 0);
            cr_assert(memcmp(m[0].lse, m[run].lse, 2 * row * head) == 0);
            cr_assert(memcmp(m[0].dq, m[run].dq, row * (head * 32 + ATTENTION_GAP)) == 0);
            cr_assert(memcmp(m[0].dk, m[run].dk, row * (head * 32 + ATTENTION_GAP)) == 0);
            cr_assert(memcmp(m[0].dv, m[run].dv, row * (head * 32 + ATTENTION_GAP)) == 0);
        }
        for (int run = 0; run < 3; run++)
            attention_memory_fini(&m[run]);
    }
}

Test(attention, cached_rows_of_unequal_length)
{
    const int64_t queries[] = {1, 3, 40};
    for (size_t i = 0; i < 3; i++)
        for (int mix = 0; mix < 4; mix++)
            attention_try_everywhere((attention_case){
                ATTENTION_CASE(3, queries[i], 700, 6, 2, 64), .causal = mix & 1, .cached = 1,
                .window = mix & 2 ? 100 : 0, .softcap = mix == 3 ? 3.0f : 0.0f, .forward_only = 1});
}

/* Decoding token by token from a cache gives the rows of one causal pass. In f32 the same sums have
 * two orders; 2e-6 is 32 roundings of values below 1. */
Test(attention, decoding_equals_the_full_pass)
{
    void *self = attention_instance(attention_host(2), NULL);
    attention_case c = {ATTENTION_CASE(1, 90, 90, 2, 1, 64), .causal = 1, .forward_only = 1};
    attention_memory m;
    attention_memory_init(&m, &c);
    const int32_t n = attention_run(self, &m, &c) ? 90 : 0;
    for (int32_t at = 0; at < n; at++) {
        float o[2 * 64], lse[2];
        const int32_t len = at + 1;
        lathe_attention_problem p = m.p;
        p.t_q = 1;
        p.cached = 1;
        lathe_attention_args a = attention_args(&m, 0);
        a.q = (const float *)m.q + at * p.q_stride;
        a.o = o;
        a.lse = lse;
        a.kv_len = &len;
        cr_assert(attention_call(self, &p, a, 0) == LATHE_OK);
        for (int i = 0; i < 128; i++)
            cr_assert(fabsf(o[i] - ((float *)m.o)[at * p.o_stride + i]) <= 4e-6f);
        for (int h = 0; h < 2; h++)
            cr_assert(fabsf(lse[h] - m.lse[h * 90 + at]) <= 4e-6f);
    }
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

/* More queries than keys: the first queries are before key 0 and see no key. */
Test(attention, rows_that_see_no_key_give_zero)
{
    attention_case c = {ATTENTION_CASE(1, 20, 8, 1, 1, 16), .causal = 1};
    for (size_t i = 0; i < ATTENTION_N_ISAS; i++) {
        void *self = attention_instance(attention_host(2), attention_isas[i]);
        if (!self)
            continue;
        attention_memory m;
        attention_memory_init(&m, &c);
        const int rows = attention_run(self, &m, &c) ? 12 : 0;
        if (rows > 0)
            attention_check(&c, &m);
        for (int row = 0; row < rows; row++) {
            cr_assert(isinf(m.lse[row]) && m.lse[row] < 0.0f);
            for (int d = 0; d < 16; d++) {
                cr_assert(((float *)m.o)[row * m.p.o_stride + d] == 0.0f);
                cr_assert(((float *)m.dq)[row * m.p.dq_stride + d] == 0.0f);
            }
        }
        attention_memory_fini(&m);
        attention_plugin()->destroy(self);
    }
}

/* Scores near +-900: exp must neither overflow nor lose the winner. */
Test(attention, large_scores_stay_finite)
{
    void *self = attention_instance(attention_host(2), NULL);
    attention_case c = {ATTENTION_CASE(1, 70, 70, 1, 1, 16), .dtype = ATTENTION_FIRST_DTYPE,
                        .causal = 1};
    attention_memory m;
    attention_memory_init(&m, &c);
    m.p.scale = 60.0f;
    cr_assert(attention_run(self, &m, &c));
    attention_exact(&m, 1);
    for (int64_t i = 0; i < 70 * 16; i++) {
        const double got = attention_load(m.o, i / 16 * m.p.o_stride + i % 16, c.dtype);
        cr_assert(fabs(got - m.x_o[i]) <= 2e-2, "%g, expected %g", got, m.x_o[i]);
        cr_assert(isfinite(attention_load(m.dq, i / 16 * m.p.dq_stride + i % 16, c.dtype)));
        cr_assert(isfinite(attention_load(m.dk, i / 16 * m.p.dk_stride + i % 16, c.dtype)));
    }
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

Test(attention, half_precision_is_served)
{
    void *self = attention_instance(attention_host(2), NULL);
    const attention_case c = {ATTENTION_CASE(2, 75, 75, 4, 2, 40), .dtype = LATHE_F16, .causal = 1,
                              .accumulate = 5};
    attention_try(self, &c);
    attention_plugin()->destroy(self);
}

Test(attention, absent_gradients_are_left_out)
{
    void *self = attention_instance(attention_host(2), NULL);
    attention_case c = {ATTENTION_CASE(1, 40, 40, 2, 1, 16), .dtype = ATTENTION_FIRST_DTYPE,
                        .causal = 1};
    attention_memory m;
    attention_memory_init(&m, &c);
    cr_assert(attention_run(self, &m, &c));
    const int64_t bytes = 40 * m.p.dq_stride * lathe_dtype_bytes(c.dtype);
    void *first = attention_zeroed(bytes);
    memcpy(first, m.dq, (size_t)bytes);
    lathe_attention_args a = attention_args(&m, 0);
    a.dk = a.dv = NULL;
    cr_assert(attention_call(self, &m.p, a, 1) == LATHE_OK);
    cr_assert(memcmp(first, m.dq, (size_t)bytes) == 0);
    free(first);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

Test(attention, an_empty_batch_is_nothing_to_do)
{
    void *self = attention_instance(attention_host(2), NULL);
    const attention_case c = {ATTENTION_CASE(0, 5, 5, 1, 1, 16)};
    attention_try(self, &c);
    attention_plugin()->destroy(self);
}

Test(attention, bad_problems_are_refused_with_a_reason)
{
    void *self = attention_instance(lathe_host_get(), NULL);
    const lathe_attention_v1 *t = attention_plugin()->table;
    attention_case c = {ATTENTION_CASE(1, 8, 8, 2, 1, 16)};
    attention_memory m;
    attention_memory_init(&m, &c);
    const lathe_device_info other = {.size = sizeof other,
                                     .host_memory = attention_device() != NULL};
    for (int bad = 0; bad < 5; bad++) {
        lathe_attention_problem p = m.p;
        if (bad == 0)
            p.dtype = LATHE_I8;
        if (bad == 1)
            p.n_kv_heads = 3;
        if (bad == 2)
            p.cached = 1;
        if (bad == 3)
            p.device = &other;
        if (bad == 4)
            p.head_dim = 0;
        char why[128] = "";
        cr_assert(t->score(self, &p, why, sizeof why) == LATHE_SCORE_NO);
        cr_assert(why[0] != '\0');
    }
    int32_t len = 9; /* beyond a cache of 8 */
    lathe_attention_problem p = m.p;
    p.cached = 1;
    p.need_backward = 0;
    lathe_attention_args a = attention_args(&m, 0);
    a.kv_len = &len;
    if (!attention_device()) /* a kernel cannot report an error */
        cr_assert(attention_call(self, &p, a, 0) == LATHE_E_ARG);
    a.kv_len = NULL; /* announced but not passed */
    cr_assert(attention_call(self, &p, a, 0) == LATHE_E_ARG);
    attention_memory_fini(&m);
    attention_plugin()->destroy(self);
}

#endif
