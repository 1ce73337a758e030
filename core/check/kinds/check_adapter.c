/* Checks of adapters: sites that they select, graphs that they build around a site, and merging. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/adapter_bench.h"
#include "check/harness/graph_exact.h"
#include "check/harness/tiny_graph.h"
#include "check/kinds/checks.h"
#include "plug/answers.h"

static const char *const modules[] = {"self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"};

/* The checks at the token embedding and at the head share their code with those at linear layers:
 * their argument is LATHE_SITE_*. */
static const char *outer_module(const lathe__subject *s)
{
    return s->check->argument == LATHE_SITE_HEAD ? LATHE__HEAD_MODULE : LATHE__EMBEDDING_MODULE;
}

/* Skips a check of the embedding or the head if the adapter does not change it. */
static lathe_status skip_untargeted(lathe__subject *s)
{
    const lathe_adapter_v1 *table = s->table;
    const int is_head = s->check->argument == LATHE_SITE_HEAD;
    lathe__adapter_bench b;
    if (s->check->argument == LATHE_SITE_LINEAR)
        return LATHE_OK;
    if (is_head ? !lathe_answer_adapts_head(table) : !LATHE_HAS(table, embed))
        return lathe__skip(s, "it has no %s()", is_head ? "head" : "embed");
    LATHE_TRY(lathe__adapter_bench_init(&b, s, outer_module(s)));
    const int targeted = b.targeted;
    lathe__adapter_bench_fini(&b);
    return targeted ? LATHE_OK
                    : lathe__skip(s, "it does not target the %s: --set the key that does",
                                  is_head ? "head" : "embedding");
}

static lathe_status builds_an_outer_site(lathe__subject *s)
{
    lathe__adapter_bench b;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init(&b, s, outer_module(s)));
    lathe__note(s, "%d parameters added", b.params.n - LATHE__N_ROWS);
    lathe__adapter_bench_fini(&b);
    return LATHE_OK;
}

static lathe_status builds_around_a_site(lathe__subject *s)
{
    int targeted = 0, params = 0;
    for (int i = 0; i < 3; i++) {
        lathe__adapter_bench b;
        LATHE_TRY(lathe__adapter_bench_init(&b, s, modules[i]));
        targeted += b.targeted;
        params += b.params.n - LATHE__N_ROWS;
        lathe__adapter_bench_fini(&b);
    }
    lathe__note(s, "%d of 3 sites wrapped, %d parameters added", targeted, params);
    return LATHE_OK;
}

/* A site that the adapter wraps; the first site if it wraps none. At the embedding and the head:
 * that one. */
static const char *own_module(lathe__subject *s)
{
    if (s->check->argument != LATHE_SITE_LINEAR)
        return outer_module(s);
    for (int i = 0; i < 3; i++) {
        lathe__adapter_bench b;
        if (lathe__adapter_bench_init(&b, s, modules[i]) != LATHE_OK)
            break;
        const int targeted = b.targeted;
        lathe__adapter_bench_fini(&b);
        if (targeted)
            return modules[i];
    }
    return modules[0];
}

static lathe_status trains(lathe__subject *s)
{
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    lathe_status status = LATHE_OK;
    LATHE_TRY(skip_untargeted(s));
    for (int i = 0; i < 2 && status == LATHE_OK; i++) {
        lathe__adapter_bench b;
        int32_t trained = 0;
        status = lathe__adapter_bench_init(&b, s, own_module(s));
        if (status != LATHE_OK)
            break;
        for (int32_t k = 0; k < b.params.n; k++)
            trained += b.params.rows[k]->trainable;
        if (trained == 0)
            status = lathe_error(LATHE_E_PLUGIN, "nothing is trained");
        if (status == LATHE_OK)
            status = lathe__train_graph(s, b.g, b.loss, &text[i]);
        lathe__adapter_bench_fini(&b);
    }
    if (status == LATHE_OK && strcmp(text[0].data, text[1].data) != 0)
        status = lathe_error(LATHE_E_PLUGIN, "it builds another graph the second time");
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    return status;
}

static lathe_status same_parameters_again(lathe__subject *s)
{
    lathe__adapter_bench b;
    lathe_val again;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init(&b, s, own_module(s)));
    const int32_t n = b.params.n;
    lathe_status status = lathe__adapter_bench_wrap(&b, 1, &again);
    if (status == LATHE_OK && b.params.n != n)
        status = lathe_error(LATHE_E_PLUGIN, "a second forward declares %d new parameters",
                             b.params.n - n);
    lathe__adapter_bench_fini(&b);
    return status;
}

/* ---- the graph as numbers ---- */

