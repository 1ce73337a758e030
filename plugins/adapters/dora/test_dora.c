/* dora: forward, gradients, start and merge against PEFT; its key in files; its own name. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

#define MODULE "model.layers.3.self_attn.q_proj"
#define MAGNITUDE MODULE ".lora_magnitude_vector.weight"
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

TestSuite(dora, .init = open_plugin);

static void *instance(int64_t r, double alpha, double dropout, int rslora)
{
    void *self = NULL;
    mock_value(plugin, values, "r")->i = r;
    mock_value(plugin, values, "alpha")->f = alpha;
    mock_value(plugin, values, "dropout")->f = dropout;
    mock_value(plugin, values, "use_rslora")->i = rslora;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* One case of the golden file, its values in double. */
typedef struct golden {
    char kind[32];
    int64_t r, n, in, out;
    double alpha;
    int rslora;
    double w[MAX], bias[MAX], a[MAX], b[MAX], x[MAX], t[MAX], y[MAX];
    double grad_a[MAX], grad_b[MAX], grad_x[MAX], m[MAX], grad_m[MAX], start_m[MAX];
    double merged[MAX];
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
    cr_assert_eq(fscanf(file, "%31s %ld %lf %d %ld %ld %ld", c->kind, &c->r, &c->alpha, &c->rslora,
                        &c->n, &c->in, &c->out),
                 7);
    read_line(file, "w", c->w, c->out * c->in);
    read_line(file, "bias", c->bias, c->out);
    read_line(file, "a", c->a, c->r * c->in);
    read_line(file, "b", c->b, c->out * c->r);
    read_line(file, "x", c->x, c->n * c->in);
    read_line(file, "t", c->t, c->n * c->out);
    read_line(file, "y", c->y, c->n * c->out);
    read_line(file, "grad_a", c->grad_a, c->r * c->in);
    read_line(file, "grad_b", c->grad_b, c->out * c->r);
    read_line(file, "grad_x", c->grad_x, c->n * c->in);
    read_line(file, "m", c->m, c->out);
    read_line(file, "grad_m", c->grad_m, c->out);
    read_line(file, "start_m", c->start_m, c->out);
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
                             .bias = mock_input(g, "b", lathe_desc_1d(LATHE_F32, c->out), c->bias),
                             .transposed_on_file = strcmp(c->kind, "conv1d") == 0};
    return site;
}

static void set_param(lathe_graph *g, const char *name, const double *data)
{
    const lathe_val v = mock_param(g, name);
    cr_assert_neq(v, LATHE_NONE, "%s", name);
    memcpy(mock_data(g, v), data, (size_t)mock_elements(g, v) * sizeof *data);
}

static void expect_gradient(lathe_graph *g, lathe_val loss, lathe_val at, const double *want,
                            const char *name)
{
    /* the loss is linear in each element, for the norm is held: only rounding */
    for (int64_t i = 0; i < mock_elements(g, at); i++)
        cr_expect_float_eq(mock_gradient(g, loss, at, i, 1e-3), want[i], 1e-9, "%s[%d]", name,
                           (int)i);
}

