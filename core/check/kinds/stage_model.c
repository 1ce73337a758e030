/* A small model that stands for a real one and its batches when the checks of stages call loss().
 */
#include "check/kinds/stage_model.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "plug/answers.h"
#include "plug/row_shape.h"
#include "plug/stage_inputs.h"

enum { C = LATHE__STAGE_C, V = LATHE__STAGE_V, T = LATHE__STAGE_T };

typedef lathe__stage_model model;

static const char *const logp_names[] = {"policy", "reference", "teacher"};
static const char *const entropy_names[] = {"entropy", "reference_entropy", "teacher_entropy"};
static const char *const hidden_names[] = {"hidden", "hidden_reference", "hidden_teacher"};

static int is_model(int32_t which)
{
    return which >= LATHE_MODEL_POLICY && which <= LATHE_MODEL_TEACHER;
}

static void note(model *m, int32_t which)
{
    if (which == LATHE_MODEL_REFERENCE)
        m->asked |= LATHE_NEEDS_REFERENCE;
    if (which == LATHE_MODEL_TEACHER)
        m->asked |= LATHE_NEEDS_TEACHER;
}

/* The inputs of a head over the vocabulary, made once for each model. */
static lathe_status head_inputs(model *m, int32_t which)
{
    static const char *const names[] = {"lm_head.weight", "reference.lm_head.weight",
                                        "teacher.lm_head.weight"};
    static const char *const x_names[] = {"x", "x_reference", "x_teacher"};
    static const char *const target_names[] = {"targets", "targets_reference", "targets_teacher"};
    const lathe_param row = {.name = names[which],
                             .desc = lathe_desc_2d(LATHE_F32, V, C),
                             .role = LATHE_ROLE_HEAD,
                             .layer = -1,
                             .trainable = which == LATHE_MODEL_POLICY,
                             .reference = which != LATHE_MODEL_POLICY};
    const int64_t n = (int64_t)m->n_rows * T;
    lathe_val *in = m->head[which];
    int32_t index;
    if (in[0] != LATHE_NONE)
        return LATHE_OK;
    LATHE_TRY(lathe_params_add(&m->params, &row, &index));
    LATHE_TRY(lathe_graph_input(m->g, x_names[which], lathe_desc_2d(LATHE_BF16, n, C), &in[0]));
    LATHE_TRY(lathe_graph_param(m->g, index, &in[1]));
    return lathe_graph_input(m->g, target_names[which], lathe_desc_1d(LATHE_I32, n), &in[2]);
}

/* op: HEAD_LOGPROB or HEAD_ENTROPY */
static lathe_status head(model *m, int32_t op, int32_t which, lathe_val *out)
{
    LATHE_TRY(head_inputs(m, which));
    LATHE_TRY(lathe_graph_node(m->g, op, NULL, m->head[which], 3, out, 1, -1, "head"));
    return which != LATHE_MODEL_POLICY ? lathe_graph_api_get()->detach(m->g, *out, out) : LATHE_OK;
}

/* Adds an input with a value per token. */
static lathe_status token_input(model *m, const char *name, lathe_val *out)
{
    return lathe_graph_input(m->g, name, lathe_desc_1d(LATHE_F32, (int64_t)m->n_rows * T), out);
}

static lathe_status logprobs(void *ctx, int32_t which, lathe_val *out)
{
    model *m = ctx;
    if (!is_model(which))
        return lathe_error(LATHE_E_ARG, "logprobs of model %d", which);
    note(m, which);
    if (m->logp[which] == LATHE_NONE && m->plain)
        LATHE_TRY(token_input(m, logp_names[which], &m->logp[which]));
    else if (m->logp[which] == LATHE_NONE)
        LATHE_TRY(head(m, LATHE_OP_HEAD_LOGPROB, which, &m->logp[which]));
    *out = m->logp[which];
    return LATHE_OK;
}

static lathe_status entropy(void *ctx, int32_t which, lathe_val *out)
{
    model *m = ctx;
    if (!is_model(which))
        return lathe_error(LATHE_E_ARG, "entropy of model %d", which);
    note(m, which);
    if (m->entropy[which] == LATHE_NONE && m->plain)
        LATHE_TRY(token_input(m, entropy_names[which], &m->entropy[which]));
    else if (m->entropy[which] == LATHE_NONE)
        LATHE_TRY(head(m, LATHE_OP_HEAD_ENTROPY, which, &m->entropy[which]));
    *out = m->entropy[which];
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    model *m = ctx;
    if (m->target_mask == LATHE_NONE)
        LATHE_TRY(token_input(m, "target_mask", &m->target_mask));
    *out = m->target_mask;
    return LATHE_OK;
}