/* Fills every parameter and input of the bench and runs the graph. noise: 1 fills the adapter's
 * parameters with noise instead of initial values. no_bias: the site's bias is 0. */
static lathe_status fill(const lathe__adapter_bench *b, lathe__exact *e, lathe__subject *s,
                         int noise, int no_bias)
{
    LATHE_TRY(lathe__exact_init(e, s, b->g));
    for (lathe_val v = 0; v < b->g->n_values; v++) {
        const lathe_ir_value *value = &b->g->values[v];
        const uint64_t seed = 50 + (uint64_t)(value->param + 1);
        if (value->kind == LATHE_VALUE_PARAM && value->param >= LATHE__N_ROWS &&
            (!noise || b->params.rows[value->param]->is_derived))
            lathe__exact_initial(e, v, seed);
        else if (value->kind == LATHE_VALUE_PARAM)
            lathe__exact_noise(e, v, seed, value->param == LATHE__ROW_BIAS && no_bias ? 0.0 : 0.5);
        for (int64_t i = 0; value->kind == LATHE_VALUE_INPUT && i < lathe__exact_count(e, v); i++)
            lathe__exact_data(e, v)[i] = (double)((5 * i + 3) % LATHE__SITE_VOCABULARY);
    }
    return lathe__exact_run(e);
}

/* Compares the elements of a and b. f32 settings such as alpha/r may change the last bits. */
static lathe_status expect_equal(const lathe__exact *e, lathe_val a, lathe_val b, const char *what)
{
    for (int64_t i = 0; i < lathe__exact_count(e, a); i++) {
        const double x = lathe__exact_data(e, a)[i], y = lathe__exact_data(e, b)[i];
        if (!(fabs(x - y) <= 1e-5 * (1 + fabs(y))))
            return lathe_error(LATHE_E_NUMERIC, "%s: element %lld is %.7g, expected %.7g", what,
                               (long long)i, x, y);
    }
    return LATHE_OK;
}

static lathe_status starts_as_the_base(lathe__subject *s)
{
    const int is_outer = s->check->argument != LATHE_SITE_LINEAR;
    LATHE_TRY(skip_untargeted(s));
    for (int i = 0; i < (is_outer ? 1 : 3); i++) {
        lathe__adapter_bench b;
        lathe__exact e;
        LATHE_TRY(lathe__adapter_bench_init_in(&b, s, is_outer ? outer_module(s) : modules[i],
                                               LATHE_F32));
        lathe_status status = fill(&b, &e, s, 0, 0);
        if (status == LATHE_OK)
            status = expect_equal(&e, b.y, b.plain_y,
                                  "with the initial parameters, and those of the model alone");
        lathe__adapter_bench_fini(&b);
        LATHE_TRY(status);
    }
    return LATHE_OK;
}

static lathe_status disabled_is_the_base(lathe__subject *s)
{
    lathe__adapter_bench b;
    lathe__exact e;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init_in(&b, s, own_module(s), LATHE_F32));
    lathe_status status = fill(&b, &e, s, 1, 0);
    if (status == LATHE_OK)
        status = expect_equal(&e, b.base_y, b.plain_y,
                              s->check->argument == LATHE_SITE_EMBEDDING ? "embed with enabled = 0"
                                                                         : "wrap with enabled = 0");
    lathe__adapter_bench_fini(&b);
    return status;
}

/* An element of a parameter that must count: of a matrix with a row for each token, one of the
 * first token's row. */
static int64_t counting_element(const lathe__adapter_bench *b, const lathe__exact *e,
                                const lathe_param *row)
{
    const int has_tokens = b->site.kind == LATHE_SITE_EMBEDDING && row->desc.rank == 2 &&
                           row->desc.dims[0] == b->site.in_features;
    return has_tokens ? (int64_t)lathe__exact_data(e, b->tokens)[0] * row->desc.dims[1] : 0;
}

static lathe_status every_parameter_counts(lathe__subject *s)
{
    lathe__adapter_bench b;
    lathe__exact e;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init_in(&b, s, own_module(s), LATHE_F32));
    lathe_status status = fill(&b, &e, s, 1, 0);
    const double before = status == LATHE_OK ? lathe__exact_data(&e, b.loss)[0] : 0.0;
    for (lathe_val v = 0; v < b.g->n_values && status == LATHE_OK; v++) {
        const lathe_ir_value *value = &b.g->values[v];
        if (value->kind != LATHE_VALUE_PARAM || value->param < LATHE__N_ROWS ||
            !b.params.rows[value->param]->trainable)
            continue;
        double *x = lathe__exact_data(&e, v);
        x += counting_element(&b, &e, b.params.rows[value->param]);
        *x += 0.25;
        status = lathe__exact_run(&e);
        *x -= 0.25;
        if (status == LATHE_OK && fabs(lathe__exact_data(&e, b.loss)[0] - before) <= 1e-12)
            status = lathe_error(LATHE_E_NUMERIC, "parameter %s does not move the loss",
                                 b.params.rows[value->param]->name);
    }
    lathe__adapter_bench_fini(&b);
    return status;
}

