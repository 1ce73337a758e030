/* Muon: the emitted graph by hand, against the iteration in double and torch.optim.Muon, its AdamW
 * part against torch, and refusals. The graph is evaluated by tests/mock_graph. */
#include "graph/ir/flops.h"
#include "graph/passes/passes.h"
#include "graph/passes/plan.h"
#include "mock_graph.h"
#include "support/optimizer_case.h"

typedef struct bench {
    const lathe_optimizer_v1 *table;
    void *self;
    lathe_graph *g;
    lathe_val param, grad, momentum, scalars, new_param, new_momentum;
    int64_t n;
} bench;

static lathe_param_info info_of(int32_t role, int64_t rows, int64_t cols)
{
    return (lathe_param_info){.size = (uint32_t)sizeof(lathe_param_info),
                              .role = role,
                              .name = "model.layers.0.mlp.up_proj.weight",
                              .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                              .trainable = 1};
}

static const lathe_optimizer_v1 *make(const char *settings, void **self)
{
    const lathe_plugin *const plugin = fixture_plugin();
    cr_assert_eq(lathe_test_create(plugin, settings, self), LATHE_OK, "%s", lathe_test_message);
    return plugin->table;
}

/* A matrix with the graph of its update. */
static bench bench_create(const char *settings, int64_t rows, int64_t cols)
{
    bench b = {0};
    b.table = make(settings, &b.self);
    b.n = rows * cols;
    b.g = mock_create(LATHE_F32);
    const lathe_param_info info = info_of(LATHE_ROLE_MATRIX, rows, cols);
    b.param = mock_input(b.g, "p", info.desc, NULL);
    b.grad = mock_input(b.g, "g", info.desc, NULL);
    b.momentum = mock_input(b.g, "m", info.desc, NULL);
    b.scalars = mock_input(b.g, "s", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), NULL);
    cr_assert_eq(b.table->build(b.self, mock_api(), b.g, &info, 1.0, 1.0, b.param, b.grad,
                                &b.momentum, b.scalars),
                 LATHE_OK, "%s", mock_error(b.g));
    for (int i = 0; i < mock_n_nodes(b.g); i++) {
        const mock_node *const n = mock_node_at(b.g, i);
        if (n->inplace_in == 0 && n->in[0] == b.momentum)
            b.new_momentum = n->out[0];
        if (n->inplace_in == 0 && n->in[0] == b.param)
            b.new_param = n->out[0];
    }
    cr_assert(b.new_param > 0 && b.new_momentum > 0, "nothing is updated in place");
    return b;
}

static void bench_step(bench *b, double lr, double grad_scale)
{
    mock_data(b->g, b->scalars)[LATHE_SCALAR_LR] = lr;
    mock_data(b->g, b->scalars)[LATHE_SCALAR_GRAD_SCALE] = grad_scale;
    mock_eval(b->g);
    memcpy(mock_data(b->g, b->param), mock_data(b->g, b->new_param), (size_t)b->n * 8);
    memcpy(mock_data(b->g, b->momentum), mock_data(b->g, b->new_momentum), (size_t)b->n * 8);
}

/* Applies the iterations to a singular value. */
static double iterated(double s, int steps)
{
    for (int k = 0; k < steps; k++)
        s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
    return s;
}

Test(muon, maps_singular_values_of_a_diagonal_gradient_by_hand)
{
    /* G = diag(3, 4) on [2,3]: |G| = 5, so the values are 0.6 and 0.8; they stay on the diagonal */
    bench b = bench_create("lr=1 ns_dtype=f32 weight_decay=0.5 momentum=0", 2, 3);
    double *const p = mock_data(b.g, b.param), *const g = mock_data(b.g, b.grad);
    p[0] = 10.0;
    g[0] = 6.0;
    g[4] = 8.0;
    bench_step(&b, 0.1, 0.5);
    cr_assert_float_eq(p[0], 10.0 - 0.1 * (iterated(0.6, 5) + 0.5 * 10.0), 1e-12, "%.17g", p[0]);
    cr_assert_float_eq(p[4], -0.1 * iterated(0.8, 5), 1e-12, "%.17g", p[4]);
    cr_assert_float_eq(p[1], 0.0, 1e-12);
    cr_assert_float_eq(mock_data(b.g, b.momentum)[4], 4.0, 1e-12);
    mock_destroy(b.g);
}

Test(muon, scales_tall_matrices_and_matches_adamw_rms)
{
    const struct {
        const char *settings;
        int64_t rows, cols;
        double scale;
    } cases[] = {{"lr=1 ns_dtype=f32", 9, 1, 3.0},
                 {"lr=1 ns_dtype=f32", 1, 9, 1.0},
                 {"lr=1 ns_dtype=f32 scaling=match_rms_adamw", 1, 9, 0.6},
                 {"lr=1 ns_dtype=f32 scaling=match_rms_adamw", 9, 1, 0.6}};
    for (int k = 0; k < 4; k++) {
        /* a single row or column has one singular value, 1 after normalisation */
        bench b = bench_create(cases[k].settings, cases[k].rows, cases[k].cols);
        for (int i = 0; i < 9; i++)
            mock_data(b.g, b.grad)[i] = 1.0;
        bench_step(&b, 1.0, 1.0);
        cr_assert_float_eq(mock_data(b.g, b.param)[5], -cases[k].scale * iterated(1.0, 5) / 3.0,
                           1e-12, "case %d: %g", k, mock_data(b.g, b.param)[5]);
        mock_destroy(b.g);
    }
}

