/* ppo: losses, gradients and metrics against TRL. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { MAX = 64 };

/* One block of golden/data/ppo.txt; arrays [rows * tokens]. */
typedef struct golden {
    char loss_type[32], aggregation[32], kl[8];
    double clip_low, clip_high, kl_coef, entropy_coef;
    int rows, tokens, max_new_tokens;
    double mask[MAX], logp[MAX], old[MAX], reference[MAX], entropy[MAX];
    double advantages[MAX], weights[MAX], loss, grad[MAX];
    double coefs[MAX]; /* kl_coef at each target */
    double metrics[3]; /* sums over the targets: kl, entropy, clipped */
} golden;

/* The values that the stage's functions give. */
static struct {
    lathe_val logps[2], mask, entropy;
} given;

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    *out = given.logps[model];
    return LATHE_OK;
}

static lathe_status entropy(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    cr_expect_eq(model, LATHE_MODEL_POLICY);
    *out = given.entropy;
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    (void)ctx;
    *out = given.mask;
    return LATHE_OK;
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

static void read_case(FILE *file, golden *c)
{
    cr_assert_eq(fscanf(file, "%31s %31s %lf %lf %7s %lf %lf %d %d %d", c->loss_type,
                        c->aggregation, &c->clip_low, &c->clip_high, c->kl, &c->kl_coef,
                        &c->entropy_coef, &c->rows, &c->tokens, &c->max_new_tokens),
                 10);
    const int n = c->rows * c->tokens;
    cr_assert_leq(n, MAX);
    read_line(file, "mask", c->mask, n);
    read_line(file, "logp", c->logp, n);
    read_line(file, "old", c->old, n);
    read_line(file, "reference", c->reference, n);
    read_line(file, "entropy", c->entropy, n);
    read_line(file, "advantages", c->advantages, n);
    read_line(file, "weights", c->weights, n);
    read_line(file, "loss", &c->loss, 1);
    read_line(file, "grad", c->grad, n);
    read_line(file, "metrics", c->metrics, 3);
    for (int i = 0; i < n; i++)
        c->coefs[i] = c->kl_coef * c->mask[i];
}

/* Settings that have no meaning for a loss are refused, so each is given only where it has one.
 * adapts: the coefficient is an input, and kl_coef, with which it began, is another. */
static void *instance(const lathe_plugin *plugin, const golden *c, int adapts)
{
    const int clips = strcmp(c->loss_type, "ppo") == 0, bounds = strcmp(c->loss_type, "cispo") == 0;
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "loss_type")->s = c->loss_type;
    mock_value(plugin, values, "aggregation")->s = c->aggregation;
    if (c->kl_coef > 0.0)
        mock_value(plugin, values, "kl_estimator")->s = c->kl;
    if (clips)
        mock_value(plugin, values, "clip_low")->f = c->clip_low;
    if (clips || bounds)
        mock_value(plugin, values, "clip_high")->f = c->clip_high;
    mock_value(plugin, values, "kl_coef")->f = adapts ? 9.0 : c->kl_coef;
    if (adapts)
        mock_value(plugin, values, "kl_target")->f = 1.0;
    mock_value(plugin, values, "entropy_coef")->f = c->entropy_coef;
    mock_value(plugin, values, "epochs")->i = 2; /* so that the loss reads old_logprobs */
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* The case's array for the input of this name. */
static const double *input_of(const golden *c, const char *name)
{
    static const double zeros[MAX];
    return strcmp(name, "advantages") == 0     ? c->advantages
           : strcmp(name, "old_logprobs") == 0 ? c->old
           : strcmp(name, "weights") == 0      ? c->weights
           : strcmp(name, "kl_coef") == 0      ? c->coefs
                                               : zeros;
}

static lathe_stage_loss build(const lathe_plugin *plugin, void *self, lathe_graph *g,
                              const golden *c)
{
    const lathe_stage_v1 *stage = plugin->table;
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, (int64_t)c->rows * c->tokens);
    lathe_val inputs[LATHE_MAX_STAGE_INPUTS];
    given.logps[LATHE_MODEL_POLICY] = mock_input(g, "policy", desc, c->logp);
    given.logps[LATHE_MODEL_REFERENCE] = mock_input(g, "reference", desc, c->reference);
    given.entropy = mock_input(g, "entropy", desc, c->entropy);
    given.mask = mock_input(g, "mask", desc, c->mask);
    for (int32_t i = 0; i < stage->n_inputs; i++)
        inputs[i] = mock_input(g, stage->inputs[i].name, desc, input_of(c, stage->inputs[i].name));
    const lathe_stage_build b = {.size = sizeof b,
                                 .n_rows = c->rows,
                                 .row_tokens = c->tokens,
                                 .api = mock_api(),
                                 .graph = g,
                                 .logprobs = logprobs,
                                 .entropy = entropy,
                                 .target_mask = target_mask,
                                 .record_mask = LATHE_NONE,
                                 .n_inputs = stage->n_inputs,
                                 .inputs = inputs};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(self, &b, &loss), LATHE_OK, "%s", mock_error(g));
    cr_expect_eq(loss.count_unit, LATHE_COUNT_TOKENS);
    mock_eval(g);
    return loss;
}