static int has_dropout(const lathe__adapter_bench *b)
{
    for (int32_t i = 0; i < b->g->n_nodes; i++)
        if (b->g->nodes[i].op == LATHE_OP_DROPOUT && b->g->nodes[i].attrs.p > 0.0f)
            return 1;
    return 0;
}

/* The adapter's parameters in the form that merge() takes. */
static int32_t site_params(const lathe__adapter_bench *b, lathe__subject *s, const lathe__exact *e,
                           lathe_site_param list[16])
{
    int32_t n = 0;
    for (int32_t p = LATHE__N_ROWS; p < b->params.n && n < 16; p++)
        for (lathe_val v = 0; v < b->g->n_values; v++) {
            if (b->g->values[v].kind != LATHE_VALUE_PARAM || b->g->values[v].param != p)
                continue;
            float *data = lathe__memory(s, 4 * lathe__exact_count(e, v));
            for (int64_t i = 0; i < lathe__exact_count(e, v); i++) {
                data[i] = (float)lathe__exact_data(e, v)[i];
                lathe__exact_data(e, v)[i] = (double)data[i];
            }
            list[n++] = (lathe_site_param){b->params.rows[p]->name, data, b->params.rows[p]->desc};
        }
    return n;
}

/* Merges the vector that the adapter adds into the site's bias, which exists. */
static lathe_status merge_bias(const lathe__adapter_bench *b, lathe__subject *s, lathe__exact *e,
                               const lathe_site_param *list, int32_t n)
{
    const int64_t n_b = b->site.out_features;
    double *bias = lathe__exact_data(e, b->site.bias);
    float *sum = lathe__memory(s, 4 * n_b);
    for (int64_t i = 0; i < n_b; i++)
        sum[i] = (float)bias[i];
    LATHE_TRY(b->table->merge_bias(b->instance.self, &b->site, list, n, sum));
    for (int64_t i = 0; i < n_b; i++)
        bias[i] = (double)sum[i];
    return LATHE_OK;
}

/* Checks that the site's output with the merged weight W', and with the merged bias if the adapter
 * adds to it, equals the result with the adapter. */
static lathe_status merge_and_compare(lathe__adapter_bench *b, lathe__subject *s, lathe__exact *e)
{
    lathe_site_param list[16];
    float *w[2];
    const int32_t n = site_params(b, s, e, list);
    const int64_t n_w = lathe__exact_count(e, b->site.weight), n_y = lathe__exact_count(e, b->y);
    double *weight = lathe__exact_data(e, b->site.weight);
    double *wrapped = lathe__memory(s, n_y * (int64_t)sizeof *wrapped);
    for (int k = 0; k < 2; k++) {
        w[k] = lathe__memory(s, 4 * n_w);
        for (int64_t i = 0; i < n_w; i++)
            w[k][i] = (float)weight[i];
        LATHE_TRY(b->table->merge(b->instance.self, &b->site, list, n, w[k]));
    }
    if (!lathe__same(w[0], w[1], n_w * 4))
        return lathe_error(LATHE_E_NUMERIC, "merging the same twice gives other bits");
    LATHE_TRY(lathe__exact_run(e));
    memcpy(wrapped, lathe__exact_data(e, b->y), (size_t)n_y * sizeof *wrapped);
    for (int64_t i = 0; i < n_w; i++)
        weight[i] = (double)w[0][i];
    if (b->site.kind == LATHE_SITE_LINEAR && lathe_answer_adds_bias(&b->instance))
        LATHE_TRY(merge_bias(b, s, e, list, n));
    LATHE_TRY(lathe__exact_run(e));
    for (int64_t i = 0; i < n_y; i++) {
        const double got = lathe__exact_data(e, b->plain_y)[i];
        if (!(fabs(got - wrapped[i]) <= 1e-4 * (1 + fabs(wrapped[i]))))
            return lathe_error(LATHE_E_NUMERIC,
                               "output %lld is %.7g with the merged weight, %.7g with the adapter",
                               (long long)i, got, wrapped[i]);
    }
    return LATHE_OK;
}

