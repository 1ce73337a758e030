/* lora: forward and gradients against PEFT, start at the base model, names, files, refusals. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

#define MODULE "model.layers.3.self_attn.q_proj"

static const lathe_plugin *plugin;
static const lathe_adapter_v1 *adapter;
static lathe_value values[MOCK_MAX_FIELDS];

static void open_plugin(void)
{
    plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    adapter = plugin->table;
    mock_defaults(plugin, values);
}

TestSuite(lora, .init = open_plugin);

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

static void *with_targets(const char *const *targets, int64_t n)
{
    lathe_value *list = mock_value(plugin, values, "target_modules");
    list->strs = targets;
    list->n = n;
    return instance(8, 16, 0, 0);
}

static lathe_site site_of(const char *module, int64_t in, int64_t out, int32_t transposed)
{
    const lathe_site site = {.size = sizeof site,
                             .layer = 3,
                             .module = module,
                             .in_features = in,
                             .out_features = out,
                             .weight = LATHE_NONE,
                             .bias = LATHE_NONE,
                             .transposed_on_file = transposed};
    return site;
}

static void read_line(FILE *file, const char *name, double *out, int64_t n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    cr_assert(n <= 64);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

/* The matrices of a case in the form that merge takes: A, B, and what they began with. */
typedef struct pairs {
    float a[2][64], b[2][64];
    lathe_site_param list[4];
} pairs;

static void make_pairs(pairs *p, const lathe_site *site, int64_t r, const double *const a[2],
                       const double *const b[2])
{
    static const char *const names[4] = {MODULE ".lora_B.weight", MODULE ".lora_A.weight",
                                         MODULE ".lora_B_start.weight",
                                         MODULE ".lora_A_start.weight"};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < r * site->in_features; i++)
            p->a[k][i] = (float)a[k][i];
        for (int64_t i = 0; i < r * site->out_features; i++)
            p->b[k][i] = (float)b[k][i];
        p->list[2 * k] = (lathe_site_param){names[2 * k], p->b[k],
                                            lathe_desc_2d(LATHE_F32, site->out_features, r)};
        p->list[2 * k + 1] = (lathe_site_param){names[2 * k + 1], p->a[k],
                                                lathe_desc_2d(LATHE_F32, r, site->in_features)};
    }
}

/* f32 merge: at most 8 products and a sum of size < 16, each rounded: 16 half-ulps of 16. */
static void check_merge(void *self, const lathe_site *site, int64_t r, const double *w,
                        const double *const a[2], const double *const b[2], int n_pairs,
                        const double *merged)
{
    static pairs p;
    float wf[64];
    const int64_t n = site->out_features * site->in_features;
    for (int64_t i = 0; i < n; i++)
        wf[i] = (float)w[i];
    make_pairs(&p, site, r, a, b);
    cr_assert_eq(adapter->merge(self, site, p.list, 2 * n_pairs, wf), LATHE_OK, "%s",
                 mock_host_error());
    for (int64_t i = 0; i < n; i++)
        cr_expect_float_eq((double)wf[i], merged[i], n_pairs * 8 * 16 * 0x1p-24, "merged[%d]",
                           (int)i);
    cr_expect_eq(adapter->merge(self, site, p.list, 2 * n_pairs - 1, wf), LATHE_E_NOT_FOUND);
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
    /* the loss is linear in each element: only rounding, ~1e-16/1e-3 times sums below 1e2 */
    for (int64_t i = 0; i < mock_elements(g, at); i++)
        cr_expect_float_eq(mock_gradient(g, loss, at, i, 1e-3), want[i], 1e-10, "%s[%d]", name,
                           (int)i);
}

