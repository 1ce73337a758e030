/* Builds the loss of a stage: the functions that it builds with, and the answer's figures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/adapter_sites.h"
#include "exec/program/builder.h"
#include "plug/answers.h"
#include "plug/row_shape.h"
#include "plug/stage_inputs.h"

void lathe_stage_head_param(const lathe_stage_head *head, char *out, size_t bytes)
{
    (void)snprintf(out, bytes, "%s.weight", head->name);
}

static lathe_model_build *build_of(lathe__builder *b, int32_t model)
{
    return model == LATHE_MODEL_TEACHER ? &b->teacher : &b->build;
}

/* Builds a model up to its last hidden states, once. */
static lathe_status build_model(lathe__builder *b, int32_t model)
{
    if (b->hidden[model] != LATHE_NONE)
        return LATHE_OK;
    b->model = model;
    build_of(b, model)->embedding_noise = model == LATHE_MODEL_POLICY ? b->embedding_noise : 0.0;
    LATHE_TRY(lathe_model_hidden(build_of(b, model), &b->hidden[model]));
    if (model == LATHE_MODEL_POLICY) {
        b->n_reports = b->build.n_reports;
        memcpy(b->reports, b->build.reports, sizeof b->reports);
    }
    b->model = LATHE_MODEL_POLICY;
    return LATHE_OK;
}

/* Finds the weight of a model's head over the vocabulary, and what the adapter adds to the logits
 * of its hidden states, once. */
static lathe_status build_vocabulary(lathe__builder *b, int32_t model)
{
    if (b->vocabulary[model] != LATHE_NONE)
        return LATHE_OK;
    if (build_of(b, model)->config->n_labels > 0)
        return lathe_error(
            LATHE_E_PLUGIN,
            "stage \"%s\" asks for log-probabilities or entropies, and its head "
            "\"score\" makes the model a sequence classifier, which has no head over "
            "the vocabulary",
            b->config->stage->component->plugin->name);
    b->model = model;
    LATHE_TRY(lathe_model_head(build_of(b, model), &b->vocabulary[model]));
    lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
    LATHE_TRY(lathe_model_head_input(build_of(b, model), b->hidden[model], &b->head_in[model]));
    LATHE_TRY(lathe__site_head(b, b->head_in[model], &b->head[model]));
    b->model = LATHE_MODEL_POLICY;
    return LATHE_OK;
}

lathe_status lathe__build_head_inputs(lathe__builder *b, int32_t model)
{
    LATHE_TRY(build_model(b, model));
    return build_vocabulary(b, model);
}

lathe_status lathe__build_picked(lathe__builder *b, int32_t model, lathe_val ids,
                                 double temperature, int32_t only_picked, lathe_val *out)
{
    LATHE_TRY(lathe__build_head_inputs(b, model));
    const lathe_op_attrs attrs = {.alpha = temperature,
                                  .beta = only_picked ? 1.0 : 0.0,
                                  .chunk_rows = b->config->head_chunk_rows,
                                  .softcap = (float)build_of(b, model)->config->head_softcap};
    const lathe__head_change *head = &b->head[model];
    const lathe_val in[6] = {
        b->head_in[model], b->vocabulary[model], ids, head->u, head->v, head->s};
    lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
    return lathe_graph_node(b->build.graph, LATHE_OP_HEAD_PICK, &attrs, in, 6, out, 1, -1,
                            "picked");
}

/* Adds one of the ops of the head over the vocabulary: HEAD_LOGPROB, HEAD_ENTROPY, HEAD_EVAL. */
static lathe_status build_head(lathe__builder *b, int32_t op, int32_t model, lathe_val *out,
                               int32_t n_out)
{
    LATHE_TRY(build_model(b, model));
    LATHE_TRY(build_vocabulary(b, model));
    const lathe_op_attrs attrs = {.chunk_rows = b->config->head_chunk_rows,
                                  .softcap = (float)build_of(b, model)->config->head_softcap};
    const lathe__head_change *head = &b->head[model];
    const lathe_val in[6] = {
        b->head_in[model], b->vocabulary[model], b->program->targets, head->u, head->v, head->s};
    lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
    return lathe_graph_node(b->build.graph, op, &attrs, in, 6, out, n_out, -1, "head");
}

