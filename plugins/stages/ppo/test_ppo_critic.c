/* ppo: loss, gradients and metrics of a policy with a critic against TRL's PPOTrainer. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { MAX = 64 };

/* A block "critic" of golden/data/ppo.txt; arrays [rows * tokens]. */
typedef struct golden {
    double clip, vf_coef, cliprange_value;
    int rows, tokens;
    double mask[MAX], logp[MAX], old[MAX], values[MAX], old_values[MAX];
    double advantages[MAX], returns[MAX], ones[MAX];
    double loss, grad[MAX], grad_values[MAX];
    double metrics[3]; /* value loss, clipped values, clipped ratios: sums over the targets */
} golden;

/* The values that the stage's functions give. */
static struct {
    lathe_val logp, mask, values;
} given;

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    cr_expect_eq(model, LATHE_MODEL_POLICY);
    *out = given.logp;
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    (void)ctx;
    *out = given.mask;
    return LATHE_OK;
}

static lathe_status head(void *ctx, int32_t which, lathe_val *out)
{
    (void)ctx;
    cr_expect_eq(which, 0);
    *out = given.values;
    return LATHE_OK;
}

/* Moves to the next line that begins with this word; 0: there is none. */
static int find(FILE *file, const char *name)
{
    char word[4096];
    while (fscanf(file, "%4095s", word) == 1) {
        if (strcmp(word, name) == 0)
            return 1;
        cr_assert_geq(fscanf(file, "%*[^\n]"), 0);
    }
    return 0;
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    cr_assert(find(file, name), "%s", name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

static void read_case(FILE *file, golden *c)
{
    cr_assert_eq(fscanf(file, "%lf %lf %lf %d %d", &c->clip, &c->vf_coef, &c->cliprange_value,
                        &c->rows, &c->tokens),
                 5);
    const int n = c->rows * c->tokens;
    cr_assert_leq(n, MAX);
    read_line(file, "mask", c->mask, n);
    read_line(file, "logp", c->logp, n);
    read_line(file, "old", c->old, n);
    read_line(file, "values", c->values, n);
    read_line(file, "old_values", c->old_values, n);
    read_line(file, "advantages", c->advantages, n);
    read_line(file, "returns", c->returns, n);
    read_line(file, "loss", &c->loss, 1);
    read_line(file, "grad", c->grad, n);
    read_line(file, "grad_values", c->grad_values, n);
    read_line(file, "critic_metrics", c->metrics, 3);
    for (int i = 0; i < n; i++)
        c->ones[i] = c->mask[i];
}

static void *instance(const lathe_plugin *plugin, const golden *c, int epochs)
{
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "advantage")->s = "gae";
    mock_value(plugin, values, "vf_coef")->f = c->vf_coef;
    mock_value(plugin, values, "cliprange_value")->f = c->cliprange_value;
    mock_value(plugin, values, "clip_low")->f = c->clip;
    mock_value(plugin, values, "clip_high")->f = c->clip;
    mock_value(plugin, values, "epochs")->i = epochs;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* The case's array for the input of this name; NULL: zeros. */
static const double *input_of(const golden *c, const char *name)
{
    return strcmp(name, "advantages") == 0     ? c->advantages
           : strcmp(name, "old_logprobs") == 0 ? c->old
           : strcmp(name, "weights") == 0      ? c->ones
           : strcmp(name, "old_values") == 0   ? c->old_values
           : strcmp(name, "returns") == 0      ? c->returns
                                               : NULL;
}

static lathe_stage_loss build(const lathe_plugin *plugin, void *self, lathe_graph *g,
                              const golden *c)
{
    const lathe_stage_v1 *stage = plugin->table;
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, (int64_t)c->rows * c->tokens);
    lathe_val inputs[LATHE_MAX_STAGE_INPUTS];
    given.logp = mock_input(g, "policy", desc, c->logp);
    given.values = mock_input(g, "values", desc, c->values);
    given.mask = mock_input(g, "mask", desc, c->mask);
    for (int32_t i = 0; i < stage->n_inputs; i++)
        inputs[i] = mock_input(g, stage->inputs[i].name, desc, input_of(c, stage->inputs[i].name));
    const lathe_stage_build b = {.size = sizeof b,
                                 .n_rows = c->rows,
                                 .row_tokens = c->tokens,
                                 .api = mock_api(),
                                 .graph = g,
                                 .logprobs = logprobs,
                                 .target_mask = target_mask,
                                 .head = head,
                                 .record_mask = LATHE_NONE,
                                 .n_inputs = stage->n_inputs,
                                 .inputs = inputs};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(self, &b, &loss), LATHE_OK, "%s", mock_error(g));
    mock_eval(g);
    return loss;
}

