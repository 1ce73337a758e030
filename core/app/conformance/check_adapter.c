/* Checks of adapters: what they select, what they build around a site, what they merge back. */
#include <stdio.h>
#include <string.h>

#include "app/conformance/tiny_graph.h"
#include "base/error.h"
#include "lathe/adapter.h"

enum { IN = 24, OUT = 16, TOKENS = 6 };

static const char *const modules[] = {"self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"};

/* A model of one site with an adapter around it. */
typedef struct bench {
    lathe_instance instance;
    const lathe_adapter_v1 *table;
    lathe_params params;
    lathe_graph *g;
    lathe_site site;
    char module[64], name[80];
    lathe_val x, y, base_y;
    int32_t targeted, n_rows; /* rows of params before wrap */
} bench;

static void bench_fini(bench *b)
{
    lathe_graph_destroy(b->g);
    lathe_params_fini(&b->params);
    lathe_instance_fini(&b->instance);
}

/* The weight of the site as a row, trained or frozen as the adapter says. */
static lathe_status add_weight(bench *b)
{
    (void)snprintf(b->name, sizeof b->name, "%s.weight", b->module);
    lathe_param row = {.name = b->name,
                       .desc = lathe_desc_2d(LATHE_F32, OUT, IN),
                       .role = LATHE_ROLE_MATRIX,
                       .init = LATHE_INIT_NORMAL,
                       .init_scale = 0.02};
    int32_t index;
    const lathe_param_info info = {
        .size = sizeof info, .role = row.role, .name = row.name, .desc = row.desc, .trainable = 1};
    LATHE_TRY(b->table->select(b->instance.self, &info, &row.trainable, &row.group));
    if ((row.trainable != 0 && row.trainable != 1) || row.group < 0)
        return lathe_error(LATHE_E_PLUGIN, "select says trainable %d, group %d", row.trainable,
                           row.group);
    LATHE_TRY(lathe_params_add(&b->params, &row, &index));
    LATHE_TRY(lathe_graph_create(&b->params, &b->g));
    LATHE_TRY(lathe_graph_param(b->g, index, &b->site.weight));
    b->n_rows = b->params.n;
    return LATHE_OK;
}

static lathe_status wrap(bench *b, int32_t enabled, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_desc d;
    if (b->targeted && LATHE_HAS(b->table, wrap))
        LATHE_TRY(b->table->wrap(b->instance.self, api, b->g, &b->site, b->x, enabled, out));
    else
        LATHE_TRY(api->linear(b->g, b->x, b->site.weight, LATHE_NONE, "linear", out));
    LATHE_TRY(api->desc(b->g, *out, &d));
    if (d.rank != 2 || d.dims[0] != TOKENS || d.dims[1] != OUT || d.dtype != LATHE_BF16)
        return lathe_error(LATHE_E_SHAPE, "wrap gives [%lld, %lld], expected bf16 [%d, %d]",
                           (long long)d.dims[0], (long long)d.dims[1], TOKENS, OUT);
    return LATHE_OK;
}

static lathe_status bench_build(bench *b, const char *module)
{
    (void)snprintf(b->module, sizeof b->module, "model.layers.0.%s", module);
    b->site = (lathe_site){.size = sizeof b->site,
                           .module = b->module,
                           .in_features = IN,
                           .out_features = OUT,
                           .bias = LATHE_NONE};
    LATHE_TRY(add_weight(b));
    LATHE_TRY(lathe_graph_input(b->g, "x", lathe_desc_2d(LATHE_BF16, TOKENS, IN), &b->x));
    b->targeted = LATHE_HAS(b->table, targets) && b->table->targets(b->instance.self, &b->site);
    LATHE_TRY(wrap(b, 1, &b->y));
    const int32_t n = b->params.n;
    LATHE_TRY(wrap(b, 0, &b->base_y));
    if (b->params.n != n)
        return lathe_error(LATHE_E_PLUGIN, "wrap with enabled = 0 declares new parameters");
    return LATHE_OK;
}

static lathe_status bench_init(bench *b, lathe__subject *s, const char *module)
{
    *b = (bench){.table = s->table};
    LATHE_TRY(lathe__instance(s, &b->instance));
    lathe_params_init(&b->params, LATHE_BF16);
    const lathe_status status = bench_build(b, module);
    if (status != LATHE_OK)
        bench_fini(b);
    return status;
}

static lathe_status builds_around_a_site(lathe__subject *s)
{
    int targeted = 0, params = 0;
    for (int i = 0; i < 3; i++) {
        bench b;
        LATHE_TRY(bench_init(&b, s, modules[i]));
        targeted += b.targeted;
        params += b.params.n - b.n_rows;
        bench_fini(&b);
    }
    lathe__note(s, "%d of 3 sites wrapped, %d parameters added", targeted, params);
    return LATHE_OK;
}