Test(muon, a_zero_gradient_leaves_only_the_decay)
{
    bench b = bench_create("weight_decay=0.5 ns_dtype=f32", 3, 4);
    for (int i = 0; i < 12; i++)
        mock_data(b.g, b.param)[i] = 2.0;
    bench_step(&b, 0.1, 1.0);
    for (int i = 0; i < 12; i++)
        cr_assert_float_eq(mock_data(b.g, b.param)[i], 1.9, 1e-12);
    mock_destroy(b.g);
}

/* Compares 20 steps on three shapes with torch; returns the largest difference. */
static double against(const char *golden, const char *settings, int round)
{
    static const int64_t shapes[3][2] = {{12, 20}, {24, 8}, {16, 16}};
    int64_t bytes, at = 0, total = 0;
    float *const want = fixture_golden(golden, &bytes);
    double worst = 0.0, size = 0.0;
    for (int k = 0; k < 3; k++)
        total += shapes[k][0] * shapes[k][1];
    cr_assert_eq(bytes, 2 * total * 4);
    for (int k = 0; k < 3; k++) {
        bench b = bench_create(settings, shapes[k][0], shapes[k][1]);
        mock_round(b.g, round);
        double *const p = mock_data(b.g, b.param);
        float grad[256];
        for (int64_t i = 0; i < b.n; i++)
            p[i] = (double)case_uniform((uint64_t)k, 0, i);
        for (int step = 1; step <= 20; step++) {
            case_gradient((uint64_t)k, (uint64_t)step, grad, b.n);
            for (int64_t i = 0; i < b.n; i++)
                mock_data(b.g, b.grad)[i] = (double)grad[i];
            bench_step(&b, 0.02 * (1.0 - step / 400.0), 1.0);
        }
        for (int64_t i = 0; i < b.n; i++, at++) {
            worst = fmax(worst, fabs(p[i] - (double)want[at]));
            size = fmax(size, fabs(p[i] - (double)case_uniform((uint64_t)k, 0, i)));
            const double m = mock_data(b.g, b.momentum)[i];
            cr_assert_float_eq(m, (double)want[total + at], 1e-6, "momentum");
        }
        mock_destroy(b.g);
    }
    cr_log_info("%s: worst %.2g of changes up to %.2g", golden, worst, size);
    cr_assert_gt(size, 0.05, "nothing moved");
    free(want);
    return worst;
}

Test(muon, follows_the_published_iteration_for_20_steps)
{
    /* torch keeps parameters and momentum in f32: 20 roundings of 6e-8 of values up to 4 (p) go
     * through the iteration's slope of up to 3.4^5 at zero */
    cr_assert_lt(against("muon_original_exact.f32", "weight_decay=0.1 ns_dtype=f32", 0), 5e-6);
    cr_assert_lt(against("muon_match_rms_adamw_exact.f32",
                         "weight_decay=0.1 ns_dtype=f32 scaling=match_rms_adamw", 0),
                 5e-6);
}

Test(muon, in_bf16_stays_near_torch_optim_muon)
{
    /* two bf16 computations of an orthogonal matrix with entries up to 1 differ by some units of
     * 2^-8; over 20 steps of lr 0.02 that is at most 20*0.02*4*2^-8*scale, mostly far less */
    cr_assert_lt(against("muon_original_bf16.f32", "weight_decay=0.1", 1), 6e-3);
    cr_assert_lt(
        against("muon_match_rms_adamw_bf16.f32", "weight_decay=0.1 scaling=match_rms_adamw", 1),
        6e-3);
}