static lathe_status build_logprobs(lathe__builder *b, int32_t model, lathe_val *out)
{
    lathe_val all[3];
    if (!b->evaluates || model != LATHE_MODEL_POLICY)
        return build_head(b, LATHE_OP_HEAD_LOGPROB, model, out, 1);
    LATHE_TRY(build_head(b, LATHE_OP_HEAD_EVAL, model, all, 3));
    *out = all[0];
    b->program->top_logprobs = all[1];
    b->program->top = all[2];
    lathe_graph_output(b->build.graph, all[1]);
    lathe_graph_output(b->build.graph, all[2]);
    return LATHE_OK;
}

static int is_model(const lathe__builder *b, int32_t model)
{
    return model >= 0 && model < LATHE_N_MODELS &&
           (model != LATHE_MODEL_TEACHER || b->teacher.config);
}

static lathe_status no_model(int32_t model)
{
    return lathe_error(LATHE_E_ARG, "there is no model %d", model);
}

/* lathe_stage_build.logprobs */
static lathe_status stage_logprobs(void *ctx, int32_t model, lathe_val *out)
{
    lathe__builder *b = ctx;
    if (!is_model(b, model))
        return no_model(model);
    if (b->logprobs[model] == LATHE_NONE)
        LATHE_TRY(build_logprobs(b, model, &b->logprobs[model]));
    *out = b->logprobs[model];
    return LATHE_OK;
}

/* lathe_stage_build.entropy */
static lathe_status stage_entropy(void *ctx, int32_t model, lathe_val *out)
{
    lathe__builder *b = ctx;
    if (!is_model(b, model))
        return no_model(model);
    if (b->entropy[model] == LATHE_NONE)
        LATHE_TRY(build_head(b, LATHE_OP_HEAD_ENTROPY, model, &b->entropy[model], 1));
    *out = b->entropy[model];
    return LATHE_OK;
}

/* lathe_stage_build.divergence */
static lathe_status stage_divergence(void *ctx, int32_t model, double beta, double temperature,
                                     lathe_val *out)
{
    lathe__builder *b = ctx;
    if (!is_model(b, model) || model == LATHE_MODEL_POLICY)
        return no_model(model);
    LATHE_TRY(lathe__build_head_inputs(b, LATHE_MODEL_POLICY));
    LATHE_TRY(lathe__build_head_inputs(b, model));
    lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
    const lathe_op_attrs attrs = {.alpha = temperature,
                                  .beta = beta,
                                  .softcap = (float)b->config->model->head_softcap,
                                  .scale = (float)build_of(b, model)->config->head_softcap,
                                  .chunk_rows = b->config->head_chunk_rows};
    const lathe__head_change *own = &b->head[LATHE_MODEL_POLICY], *other = &b->head[model];
    const lathe_val in[11] = {b->head_in[LATHE_MODEL_POLICY],
                              b->vocabulary[LATHE_MODEL_POLICY],
                              b->head_in[model],
                              b->vocabulary[model],
                              b->program->targets,
                              own->u,
                              own->v,
                              own->s,
                              other->u,
                              other->v,
                              other->s};
    return lathe_graph_node(b->build.graph, LATHE_OP_HEAD_DIVERGENCE, &attrs, in, 11, out, 1, -1,
                            "divergence");
}

/* lathe_stage_build.picked */
static lathe_status stage_picked(void *ctx, int32_t model, lathe_val ids, double temperature,
                                 int32_t only_picked, lathe_val *out)
{
    lathe__builder *b = ctx;
    if (!is_model(b, model))
        return no_model(model);
    return lathe__build_picked(b, model, ids, temperature, only_picked, out);
}

/* lathe_stage_build.hidden */
static lathe_status stage_hidden(void *ctx, int32_t model, lathe_val *out)
{
    lathe__builder *b = ctx;
    if (!is_model(b, model))
        return no_model(model);
    LATHE_TRY(build_model(b, model));
    *out = b->hidden[model];
    return LATHE_OK;
}