static lathe_status trains(lathe__subject *s)
{
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    lathe_status status = LATHE_OK;
    for (int i = 0; i < 2 && status == LATHE_OK; i++) {
        bench b;
        lathe_val loss;
        status = bench_init(&b, s, modules[0]);
        if (status != LATHE_OK)
            break;
        status = lathe__sum(b.g, b.y, &loss);
        if (status == LATHE_OK)
            status = lathe__train_graph(s, b.g, loss, &text[i]);
        int32_t trained = 0;
        for (int32_t k = 0; k < b.params.n; k++)
            trained += b.params.rows[k]->trainable;
        if (status == LATHE_OK && trained == 0)
            status = lathe_error(LATHE_E_PLUGIN, "nothing is trained");
        bench_fini(&b);
    }
    if (status == LATHE_OK && strcmp(text[0].data, text[1].data) != 0)
        status = lathe_error(LATHE_E_PLUGIN, "it builds another graph the second time");
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    return status;
}

static lathe_status same_parameters_again(lathe__subject *s)
{
    bench b;
    lathe_val again;
    LATHE_TRY(bench_init(&b, s, modules[0]));
    const int32_t n = b.params.n;
    lathe_status status = wrap(&b, 1, &again);
    if (status == LATHE_OK && b.params.n != n)
        status = lathe_error(LATHE_E_PLUGIN, "a second forward declares %d new parameters",
                             b.params.n - n);
    bench_fini(&b);
    return status;
}

/* Merging freshly initialised parameters leaves the model as it was, where wrap starts as identity:
 * an adapter whose last factor starts at zero. Random ones must stay finite and within bounds. */
static lathe_status merges(lathe__subject *s)
{
    bench b;
    lathe_site_param list[16];
    int32_t n = 0;
    LATHE_TRY(bench_init(&b, s, modules[0]));
    if (!LATHE_HAS(b.table, merge) || b.params.n == b.n_rows) {
        bench_fini(&b);
        return lathe__skip(s, "nothing to merge");
    }
    for (int32_t i = b.n_rows; i < b.params.n && n < 16; i++, n++)
        list[n] = (lathe_site_param){
            b.params.rows[i]->name,
            lathe__random(s, lathe_desc_count(&b.params.rows[i]->desc), 20 + (uint64_t)i, 0.1),
            b.params.rows[i]->desc};
    float *w[2];
    lathe_status status = LATHE_OK;
    for (int k = 0; k < 2 && status == LATHE_OK; k++) {
        w[k] = lathe__random(s, (int64_t)OUT * IN, 4, 0.05);
        status = b.table->merge(b.instance.self, &b.site, list, n, w[k]);
    }
    if (status == LATHE_OK && !lathe__same(w[0], w[1], (int64_t)OUT * IN * 4))
        status = lathe_error(LATHE_E_NUMERIC, "merging the same twice gives other bits");
    if (status == LATHE_OK &&
        lathe__same(w[0], lathe__random(s, (int64_t)OUT * IN, 4, 0.05), (int64_t)OUT * IN * 4))
        status = lathe_error(LATHE_E_PLUGIN, "merge changed nothing");
    bench_fini(&b);
    return status;
}

typedef struct writer {
    const lathe_adapter_v1 *table;
    void *self;
} writer;

static int64_t write_config(void *arg, char *out, int64_t capacity)
{
    const writer *w = arg;
    return w->table->config_json(w->self, "base/model", out, capacity);
}

static lathe_status writes_its_files(lathe__subject *s)
{
    bench b;
    lathe_status status = LATHE_OK;
    LATHE_TRY(bench_init(&b, s, modules[0]));
    writer w = {b.table, b.instance.self};
    if (!LATHE_HAS(b.table, config_json))
        status = lathe__skip(s, "it has no file of its own");
    else
        status = lathe__check_json(s, "config_json", write_config, &w);
    for (int32_t i = b.n_rows; i < b.params.n && status == LATHE_OK; i++) {
        char key[256];
        const char *name = b.params.rows[i]->name;
        const int64_t n = LATHE_HAS(b.table, file_key)
                              ? b.table->file_key(b.instance.self, name, key, (int64_t)sizeof key)
                              : 0;
        if (n <= 0 || n >= (int64_t)sizeof key)
            status = lathe_error(LATHE_E_PLUGIN, "no file key for its parameter %s", name);
    }
    bench_fini(&b);
    return status;
}

const lathe__check *lathe__checks_adapter(void)
{
    static const lathe__check checks[] = {
        {"builds_around_a_site", builds_around_a_site, 0},   {"trains", trains, 0},
        {"same_parameters_again", same_parameters_again, 0}, {"merges", merges, 0},
        {"writes_its_files", writes_its_files, 0},           {NULL, NULL, 0},
    };
    return checks;
}
