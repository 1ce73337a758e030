/* oft: forward, gradients and merge against PEFT; its blocks, its keys and settings in files. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

#define MODULE "model.layers.3.self_attn.q_proj"
#define ROTATION MODULE ".oft_R.weight"
enum { MAX = 64 };

static const lathe_plugin *plugin;
static const lathe_adapter_v1 *adapter;
static lathe_value values[MOCK_MAX_FIELDS];

static void open_plugin(void)
{
    plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    adapter = plugin->table;
    mock_defaults(plugin, values);
}

TestSuite(oft, .init = open_plugin);

static void *instance(int64_t block_size, int64_t terms)
{
    void *self = NULL;
    mock_value(plugin, values, "block_size")->i = block_size;
    mock_value(plugin, values, "num_cayley_neumann_terms")->i = terms;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* One case of the golden file, its values in double. */
typedef struct golden {
    int64_t block_size, terms, n, in, out, blocks, elements;
    double w[MAX], bias[MAX], v[MAX], x[MAX], t[MAX], y[MAX];
    double grad_v[MAX], grad_x[MAX], merged[MAX];
} golden;

static void read_line(FILE *file, const char *name, double *out, int64_t n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    cr_assert(n <= MAX);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

static void read_case(FILE *file, golden *c)
{
    cr_assert_eq(fscanf(file, "%ld %ld %ld %ld %ld %ld %ld", &c->block_size, &c->terms, &c->n,
                        &c->in, &c->out, &c->blocks, &c->elements),
                 7);
    read_line(file, "w", c->w, c->out * c->in);
    read_line(file, "bias", c->bias, c->out);
    read_line(file, "v", c->v, c->blocks * c->elements);
    read_line(file, "x", c->x, c->n * c->in);
    read_line(file, "t", c->t, c->n * c->out);
    read_line(file, "y", c->y, c->n * c->out);
    read_line(file, "grad_v", c->grad_v, c->blocks * c->elements);
    read_line(file, "grad_x", c->grad_x, c->n * c->in);
    read_line(file, "merged", c->merged, c->out * c->in);
}

static lathe_site site_in(lathe_graph *g, const golden *c)
{
    const lathe_site site = {.size = sizeof site,
                             .layer = 3,
                             .module = MODULE,
                             .in_features = c->in,
                             .out_features = c->out,
                             .weight =
                                 mock_input(g, "w", lathe_desc_2d(LATHE_F32, c->out, c->in), c->w),
                             .bias = mock_input(g, "b", lathe_desc_1d(LATHE_F32, c->out), c->bias)};
    return site;
}

/* The difference with step h = 1e-4 is off by h^2 times a third derivative below 100. */
static void expect_gradient(lathe_graph *g, lathe_val loss, lathe_val at, const double *want,
                            const char *name)
{
    for (int64_t i = 0; i < mock_elements(g, at); i++)
        cr_expect_float_eq(mock_gradient(g, loss, at, i, 1e-4), want[i], 1e-6, "%s[%d]", name,
                           (int)i);
}

/* W' is rounded to f32 once; v and W were rounded before. */
static void check_merge(void *self, const lathe_site *site, const golden *c)
{
    float w[MAX], v[MAX];
    lathe_site_param param = {ROTATION, v, lathe_desc_2d(LATHE_F32, c->blocks, c->elements)};
    for (int64_t i = 0; i < c->out * c->in; i++)
        w[i] = (float)c->w[i];
    for (int64_t i = 0; i < c->blocks * c->elements; i++)
        v[i] = (float)c->v[i];
    cr_assert_eq(adapter->merge(self, site, &param, 1, w), LATHE_OK, "%s", mock_host_error());
    for (int64_t i = 0; i < c->out * c->in; i++)
        cr_expect_float_eq((double)w[i], c->merged[i], 64 * 0x1p-24, "merged[%d]", (int)i);
    cr_expect_eq(adapter->merge(self, site, &param, 0, w), LATHE_E_NOT_FOUND);
    param.desc.dims[1]++;
    cr_expect_eq(adapter->merge(self, site, &param, 1, w), LATHE_E_SHAPE);
}

static void check_case(const golden *c)
{
    void *self = instance(c->block_size, c->terms);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_graph_api *api = mock_api();
    const lathe_site site = site_in(g, c);
    const lathe_val vx = mock_input(g, "x", lathe_desc_2d(LATHE_F32, c->n, c->in), c->x);
    lathe_val vy, product[2], loss;
    cr_assert_eq(adapter->wrap(self, api, g, &site, vx, 1, &vy), LATHE_OK, "%s", mock_error(g));
    const lathe_val v = mock_param(g, ROTATION);
    cr_assert_neq(v, LATHE_NONE);
    cr_assert_eq(mock_desc(g, v).dims[0], c->blocks);
    cr_assert_eq(mock_desc(g, v).dims[1], c->elements);
    for (int64_t i = 0; i < c->blocks * c->elements; i++) {
        cr_expect_eq(mock_data(g, v)[i], 0.0, "it starts as the base model");
        mock_data(g, v)[i] = c->v[i];
    }
    product[0] = vy;
    product[1] = mock_input(g, "t", lathe_desc_2d(LATHE_F32, c->n, c->out), c->t);
    cr_assert_eq(api->node(g, LATHE_OP_MUL, NULL, product, 2, &loss, 1, -1, ""), LATHE_OK);
    cr_assert_eq(api->node(g, LATHE_OP_SUM, NULL, &loss, 1, &loss, 1, -1, ""), LATHE_OK);
    mock_eval(g);
    for (int64_t i = 0; i < c->n * c->out; i++)
        cr_expect_float_eq(mock_data(g, vy)[i], c->y[i], 1e-11, "y[%d]", (int)i);
    expect_gradient(g, loss, v, c->grad_v, "v");
    expect_gradient(g, loss, vx, c->grad_x, "x");
    check_merge(self, &site, c);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(oft, forward_gradients_and_merge_agree_with_peft)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/oft.txt", "r");
    static golden c;
    char word[32];
    int cases = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        read_case(file, &c);
        check_case(&c);
    }
    cr_expect_eq(cases, 5);
    (void)fclose(file);
}

Test(oft, refuses_inputs_that_no_block_of_two_divides)
{
    static golden c = {.n = 1, .in = 7, .out = 2};
    void *self = instance(3, 5);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_site site = site_in(g, &c);
    lathe_val y;
    cr_expect_eq(adapter->wrap(self, mock_api(), g, &site, site.weight, 1, &y), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(mock_host_error(), "the nearest divisor of the 7 inputs of " MODULE));
    mock_destroy(g);
    plugin->destroy(self);
}

Test(oft, files_have_the_key_and_the_settings_of_peft)
{
    void *self = instance(16, 6);
    char key[128], text[2048];
    cr_expect_gt(adapter->file_key(self, ROTATION, key, sizeof key), 0);
    cr_expect_str_eq(key, "base_model.model." ROTATION);
    cr_assert_gt(adapter->config_json(self, "base", text, sizeof text), 0);
    cr_expect_not_null(strstr(text, "\"peft_type\": \"OFT\""));
    cr_expect_not_null(strstr(text, "\"r\": 0,\n  \"oft_block_size\": 16,"));
    cr_expect_not_null(strstr(text, "\"num_cayley_neumann_terms\": 6,"));
    plugin->destroy(self);
}

Test(oft, speaks_under_its_own_name)
{
    void *self = NULL;
    mock_value(plugin, values, "target_modules")->n = 0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "target_modules is empty: nothing would train");
}
