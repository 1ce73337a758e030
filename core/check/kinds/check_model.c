/* Checks of model families: their description, a forward that trains and generates, and the logits
 * of a golden folder that the plugin brings. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "check/harness/graph_exact.h"
#include "check/harness/tiny_graph.h"
#include "check/kinds/checks.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/safetensors.h"
#include "model/family/model_build.h"
#include "model/family/model_values.h"
#include "model/family/weights.h"
#include "plug/schema_check.h"

enum { B = 2, T = 6, MAX_GOLDEN_TOKENS = 256 };

/* A model of the family, with a graph of it. */
typedef struct model {
    lathe_model_config config;
    lathe_params params;
    lathe_graph *g;
    lathe_model_build build;
    lathe_val hidden, head, k[16], v[16];
    lathe_val ones, bias; /* u and v of the head's bias; LATHE_NONE: it has none */
} model;

static void model_fini(model *m)
{
    lathe_graph_destroy(m->g);
    lathe_params_fini(&m->params);
    lathe_model_config_fini(&m->config);
}

/* The config.json of a small model: the schema's defaults, small sizes, and the user's settings. */
static lathe_status small_config(lathe__subject *s, const char *model_type, char **out)
{
    const lathe_value *values = NULL;
    lathe_buffer toml = LATHE_BUFFER_INIT;
    for (int32_t i = 0; i < s->plugin->n_fields; i++) {
        const char *key = s->plugin->fields[i].key;
        if (lathe__small_size(s->plugin, key) > 0 && lathe_toml_find(s->settings, key) == NULL)
            lathe_buffer_printf(&toml, "%s = %lld\n", key,
                                (long long)lathe__small_size(s->plugin, key));
    }
    if (lathe_schema_index(s->plugin->fields, s->plugin->n_fields, "model_type") >= 0)
        lathe_buffer_printf(&toml, "model_type = \"%s\"\n", model_type);
    lathe_status status = toml.status;
    if (status == LATHE_OK)
        status = lathe__values(s, toml.data, &values);
    lathe_buffer_fini(&toml);
    LATHE_TRY(status);
    json_t *object = json_object();
    status = lathe_model_values_write(s->plugin, values, object);
    json_object_set_new(object, "model_type", json_string(model_type));
    *out = status == LATHE_OK ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return status == LATHE_OK && *out == NULL ? LATHE_E_NOMEM : status;
}

static lathe_status small_model(lathe__subject *s, const char *model_type, model *m)
{
    const lathe_model_source source = {NULL, s->component};
    char *text = NULL;
    memset(m, 0, sizeof *m);
    lathe_params_init(&m->params, LATHE_F32);
    m->params.ops = s->ops;
    LATHE_TRY(small_config(s, model_type, &text));
    lathe_status status =
        lathe_model_config_parse(&source, model_type, text, (int64_t)strlen(text), 0, &m->config);
    free(text);
    return status == LATHE_OK ? lathe_model_params(&m->config, &m->params) : status;
}

/* Adds inputs and the forward, with caches of `cache_rows` rows if that is not 0. */
static lathe_status forward(model *m, int64_t batch, int64_t tokens, int64_t cache_rows)
{
    const lathe_desc ids = lathe_desc_1d(LATHE_I32, batch * tokens);
    LATHE_TRY(lathe_graph_create(&m->params, &m->g));
    m->build = (lathe_model_build){.config = &m->config,
                                   .graph = m->g,
                                   .batch = batch,
                                   .max_positions = cache_rows > 0 ? cache_rows : tokens,
                                   .doc_start = LATHE_NONE,
                                   .kv_len = LATHE_NONE,
                                   .key_end = LATHE_NONE,
                                   .cache_k = m->k,
                                   .cache_v = m->v};
    LATHE_TRY(lathe_graph_input(m->g, "tokens", ids, &m->build.tokens));
    LATHE_TRY(lathe_graph_input(m->g, "positions", ids, &m->build.positions));
    if (cache_rows > 0)
        LATHE_TRY(
            lathe_graph_input(m->g, "kv_len", lathe_desc_1d(LATHE_I32, batch), &m->build.kv_len));
    for (int32_t i = 0; cache_rows > 0 && i < m->config.n_layers && i < 16; i++) {
        const lathe_model_layer *l = &m->config.layers[i];
        lathe_desc cache = {
            LATHE_F32, 3, {batch, cache_rows, (int64_t)l->n_kv_heads * l->head_dim, 1}};
        LATHE_TRY(lathe_graph_state(m->g, "k", cache, &m->k[i]));
        if (l->value_dim > 0)
            cache.dims[2] = (int64_t)l->n_kv_heads * l->value_dim;
        LATHE_TRY(lathe_graph_state(m->g, "v", cache, &m->v[i]));
    }
    if (cache_rows > 0)
        lathe_graph_decodes(m->g, batch, batch);
    LATHE_TRY(lathe_model_hidden(&m->build, &m->hidden));
    LATHE_TRY(lathe_model_head_bias(&m->build, m->hidden, &m->ones, &m->bias));
    return lathe_model_head(&m->build, &m->head);
}

