/* kto: losses, gradients and metrics against TRL; padding; refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { MAX_VALUES = 64, N_METRICS = 6 };

static lathe_val given[2];

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    *out = given[model];
    return LATHE_OK;
}

static void *instance(const lathe_plugin *plugin, const char *type, double beta, double desirable,
                      double undesirable)
{
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    mock_value(plugin, values, "beta")->f = beta;
    mock_value(plugin, values, "desirable_weight")->f = desirable;
    mock_value(plugin, values, "undesirable_weight")->f = undesirable;
    mock_value(plugin, values, "loss_type")->s = type;
    void *self = NULL;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* labels, mask: of the examples; policy, reference: of all rows. */
static lathe_stage_loss build(const lathe_plugin *plugin, void *self, lathe_graph *g, int32_t n,
                              int64_t tokens, const double *labels, const double *policy,
                              const double *reference, const double *mask)
{
    const lathe_stage_v1 *stage = plugin->table;
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, 2 * n * tokens);
    double both[MAX_VALUES];
    for (int32_t i = 0; i < 2 * n; i++)
        both[i] = labels[i % n];
    given[LATHE_MODEL_POLICY] = mock_input(g, "policy", desc, policy);
    given[LATHE_MODEL_REFERENCE] = mock_input(g, "reference", desc, reference);
    const lathe_val label = mock_input(g, "label", lathe_desc_1d(LATHE_F32, 2 * n), both);
    const lathe_stage_build b = {
        .size = sizeof b,
        .n_rows = 2 * n,
        .row_tokens = tokens,
        .api = mock_api(),
        .graph = g,
        .logprobs = logprobs,
        .n_inputs = 1,
        .inputs = &label,
        .record_mask = mock_input(g, "record_mask", lathe_desc_1d(LATHE_F32, n), mask)};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(self, &b, &loss), LATHE_OK, "%s", mock_error(g));
    cr_expect_eq(loss.count_unit, LATHE_COUNT_EXAMPLES);
    mock_eval(g);
    return loss;
}

/* The value of a metric as it is shown; NAN: it is not. count: examples. */
static double metric(lathe_graph *g, const lathe_stage_loss *loss, const char *name, double count)
{
    for (int32_t i = 0; i < loss->n_metrics; i++) {
        const lathe_stage_metric *m = &loss->metrics[i];
        if (!m->name || strcmp(m->name, name) != 0)
            continue;
        const double over = m->over > 0 ? mock_data(g, loss->metrics[m->over - 1].sum)[0] : count;
        return over > 0.0 ? mock_data(g, m->sum)[0] / over : (double)NAN;
    }
    return (double)NAN;
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

static const char *const names[N_METRICS] = {"rewards/chosen",  "rewards/rejected",
                                             "rewards/margins", "logps/chosen",
                                             "logps/rejected",  "kl"};

/* Both sides compute in double; sums of at most 40 terms of size <= 3: 1e-12 leaves three digits.
 * The central difference with h = 1e-4 errs by h^2/6 * |f'''| < 1e-8. */
static void check_case(const lathe_plugin *plugin, FILE *file)
{
    static const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    char type[32];
    double beta, weights[2], labels[8], policy[MAX_VALUES], reference[MAX_VALUES], grad[MAX_VALUES];
    double want, metrics[N_METRICS];
    int examples, tokens;
    cr_assert_eq(fscanf(file, "%31s %lf %lf %lf %d %d", type, &beta, &weights[0], &weights[1],
                        &examples, &tokens),
                 6);
    const int n = 2 * examples * tokens;
    cr_assert(n <= MAX_VALUES && examples <= 8);
    read_line(file, "labels", labels, examples);
    read_line(file, "policy", policy, n);
    read_line(file, "reference", reference, n);
    read_line(file, "loss", &want, 1);
    read_line(file, "grad", grad, n);
    read_line(file, "metrics", metrics, N_METRICS);
    void *self = instance(plugin, type, beta, weights[0], weights[1]);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss =
        build(plugin, self, g, examples, tokens, labels, policy, reference, ones);
    cr_expect_float_eq(mock_data(g, loss.sum)[0], want, 1e-12 * fmax(1.0, fabs(want)),
                       "%s: %.17g, want %.17g", type, mock_data(g, loss.sum)[0], want);
    for (int i = 0; i < n / 2; i++) /* the mismatched rows have no gradient */
        cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], i, 1e-4), grad[i],
                           1e-7 * fmax(1.0, fabs(grad[i])), "%s %d", type, i);
    for (int i = n / 2; i < n; i++)
        cr_expect_eq(grad[i], 0.0);
    for (int i = 0; i < N_METRICS; i++) {
        const double got = metric(g, &loss, names[i], examples);
        if (i == N_METRICS - 1 && strcmp(type, "kto") != 0)
            cr_expect(isnan(got), "no divergence is estimated for %s", type);
        else if (isnan(metrics[i]))
            cr_expect(isnan(got), "%s %s is %g", type, names[i], got);
        else
            cr_expect_float_eq(got, metrics[i], 1e-12, "%s %s: %g, want %g", type, names[i], got,
                               metrics[i]);
    }
    mock_destroy(g);
    plugin->destroy(self);
}

