/* Builds programs: the forward of a model with an adapter at every site, and what each kind of
 * program does with it. */
#include "exec/program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/adapter_sites.h"
#include "exec/program/builder.h"
#include "exec/program/offers.h"
#include "graph/ir/flops.h"
#include "graph/passes/passes.h"
#include "lathe/rng.h"

static lathe_status param_value(void *arg, const char *name, lathe_val *out)
{
    const lathe__builder *b = arg;
    lathe_params *params = b->config->params;
    int32_t index = -1;
    const char *prefix =
        b->model == LATHE_MODEL_REFERENCE ? LATHE_REFERENCE_PREFIX : b->config->adapter_prefix;
    if (prefix) { /* a row that the reference's or this adapter replaces */
        char *copy = lathe_arena_printf(&b->build.graph->arena, "%s%s", prefix, name);
        if (!copy)
            return LATHE_E_NOMEM;
        index = lathe_params_find(params, copy);
    }
    if (index < 0)
        index = lathe_params_find(params, name);
    if (index < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "the model has no parameter '%s'", name);
    return lathe_graph_param(b->build.graph, index, out);
}

/* lathe_model_build.param of the teacher */
static lathe_status teacher_value(void *arg, const char *name, lathe_val *out)
{
    const lathe__builder *b = arg;
    lathe_graph *g = b->build.graph;
    const char *prefixed = lathe_arena_printf(&g->arena, LATHE_TEACHER_PREFIX "%s", name);
    const int32_t index = prefixed ? lathe_params_find(b->config->params, prefixed) : -1;
    if (!prefixed)
        return LATHE_E_NOMEM;
    if (index < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "the teacher has no parameter '%s'", name);
    return lathe_graph_param(g, index, out);
}

lathe_status lathe__build_batch_inputs(lathe__builder *b)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_desc tokens = lathe_desc_1d(LATHE_I32, p->n_rows * p->row_tokens);
    LATHE_TRY(lathe_graph_input(g, "tokens", tokens, &p->tokens));
    LATHE_TRY(lathe_graph_input(g, "positions", tokens, &p->positions));
    LATHE_TRY(lathe_graph_input(g, "doc_start", tokens, &p->doc_start));
    LATHE_TRY(lathe_graph_input(g, "targets", tokens, &p->targets));
    b->build.tokens = p->tokens;
    b->build.positions = p->positions;
    b->build.doc_start = p->doc_start;
    b->teacher.tokens = p->tokens;
    b->teacher.positions = p->positions;
    b->teacher.doc_start = p->doc_start;
    p->objective = b->config->objective;
    if (p->objective == LATHE_OBJECTIVE_CAUSAL)
        return LATHE_OK;
    LATHE_TRY(lathe_graph_input(g, "key_end", tokens, &p->key_end));
    b->build.key_end = b->teacher.key_end = p->key_end;
    return LATHE_OK;
}

static lathe_status build_loss(lathe__builder *b, int32_t train)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    LATHE_TRY(lathe__build_stage_loss(b, train));
    p->loss = p->stage.sum;
    lathe_graph_output(g, p->loss);
    for (int32_t i = 0; i < p->stage.n_metrics; i++)
        lathe_graph_output(g, p->stage.metrics[i].sum);
    p->logprobs = b->logprobs[LATHE_MODEL_POLICY];
    lathe_pass_fp8(g, b->config->fp8);
    if (!train) {
        if (p->logprobs != LATHE_NONE)
            lathe_graph_output(g, p->logprobs);
        for (int32_t i = 0; i < p->stage.n_outputs; i++)
            if (p->stage.outputs[i] != LATHE_NONE)
                lathe_graph_output(g, p->stage.outputs[i]);
        return LATHE_OK;
    }
    LATHE_TRY(lathe_graph_input(g, "seed", (lathe_desc){LATHE_F32, 0, {1, 1, 1, 1}}, &p->seed));
    LATHE_TRY(lathe_derive(g, p->loss, p->seed));
    LATHE_TRY(lathe_pass_merge_head(g));
    return lathe_pass_recompute(g, b->config->recompute);
}

static lathe_status to_f32(lathe_graph *g, lathe_val x, lathe_val *out)
{
    lathe_desc desc;
    LATHE_TRY(lathe_graph_api_get()->desc(g, x, &desc));
    *out = x;
    if (desc.dtype == LATHE_F32)
        return LATHE_OK;
    const lathe_op_attrs attrs = {.dtype = LATHE_F32};
    return lathe_graph_node(g, LATHE_OP_CAST, &attrs, &x, 1, out, 1, -1, "logits");
}