/* Runs `one` on a small model of every model_type. */
static lathe_status each_type(lathe__subject *s, lathe_status (*one)(lathe__subject *s, model *m))
{
    const lathe_model_v1 *table = s->table;
    for (int32_t i = 0; i < table->n_types; i++) {
        model m;
        lathe_status status = small_model(s, table->types[i].model_type, &m);
        if (status == LATHE_OK)
            status = one(s, &m);
        model_fini(&m);
        if (status != LATHE_OK)
            return status == LATHE__SKIP
                       ? status
                       : lathe_error_context(status, "%s", table->types[i].model_type);
    }
    return LATHE_OK;
}

static lathe_status one_describes(lathe__subject *s, model *m)
{
    lathe__note(s, "%d tensors in %d layers", m->params.n, m->config.n_layers);
    return LATHE_OK;
}

static lathe_status describes_its_models(lathe__subject *s)
{
    return each_type(s, one_describes);
}

static lathe_status one_trains(lathe__subject *s, model *m)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_val in[5], logp, loss;
    for (int32_t i = 0; i < m->params.n; i++)
        m->params.rows[i]->trainable = m->params.rows[i]->role != LATHE_ROLE_BUFFER;
    LATHE_TRY(forward(m, B, T, 0));
    in[0] = m->hidden;
    in[1] = m->head;
    LATHE_TRY(lathe_graph_input(m->g, "targets", lathe_desc_1d(LATHE_I32, B * T), &in[2]));
    in[3] = m->ones;
    in[4] = m->bias;
    LATHE_TRY(lathe_graph_node(m->g, LATHE_OP_HEAD_LOGPROB, NULL, in, 5, &logp, 1, -1, "head"));
    LATHE_TRY(lathe__sum(m->g, logp, &loss));
    const lathe_status status = lathe__train_graph(s, m->g, loss, &text);
    lathe_buffer_fini(&text);
    LATHE_TRY(status);
    for (int32_t i = 0; i < m->params.n; i++) {
        int used = !m->params.rows[i]->trainable;
        for (lathe_val v = 0; v < m->g->n_values; v++)
            used |= m->g->values[v].kind == LATHE_VALUE_GRAD && m->g->values[v].param == i;
        if (!used)
            return lathe_error(LATHE_E_PLUGIN,
                               "the tensor %s has no gradient: build() does not use it",
                               m->params.rows[i]->name);
    }
    return LATHE_OK;
}

static lathe_status every_tensor_trains(lathe__subject *s)
{
    return each_type(s, one_trains);
}

/* Fills tokens, positions that begin at `first`, and weights, and runs the graph. total: number of
 * tokens of the whole row. */
static lathe_status run_tokens(lathe__subject *s, model *m, lathe__exact *e, int first, int count,
                               int total)
{
    const int64_t offset = lathe_model_position_offset(&m->config, m->build.max_positions, total);
    LATHE_TRY(lathe__exact_init(e, s, m->g));
    for (lathe_val v = 0; v < m->g->n_values; v++)
        if (m->g->values[v].kind == LATHE_VALUE_PARAM)
            lathe__exact_noise(e, v, 7 + (uint64_t)m->g->values[v].param, 0.3);
    for (int i = 0; i < count; i++) {
        lathe__exact_data(e, m->build.tokens)[i] = (double)((first + i) * 7 % 40);
        lathe__exact_data(e, m->build.positions)[i] = (double)(first + i + offset);
    }
    if (m->build.kv_len != LATHE_NONE)
        lathe__exact_data(e, m->build.kv_len)[0] = first + count;
    return LATHE_OK;
}

/* Copies the states that ops keep, after the first part, to the second. */
static void carry_states(const model *from, const lathe__exact *e, const model *to,
                         const lathe__exact *next)
{
    for (int32_t i = 0; i < to->g->n_states && i < from->g->n_states; i++)
        memcpy(lathe__exact_data(next, to->g->states[i]),
               lathe__exact_data(e, lathe__exact_last(e, from->g->states[i])),
               8 * (size_t)lathe__exact_count(next, to->g->states[i]));
}