/* lathe_stage_build.embedding_noise */
static lathe_status stage_embedding_noise(void *ctx, double magnitude)
{
    lathe__builder *b = ctx;
    const char *stage = b->config->stage->component->plugin->name;
    if (!(magnitude >= 0.0 && isfinite(magnitude)))
        return lathe_error(LATHE_E_ARG, "stage \"%s\" adds noise of magnitude %g to embeddings",
                           stage, magnitude);
    if (b->hidden[LATHE_MODEL_POLICY] != LATHE_NONE)
        return lathe_error(LATHE_E_ARG,
                           "stage \"%s\" adds noise to embeddings after the model is built", stage);
    b->embedding_noise = b->evaluates ? 0.0 : magnitude;
    return LATHE_OK;
}

/* Adds an f32 input with a number per token, once. */
static lathe_status token_input(const lathe__builder *b, const char *name, lathe_val *io)
{
    const lathe_program *p = b->program;
    return *io != LATHE_NONE
               ? LATHE_OK
               : lathe_graph_input(b->build.graph, name,
                                   lathe_desc_1d(LATHE_F32, p->n_rows * p->row_tokens), io);
}

/* lathe_stage_build.target_mask */
static lathe_status stage_target_mask(void *ctx, lathe_val *out)
{
    const lathe__builder *b = ctx;
    LATHE_TRY(token_input(b, "target_mask", &b->program->target_mask));
    *out = b->program->target_mask;
    return LATHE_OK;
}

/* lathe_model_build.token_mask; of the policy only, since no other model reports */
static lathe_status model_token_mask(void *arg, lathe_val *out)
{
    const lathe__builder *b = arg;
    *out = LATHE_NONE;
    if (b->model != LATHE_MODEL_POLICY)
        return LATHE_OK;
    LATHE_TRY(token_input(b, "token_mask", &b->program->token_mask));
    *out = b->program->token_mask;
    return LATHE_OK;
}

/* lathe_stage_build.last_mask */
static lathe_status stage_last_mask(void *ctx, lathe_val *out)
{
    const lathe__builder *b = ctx;
    const lathe_stage_v1 *stage = b->config->stage->table;
    if (!lathe_row_shape_get(lathe_rows_of(stage))->is_padded)
        return lathe_error(LATHE_E_ARG,
                           "stage \"%s\" asks for the last token of each row, and its rows have "
                           "several documents",
                           b->config->stage->component->plugin->name);
    LATHE_TRY(token_input(b, "last_mask", &b->program->last_mask));
    *out = b->program->last_mask;
    return LATHE_OK;
}

lathe_status lathe__build_head_output(lathe_graph *g, const lathe_stage_head *head, lathe_val x,
                                      lathe_val w, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_op_attrs f32 = {.dtype = LATHE_F32};
    const char *label = lathe_arena_strdup(&g->arena, head->name);
    lathe_desc desc;
    if (!label)
        return LATHE_E_NOMEM;
    LATHE_TRY(api->desc(g, x, &desc));
    if (desc.dtype != LATHE_F32)
        LATHE_TRY(api->node(g, LATHE_OP_CAST, &f32, &x, 1, &x, 1, -1, label));
    LATHE_TRY(api->linear(g, x, w, LATHE_NONE, label, out));
    if (head->n_outputs > 1)
        return LATHE_OK;
    return api->node(g, LATHE_OP_SUM_COLUMNS, NULL, out, 1, out, 1, -1, label);
}

/* lathe_stage_build.head */
static lathe_status stage_head(void *ctx, int32_t head, lathe_val *out)
{
    lathe__builder *b = ctx;
    const lathe_stage_v1 *stage = b->config->stage->table;
    const uint32_t heads = lathe_answer_heads(b->config->stage);
    char name[96];
    lathe_val w;
    if (head < 0 || head >= LATHE_MAX_STAGE_HEADS || !((heads >> head) & 1))
        return lathe_error(LATHE_E_ARG,
                           "stage \"%s\" asks for head %d, which it does not have with its "
                           "settings",
                           b->config->stage->component->plugin->name, head);
    if (b->heads[head] == LATHE_NONE) {
        LATHE_TRY(build_model(b, LATHE_MODEL_POLICY));
        lathe_graph_set_layer(b->build.graph, -1, LATHE_BLOCK_NONE);
        lathe_stage_head_param(&stage->heads[head], name, sizeof name);
        LATHE_TRY(b->build.param(b, name, &w));
        LATHE_TRY(lathe__build_head_output(b->build.graph, &stage->heads[head],
                                           b->hidden[LATHE_MODEL_POLICY], w, &b->heads[head]));
    }
    *out = b->heads[head];
    return LATHE_OK;
}