/* c*tanh(x/c) of logits in f32, computed as tanh(z) = 2 sigmoid(2z) - 1. cap 0: unchanged. */
static lathe_status cap_logits(lathe_graph *g, double cap, lathe_val *logits)
{
    const lathe_op_attrs into = {.alpha = 2.0 / cap}, back = {.alpha = 2.0 * cap, .beta = -cap};
    if (!(cap > 0.0))
        return LATHE_OK;
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_SCALE, &into, logits, 1, logits, 1, -1, "soft-cap"));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_SIGMOID, NULL, logits, 1, logits, 1, -1, "soft-cap"));
    return lathe_graph_node(g, LATHE_OP_SCALE, &back, logits, 1, logits, 1, -1, "soft-cap");
}

/* Replaces *logits by HEAD_SCORES of them, if the device has it. */
static lathe_status score_logits(const lathe__builder *b, lathe_val *logits, lathe_val *log_sums)
{
    lathe_graph *g = b->build.graph;
    const lathe_op_attrs attrs = {.softcap = (float)b->config->model->head_softcap};
    lathe_offers asked = {.machine = b->config->machine};
    lathe_val out[2];
    int32_t is_offered = 0;
    if (!b->config->machine)
        return LATHE_OK;
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_HEAD_SCORES, &attrs, logits, 1, out, 2, -1, "scores"));
    LATHE_TRY(lathe_machine_offers(&asked, g, &g->nodes[g->n_nodes - 1], &is_offered));
    if (!is_offered)
        return LATHE_OK; /* lathe_pass_dead removes the node */
    *logits = out[0];
    *log_sums = out[1];
    return LATHE_OK;
}

static lathe_status build_logits(lathe__builder *b, int32_t last_row_only)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    lathe_val hidden, head, logits;
    lathe__head_change change;
    LATHE_TRY(lathe_model_hidden(&b->build, &hidden));
    LATHE_TRY(lathe_model_head(&b->build, &head));
    lathe_graph_set_layer(g, -1, LATHE_BLOCK_NONE);
    if (last_row_only && p->row_tokens > 1) {
        const lathe_op_attrs last = {.start = p->row_tokens - 1, .count = 1};
        LATHE_TRY(lathe_graph_node(g, LATHE_OP_SLICE, &last, &hidden, 1, &hidden, 1, -1, "last"));
    }
    LATHE_TRY(lathe_model_head_input(&b->build, hidden, &hidden));
    LATHE_TRY(lathe__site_head(b, hidden, &change));
    LATHE_TRY(lathe__site_logits(g, hidden, head, &change, &logits));
    if (last_row_only)
        LATHE_TRY(score_logits(b, &logits, &p->log_sums));
    if (p->log_sums != LATHE_NONE) {
        p->logits = logits;
        lathe_graph_output(g, p->log_sums);
    } else {
        LATHE_TRY(to_f32(g, logits, &p->logits));
        LATHE_TRY(cap_logits(g, b->config->model->head_softcap, &p->logits));
    }
    lathe_graph_output(g, p->logits);
    return LATHE_OK;
}

/* "CURVE" as a number. It differs from the RNG streams of dropout and rounding, which count from
 * small numbers. */
#define DRAW_STREAM UINT64_C(0x4355525645)

static lathe_status build_sample(lathe__builder *b)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_op_attrs attrs = {.chunk_rows = b->config->head_chunk_rows,
                                  .softcap = (float)b->config->model->head_softcap,
                                  .rng_stream = DRAW_STREAM};
    lathe__head_change head;
    lathe_val in[7];
    LATHE_TRY(lathe__build_batch_inputs(b));
    LATHE_TRY(lathe_graph_input(g, "draw", lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), &p->draw));
    LATHE_TRY(lathe_model_hidden(&b->build, &in[0]));
    LATHE_TRY(lathe_model_head(&b->build, &in[1]));
    lathe_graph_set_layer(g, -1, LATHE_BLOCK_NONE);
    in[2] = p->targets;
    in[3] = p->draw;
    LATHE_TRY(lathe_model_head_input(&b->build, in[0], &in[0]));
    LATHE_TRY(lathe__site_head(b, in[0], &head));
    in[4] = head.u;
    in[5] = head.v;
    in[6] = head.s;
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_HEAD_SAMPLE, &attrs, in, 7, &p->sampled, 1, -1, "head"));
    lathe_graph_output(g, p->sampled);
    lathe_pass_fp8(g, b->config->fp8);
    return LATHE_OK;
}