static lathe_status run_whole(lathe__subject *s, const char *model_type, int n_tokens, model *whole,
                              lathe__exact *e)
{
    LATHE_TRY(small_model(s, model_type, whole));
    LATHE_TRY(forward(whole, 1, n_tokens, 0));
    LATHE_TRY(run_tokens(s, whole, e, 0, n_tokens, n_tokens));
    return lathe__exact_run(e);
}

/* Two parts of one row, run through the caches, must give the hidden states of the whole row. */
static lathe_status compare_cached(lathe__subject *s, const char *model_type)
{
    enum { FIRST = 4, REST = 5 };
    model whole, part[2];
    lathe__exact e[3];
    const int counts[2] = {FIRST, REST};
    memset(part, 0, sizeof part);
    lathe_status status = run_whole(s, model_type, FIRST + REST, &whole, &e[2]);
    for (int p = 0; p < 2 && status == LATHE_OK; p++) {
        status = small_model(s, model_type, &part[p]);
        if (status == LATHE_OK)
            status = forward(&part[p], 1, counts[p], 16);
        if (status == LATHE_OK)
            status = run_tokens(s, &part[p], &e[p], p == 0 ? 0 : FIRST, counts[p], FIRST + REST);
        for (int32_t i = 0; p == 1 && status == LATHE_OK && i < whole.config.n_layers; i++) {
            const lathe_val k = lathe__exact_last(&e[0], part[0].k[i]);
            const lathe_val v = lathe__exact_last(&e[0], part[0].v[i]);
            memcpy(lathe__exact_data(&e[1], part[1].k[i]), lathe__exact_data(&e[0], k),
                   8 * (size_t)lathe__exact_count(&e[1], part[1].k[i]));
            memcpy(lathe__exact_data(&e[1], part[1].v[i]), lathe__exact_data(&e[0], v),
                   8 * (size_t)lathe__exact_count(&e[1], part[1].v[i]));
        }
        if (p == 1 && status == LATHE_OK)
            carry_states(&part[0], &e[0], &part[1], &e[1]);
        if (status == LATHE_OK)
            status = lathe__exact_run(&e[p]);
        const int64_t c = whole.config.width, at = p == 0 ? 0 : FIRST * c;
        for (int64_t i = 0; status == LATHE_OK && i < counts[p] * c; i++) {
            const double got = lathe__exact_data(&e[p], part[p].hidden)[i];
            const double want = lathe__exact_data(&e[2], whole.hidden)[at + i];
            if (!(fabs(got - want) <= 1e-9 * (1.0 + fabs(want))))
                status = lathe_error(LATHE_E_NUMERIC,
                                     "%s: hidden state %lld of token %lld is %g with caches and %g "
                                     "without",
                                     model_type, (long long)(i % c),
                                     (long long)(i / c + (p == 0 ? 0 : FIRST)), got, want);
        }
    }
    model_fini(&whole);
    model_fini(&part[0]);
    model_fini(&part[1]);
    return status;
}

static lathe_status caches_change_nothing(lathe__subject *s)
{
    const lathe_model_v1 *table = s->table;
    for (int32_t i = 0; i < table->n_types; i++)
        LATHE_TRY(compare_cached(s, table->types[i].model_type));
    return LATHE_OK;
}

/* ---- the golden folder ---- */

/* lathe_weight_sink.place; arg: the evaluation's graph */
typedef struct loading {
    const model *m;
    const lathe__exact *e;
    float *room;
} loading;