static void narrow(const double *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

/* f32: the merge of lora (8 half-ulps of 16), times m/n < 2/0.5, rounded once more. */
static void check_merge(void *self, const lathe_site *site, const golden *c)
{
    float w[MAX], a[MAX], b[MAX], m[MAX];
    narrow(c->w, w, c->out * c->in);
    narrow(c->a, a, c->r * c->in);
    narrow(c->b, b, c->out * c->r);
    narrow(c->m, m, c->out);
    const lathe_site_param params[3] = {
        {MODULE ".lora_B.weight", b, lathe_desc_2d(LATHE_F32, c->out, c->r)},
        {MODULE ".lora_A.weight", a, lathe_desc_2d(LATHE_F32, c->r, c->in)},
        {MAGNITUDE, m, lathe_desc_1d(LATHE_F32, c->out)}};
    cr_assert_eq(adapter->merge(self, site, params, 3, w), LATHE_OK, "%s", mock_host_error());
    for (int64_t i = 0; i < c->out * c->in; i++)
        cr_expect_float_eq((double)w[i], c->merged[i], 4 * 9 * 16 * 0x1p-24, "merged[%d]", (int)i);
    cr_expect_eq(adapter->merge(self, site, params, 2, w), LATHE_E_NOT_FOUND);
}

static void check_case(const golden *c)
{
    void *self = instance(c->r, c->alpha, 0, c->rslora);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_graph_api *api = mock_api();
    const lathe_site site = site_in(g, c);
    const lathe_val vx = mock_input(g, "x", lathe_desc_2d(LATHE_F32, c->n, c->in), c->x);
    lathe_val vy, product[2], loss;
    cr_assert_eq(adapter->wrap(self, api, g, &site, vx, 1, &vy), LATHE_OK, "%s", mock_error(g));
    const lathe_val vm = mock_param(g, MAGNITUDE);
    cr_assert_neq(vm, LATHE_NONE);
    for (int64_t o = 0; o < c->out; o++) /* PEFT computes them in f32 */
        cr_expect_float_eq(mock_data(g, vm)[o], c->start_m[o], 1e-6, "start_m[%d]", (int)o);
    set_param(g, MODULE ".lora_A.weight", c->a);
    set_param(g, MODULE ".lora_B.weight", c->b);
    set_param(g, MAGNITUDE, c->m);
    product[0] = vy;
    product[1] = mock_input(g, "t", lathe_desc_2d(LATHE_F32, c->n, c->out), c->t);
    cr_assert_eq(api->node(g, LATHE_OP_MUL, NULL, product, 2, &loss, 1, -1, ""), LATHE_OK);
    cr_assert_eq(api->node(g, LATHE_OP_SUM, NULL, &loss, 1, &loss, 1, -1, ""), LATHE_OK);
    mock_eval(g);
    for (int64_t i = 0; i < c->n * c->out; i++)
        cr_expect_float_eq(mock_data(g, vy)[i], c->y[i], 1e-11, "%s y[%d]", c->kind, (int)i);
    expect_gradient(g, loss, mock_param(g, MODULE ".lora_A.weight"), c->grad_a, "a");
    expect_gradient(g, loss, mock_param(g, MODULE ".lora_B.weight"), c->grad_b, "b");
    expect_gradient(g, loss, vm, c->grad_m, "m");
    expect_gradient(g, loss, vx, c->grad_x, "x");
    check_merge(self, &site, c);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dora, forward_gradients_and_merge_agree_with_peft)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/dora.txt", "r");
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
    cr_expect_eq(cases, 3);
    (void)fclose(file);
}

/* The norms that the base begins with are no weight of the adapter: the core computes them. */
Test(dora, trains_a_b_and_the_magnitude_and_nothing_else)
{
    static golden c = {.kind = "linear", .r = 2, .n = 1, .in = 2, .out = 3, .w = {3, 4, 0, 0, 1}};
    void *self = instance(2, 4, 0.5, 0);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_site site = site_in(g, &c);
    const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 2), c.w);
    lathe_val y;
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_OK, "%s",
                 mock_error(g));
    cr_expect_eq(mock_n_params(g), 4);
    cr_expect_eq(mock_param_decl(g, MAGNITUDE)->trainable, 1);
    cr_expect_eq(mock_param_decl(g, MODULE ".lora_base_norm")->trainable, 0);
    cr_expect_eq(mock_data(g, mock_param(g, MAGNITUDE))[0], 5.0); /* |(3, 4)| */
    mock_eval(g);
    for (int o = 0; o < 3; o++) /* a row of zeros gives no NaN; with B = 0 dropout acts on W h */
        cr_expect(isfinite(mock_data(g, y)[o]), "y[%d]", o);
    cr_expect_float_eq(mock_data(g, y)[0], 25.0, 1e-12); /* m = n, whatever dropout does */
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dora, files_have_the_key_and_the_setting_of_peft)
{
    void *self = instance(8, 16, 0, 0);
    char key[128], text[2048];
    const char *want = "base_model.model." MODULE ".lora_magnitude_vector";
    cr_expect_eq(adapter->file_key(self, MAGNITUDE, key, sizeof key), (int64_t)strlen(want));
    cr_expect_str_eq(key, want);
    cr_expect_gt(adapter->file_key(self, MODULE ".lora_A.weight", key, sizeof key), 0);
    cr_expect_str_eq(key, "base_model.model." MODULE ".lora_A.weight");
    cr_assert_gt(adapter->config_json(self, "base", text, sizeof text), 0);
    cr_expect_not_null(strstr(text, "\"use_dora\": true"));
    plugin->destroy(self);
}

Test(dora, speaks_under_its_own_name)
{
    void *self = NULL;
    mock_value(plugin, values, "target_modules")->n = 0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "target_modules is empty: nothing would train");
}