static lathe_status build_score(lathe__builder *b)
{
    static const lathe_stage_head score = {"score", 1, 0, "score of the sequence"};
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_op_attrs row = {.count = p->row_tokens};
    lathe_val in[2], w;
    LATHE_TRY(lathe__build_batch_inputs(b));
    LATHE_TRY(lathe_graph_input(g, "last_mask", lathe_desc_1d(LATHE_F32, p->n_rows * p->row_tokens),
                                &p->last_mask));
    LATHE_TRY(lathe_model_hidden(&b->build, &in[0]));
    LATHE_TRY(param_value(b, "score.weight", &w));
    LATHE_TRY(lathe__build_head_output(g, &score, in[0], w, &in[0]));
    in[1] = p->last_mask;
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_MUL, NULL, in, 2, &in[0], 1, -1, "last"));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_ROW_SUM, &row, in, 1, &p->scores, 1, -1, "score"));
    lathe_graph_output(g, p->scores);
    return LATHE_OK;
}

/* Logits at a time in which the most likely tokens are sought. */
#define TOP_LOGITS_BYTES ((int64_t)64 << 20)

/* Tokens that the model that will learn has too; further rows fill up the teacher's embedding. */
static int64_t top_tokens(const lathe_program_config *c)
{
    return c->model->vocab < c->teacher->vocab ? c->model->vocab : c->teacher->vocab;
}

static int64_t top_rows(const lathe__builder *b, int64_t n)
{
    const lathe_program_config *c = b->config;
    const int64_t each = top_tokens(c) * lathe_dtype_bytes(LATHE_F32);
    const int64_t fit = c->head_chunk_rows > 0 ? c->head_chunk_rows : TOP_LOGITS_BYTES / each;
    return fit < 1 ? 1 : fit < n ? fit : n;
}

/* The teacher's most likely tokens of rows first .. of x [N,C], and their log-probabilities. A
 * soft-cap keeps the order of logits, so the tokens are sought without it. */
static lathe_status build_top_chunk(lathe__builder *b, lathe_val w, int64_t first, int64_t n,
                                    int32_t chunk)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_model_config *model = b->config->teacher;
    const lathe_op_attrs rows = {.start = first, .count = n};
    const lathe_op_attrs top = {.count = b->config->n_stored};
    const lathe_op_attrs pick = {.alpha = b->config->stored_temperature,
                                 .softcap = (float)model->head_softcap};
    lathe__head_change bias = {LATHE_NONE, LATHE_NONE, LATHE_NONE};
    lathe_val x = b->head_in[LATHE_MODEL_TEACHER], logits, both[2], in[5];
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_SLICE, &rows, &x, 1, &x, 1, -1, "chunk"));
    LATHE_TRY(lathe_model_head_bias(&b->teacher, x, &bias.u, &bias.v));
    LATHE_TRY(lathe__site_logits(g, x, w, &bias, &logits));
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_TOPK, &top, &logits, 1, both, 2, -1, "top"));
    in[0] = x;
    in[1] = w;
    in[2] = both[1];
    in[3] = bias.u;
    in[4] = bias.v;
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_HEAD_PICK, &pick, in, 5, &p->top_values[chunk], 1, -1,
                               "picked"));
    p->top_ids[chunk] = both[1];
    lathe_graph_output(g, p->top_ids[chunk]);
    lathe_graph_output(g, p->top_values[chunk]);
    return LATHE_OK;
}

static lathe_status build_top(lathe__builder *b)
{
    lathe_program *p = b->program;
    const int64_t n = p->n_rows * p->row_tokens;
    p->top_rows = top_rows(b, n);
    p->n_top = (int32_t)((n + p->top_rows - 1) / p->top_rows);
    p->top_ids = calloc((size_t)p->n_top, sizeof *p->top_ids);
    p->top_values = calloc((size_t)p->n_top, sizeof *p->top_values);
    if (!p->top_ids || !p->top_values)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d parts of a batch", p->n_top);
    LATHE_TRY(lathe__build_batch_inputs(b));
    LATHE_TRY(lathe__build_head_inputs(b, LATHE_MODEL_TEACHER));
    lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
    lathe_val w = b->vocabulary[LATHE_MODEL_TEACHER];
    const lathe_op_attrs tokens = {.start = 0, .count = top_tokens(b->config)};
    if (tokens.count < b->config->teacher->vocab)
        LATHE_TRY(lathe_graph_node(b->build.graph, LATHE_OP_SLICE, &tokens, &w, 1, &w, 1, -1,
                                   "common tokens"));
    for (int32_t i = 0; i < p->n_top; i++) {
        const int64_t first = i * p->top_rows, left = n - first;
        LATHE_TRY(build_top_chunk(b, w, first, left < p->top_rows ? left : p->top_rows, i));
    }
    return LATHE_OK;
}

