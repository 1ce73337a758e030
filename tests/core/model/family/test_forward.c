/* The families' forward graphs, run in double, compared with transformers' logits; packed documents
 * and the cached forward compared with the plain one; hooks, layers and labels. */
#include "eval_graph.h"
#include "golden_model.h"
#include "graph/ir/ir_graph.h"

enum { B = 2, T = 23 };
static const char *const names[] = {"gpt2", "llama_tied", "llama_untied", "qwen2", "qwen3"};

/* A built forward with its inputs. */
typedef struct forward {
    golden *model;
    lathe_graph *graph;
    lathe_model_build build;
    lathe_val hidden, head;
    lathe_val k[8], v[8];
    eval run;
} forward;

static void forward_open(forward *f, golden *model, int64_t batch, int64_t tokens,
                         int64_t cache_rows, int packed)
{
    memset(f, 0, sizeof *f);
    f->model = model;
    OK(lathe_graph_create(&model->params, &f->graph));
    f->build = (lathe_model_build){.config = &model->config,
                                   .graph = f->graph,
                                   .batch = batch,
                                   .max_positions = 64,
                                   .doc_start = LATHE_NONE,
                                   .kv_len = LATHE_NONE,
                                   .key_end = LATHE_NONE,
                                   .cache_k = f->k,
                                   .cache_v = f->v};
    const lathe_desc ids = lathe_desc_1d(LATHE_I32, batch * tokens);
    OK(lathe_graph_input(f->graph, "tokens", ids, &f->build.tokens));
    OK(lathe_graph_input(f->graph, "positions", ids, &f->build.positions));
    if (packed)
        OK(lathe_graph_input(f->graph, "doc_start", ids, &f->build.doc_start));
    const int64_t width = (int64_t)model->config.n_kv_heads * model->config.head_dim;
    const lathe_desc cache = {LATHE_F32, 3, {batch, cache_rows, width, 1}};
    if (cache_rows > 0)
        OK(lathe_graph_input(f->graph, "kv_len", lathe_desc_1d(LATHE_I32, batch),
                             &f->build.kv_len));
    for (int32_t layer = 0; cache_rows > 0 && layer < model->config.n_layers; layer++) {
        OK(lathe_graph_state(f->graph, "k", cache, &f->k[layer]));
        OK(lathe_graph_state(f->graph, "v", cache, &f->v[layer]));
    }
    OK(lathe_model_hidden(&f->build, &f->hidden));
    OK(lathe_model_head(&f->build, &f->head));
    f->run.g = f->graph;
    f->run.v = calloc((size_t)f->graph->n_values, sizeof *f->run.v);
    for (lathe_val v = 0; v < f->graph->n_values; v++)
        if (f->graph->values[v].kind == LATHE_VALUE_PARAM)
            eval_set_f32(&f->run, v, model->data[f->graph->values[v].param]);
        else if (f->graph->values[v].kind == LATHE_VALUE_STATE)
            (void)eval_new(&f->run, v);
}

static void forward_run(forward *f, const int32_t *tokens, const int32_t *positions)
{
    eval_set_i32(&f->run, f->build.tokens, tokens);
    eval_set_i32(&f->run, f->build.positions, positions);
    eval_run(&f->run);
}

static void forward_close(forward *f)
{
    for (lathe_val v = 0; v < f->graph->n_values; v++)
        if (f->graph->values[v].share == LATHE_NONE)
            free(f->run.v[v]);
    free(f->run.v);
    lathe_graph_destroy(f->graph);
}

/* tokens of the golden batch, and positions 0..T-1 in each row */
static void golden_batch(const golden *g, int32_t tokens[B * T], int32_t positions[B * T])
{
    const lathe_st_tensor *ids = lathe_safetensors_find(g->golden, "input_ids");
    cr_assert(ids->desc.dtype == LATHE_I32 && lathe_desc_count(&ids->desc) == B * T);
    memcpy(tokens, ids->data, B * T * sizeof *tokens);
    for (int i = 0; i < B * T; i++)
        positions[i] = i % T;
}