static lathe_status merges(lathe__subject *s)
{
    lathe__adapter_bench b;
    lathe__exact e;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init_in(&b, s, own_module(s), LATHE_F32));
    lathe_status status = has_dropout(&b) ? lathe__skip(s, "its dropout is on: --set its key to 0")
                                          : fill(&b, &e, s, 1, 1);
    if (!LATHE_HAS(b.table, merge) || b.params.n == LATHE__N_ROWS)
        status = lathe__skip(s, "nothing to merge");
    else if (status == LATHE_OK)
        status = merge_and_compare(&b, s, &e);
    lathe__adapter_bench_fini(&b);
    return status;
}

/* ---- what the adapter declares about the model's parameters ---- */

static lathe_status frozen_base_is_frozen(lathe__subject *s)
{
    lathe__adapter_bench b;
    LATHE_TRY(lathe__adapter_bench_init(&b, s, own_module(s)));
    const int32_t frozen =
        LATHE_HAS(b.table, base_is_frozen) ? b.table->base_is_frozen(b.instance.self) : 0;
    lathe_status status = LATHE_OK;
    if (frozen != 0 && frozen != 1)
        status = lathe_error(LATHE_E_PLUGIN, "base_is_frozen() is %d, expected 0 or 1", frozen);
    for (int32_t i = 0; i < LATHE__N_ROWS && status == LATHE_OK; i++)
        if (frozen && b.params.rows[i]->trainable && i == LATHE__ROW_WEIGHT && b.targeted)
            status =
                lathe_error(LATHE_E_PLUGIN, "base_is_frozen() is 1, and %s is wrapped and trained",
                            b.params.rows[i]->name);
        else if (frozen && b.params.rows[i]->trainable && !LATHE_HAS(b.table, file_key))
            status = lathe_error(LATHE_E_PLUGIN,
                                 "base_is_frozen() is 1, and %s is trained, but without file_key() "
                                 "no file holds it",
                                 b.params.rows[i]->name);
    lathe__adapter_bench_fini(&b);
    return status;
}

static lathe_status rates_are_above_zero(lathe__subject *s)
{
    lathe__adapter_bench b;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init(&b, s, own_module(s)));
    lathe_status status = LATHE_HAS(b.table, rate) ? LATHE_OK : lathe__skip(s, "it has no rate()");
    for (int32_t i = 0; i < b.params.n && status == LATHE_OK; i++) {
        double rate;
        if (b.params.rows[i]->trainable)
            status = lathe_answer_rate(&b.instance, b.params.rows[i]->name, &rate);
    }
    lathe__adapter_bench_fini(&b);
    return status;
}

static lathe_status unknown_roles_are_survived(lathe__subject *s)
{
    const lathe_adapter_v1 *table = s->table;
    lathe_instance instance;
    int32_t trainable = -1, group = 0;
    const lathe_param_info info = {.size = sizeof info,
                                   .role = 99,
                                   .name = "model.layers.0.unknown.weight",
                                   .desc =
                                       lathe_desc_2d(LATHE_F32, LATHE__SITE_OUT, LATHE__SITE_IN),
                                   .trainable = 1};
    LATHE_TRY(lathe__instance(s, &instance));
    const lathe_status status = table->select(instance.self, &info, &trainable, &group);
    lathe_instance_fini(&instance);
    if (status == LATHE_OK && trainable != 0 && trainable != 1)
        return lathe_error(LATHE_E_PLUGIN, "select of a parameter of role 99 says trainable %d",
                           trainable);
    return LATHE_OK;
}

/* Another instance at another site must not change the results. */
static lathe_status instances_are_apart(lathe__subject *s)
{
    lathe__adapter_bench a, other, again;
    lathe__exact e[2];
    LATHE_TRY(lathe__adapter_bench_init_in(&a, s, modules[0], LATHE_F32));
    lathe_status status = fill(&a, &e[0], s, 1, 0);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe__adapter_bench_init_in(&other, s, modules[2], LATHE_F32)) != LATHE_OK)
        goto out;
    lathe__adapter_bench_fini(&other);
    if ((status = lathe__adapter_bench_init_in(&again, s, modules[0], LATHE_F32)) != LATHE_OK)
        goto out;
    status = fill(&again, &e[1], s, 1, 0);
    if (status == LATHE_OK &&
        !lathe__same(lathe__exact_data(&e[0], a.y), lathe__exact_data(&e[1], again.y),
                     LATHE__SITE_TOKENS * LATHE__SITE_OUT * 8))
        status = lathe_error(LATHE_E_PLUGIN, "another instance changes what wrap computes");
    lathe__adapter_bench_fini(&again);