static lathe_status build_decode(lathe__builder *b)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_model_config *model = b->config->model;
    const lathe_program_config *c = b->config;
    const lathe_desc tokens = lathe_desc_1d(LATHE_I32, p->n_rows * p->row_tokens);
    const int64_t row_blocks =
        c->cache_blocks > 0 ? (c->cache_rows + c->block_tokens - 1) / c->block_tokens : 0;
    const lathe_desc kv_len = row_blocks > 0 ? lathe_desc_2d(LATHE_I32, p->n_rows, 1 + row_blocks)
                                             : lathe_desc_1d(LATHE_I32, p->n_rows);
    LATHE_TRY(lathe_graph_input(g, "tokens", tokens, &p->tokens));
    LATHE_TRY(lathe_graph_input(g, "positions", tokens, &p->positions));
    LATHE_TRY(lathe_graph_input(g, "kv_len", kv_len, &p->kv_len));
    p->cache_k = calloc((size_t)model->n_layers, sizeof *p->cache_k);
    p->cache_v = calloc((size_t)model->n_layers, sizeof *p->cache_v);
    if (!p->cache_k || !p->cache_v)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d caches", model->n_layers);
    for (int32_t i = 0; i < model->n_layers; i++) {
        const lathe_model_layer *l = &model->layers[i];
        const int64_t width = (int64_t)l->n_kv_heads * l->head_dim;
        lathe_desc cache = {c->params->compute_dtype, 3, {p->n_rows, c->cache_rows, width, 1}};
        if (row_blocks > 0) {
            cache.dims[0] = c->cache_blocks;
            cache.dims[1] = c->block_tokens;
        }
        LATHE_TRY(lathe_graph_state(g, "cache_k", cache, &p->cache_k[i]));
        if (l->value_dim > 0)
            cache.dims[2] = (int64_t)l->n_kv_heads * l->value_dim;
        LATHE_TRY(lathe_graph_state(g, "cache_v", cache, &p->cache_v[i]));
    }
    b->build.tokens = p->tokens;
    b->build.positions = p->positions;
    b->build.kv_len = p->kv_len;
    b->build.cache_k = p->cache_k;
    b->build.cache_v = p->cache_v;
    b->build.max_positions = c->cache_rows;
    lathe_graph_decodes(g, p->n_rows, c->state_slots > 0 ? c->state_slots : p->n_rows);
    return build_logits(b, 1);
}

static lathe_status join_ops(const lathe__builder *b, int32_t kind)
{
    lathe_offers asked = {.machine = b->config->machine};
    const lathe_machine *m = b->config->machine;
    if (!m)
        return LATHE_OK;
    if (lathe_machine_packs(m))
        LATHE_TRY(
            lathe_pass_packed(b->build.graph, lathe_machine_offers, &asked, &b->program->n_packed));
    LATHE_TRY(lathe_pass_check_activations(b->build.graph));
    LATHE_TRY(lathe_pass_gelu(b->build.graph, lathe_machine_offers, &asked));
    if (kind == LATHE_PROGRAM_DECODE) /* elsewhere, the start of a product costs next to nothing */
        LATHE_TRY(lathe_pass_linears(b->build.graph, lathe_machine_offers, &asked));
    return lathe_pass_add_norm(b->build.graph, lathe_machine_offers, &asked);
}

/* The node after which the loss has been computed. */
static int32_t loss_end(const lathe_program *p)
{
    int32_t end = 0;
    for (int32_t i = 0; p->loss != LATHE_NONE && i < p->graph->n_nodes; i++)
        for (int32_t k = 0; k < p->graph->nodes[i].n_out; k++) {
            const lathe_val v = p->graph->nodes[i].out[k];
            if (v != LATHE_NONE && p->graph->values[v].is_output)
                end = i + 1;
        }
    return end;
}

/* Marks the products whose rows must not depend on the other rows. */
static void mark_invariant(lathe_graph *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const int32_t op = g->nodes[i].op;
        if (op == LATHE_OP_LINEAR || op == LATHE_OP_EXPERT_LINEAR || op == LATHE_OP_HEAD_LOGPROB ||
            op == LATHE_OP_HEAD_EVAL)
            g->nodes[i].attrs.invariant = 1;
    }
}