Test(kto, losses_gradients_and_metrics_agree_with_trl)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/kto.txt", "r");
    cr_assert_not_null(file);
    char word[32];
    int cases = 0;
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        check_case(plugin, file);
    }
    cr_expect_eq(cases, 5);
    (void)fclose(file);
}

Test(kto, the_estimate_of_the_divergence_has_no_gradient)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, "kto", 0.5, 1.0, 1.0);
    lathe_graph *g = mock_create(LATHE_F32);
    const double labels[2] = {1, 0}, ones[2] = {1, 1};
    const double policy[4] = {-1, -2, -0.5, -0.5}, reference[4] = {-1, -2, -1, -1};
    const lathe_stage_loss loss = build(plugin, self, g, 2, 1, labels, policy, reference, ones);
    cr_expect_float_eq(metric(g, &loss, "kl", 2), 0.5, 1e-15);
    for (int i = 2; i < 4; i++)
        cr_expect_eq(mock_gradient(g, loss.sum, given[0], i, 1e-4), 0.0, "mismatched row %d", i);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(mock_gradient(g, loss.sum, given[1], i, 1e-4), 0.0, "reference row %d", i);
    mock_destroy(g);
    plugin->destroy(self);
}

/* Three examples, the second of them padding, give the sums of the other two. */
Test(kto, a_padding_example_adds_nothing_to_loss_or_metrics)
{
    static const double labels[3] = {1, 0, 0}, mask[3] = {1, 0, 1}, ones[2] = {1, 1};
    static const double padded[6] = {-1, 0, -2.5, -1.5, 0, -1}, base[6] = {-2, 0, -2, -3, 0, -3};
    static const double two_labels[2] = {1, 0}, two[4] = {-1, -2.5, -1.5, -1};
    static const double base_two[4] = {-2, -2, -3, -3};
    static const char *const types[] = {"kto", "apo_zero_unpaired"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    for (int i = 0; i < 2; i++) {
        void *self = instance(plugin, types[i], 0.5, 1.2, 0.8);
        lathe_graph *g = mock_create(LATHE_F32), *h = mock_create(LATHE_F32);
        const lathe_stage_loss got = build(plugin, self, g, 3, 1, labels, padded, base, mask);
        const lathe_stage_loss want = build(plugin, self, h, 2, 1, two_labels, two, base_two, ones);
        cr_expect_float_eq(mock_data(g, got.sum)[0], mock_data(h, want.sum)[0], 1e-12);
        for (int m = 0; m < got.n_metrics; m++)
            cr_expect_float_eq(mock_data(g, got.metrics[m].sum)[0],
                               mock_data(h, want.metrics[m].sum)[0], 1e-12, "%s metric %d",
                               types[i], m);
        mock_destroy(g);
        mock_destroy(h);
        plugin->destroy(self);
    }
}

Test(kto, one_example_is_refused_where_a_divergence_is_estimated)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    void *self = instance(plugin, "kto", 0.1, 1.0, 1.0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_stage_build b = {.size = sizeof b,
                           .n_rows = 2,
                           .row_tokens = 1,
                           .api = mock_api(),
                           .graph = g,
                           .logprobs = logprobs};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_expect_eq(stage->loss(self, &b, &loss), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "set train.micro_batch_size to 2 or more") != NULL);
    b.n_rows = 3;
    cr_expect_eq(stage->loss(self, &b, &loss), LATHE_E_SHAPE);
    mock_destroy(g);
    plugin->destroy(self);
    plugin->destroy(NULL);
}

Test(kto, weights_that_are_both_zero_are_refused)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "desirable_weight")->f = 0.0;
    mock_value(plugin, values, "undesirable_weight")->f = 0.0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "are both 0") != NULL);
}