static void check_case(FILE *file, int pissa)
{
    char kind[32];
    int64_t r, n, in, out;
    double alpha, w[64], bias[64], a[64], b[64], a0[64] = {0}, b0[64] = {0}, x[64], t[64], y[64],
                                                 ga[64], gb[64], gx[64], merged[64];
    int rslora;
    cr_assert_eq(
        fscanf(file, "%31s %ld %lf %d %ld %ld %ld", kind, &r, &alpha, &rslora, &n, &in, &out), 7);
    read_line(file, "w", w, out * in);
    read_line(file, "bias", bias, out);
    read_line(file, "a", a, r * in);
    read_line(file, "b", b, out * r);
    read_line(file, "x", x, n * in);
    read_line(file, "t", t, n * out);
    read_line(file, "y", y, n * out);
    read_line(file, "grad_a", ga, r * in);
    read_line(file, "grad_b", gb, out * r);
    read_line(file, "grad_x", gx, n * in);
    read_line(file, "merged", merged, out * in);
    if (pissa) {
        read_line(file, "a0", a0, r * in);
        read_line(file, "b0", b0, out * r);
        mock_value(plugin, values, "init")->s = "pissa";
    }
    const double *const as[2] = {a, a0}, *const bs[2] = {b, b0};

    void *self = instance(r, alpha, 0, rslora);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_graph_api *api = mock_api();
    lathe_site site = site_of(MODULE, in, out, strcmp(kind, "conv1d") == 0);
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_F32, out, in), w);
    site.bias = mock_input(g, "b", lathe_desc_1d(LATHE_F32, out), bias);
    const lathe_val vx = mock_input(g, "x", lathe_desc_2d(LATHE_F32, n, in), x);
    lathe_val vy, product[2], loss;
    cr_assert_eq(adapter->wrap(self, api, g, &site, vx, 1, &vy), LATHE_OK, "%s", mock_error(g));
    const lathe_val va = mock_param(g, MODULE ".lora_A.weight"),
                    vb = mock_param(g, MODULE ".lora_B.weight");
    set_param(g, MODULE ".lora_A.weight", a);
    set_param(g, MODULE ".lora_B.weight", b);
    if (pissa) {
        set_param(g, MODULE ".lora_A_start.weight", a0);
        set_param(g, MODULE ".lora_B_start.weight", b0);
        cr_expect_eq(mock_param_decl(g, MODULE ".lora_A_start.weight")->trainable, 0);
    }
    product[0] = vy;
    product[1] = mock_input(g, "t", lathe_desc_2d(LATHE_F32, n, out), t);
    cr_assert_eq(api->node(g, LATHE_OP_MUL, NULL, product, 2, &loss, 1, -1, ""), LATHE_OK);
    cr_assert_eq(api->node(g, LATHE_OP_SUM, NULL, &loss, 1, &loss, 1, -1, ""), LATHE_OK);
    mock_eval(g);
    for (int64_t i = 0; i < n * out; i++)
        cr_expect_float_eq(mock_data(g, vy)[i], y[i], 1e-12, "%s y[%d]", kind, (int)i);
    expect_gradient(g, loss, va, ga, "a");
    expect_gradient(g, loss, vb, gb, "b");
    expect_gradient(g, loss, vx, gx, "x");
    check_merge(self, &site, r, w, as, bs, pissa ? 2 : 1, merged);
    mock_destroy(g);
    plugin->destroy(self);
}

static void check_file(const char *path, int pissa)
{
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    char word[32];
    int cases = 0;
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        check_case(file, pissa);
    }
    cr_expect_eq(cases, 3);
    (void)fclose(file);
}

Test(lora, forward_gradients_and_merge_agree_with_peft)
{
    check_file(LATHE_TEST_DATA "/golden/data/lora.txt", 0);
}

Test(lora, pissa_agrees_with_peft_over_the_base_as_it_is)
{
    check_file(LATHE_TEST_DATA "/golden/data/pissa.txt", 1);
}

Test(lora, pissa_needs_a_plain_base_with_enough_singular_values)
{
    mock_value(plugin, values, "init")->s = "pissa";
    void *self = instance(5, 16, 0, 0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_site site = site_of(MODULE, 4, 8, 0);
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_F32, 8, 4), NULL);
    const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 4), NULL);
    lathe_val y;
    cr_expect_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(mock_host_error(), "the rank is 5, and " MODULE " [8, 4] has fewer"));
    site.weight_quantized = 1;
    cr_expect_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(mock_host_error(), MODULE " is quantized"));
    mock_destroy(g);
    plugin->destroy(self);
}