static lathe_status build(lathe__builder *b, int32_t kind)
{
    lathe_graph *g = b->build.graph;
    switch (kind) {
    case LATHE_PROGRAM_TRAIN:
    case LATHE_PROGRAM_EVAL:
        b->evaluates = kind == LATHE_PROGRAM_EVAL;
        LATHE_TRY(build_loss(b, kind == LATHE_PROGRAM_TRAIN));
        break;
    case LATHE_PROGRAM_LOGITS:
        LATHE_TRY(lathe__build_batch_inputs(b));
        LATHE_TRY(build_logits(b, 0));
        break;
    case LATHE_PROGRAM_SAMPLE:
        LATHE_TRY(build_sample(b));
        break;
    case LATHE_PROGRAM_SCORE:
        LATHE_TRY(build_score(b));
        break;
    case LATHE_PROGRAM_TOP:
        LATHE_TRY(build_top(b));
        break;
    default:
        LATHE_TRY(build_decode(b));
    }
    LATHE_TRY(lathe_pass_dead(g));
    if (b->config->invariant)
        mark_invariant(g);
    LATHE_TRY(join_ops(b, kind));
    if (kind == LATHE_PROGRAM_TRAIN && b->config->offloads)
        LATHE_TRY(lathe_pass_offload(g, loss_end(b->program), &b->program->n_offloaded));
    LATHE_TRY(lathe_pass_inplace(g));
    b->program->forward_end = loss_end(b->program);
    b->program->rng = g->rng;
    return LATHE_OK;
}

lathe_status lathe_program_build(const lathe_program_config *config, int32_t kind,
                                 lathe_program *out)
{
    *out = (lathe_program){
        .n_rows = config->n_rows, .row_tokens = config->row_tokens, .rows_per_record = 1};
    out->tokens = out->targets = out->positions = out->doc_start = out->seed = LATHE_NONE;
    out->key_end = LATHE_NONE;
    out->kv_len = out->rng = out->loss = out->logprobs = out->logits = LATHE_NONE;
    out->top_logprobs = out->top = out->draw = out->sampled = out->record_mask = LATHE_NONE;
    out->token_mask = LATHE_NONE;
    out->target_mask = out->last_mask = out->scores = out->log_sums = LATHE_NONE;
    LATHE_TRY(lathe_graph_create(config->params, &out->graph));
    /* TRAIN differentiates the distribution that the labels come from: SAMPLE needs its dropout */
    out->graph->drop_nothing = kind != LATHE_PROGRAM_TRAIN && kind != LATHE_PROGRAM_SAMPLE;
    lathe__builder b = {
        .config = config,
        .program = out,
        .build = {.config = config->model,
                  .graph = out->graph,
                  .batch = config->n_rows,
                  .max_positions = config->row_tokens,
                  .doc_start = LATHE_NONE,
                  .kv_len = LATHE_NONE,
                  .key_end = LATHE_NONE,
                  .param = param_value,
                  .linear = lathe__site_linear,
                  .embed = lathe__site_embed,
                  .embeds = lathe__site_embeds,
                  .moe = config->moe},
    };
    for (int32_t i = 0; i < LATHE_N_MODELS; i++) {
        b.hidden[i] = b.vocabulary[i] = b.logprobs[i] = b.entropy[i] = LATHE_NONE;
        b.head[i] = (lathe__head_change){LATHE_NONE, LATHE_NONE, LATHE_NONE};
    }
    for (int32_t i = 0; i < LATHE_MAX_STAGE_HEADS; i++)
        b.heads[i] = LATHE_NONE;
    b.build.arg = &b;
    b.teacher = b.build;
    b.teacher.config = config->teacher;
    b.teacher.param = teacher_value;
    b.teacher.linear = NULL;
    b.teacher.embed = NULL;
    b.teacher.embeds = NULL;
    const lathe_status status = build(&b, kind);
    if (status != LATHE_OK)
        lathe_program_fini(out);
    return status;
}

lathe_status lathe_program_prepare(lathe_program *p, lathe_machine *m)
{
    lathe_graph *g = p->graph;
    p->graph = NULL;
    p->flops = lathe_graph_flops(g, 0);
    LATHE_TRY(lathe_exec_create(m, g, &p->exec));
    return LATHE_OK;
}

void lathe_program_fini(lathe_program *p)
{
    if (p->exec)
        lathe_exec_destroy(p->exec);
    else
        lathe_graph_destroy(p->graph);
    free(p->cache_k);
    free(p->cache_v);
    free(p->top_ids);
    free(p->top_values);
    memset(p, 0, sizeof *p);
}