static double metric(lathe_graph *g, const lathe_stage_loss *loss, const char *name)
{
    for (int32_t i = 0; i < loss->n_metrics; i++)
        if (loss->metrics[i].name && strcmp(loss->metrics[i].name, name) == 0)
            return mock_data(g, loss->metrics[i].sum)[0];
    return (double)NAN;
}

/* Both sides compute in double, except for TRL's counts, which are means in f32: sums of at most 30
 * terms of size <= 20. The central difference with h = 1e-5 errs by h^2/6 |f'''| < 1e-8; no ratio
 * and no value of the data is that near a bound. */
static void check_case(const lathe_plugin *plugin, const golden *c)
{
    void *self = instance(plugin, c, 2);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss = build(plugin, self, g, c);
    const double got = mock_data(g, loss.sum)[0];
    cr_expect_float_eq(got, c->loss, 1e-11 * fmax(1.0, fabs(c->loss)),
                       "vf_coef %g, cliprange_value %g: %.17g, TRL has %.17g", c->vf_coef,
                       c->cliprange_value, got, c->loss);
    cr_expect_float_eq(metric(g, &loss, "loss/value"), c->metrics[0], 1e-11 * c->metrics[0]);
    cr_expect_float_eq(metric(g, &loss, "val/clipfrac"), c->metrics[1], 1e-5);
    cr_expect_float_eq(metric(g, &loss, "clip_ratio/region_mean"), c->metrics[2], 1e-5);
    for (int i = 0; i < c->rows * c->tokens; i++) {
        const double grad = mock_gradient(g, loss.sum, given.logp, i, 1e-5);
        const double grad_values = mock_gradient(g, loss.sum, given.values, i, 1e-5);
        cr_expect_float_eq(grad, c->grad[i], 1e-7 * fmax(1.0, fabs(c->grad[i])),
                           "log-probability %d: %.10g, TRL has %.10g", i, grad, c->grad[i]);
        cr_expect_float_eq(grad_values, c->grad_values[i],
                           1e-7 * fmax(1.0, fabs(c->grad_values[i])),
                           "value %d: %.10g, TRL has %.10g", i, grad_values, c->grad_values[i]);
    }
    mock_destroy(g);
    plugin->destroy(self);
}

static FILE *open_golden(void)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/ppo.txt", "r");
    cr_assert_not_null(file);
    return file;
}

Test(ppo_critic, losses_gradients_and_metrics_agree_with_trl)
{
    static golden c;
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = open_golden();
    int cases = 0;
    for (; find(file, "critic"); cases++) {
        read_case(file, &c);
        check_case(plugin, &c);
    }
    cr_expect_eq(cases, 4);
    (void)fclose(file);
}

/* With one update the old values are those of the graph: nothing is clipped. */
Test(ppo_critic, one_update_learns_the_plain_squares)
{
    static golden c;
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = open_golden();
    cr_assert(find(file, "critic"));
    read_case(file, &c);
    (void)fclose(file);
    void *self = instance(plugin, &c, 1);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss = build(plugin, self, g, &c);
    double want = 0.0;
    for (int i = 0; i < c.rows * c.tokens; i++)
        want += 0.5 * c.mask[i] * (c.values[i] - c.returns[i]) * (c.values[i] - c.returns[i]);
    cr_expect_float_eq(metric(g, &loss, "loss/value"), want, 1e-12 * want);
    cr_expect(isnan(metric(g, &loss, "val/clipfrac")));
    for (int i = 0; i < c.rows * c.tokens; i++)
        cr_expect_float_eq(mock_gradient(g, loss.sum, given.values, i, 1e-5),
                           c.vf_coef * c.mask[i] * (c.values[i] - c.returns[i]), 1e-8);
    mock_destroy(g);
    plugin->destroy(self);
}

/* The head, the reference model and the outputs are those that the settings need. */
Test(ppo_critic, settings_choose_the_head_and_the_outputs)
{
    static golden c;
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    FILE *file = open_golden();
    cr_assert(find(file, "critic"));
    read_case(file, &c);
    (void)fclose(file);
    lathe_value values[MOCK_MAX_FIELDS];
    void *critic = instance(plugin, &c, 2), *group = NULL;
    mock_defaults(plugin, values);
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &group), LATHE_OK);
    cr_expect_eq(stage->heads_of(critic), 1);
    cr_expect_eq(stage->heads_of(group), 0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_stage_loss loss = build(plugin, critic, g, &c);
    cr_expect_eq(loss.n_outputs, 3);
    cr_expect_eq(loss.outputs[0], given.logp);
    cr_expect_eq(loss.outputs[1], given.values);
    cr_expect_eq(loss.outputs[2], LATHE_NONE);
    loss = build(plugin, group, g, &c);
    cr_expect_eq(loss.outputs[0], given.logp);
    cr_expect_eq(loss.outputs[1], LATHE_NONE);
    mock_destroy(g);
    plugin->destroy(critic);
    plugin->destroy(group);
}