Test(forward, logits_are_those_of_transformers)
{
    for (int m = 0; m < 5; m++) {
        golden g;
        forward f;
        int32_t tokens[B * T], positions[B * T];
        golden_open(&g, names[m]);
        golden_batch(&g, tokens, positions);
        forward_open(&f, &g, B, T, 0, 0);
        forward_run(&f, tokens, positions);
        const lathe_st_tensor *want = lathe_safetensors_find(g.golden, "logits");
        const double *h = f.run.v[f.hidden], *w = f.run.v[f.head];
        const int64_t c = g.config.width;
        double worst = 0, high = 0;
        for (int64_t i = 0; i < B * T * g.config.vocab; i++) {
            double logit = 0;
            float x;
            memcpy(&x, (const char *)want->data + 4 * i, 4);
            for (int64_t k = 0; k < c; k++)
                logit += h[i / g.config.vocab * c + k] * w[i % g.config.vocab * c + k];
            worst = fmax(worst, fabs(logit - (double)x));
            high = fmax(high, fabs((double)x));
        }
        /* the golden is f32: two layers with sums of up to 128 products, and RoPE angles accurate
         * to 2^-18 */
        cr_expect_lt(worst, 2e-6 * high, "%s: %g of %g", names[m], worst, high);
        forward_close(&f);
        golden_close(&g);
    }
}

Test(forward, cached_in_two_runs_is_the_plain_one)
{
    for (int m = 0; m < 5; m++) {
        golden g;
        forward plain, part[2];
        int32_t tokens[B * T], positions[B * T];
        golden_open(&g, names[m]);
        golden_batch(&g, tokens, positions);
        forward_open(&plain, &g, B, T, 0, 0);
        forward_run(&plain, tokens, positions);
        const int first[2] = {0, 10}, count[2] = {10, T - 10};
        for (int p = 0; p < 2; p++) {
            int32_t some[B * T], at[B * T], length[B] = {first[p] + count[p], first[p] + count[p]};
            for (int i = 0; i < B * count[p]; i++) {
                at[i] = first[p] + i % count[p];
                some[i] = tokens[i / count[p] * T + at[i]];
            }
            forward_open(&part[p], &g, B, count[p], 32, 0);
            eval_set_i32(&part[p].run, part[p].build.kv_len, length);
            for (int32_t layer = 0; p == 1 && layer < g.config.n_layers; layer++) {
                const size_t bytes =
                    (size_t)eval_count(&part[1].run, part[1].k[layer]) * sizeof(double);
                memcpy(part[1].run.v[part[1].k[layer]], part[0].run.v[part[0].k[layer]], bytes);
                memcpy(part[1].run.v[part[1].v[layer]], part[0].run.v[part[0].v[layer]], bytes);
            }
            forward_run(&part[p], some, at);
            const int64_t c = g.config.width;
            for (int64_t i = 0; i < B * count[p] * c; i++) {
                const int64_t row = i / c / count[p], t = first[p] + i / c % count[p];
                cr_assert_float_eq(part[p].run.v[part[p].hidden][i],
                                   plain.run.v[plain.hidden][(row * T + t) * c + i % c], 1e-12,
                                   "%s", names[m]);
            }
        }
        forward_close(&plain);
        forward_close(&part[0]);
        forward_close(&part[1]);
        golden_close(&g);
    }
}

Test(forward, packed_documents_do_not_see_each_other)
{
    for (int m = 0; m < 5; m++) {
        golden g;
        forward packed, alone;
        int32_t tokens[B * T], positions[B * T], starts[B * T];
        golden_open(&g, names[m]);
        golden_batch(&g, tokens, positions);
        for (int i = 0; i < B * T; i++) { /* documents of 9 and 14 tokens in each row */
            starts[i] = i % T < 9 ? 0 : 9;
            positions[i] = i % T - starts[i];
        }
        forward_open(&packed, &g, B, T, 0, 1);
        eval_set_i32(&packed.run, packed.build.doc_start, starts);
        forward_run(&packed, tokens, positions);
        forward_open(&alone, &g, 1, 14, 0, 0);
        forward_run(&alone, tokens + T + 9, positions + T + 9);
        for (int64_t i = 0; i < 14 * g.config.width; i++)
            cr_assert_float_eq(packed.run.v[packed.hidden][(T + 9) * g.config.width + i],
                               alone.run.v[alone.hidden][i], 1e-12, "%s", names[m]);
        forward_close(&packed);
        forward_close(&alone);
        golden_close(&g);
    }
}

typedef struct seen {
    lathe_graph *graph;
    int32_t values, sites, biases, transposed;
    char first[64];
} seen;

