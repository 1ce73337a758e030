/* @NAME@: a case by hand, gradients against finite differences, refusals. Run with the path of the
 * .so. */
#include <lathe/attention.h>
#include <lathe/kit/testing.h>
#include <math.h>

enum { B = 2, T = 5, H = 4, HKV = 2, D = 3, Q = B * T * H * D, K = B * T * HKV * D };

static float q[Q], k[K], v[K], o[Q], lse[B * H * T], d_o[Q], dq[Q], dk[K], dv[K];

static lathe_attention_problem problem(int32_t causal, int32_t window)
{
    const lathe_attention_problem p = {.size = (uint32_t)sizeof p,
                                       .dtype = LATHE_F32,
                                       .batch = B,
                                       .t_q = T,
                                       .t_k = T,
                                       .n_heads = H,
                                       .n_kv_heads = HKV,
                                       .head_dim = D,
                                       .causal = causal,
                                       .window = window,
                                       .scale = 0.7f,
                                       .q_stride = H * D,
                                       .k_stride = HKV * D,
                                       .v_stride = HKV * D,
                                       .o_stride = H * D,
                                       .dq_stride = H * D,
                                       .dk_stride = HKV * D,
                                       .dv_stride = HKV * D,
                                       .need_backward = 1};
    return p;
}

/* sum(o * dO), whose gradients the backward gives. */
static double objective(const lathe_attention_v1 *table, void *self,
                        const lathe_attention_problem *p, const lathe_attention_args *a)
{
    double sum = 0.0;
    LATHE_CHECK(table->forward(self, p, a) == LATHE_OK);
    for (int i = 0; i < Q; i++)
        sum += (double)o[i] * (double)d_o[i];
    return sum;
}

static void check_gradient(const lathe_attention_v1 *table, void *self,
                           const lathe_attention_problem *p, const lathe_attention_args *a,
                           float *at, const float *gradient, int n)
{
    for (int i = 0; i < n; i++) {
        const float kept = at[i];
        const double h = 0.01; /* f32: error of the difference about h^2 + 1e-6/h */
        at[i] = kept + (float)h;
        const double up = objective(table, self, p, a);
        at[i] = kept - (float)h;
        const double down = objective(table, self, p, a);
        at[i] = kept;
        LATHE_CHECK(fabs((up - down) / (2 * h) - (double)gradient[i]) < 2e-3);
    }
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_attention_v1 *const table = plugin->table;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);
    for (int i = 0; i < Q; i++) {
        q[i] = sinf((float)i);
        d_o[i] = cosf((float)(3 * i));
    }
    for (int i = 0; i < K; i++) {
        k[i] = sinf((float)(2 * i + 1));
        v[i] = cosf((float)(5 * i));
    }
    lathe_attention_args a = {.size = (uint32_t)sizeof a,
                              .q = q,
                              .k = k,
                              .v = v,
                              .o = o,
                              .lse = lse,
                              .d_o = d_o,
                              .dq = dq,
                              .dk = dk,
                              .dv = dv};
    char why[64];

    /* the first query of a causal row sees one key: o is its v, lse its score */
    lathe_attention_problem p = problem(1, 0);
    LATHE_CHECK(table->score(self, &p, why, sizeof why) > 0);
    LATHE_CHECK(table->forward(self, &p, &a) == LATHE_OK);
    LATHE_CHECK(fabsf(o[0] - v[0]) < 1e-6f && fabsf(o[3 * D] - v[D]) < 1e-6f);
    LATHE_CHECK(fabsf(lse[0] - 0.7f * (q[0] * k[0] + q[1] * k[1] + q[2] * k[2])) < 1e-6f);

    const int32_t masks[3][2] = {{0, 0}, {1, 0}, {1, 2}};
    for (int m = 0; m < 3; m++) {
        p = problem(masks[m][0], masks[m][1]);
        LATHE_CHECK(table->forward(self, &p, &a) == LATHE_OK);
        a.accumulate = 0;
        LATHE_CHECK(table->backward(self, &p, &a) == LATHE_OK);
        check_gradient(table, self, &p, &a, q, dq, Q);
        check_gradient(table, self, &p, &a, k, dk, K);
        check_gradient(table, self, &p, &a, v, dv, K);
    }
    const float once = dk[4];
    LATHE_CHECK(table->forward(self, &p, &a) == LATHE_OK);
    a.accumulate = 7;
    LATHE_CHECK(table->backward(self, &p, &a) == LATHE_OK);
    LATHE_CHECK(fabsf(dk[4] - 2.0f * once) < 1e-5f);

    p.softcap = 30.0f;
    LATHE_CHECK(table->score(self, &p, why, sizeof why) == LATHE_SCORE_NO && why[0] != '\0');
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