Test(muon, builds_on_the_core_graph_through_its_passes)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("ns_dtype=bf16", &self);
    lathe_params params;
    lathe_graph *g;
    int32_t row;
    lathe_val p, grad, m, s;
    lathe_params_init(&params, LATHE_BF16);
    const lathe_param weight = {.name = "w",
                                .desc = lathe_desc_2d(LATHE_F32, 24, 8),
                                .role = LATHE_ROLE_MATRIX,
                                .trainable = 1};
    cr_assert_eq(lathe_params_add(&params, &weight, &row), LATHE_OK);
    cr_assert_eq(lathe_graph_create(&params, &g), LATHE_OK);
    cr_assert_eq(lathe_graph_master(g, row, &p), LATHE_OK);
    cr_assert_eq(lathe_graph_grad(g, row, &grad), LATHE_OK);
    cr_assert_eq(lathe_graph_state(g, "momentum_buffer", weight.desc, &m), LATHE_OK);
    cr_assert_eq(lathe_graph_state(g, "s", lathe_desc_1d(LATHE_F32, LATHE_N_SCALARS), &s),
                 LATHE_OK);
    const lathe_param_info info = lathe_params_info(&params, row);
    cr_assert_eq(table->build(self, lathe_graph_api_get(), g, &info, 1, 1, p, grad, &m, s),
                 LATHE_OK);
    cr_assert_eq(lathe_pass_dead(g), LATHE_OK);
    cr_assert_eq(lathe_pass_inplace(g), LATHE_OK);
    int updates = 0, products = 0;
    for (int32_t k = 0; k < g->n_nodes; k++) {
        const lathe_ir_node *const n = &g->nodes[k];
        updates += n->op == LATHE_OP_APPLY_UPDATE && lathe_graph_root(g, n->out[0]) == p;
        updates += n->op == LATHE_OP_LINCOMB && lathe_graph_root(g, n->out[0]) == m;
        products += n->op == LATHE_OP_MATMUL && g->values[n->out[0]].desc.dtype == LATHE_BF16;
    }
    cr_assert_eq(updates, 2, "parameter and momentum are not both updated in place");
    cr_assert_eq(products, 15);
    /* as published, 2 per multiply-add: per step, 2*8*8*24 twice and 2*8*8*8 */
    cr_assert_float_eq(lathe_graph_flops(g, 1), 5.0 * (2 * 2 * 8 * 8 * 24 + 2 * 8 * 8 * 8), 0.5);
    lathe_graph_destroy(g);
    lathe_params_fini(&params);
}

Test(muon, takes_hidden_matrices_only)
{
    void *self;
    const lathe_optimizer_v1 *const table = make("", &self);
    lathe_slot out[LATHE_MAX_SLOTS];
    for (int32_t role = LATHE_ROLE_MATRIX; role <= LATHE_ROLE_ADAPTER; role++) {
        const lathe_param_info info = info_of(role, 4, 4);
        const int matrix = role == LATHE_ROLE_MATRIX;
        cr_assert_eq(table->partition(self, &info),
                     matrix ? LATHE_PARTITION_MATRIX : LATHE_PARTITION_ELEMENT, "role %d", role);
        cr_assert_eq(table->slots(self, &info, out), matrix ? 1 : 2);
        cr_assert_str_eq(out[0].name, matrix ? "momentum_buffer" : "exp_avg");
    }
    lathe_param_info vector = info_of(LATHE_ROLE_MATRIX, 4, 4);
    vector.desc = lathe_desc_1d(LATHE_F32, 4);
    cr_assert_eq(table->partition(self, &vector), LATHE_PARTITION_ELEMENT);
    lathe_val none[1] = {0};
    cr_assert_eq(table->build(self, mock_api(), NULL, &vector, 1, 1, 0, 0, none, 0), LATHE_E_ARG);
}

Test(muon, updates_the_rest_as_torch_adamw_does)
{
    /* the golden of adamw, at lr 1e-3 on the same schedule; muon's own lr does not matter */
    void *self;
    const lathe_optimizer_v1 *const table =
        make("lr=0.5 adamw_lr=1e-3 adamw_beta2=0.95 adamw_eps=1e-8 adamw_weight_decay=0.1", &self);
    optimizer_case c = {0};
    case_add(&c, 17, 5, 2, 1.0);
    case_add(&c, 33, 1, 2, 0.0);
    case_add(&c, 1, 1, 2, 0.0);
    case_add(&c, 40, 41, 2, 1.0);
    for (int64_t step = 1; step <= 300; step++) {
        case_scalars(&c, table, self, step, 0.5 * (1.0 - (double)step / 400.0), 1.0);
        for (int32_t k = 0; k < c.n_tensors; k++)
            case_gradient((uint64_t)k, (uint64_t)step, c.grads[k], c.tensors[k].n);
        cr_assert_eq(case_step(&c, table, self, step), LATHE_OK);
    }
    int64_t bytes;
    float *const golden = fixture_golden("adamw.f32", &bytes);
    const float *want = golden;
    for (int32_t k = 0; k < c.n_tensors; k++)
        for (int64_t i = 0; i < c.tensors[k].n; i++, want++) /* as in test_adamw.c */
            cr_assert_float_eq((double)c.tensors[k].param[i], (double)*want,
                               1e-6 * (fabs((double)*want) + 0.2), "tensor %d element %d", k,
                               (int)i);
    free(golden);
    case_free(&c);
}

Test(muon, refuses_bad_settings)
{
    static const char *const bad[] = {"lr=-1",           "momentum=1",   "weight_decay=-1",
                                      "ns_steps=0",      "ns_steps=21",  "ns_dtype=f16",
                                      "scaling=none",    "adamw_lr=-1",  "adamw_beta1=1",
                                      "adamw_beta2=nan", "adamw_eps=-1", "adamw_weight_decay=-1"};
    const lathe_plugin *const plugin = fixture_plugin();
    void *self;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        cr_assert_eq(lathe_test_create(plugin, bad[k], &self), LATHE_E_CONFIG, "took %s", bad[k]);
        cr_assert(strncmp(lathe_test_message, bad[k], strcspn(bad[k], "=")) == 0, "%s",
                  lathe_test_message);
    }
    (void)make("", &self);
    plugin->destroy(self);
    plugin->destroy(NULL);
}