/* An adapter at a site: doubles the plain linear. */
static lathe_status doubled(void *arg, const lathe_site *site, lathe_val x, lathe_val *y)
{
    seen *s = arg;
    const lathe_graph_api *api = lathe_graph_api_get();
    if (s->sites++ == 0)
        snprintf(s->first, sizeof s->first, "%s", site->module);
    s->biases += site->bias != LATHE_NONE;
    s->transposed += site->transposed_on_file;
    cr_assert(site->weight_quantized == 0 && site->layer >= 0 && site->layer < 2);
    LATHE_TRY(api->linear(s->graph, x, site->weight, site->bias, site->module, y));
    const lathe_val in[2] = {*y, *y};
    return api->node(s->graph, LATHE_OP_ADD, NULL, in, 2, y, 1, -1, "doubled");
}

static lathe_status refuse_param(void *arg, const char *name, lathe_val *out)
{
    (void)arg;
    (void)out;
    return lathe_error(LATHE_E_NOT_FOUND, "asked for %s", name);
}

Test(forward, every_linear_site_passes_the_hook)
{
    static const struct {
        const char *name, *first;
        int32_t sites, biases, transposed;
    } want[] = {{"gpt2", "transformer.h.0.attn.c_attn", 8, 8, 8},
                {"llama_untied", "model.layers.0.self_attn.q_proj", 14, 0, 0},
                {"qwen2", "model.layers.0.self_attn.q_proj", 14, 6, 0}};
    for (int m = 0; m < 3; m++) {
        golden g;
        golden_open(&g, want[m].name);
        forward f;
        forward_open(&f, &g, B, T, 0, 0);
        seen s = {.graph = f.graph, .values = f.graph->n_values};
        const int32_t plain = f.graph->n_nodes;
        f.build.linear = doubled;
        f.build.arg = &s;
        lathe_val out;
        OK(lathe_model_hidden(&f.build, &out));
        cr_assert_eq(f.graph->n_nodes, 2 * plain + want[m].sites);
        cr_assert(s.sites == want[m].sites && s.biases == want[m].biases &&
                  s.transposed == want[m].transposed);
        cr_assert_str_eq(s.first, want[m].first);
        f.build.param = refuse_param;
        cr_assert_eq(lathe_model_hidden(&f.build, &out), LATHE_E_NOT_FOUND);
        for (lathe_val v = 0; v < s.values; v++)
            free(f.run.v[v]);
        free(f.run.v);
        lathe_graph_destroy(f.graph);
        golden_close(&g);
    }
}

Test(forward, refuses_shapes_and_positions_it_has_not)
{
    golden g;
    golden_open(&g, "gpt2");
    forward f;
    lathe_val out;
    forward_open(&f, &g, B, T, 0, 0);
    f.build.max_positions = 65; /* the model has learned 64 positions */
    cr_assert_eq(lathe_model_hidden(&f.build, &out), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "65"));
    f.build.max_positions = 64;
    f.build.batch = 3;
    cr_assert_eq(lathe_model_hidden(&f.build, &out), LATHE_E_SHAPE);
    forward_close(&f);
    golden_close(&g);
}

Test(forward, nodes_carry_layers_blocks_and_labels)
{
    golden g;
    forward f;
    golden_open(&g, "qwen3");
    forward_open(&f, &g, B, T, 0, 0);
    int32_t layers[3] = {0}, blocks[3] = {0}, gate = 0;
    for (int32_t i = 0; i < f.graph->n_nodes; i++) {
        const lathe_ir_node *n = &f.graph->nodes[i];
        layers[n->layer + 1]++;
        blocks[n->block]++;
        gate += strcmp(n->label, "layers.1.mlp.gate_proj") == 0 && n->layer == 1 &&
                n->block == LATHE_BLOCK_MLP;
    }
    /* embedding and final norm outside; per layer 1 norm, 4 linears, 2 norms, 2 ropes, attention,
     * sum; and 1 norm, 3 linears, swiglu, sum */
    cr_assert(layers[0] == 2 && layers[1] == 17 && layers[2] == 17);
    cr_assert(blocks[LATHE_BLOCK_NONE] == 2 && blocks[LATHE_BLOCK_ATTENTION] == 22 &&
              blocks[LATHE_BLOCK_MLP] == 12);
    cr_assert_eq(gate, 1);
    cr_assert_eq(f.graph->layer, -1);
    forward_close(&f);
    golden_close(&g);
}