Test(lora, starts_as_the_base_model_and_adds_nothing_when_off)
{
    void *self = instance(2, 4, 0, 0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_site site = site_of(MODULE, 16, 2, 0);
    double w[32], x[16];
    for (int i = 0; i < 32; i++)
        w[i] = 0.25 * i - 3;
    for (int i = 0; i < 16; i++)
        x[i] = 1 - 0.5 * i;
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_F32, 2, 16), w);
    const lathe_val vx = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 16), x);
    lathe_val off, on, again;
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, vx, 0, &off), LATHE_OK);
    cr_expect_eq(mock_n_params(g), 0);
    cr_expect_eq(mock_n_nodes(g), 1);
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, vx, 1, &on), LATHE_OK);
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, vx, 1, &again), LATHE_OK);
    cr_expect_eq(mock_n_params(g), 2, "a second forward shares the parameters");
    mock_eval(g);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(mock_data(g, on)[i], mock_data(g, off)[i]);
    const lathe_param_decl *a = mock_param_decl(g, MODULE ".lora_A.weight");
    const lathe_param_decl *b = mock_param_decl(g, MODULE ".lora_B.weight");
    cr_expect_eq(a->init, LATHE_INIT_KAIMING_UNIFORM);
    cr_expect_eq(b->init, LATHE_INIT_ZERO);
    cr_expect(a->trainable && b->trainable);
    cr_expect_eq(adapter->base_is_frozen(self), 1);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(lora, dropout_acts_on_the_update_alone_with_a_stream_of_its_own)
{
    void *self = instance(2, 4, 0.5, 0);
    lathe_graph *g = mock_create(LATHE_BF16);
    lathe_site site = site_of(MODULE, 8, 8, 0);
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_BF16, 8, 8), NULL);
    const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_BF16, 4, 8), NULL);
    lathe_val y;
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_OK, "%s",
                 mock_error(g));
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_OK, "%s",
                 mock_error(g));
    cr_expect_eq(mock_count_op(g, LATHE_OP_DROPOUT), 2);
    cr_expect_eq(mock_node_at(g, 0)->in[0], x, "the base layer reads x itself");
    uint64_t streams[2] = {0, 0};
    for (int i = 0, n = 0; i < mock_n_nodes(g); i++)
        if (mock_node_at(g, i)->op == LATHE_OP_DROPOUT) {
            streams[n++] = mock_node_at(g, i)->attrs.rng_stream;
            cr_expect_eq(mock_node_at(g, i)->attrs.p, 0.5f);
        }
    cr_expect_neq(streams[0], streams[1]);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(lora, targets_match_whole_parts_of_names)
{
    static const char *const targets[] = {"q_proj", "mlp.up_proj"};
    void *self = with_targets(targets, 2);
    const struct {
        const char *module;
        int32_t want;
    } cases[] = {{"model.layers.0.self_attn.q_proj", 1},  {"q_proj", 1},
                 {"model.layers.0.self_attn.xq_proj", 0}, {"model.layers.0.self_attn.q_proj.x", 0},
                 {"model.layers.0.mlp.up_proj", 1},       {"model.layers.0.other.up_proj", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lathe_site site = site_of(cases[i].module, 4, 4, 0);
        cr_expect_eq(adapter->targets(self, &site), cases[i].want, "%s", cases[i].module);
    }
    plugin->destroy(self);
}

Test(lora, all_linear_takes_every_layer_but_the_head)
{
    void *self = instance(8, 16, 0, 0);
    lathe_site site = site_of("model.layers.0.mlp.down_proj", 4, 4, 0);
    cr_expect_eq(adapter->targets(self, &site), 1);
    site = site_of("lm_head", 4, 4, 0);
    site.layer = -1;
    cr_expect_eq(adapter->targets(self, &site), 0);
    plugin->destroy(self);
}

/* PEFT: re.fullmatch for a pattern; exclude_modules are looked at first. */
Test(lora, a_pattern_covers_whole_names_and_excluded_modules_are_left_out)
{
    static const char *const excluded[] = {"layers.1.self_attn.q_proj"};
    const struct {
        const char *module;
        int32_t want;
    } cases[] = {{"model.layers.0.self_attn.q_proj", 1},
                 {"model.layers.1.self_attn.q_proj", 0},
                 {"model.layers.1.self_attn.v_proj", 1},
                 {"model.layers.2.self_attn.v_proj", 0},
                 {"model.layers.0.self_attn.q_proj.x", 0}};
    mock_value(plugin, values, "target_pattern")->s = ".*layers\\.(?:0|1)\\..*(q|v)_proj";
    mock_value(plugin, values, "target_pattern")->is_set = 1;
    mock_value(plugin, values, "exclude_modules")->strs = excluded;
    mock_value(plugin, values, "exclude_modules")->n = 1;
    mock_value(plugin, values, "exclude_modules")->is_set = 1;
    void *self = instance(8, 16, 0, 0);
    char text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lathe_site site = site_of(cases[i].module, 4, 4, 0);
        cr_expect_eq(adapter->targets(self, &site), cases[i].want, "%s", cases[i].module);
    }
    cr_assert_gt(adapter->config_json(self, "base", text, sizeof text), 0);
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json);
    cr_expect_str_eq(json_string_value(json_object_get(json, "target_modules")),
                     ".*layers\\.(?:0|1)\\..*(q|v)_proj");
    cr_expect_str_eq(json_string_value(json_array_get(json_object_get(json, "exclude_modules"), 0)),
                     excluded[0]);
    json_decref(json);
    plugin->destroy(self);
}