out:
    lathe__adapter_bench_fini(&a);
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

/* Checks the keys of the adapter's file: each parameter that it adds or trains has one, no key
 * comes twice, and file_key does not write more than its capacity. */
static lathe_status check_keys(const lathe__adapter_bench *b)
{
    char keys[16 + LATHE__N_ROWS][256];
    int32_t n_keys = 0;
    for (int32_t i = 0; i < b->params.n && n_keys < 16 + LATHE__N_ROWS; i++) {
        const char *name = b->params.rows[i]->name;
        char few[8] = "abcdefg", *key = keys[n_keys];
        if (i < LATHE__N_ROWS && !b->params.rows[i]->trainable)
            continue; /* the model's file holds it */
        const int64_t n = b->table->file_key(b->instance.self, name, key, (int64_t)sizeof keys[0]);
        if (n <= 0 || n >= (int64_t)sizeof keys[0])
            return lathe_error(LATHE_E_PLUGIN, "no file key for its parameter %s", name);
        key[n] = '\0';
        (void)b->table->file_key(b->instance.self, name, few, 4);
        if (few[4] != 'e')
            return lathe_error(LATHE_E_CORRUPT, "file_key writes more than its capacity of 4");
        for (int32_t k = 0; k < n_keys; k++)
            if (strcmp(keys[k], key) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two parameters have the file key %s", key);
        n_keys++;
    }
    return LATHE_OK;
}

static lathe_status writes_its_files(lathe__subject *s)
{
    lathe__adapter_bench b;
    lathe_status status = LATHE_OK;
    LATHE_TRY(skip_untargeted(s));
    LATHE_TRY(lathe__adapter_bench_init(&b, s, own_module(s)));
    writer w = {b.table, b.instance.self};
    if (LATHE_HAS(b.table, config_json))
        status = lathe__check_json(s, "config_json", write_config, &w);
    if (status == LATHE_OK && LATHE_HAS(b.table, file_key))
        status = check_keys(&b);
    else if (status == LATHE_OK && !LATHE_HAS(b.table, config_json))
        status = lathe__skip(s, "it has no file of its own");
    lathe__adapter_bench_fini(&b);
    return status;
}

const lathe__check *lathe__checks_adapter(void)
{
    static const lathe__check checks[] = {
        {"builds_around_a_site", builds_around_a_site, 0},
        {"trains", trains, 0},
        {"same_parameters_again", same_parameters_again, 0},
        {"starts_as_the_base", starts_as_the_base, 0},
        {"disabled_is_the_base", disabled_is_the_base, 0},
        {"every_parameter_counts", every_parameter_counts, 0},
        {"merges", merges, 0},
        {"frozen_base_is_frozen", frozen_base_is_frozen, 0},
        {"rates_are_above_zero", rates_are_above_zero, 0},
        {"unknown_roles_are_survived", unknown_roles_are_survived, 0},
        {"instances_are_apart", instances_are_apart, 0},
        {"writes_its_files", writes_its_files, 0},
        {"embed_builds", builds_an_outer_site, LATHE_SITE_EMBEDDING},
        {"embed_trains", trains, LATHE_SITE_EMBEDDING},
        {"embed_has_the_same_parameters_again", same_parameters_again, LATHE_SITE_EMBEDDING},
        {"embed_starts_as_the_base", starts_as_the_base, LATHE_SITE_EMBEDDING},
        {"disabled_embed_is_the_base", disabled_is_the_base, LATHE_SITE_EMBEDDING},
        {"every_parameter_of_embed_counts", every_parameter_counts, LATHE_SITE_EMBEDDING},
        {"embed_merges", merges, LATHE_SITE_EMBEDDING},
        {"embed_rates_are_above_zero", rates_are_above_zero, LATHE_SITE_EMBEDDING},
        {"embed_writes_its_files", writes_its_files, LATHE_SITE_EMBEDDING},
        {"head_builds", builds_an_outer_site, LATHE_SITE_HEAD},
        {"head_trains", trains, LATHE_SITE_HEAD},
        {"head_has_the_same_parameters_again", same_parameters_again, LATHE_SITE_HEAD},
        {"head_starts_as_the_base", starts_as_the_base, LATHE_SITE_HEAD},
        {"every_parameter_of_head_counts", every_parameter_counts, LATHE_SITE_HEAD},
        {"head_merges", merges, LATHE_SITE_HEAD},
        {"head_rates_are_above_zero", rates_are_above_zero, LATHE_SITE_HEAD},
        {"head_writes_its_files", writes_its_files, LATHE_SITE_HEAD},
        {NULL, NULL, 0},
    };
    return checks;
}