static lathe_status last_mask(void *ctx, lathe_val *out)
{
    model *m = ctx;
    if (m->last_mask == LATHE_NONE)
        LATHE_TRY(token_input(m, "last_mask", &m->last_mask));
    *out = m->last_mask;
    return LATHE_OK;
}

static lathe_status hidden(void *ctx, int32_t which, lathe_val *out)
{
    model *m = ctx;
    if (!is_model(which))
        return lathe_error(LATHE_E_ARG, "hidden states of model %d", which);
    note(m, which);
    if (m->plain && m->hidden[which] == LATHE_NONE)
        LATHE_TRY(lathe_graph_input(m->g, hidden_names[which],
                                    lathe_desc_2d(LATHE_F32, (int64_t)m->n_rows * T, C),
                                    &m->hidden[which]));
    if (!m->plain)
        LATHE_TRY(head_inputs(m, which));
    *out = m->plain ? m->hidden[which] : m->head[which][0];
    return LATHE_OK;
}

static lathe_status divergence(void *ctx, int32_t which, double beta, double temperature,
                               lathe_val *out)
{
    model *m = ctx;
    const lathe_op_attrs attrs = {.alpha = temperature, .beta = beta};
    if (!is_model(which) || which == LATHE_MODEL_POLICY)
        return lathe_error(LATHE_E_ARG, "divergence from model %d", which);
    note(m, which);
    if (m->plain) {
        if (m->divergence[which] == LATHE_NONE)
            LATHE_TRY(token_input(m, "divergence", &m->divergence[which]));
        *out = m->divergence[which];
        return LATHE_OK;
    }
    LATHE_TRY(head_inputs(m, LATHE_MODEL_POLICY));
    LATHE_TRY(head_inputs(m, which));
    const lathe_val in[5] = {m->head[0][0], m->head[0][1], m->head[which][0], m->head[which][1],
                             m->head[0][2]};
    return lathe_graph_node(m->g, LATHE_OP_HEAD_DIVERGENCE, &attrs, in, 5, out, 1, -1,
                            "divergence");
}

static lathe_status picked(void *ctx, int32_t which, lathe_val ids, double temperature,
                           int32_t only_picked, lathe_val *out)
{
    model *m = ctx;
    const lathe_op_attrs attrs = {.alpha = temperature, .beta = only_picked ? 1.0 : 0.0};
    lathe_desc d;
    if (!is_model(which))
        return lathe_error(LATHE_E_ARG, "log-probabilities of model %d at given tokens", which);
    note(m, which);
    LATHE_TRY(lathe_graph_api_get()->desc(m->g, ids, &d));
    if (m->plain)
        return lathe_graph_input(
            m->g, "picked", lathe_desc_2d(LATHE_F32, d.dims[0], d.dims[1] + !only_picked), out);
    LATHE_TRY(head_inputs(m, which));
    const lathe_val in[3] = {m->head[which][0], m->head[which][1], ids};
    return lathe_graph_node(m->g, LATHE_OP_HEAD_PICK, &attrs, in, 3, out, 1, -1, "picked");
}

/* The model of these checks has no embeddings: they are without noise, as an evaluation is. */
static lathe_status embedding_noise(void *ctx, double magnitude)
{
    const model *m = ctx;
    if (!(magnitude >= 0.0 && isfinite(magnitude)))
        return lathe_error(LATHE_E_ARG, "noise of magnitude %g in embeddings", magnitude);
    if (lathe__stage_model_reading(m) != LATHE_NONE ||
        m->hidden[LATHE_MODEL_POLICY] != LATHE_NONE || m->head[LATHE_MODEL_POLICY][0] != LATHE_NONE)
        return lathe_error(LATHE_E_ARG, "adds noise to embeddings after it has read the model");
    return LATHE_OK;
}

int32_t lathe__stage_model_heads(const model *m)
{
    return LATHE_HAS(m->table, heads) ? m->table->n_heads : 0;
}

/* Adds a head of the stage over the policy's hidden states. */
static lathe_status own_head(model *m, const lathe_stage_head *head, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_op_attrs f32 = {.dtype = LATHE_F32};
    const lathe_param row = {.name = head->name,
                             .desc = lathe_desc_2d(LATHE_F32, head->n_outputs, C),
                             .role = LATHE_ROLE_HEAD,
                             .layer = -1,
                             .trainable = 1,
                             .stage_head = LATHE_HEAD_NEW};
    int32_t index;
    lathe_val x, w;
    LATHE_TRY(hidden(m, LATHE_MODEL_POLICY, &x));
    LATHE_TRY(lathe_params_add(&m->params, &row, &index));
    LATHE_TRY(lathe_graph_param(m->g, index, &w));
    LATHE_TRY(api->node(m->g, LATHE_OP_CAST, &f32, &x, 1, &x, 1, -1, head->name));
    LATHE_TRY(api->linear(m->g, x, w, LATHE_NONE, head->name, out));
    return head->n_outputs > 1
               ? LATHE_OK
               : api->node(m->g, LATHE_OP_SUM_COLUMNS, NULL, out, 1, out, 1, -1, head->name);
}