Test(lora, gaussian_values_have_the_deviation_of_peft)
{
    mock_value(plugin, values, "init")->s = "gaussian";
    void *self = instance(4, 16, 0, 0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_site site = site_of(MODULE, 4, 4, 0);
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_F32, 4, 4), NULL);
    const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 4), NULL);
    lathe_val y;
    char text[2048];
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_OK);
    const lathe_param_decl *a = mock_param_decl(g, MODULE ".lora_A.weight");
    cr_expect_eq(a->init, LATHE_INIT_NORMAL);
    cr_expect_eq(a->init_scale, 0.25); /* 1/r */
    cr_expect_eq(mock_param_decl(g, MODULE ".lora_B.weight")->init, LATHE_INIT_ZERO);
    cr_assert_gt(adapter->config_json(self, "base", text, sizeof text), 0);
    cr_expect_not_null(strstr(text, "\"init_lora_weights\": \"gaussian\""));
    mock_destroy(g);
    plugin->destroy(self);
}

Test(lora, only_adapter_parameters_train)
{
    void *self = instance(8, 16, 0, 0);
    int32_t trainable = -1, group = -1;
    for (int32_t role = LATHE_ROLE_MATRIX; role <= LATHE_ROLE_ADAPTER; role++) {
        const lathe_param_info info = {.size = sizeof info, .role = role, .name = "w"};
        cr_assert_eq(adapter->select(self, &info, &trainable, &group), LATHE_OK);
        cr_expect_eq(trainable, role == LATHE_ROLE_ADAPTER);
        cr_expect_eq(group, 0);
    }
    plugin->destroy(self);
}

static int64_t rank_at(void *self, const char *module)
{
    char name[128];
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_site site = site_of(module, 4, 4, 0);
    site.weight = mock_input(g, "w", lathe_desc_2d(LATHE_F32, 4, 4), NULL);
    const lathe_val x = mock_input(g, "x", lathe_desc_2d(LATHE_F32, 1, 4), NULL);
    lathe_val y;
    cr_assert_eq(adapter->wrap(self, mock_api(), g, &site, x, 1, &y), LATHE_OK);
    (void)snprintf(name, sizeof name, "%s.lora_A.weight", module);
    const int64_t r = mock_desc(g, mock_param(g, name)).dims[0];
    mock_destroy(g);
    return r;
}

Test(lora, rank_patterns_are_matched_as_peft_does)
{
    mock_value(plugin, values, "rank_pattern")->s =
        "{\"down_proj\": 32, \"layers\\\\.1\\\\..*\": 4, \"model.layers.2.mlp.up_proj\" : 2}";
    void *self = instance(8, 16, 0, 0);
    cr_expect_eq(rank_at(self, "model.layers.0.mlp.down_proj"), 32);
    cr_expect_eq(rank_at(self, "model.layers.1.mlp.down_proj"), 32, "the first match wins");
    cr_expect_eq(rank_at(self, "model.layers.1.mlp.up_proj"), 4);
    cr_expect_eq(rank_at(self, "model.layers.11.mlp.up_proj"), 8);
    cr_expect_eq(rank_at(self, "model.layers.2.mlp.up_proj"), 2);
    plugin->destroy(self);
}