static lathe_status place(void *arg, int32_t index, const lathe_param *row, void **out,
                          int32_t *dtype)
{
    loading *l = arg;
    (void)index, (void)dtype;
    free(l->room);
    l->room = malloc((size_t)lathe_desc_bytes(&row->desc));
    *out = l->room;
    return l->room != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status placed(void *arg, int32_t index, const lathe_param *row, void *data)
{
    const loading *l = arg;
    const float *x = data;
    const int64_t n = lathe_desc_count(&row->desc);
    for (lathe_val v = 0; v < l->m->g->n_values; v++)
        if (l->m->g->values[v].kind == LATHE_VALUE_PARAM && l->m->g->values[v].param == index)
            for (int64_t i = 0; i < n; i++)
                lathe__exact_data(l->e, v)[i] = (double)x[i];
    return LATHE_OK;
}

static lathe_status load_weights(const model *m, const lathe__exact *e, const char *folder)
{
    lathe_safetensors *set = NULL;
    loading l = {m, e, NULL};
    const lathe_weight_sink sink = {.place = place, .done = placed, .arg = &l};
    LATHE_TRY(lathe_safetensors_open_joined(folder, &set));
    const lathe_status status = lathe_weights_load(set, &m->config, &m->params, &sink);
    lathe_safetensors_close(set);
    free(l.room);
    return status;
}

static double logit_of(const model *m, const lathe__exact *e, int64_t row, int64_t token)
{
    const double *h = lathe__exact_data(e, m->hidden) + row * m->config.width;
    const double *w = lathe__exact_data(e, m->head) + token * m->config.width;
    double x = 0.0;
    for (int64_t i = 0; i < m->config.width; i++)
        x += h[i] * w[i];
    if (m->config.head_scale != 0.0)
        x *= m->config.head_scale;
    if (m->bias != LATHE_NONE)
        x += lathe__exact_data(e, m->bias)[token];
    return m->config.head_softcap > 0.0 ? m->config.head_softcap * tanh(x / m->config.head_softcap)
                                        : x;
}

static lathe_status compare_logits(lathe__subject *s, const model *m, const lathe__exact *e,
                                   const lathe_st_tensor *want)
{
    const int64_t vocab = m->config.vocab, n = lathe_desc_count(&want->desc);
    const float *x = want->data;
    double worst = 0.0, high = 0.0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(logit_of(m, e, i / vocab, i % vocab) - (double)x[i]));
        high = fmax(high, fabs((double)x[i]));
    }
    lathe__note(s, "largest difference %.1e of %.3g", worst, high);
    return worst <= 2e-5 * high ? LATHE_OK
                                : lathe_error(LATHE_E_NUMERIC,
                                              "a logit differs by %g from the golden one; the "
                                              "largest logit is %g",
                                              worst, high);
}

/* input_ids i32[B,T] and logits f32[B,T,V] of golden.safetensors. */
static lathe_status run_golden(lathe__subject *s, const char *folder, const lathe_safetensors *set,
                               model *m)
{
    const lathe_model_source source = {NULL, s->component};
    const lathe_st_tensor *ids = lathe_safetensors_find(set, "input_ids");
    const lathe_st_tensor *logits = lathe_safetensors_find(set, "logits");
    lathe__exact e;
    LATHE_TRY(lathe_model_config_load(&source, folder, &m->config));
    LATHE_TRY(lathe_model_params(&m->config, &m->params));
    if (ids == NULL || logits == NULL || ids->desc.dtype != LATHE_I32 || ids->desc.rank != 2 ||
        logits->desc.dtype != LATHE_F32 || lathe_desc_count(&ids->desc) > MAX_GOLDEN_TOKENS ||
        lathe_desc_count(&logits->desc) != lathe_desc_count(&ids->desc) * m->config.vocab)
        return lathe_error(
            LATHE_E_SHAPE,
            "%s/golden.safetensors: expected input_ids i32[B,T] of at most %d tokens "
            "and logits f32[B,T,V]",
            folder, MAX_GOLDEN_TOKENS);
    const int64_t n = lathe_desc_count(&ids->desc), t = ids->desc.dims[1];
    LATHE_TRY(forward(m, ids->desc.dims[0], t, 0));
    LATHE_TRY(lathe__exact_init(&e, s, m->g));
    LATHE_TRY(load_weights(m, &e, folder));
    for (int64_t i = 0; i < n; i++) {
        lathe__exact_data(&e, m->build.tokens)[i] = (double)((const int32_t *)ids->data)[i];
        lathe__exact_data(&e, m->build.positions)[i] =
            (double)(i % t + lathe_model_position_offset(&m->config, t, t));
    }
    LATHE_TRY(lathe__exact_run(&e));
    return compare_logits(s, m, &e, logits);
}

static lathe_status logits_are_the_golden_ones(lathe__subject *s)
{
    const size_t n = strlen(s->component->path);
    if (n < 4)
        return lathe__skip(s, "the plugin has no path");
    const char *folder =
        lathe_arena_printf(&s->arena, "%.*s.golden", (int)(n - 3), s->component->path);
    const char *file = lathe_path_join(&s->arena, folder, "golden.safetensors");
    lathe_safetensors *set = NULL;
    model m;
    if (folder == NULL || file == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(file))
        return lathe__skip(s, "there is no %s", file);
    memset(&m, 0, sizeof m);
    lathe_params_init(&m.params, LATHE_F32);
    m.params.ops = s->ops;
    LATHE_TRY(lathe_safetensors_open(file, &set));
    const lathe_status status = run_golden(s, folder, set, &m);
    lathe_safetensors_close(set);
    model_fini(&m);
    return status;
}

const lathe__check *lathe__checks_model(void)
{
    static const lathe__check checks[] = {
        {"describes_its_models", describes_its_models, 0},
        {"every_tensor_trains", every_tensor_trains, 0},
        {"caches_change_nothing", caches_change_nothing, 0},
        {"logits_are_the_golden_ones", logits_are_the_golden_ones, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