static lathe_status stage_head(void *ctx, int32_t which, lathe_val *out)
{
    model *m = ctx;
    if (which < 0 || which >= lathe__stage_model_heads(m) || !((m->own >> which) & 1))
        return lathe_error(LATHE_E_ARG, "it asks for head %d, which it does not have", which);
    const lathe_stage_head *head = &m->table->heads[which];
    const int64_t n = (int64_t)m->n_rows * T;
    if (m->heads[which] == LATHE_NONE && m->plain)
        LATHE_TRY(lathe_graph_input(m->g, head->name,
                                    head->n_outputs > 1
                                        ? lathe_desc_2d(LATHE_F32, n, head->n_outputs)
                                        : lathe_desc_1d(LATHE_F32, n),
                                    &m->heads[which]));
    else if (m->heads[which] == LATHE_NONE)
        LATHE_TRY(own_head(m, head, &m->heads[which]));
    *out = m->heads[which];
    return LATHE_OK;
}

lathe_val lathe__stage_model_reading(const model *m)
{
    lathe_val out = m->logp[LATHE_MODEL_POLICY];
    for (int32_t i = 0; i < lathe__stage_model_heads(m) && out == LATHE_NONE; i++)
        out = m->heads[i];
    return out;
}

int64_t lathe__stage_model_input_size(const model *m, int32_t i)
{
    const lathe_stage_input *input = &m->table->inputs[i];
    return m->n_rows * (input->per == LATHE_PER_ROW ? 1 : T) *
           lathe_stage_input_count(m->table, i, m->n_stored);
}

/* Adds the inputs that the stage's table names. */
static lathe_status stage_inputs(model *m)
{
    m->n_inputs = LATHE_HAS(m->table, inputs) ? m->table->n_inputs : 0;
    for (int32_t i = 0; i < m->n_inputs; i++) {
        const lathe_stage_input *input = &m->table->inputs[i];
        const int64_t n = lathe__stage_model_input_size(m, i);
        const int64_t count = lathe_stage_input_count(m->table, i, m->n_stored);
        const int32_t dtype = lathe_stage_shape(m->table, i).dtype;
        const int is_matrix = count > 1 || input->source == LATHE_INPUT_STORED;
        m->inputs[i] = LATHE_NONE;
        if (count > 0)
            LATHE_TRY(lathe_graph_input(m->g, input->name,
                                        is_matrix ? lathe_desc_2d(dtype, n / count, count)
                                                  : lathe_desc_1d(dtype, n),
                                        &m->inputs[i]));
    }
    return LATHE_OK;
}

static lathe_status check_outputs(const model *m, const lathe_stage_loss *loss)
{
    lathe_desc d;
    if (loss->n_outputs < 0 || loss->n_outputs > LATHE_MAX_STAGE_OUTPUTS)
        return lathe_error(LATHE_E_PLUGIN, "%d outputs", loss->n_outputs);
    if (loss->n_outputs > 0 && !LATHE_HAS(m->table, iterate))
        return lathe_error(LATHE_E_PLUGIN, "gives outputs, and has no iterate() that reads them");
    for (int32_t i = 0; i < loss->n_outputs; i++) {
        if (loss->outputs[i] == LATHE_NONE)
            continue;
        LATHE_TRY(lathe_graph_api_get()->desc(m->g, loss->outputs[i], &d));
        if (d.dtype != LATHE_F32 || lathe_desc_count(&d) != (int64_t)m->n_rows * T)
            return lathe_error(LATHE_E_SHAPE, "output %d is not one f32 per token", i);
    }
    return LATHE_OK;
}