Test(lora, rank_is_32_unless_set_and_the_default_scale_is_1)
{
    const lathe_field *r = &plugin->fields[0];
    cr_expect_str_eq(r->key, "r");
    cr_expect_eq(mock_value(plugin, values, "r")->i, 32);
    cr_expect_eq(mock_value(plugin, values, "alpha")->f, 32.0);
    cr_expect_eq(r->min, 1.0);
    cr_expect_eq(r->max, 65536.0);
}

Test(lora, bad_settings_are_refused_with_their_names)
{
    static const char *const mixed[] = {"all-linear", "q_proj"};
    const struct {
        const char *key, *json, *want;
    } cases[] = {
        {"rank_pattern", "{\"a\": 0}", "rank_pattern of \"a\" is 0"},
        {"rank_pattern", "{\"a\": 1.5}", "expected a whole number"},
        {"rank_pattern", "{\"a\": 65537}", "is 65537; expected a whole number from 1 to 65536"},
        {"rank_pattern", "{\"(\": 2}", "no regular expression"},
        {"rank_pattern", "{\"a\": \"b\"}", "must be a table"},
        {"rank_pattern", "[1]", "must be a table"},
        {"rank_pattern", "{\"a\": 2", "must be a table"},
        {"alpha_pattern", "{\"a\": -1}", "alpha_pattern of \"a\" is -1"}};
    void *self = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mock_defaults(plugin, values);
        mock_value(plugin, values, cases[i].key)->s = cases[i].json;
        cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG,
                     "%s = %s", cases[i].key, cases[i].json);
        cr_expect(strstr(mock_host_error(), cases[i].want) != NULL, "%s", mock_host_error());
    }
    mock_defaults(plugin, values);
    lathe_value *list = mock_value(plugin, values, "target_modules");
    list->n = 0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    list->strs = mixed;
    list->n = 2;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_null(self);
    plugin->destroy(NULL);
}

Test(lora, files_carry_pefts_keys_and_config)
{
    mock_value(plugin, values, "rank_pattern")->s = "{\"down_proj\": 32}";
    void *self = instance(4, 16, 0.05, 1);
    char key[128], text[2048];
    const char *want = "base_model.model." MODULE ".lora_A.weight";
    cr_expect_eq(adapter->file_key(self, MODULE ".lora_A.weight", key, sizeof key),
                 (int64_t)strlen(want));
    cr_expect_str_eq(key, want);
    cr_expect_eq(adapter->file_key(self, MODULE ".lora_A.weight", NULL, 0), (int64_t)strlen(want));
    (void)rank_at(self, "model.layers.0.self_attn.q_proj");
    (void)rank_at(self, "model.layers.1.self_attn.q_proj");
    (void)rank_at(self, "model.layers.0.mlp.down_proj");
    const int64_t n = adapter->config_json(self, "a\\\"b", text, sizeof text);
    cr_assert(n > 0 && n < (int64_t)sizeof text);
    cr_expect_eq(adapter->config_json(self, "a\\\"b", NULL, 0), n);
    json_t *json = json_loads(text, 0, NULL);
    cr_assert_not_null(json);
    cr_expect_str_eq(json_string_value(json_object_get(json, "base_model_name_or_path")), "a\\\"b");
    cr_expect_eq(json_array_size(json_object_get(json, "target_modules")), 2);
    cr_expect_eq(json_integer_value(json_object_get(json, "r")), 4);
    cr_expect_eq(
        json_integer_value(json_object_get(json_object_get(json, "rank_pattern"), "down_proj")),
        32);
    cr_expect(json_is_true(json_object_get(json, "use_rslora")));
    cr_expect(json_is_false(json_object_get(json, "fan_in_fan_out")));
    json_decref(json);
    if (getenv("LATHE_LORA_CONFIG_OUT") != NULL) { /* for tests/golden/lora.py */
        FILE *file = fopen(getenv("LATHE_LORA_CONFIG_OUT"), "w");
        cr_assert_not_null(file);
        (void)fputs(text, file);
        (void)fclose(file);
    }
    plugin->destroy(self);
}