/* The inputs that the stage's table names. */
static lathe_status stage_inputs(lathe__builder *b)
{
    lathe_program *p = b->program;
    const lathe_stage_v1 *stage = b->config->stage->table;
    const int32_t n = LATHE_HAS(stage, inputs) ? stage->n_inputs : 0;
    p->n_stored = b->config->n_stored;
    for (int32_t i = 0; i < n; i++) {
        const lathe_stage_input *input = &stage->inputs[i];
        const int64_t per = p->n_rows * (input->per == LATHE_PER_ROW ? 1 : p->row_tokens);
        const int64_t count = lathe_stage_input_count(stage, i, p->n_stored);
        const int32_t dtype = lathe_stage_shape(stage, i).dtype;
        const int is_matrix = count > 1 || input->source == LATHE_INPUT_STORED;
        p->inputs[i] = LATHE_NONE;
        if (count == 0)
            continue;
        LATHE_TRY(lathe_graph_input(b->build.graph, input->name,
                                    is_matrix ? lathe_desc_2d(dtype, per, count)
                                              : lathe_desc_1d(dtype, per),
                                    &p->inputs[i]));
    }
    p->n_inputs = n;
    return LATHE_OK;
}

/* The batch's share of the count by which the loss is divided: f32[]. */
static lathe_status batch_count(lathe__builder *b, lathe_val *out)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    lathe_val mask = p->record_mask;
    const int32_t unit = p->stage.count_unit;
    if (unit != LATHE_COUNT_TOKENS && mask != LATHE_NONE)
        return lathe_graph_node(g, LATHE_OP_SUM, NULL, &mask, 1, out, 1, -1, "batch.count");
    if (unit == LATHE_COUNT_TOKENS) {
        LATHE_TRY(stage_target_mask(b, &mask));
        return lathe_graph_node(g, LATHE_OP_SUM, NULL, &mask, 1, out, 1, -1, "batch.count");
    }
    const float rows = (float)(p->n_rows / p->rows_per_record);
    return lathe_graph_const(g, "batch.count", (lathe_desc){LATHE_F32, 0, {1, 1, 1, 1}}, &rows,
                             out);
}

/* lathe_model_build.expert_load; of the policy only, since no other model trains */
static lathe_status model_expert_load(void *arg, const char *correction, lathe_val chosen)
{
    const lathe__builder *b = arg;
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    lathe_params *params = b->config->params;
    const int32_t param = lathe_params_find(params, correction);
    lathe_desc desc;
    if (b->model != LATHE_MODEL_POLICY)
        return LATHE_OK;
    LATHE_TRY(lathe_graph_api_get()->desc(g, chosen, &desc));
    for (int32_t i = 0; i < p->n_loads; i++)
        if (p->loads[i].param == param)
            return lathe_error(LATHE_E_PLUGIN, "%s: build() tells the load of '%s' twice",
                               b->config->model->family.component->plugin->name, correction);
    if (param < 0 || params->rows[param]->role != LATHE_ROLE_BUFFER || desc.dtype != LATHE_F32 ||
        lathe_desc_count(&desc) != lathe_desc_count(&params->rows[param]->desc))
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: build() tells the load of experts for '%s', which is no buffer "
                           "with a number for each of them",
                           b->config->model->family.component->plugin->name, correction);
    lathe_program_load *grown =
        lathe_arena_alloc(&g->arena, (p->n_loads + 1) * (int64_t)sizeof *grown);
    if (grown == NULL)
        return LATHE_E_NOMEM;
    if (p->n_loads > 0)
        memcpy(grown, p->loads, (size_t)p->n_loads * sizeof *grown);
    grown[p->n_loads] = (lathe_program_load){param, (int32_t)lathe_desc_count(&desc), chosen};
    p->loads = grown;
    p->n_loads++;
    lathe_graph_output(g, chosen);
    params->rows[param]->is_moved = 1;
    return LATHE_OK;
}