static lathe_status check_loss(const model *m, const lathe_stage_loss *loss)
{
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(m->table));
    lathe_desc d;
    LATHE_TRY(lathe_graph_api_get()->desc(m->g, loss->sum, &d));
    if (d.dtype != LATHE_F32 || lathe_desc_count(&d) != 1)
        return lathe_error(LATHE_E_SHAPE, "the loss is no f32 scalar");
    if (loss->count_unit < LATHE_COUNT_TOKENS || loss->count_unit > LATHE_COUNT_EXAMPLES)
        return lathe_error(LATHE_E_PLUGIN, "count_unit is %d", loss->count_unit);
    if (loss->count_unit == LATHE_COUNT_PAIRS && m->table->rows != LATHE_ROWS_PAIRS)
        return lathe_error(LATHE_E_PLUGIN, "counts pairs, but its rows are no pairs");
    if (loss->count_unit == LATHE_COUNT_EXAMPLES && !shape->compares)
        return lathe_error(LATHE_E_PLUGIN,
                           "counts examples, but its rows are neither unpaired nor groups");
    if (loss->size != sizeof *loss)
        return lathe_error(LATHE_E_PLUGIN, "it changed the size of the loss it was given to %u",
                           loss->size);
    if (loss->n_metrics < 0 || loss->n_metrics > LATHE_MAX_STAGE_METRICS)
        return lathe_error(LATHE_E_PLUGIN, "%d metrics", loss->n_metrics);
    for (int32_t i = 0; i < loss->n_metrics; i++) {
        const lathe_stage_metric *x = &loss->metrics[i];
        LATHE_TRY(lathe_graph_api_get()->desc(m->g, x->sum, &d));
        if ((x->name ? x->name[0] == '\0' : !lathe_stage_metric_divides(loss, i)) ||
            lathe_desc_count(&d) != 1 || d.dtype != LATHE_F32)
            return lathe_error(LATHE_E_PLUGIN, "metric %d has no name or is no f32 scalar", i);
        if (x->over < 0 || x->over > loss->n_metrics)
            return lathe_error(LATHE_E_PLUGIN, "metric %d is divided by metric %d", i, x->over);
        for (int32_t k = 0; k < i; k++)
            if (x->name && loss->metrics[k].name && strcmp(x->name, loss->metrics[k].name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two metrics are called %s", x->name);
    }
    LATHE_TRY(check_outputs(m, loss));
    if (m->asked & ~m->table->needs & LATHE_NEEDS_REFERENCE)
        return lathe_error(LATHE_E_PLUGIN, "asks for the reference without needing it");
    if (m->asked & ~m->table->needs & LATHE_NEEDS_TEACHER)
        return lathe_error(LATHE_E_PLUGIN, "asks for the teacher without needing it");
    if (lathe__stage_model_reading(m) == LATHE_NONE &&
        m->hidden[LATHE_MODEL_POLICY] == LATHE_NONE && m->head[LATHE_MODEL_POLICY][0] == LATHE_NONE)
        return lathe_error(LATHE_E_PLUGIN, "the loss does not read the model");
    return LATHE_OK;
}

/* Gets the loss of n_rows rows from the stage. The memory after *loss is guarded. */
lathe_status lathe__stage_model_ask(model *m, void *self, lathe_stage_loss *loss)
{
    m->record_mask = m->target_mask = m->last_mask = LATHE_NONE;
    for (int which = 0; which <= LATHE_MODEL_TEACHER; which++) {
        m->entropy[which] = m->head[which][0] = m->hidden[which] = LATHE_NONE;
        m->divergence[which] = m->logp[which] = LATHE_NONE;
    }
    for (int which = 0; which < LATHE_MAX_STAGE_HEADS; which++)
        m->heads[which] = LATHE_NONE;
    m->own = LATHE_HAS(m->table, heads_of) ? m->table->heads_of(self) : UINT32_MAX;
    LATHE_TRY(stage_inputs(m));
    const lathe_row_shape *shape = lathe_row_shape_get(lathe_rows_of(m->table));
    if (shape->compares)
        LATHE_TRY(lathe_graph_input(m->g, "record_mask",
                                    lathe_desc_1d(LATHE_F32, m->n_rows / shape->n_rows),
                                    &m->record_mask));
    const lathe_stage_build given = {.size = sizeof given,
                                     .n_rows = m->n_rows,
                                     .row_tokens = T,
                                     .api = lathe_graph_api_get(),
                                     .graph = m->g,
                                     .logprobs = logprobs,
                                     .ctx = m,
                                     .record_mask = m->record_mask,
                                     .n_inputs = m->n_inputs,
                                     .inputs = m->inputs,
                                     .entropy = entropy,
                                     .target_mask = target_mask,
                                     .head = stage_head,
                                     .last_mask = last_mask,
                                     .hidden = hidden,
                                     .divergence = divergence,
                                     .width = C,
                                     .embedding_noise = embedding_noise,
                                     .picked = picked,
                                     .n_stored = m->n_stored,
                                     .stored_temperature = m->n_stored > 0 ? 1.0 : 0.0};
    *loss = (lathe_stage_loss){.size = sizeof *loss, .sum = LATHE_NONE};
    LATHE_TRY(m->table->loss(self, &given, loss));
    return check_loss(m, loss);
}