/* The sum of a metric; NaN: the stage does not show it. */
static double metric(lathe_graph *g, const lathe_stage_loss *loss, const char *name)
{
    for (int32_t i = 0; i < loss->n_metrics; i++)
        if (loss->metrics[i].name && strcmp(loss->metrics[i].name, name) == 0)
            return mock_data(g, loss->metrics[i].sum)[0];
    return (double)NAN;
}

static void check_metrics(lathe_graph *g, const lathe_stage_loss *loss, const golden *c)
{
    const char *clipped =
        strcmp(c->loss_type, "cispo") == 0 ? "cispo_clip_ratio" : "clip_ratio/region_mean";
    const double kl = metric(g, loss, "kl"), h = metric(g, loss, "entropy");
    if (c->kl_coef > 0.0)
        cr_expect_float_eq(kl, c->metrics[0], 1e-11, "%s %s: kl %g", c->loss_type, c->kl, kl);
    if (c->entropy_coef > 0.0)
        cr_expect_float_eq(h, c->metrics[1], 1e-11, "%s: entropy %g", c->loss_type, h);
    if (strcmp(c->loss_type, "ppo") == 0 || strcmp(c->loss_type, "cispo") == 0)
        cr_expect_float_eq(metric(g, loss, clipped), c->metrics[2], 1e-11, "%s: %g, TRL has %g",
                           clipped, metric(g, loss, clipped), c->metrics[2]);
}

/* Both sides compute in double: sums of at most 30 terms of size <= 20. The central difference with
 * h = 1e-5 errs by h^2/6 |f'''| < 1e-8; no ratio of the data is that near a bound. */
static void check_case(const lathe_plugin *plugin, const golden *c, int adapts)
{
    void *self = instance(plugin, c, adapts);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss = build(plugin, self, g, c);
    const double got = mock_data(g, loss.sum)[0];
    cr_expect_float_eq(got, c->loss, 1e-11 * fmax(1.0, fabs(c->loss)),
                       "%s %s %s kl_coef %g entropy_coef %g: %.17g, TRL has %.17g", c->loss_type,
                       c->aggregation, c->kl, c->kl_coef, c->entropy_coef, got, c->loss);
    check_metrics(g, &loss, c);
    for (int i = 0; i < c->rows * c->tokens; i++) {
        const double grad = mock_gradient(g, loss.sum, given.logps[LATHE_MODEL_POLICY], i, 1e-5);
        cr_expect_float_eq(grad, c->grad[i], 1e-7 * fmax(1.0, fabs(c->grad[i])),
                           "%s %s %s, token %d: %.10g, TRL has %.10g", c->loss_type, c->aggregation,
                           c->kl, i, grad, c->grad[i]);
        cr_expect_eq(mock_gradient(g, loss.sum, given.logps[LATHE_MODEL_REFERENCE], i, 1e-5), 0.0,
                     "the reference has a gradient");
    }
    mock_destroy(g);
    plugin->destroy(self);
}

Test(ppo_golden, losses_gradients_and_metrics_agree_with_trl)
{
    static golden c;
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/ppo.txt", "r");
    char word[32];
    int cases = 0, with_divergence = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    while (fscanf(file, "%31s", word) == 1 && strcmp(word, "case") == 0) {
        read_case(file, &c);
        check_case(plugin, &c, 0);
        cases++;
        if (!(c.kl_coef > 0.0))
            continue;
        check_case(plugin, &c, 1);
        with_divergence++;
    }
    cr_expect_eq(cases, 15);
    cr_expect_geq(with_divergence, 5);
    (void)fclose(file);
}