/* The sum over the batch of a report: a mean times the batch's count. */
static lathe_status report_sum(lathe__builder *b, const lathe_model_report *r, lathe_val *out)
{
    lathe_val pair[2] = {r->sum, LATHE_NONE};
    *out = r->sum;
    if (!r->is_mean)
        return LATHE_OK;
    LATHE_TRY(batch_count(b, &pair[1]));
    return lathe_graph_node(b->build.graph, LATHE_OP_MUL, NULL, pair, 2, out, 1, -1, r->name);
}

/* Adds what the policy's family reports: metrics besides those of the stage, and auxiliary losses,
 * which training adds to the loss. */
static lathe_status add_reports(lathe__builder *b, int32_t train)
{
    lathe_graph *g = b->build.graph;
    lathe_stage_loss *loss = &b->program->stage;
    for (int32_t i = 0; i < b->n_reports; i++) {
        const lathe_model_report *r = &b->reports[i];
        const lathe_op_attrs weight = {.alpha = r->weight};
        lathe_val pair[2] = {loss->sum, LATHE_NONE}, sum;
        if (loss->n_metrics == LATHE_MAX_STAGE_METRICS)
            return lathe_error(LATHE_E_PLUGIN,
                               "stage and model have more than %d figures; %s has no room",
                               LATHE_MAX_STAGE_METRICS, r->name);
        LATHE_TRY(report_sum(b, r, &sum));
        loss->metrics[loss->n_metrics++] = (lathe_stage_metric){.name = r->name, .sum = sum};
        if (r->weight == 0.0 || !train)
            continue;
        LATHE_TRY(lathe_graph_node(g, LATHE_OP_SCALE, &weight, &sum, 1, &pair[1], 1, -1, r->name));
        LATHE_TRY(lathe_graph_node(g, LATHE_OP_ADD, NULL, pair, 2, &loss->sum, 1, -1, r->name));
    }
    return LATHE_OK;
}

lathe_status lathe__build_stage_loss(lathe__builder *b, int32_t train)
{
    lathe_program *p = b->program;
    lathe_graph *g = b->build.graph;
    const lathe_stage_v1 *stage = b->config->stage->table;
    LATHE_TRY(lathe__build_batch_inputs(b));
    b->build.token_mask = model_token_mask;
    if (train && b->config->moe != NULL && b->config->moe->bias_rate > 0.0)
        b->build.expert_load = model_expert_load;
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(stage));
    p->rows_per_record = shape->n_rows;
    if (shape->compares)
        LATHE_TRY(lathe_graph_input(g, "record_mask",
                                    lathe_desc_1d(LATHE_F32, p->n_rows / shape->n_rows),
                                    &p->record_mask));
    LATHE_TRY(stage_inputs(b));
    const lathe_stage_build build = {.size = (uint32_t)sizeof build,
                                     .n_rows = p->n_rows,
                                     .row_tokens = p->row_tokens,
                                     .api = lathe_graph_api_get(),
                                     .graph = g,
                                     .logprobs = stage_logprobs,
                                     .ctx = b,
                                     .record_mask = p->record_mask,
                                     .n_inputs = p->n_inputs,
                                     .inputs = p->inputs,
                                     .entropy = stage_entropy,
                                     .target_mask = stage_target_mask,
                                     .head = stage_head,
                                     .last_mask = stage_last_mask,
                                     .hidden = stage_hidden,
                                     .divergence = stage_divergence,
                                     .width = b->config->model->width,
                                     .embedding_noise = stage_embedding_noise,
                                     .picked = stage_picked,
                                     .n_stored = b->config->n_stored,
                                     .stored_temperature = b->config->stored_temperature};
    LATHE_TRY(lathe_answer_loss(b->config->stage, &build, &p->stage));
    return add_reports(b, train);
}
