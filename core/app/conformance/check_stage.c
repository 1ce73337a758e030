/* Checks of training stages: their data, and a loss that a graph can be derived from. */
#include <string.h>

#include "app/conformance/tiny_graph.h"
#include "base/error.h"
#include "lathe/stage.h"

enum { C = 16, V = 40, T = 8 };

/* A model that is a head over an input: enough to have log-probabilities with a derivative. */
typedef struct model {
    const lathe_stage_v1 *table;
    lathe_params params;
    lathe_graph *g;
    int32_t n_rows, asked_reference;
    lathe_val logp[2]; /* policy, reference */
} model;

static model *current; /* logprobs() has no argument of its own; one check at a time */

static lathe_status head(model *m, int32_t which, lathe_val *out)
{
    static const char *const names[] = {"lm_head.weight", "reference.lm_head.weight"};
    const lathe_param row = {.name = names[which],
                             .desc = lathe_desc_2d(LATHE_F32, V, C),
                             .role = LATHE_ROLE_HEAD,
                             .layer = -1,
                             .trainable = which == LATHE_MODEL_POLICY,
                             .reference = which == LATHE_MODEL_REFERENCE};
    const int64_t n = (int64_t)m->n_rows * T;
    lathe_val in[3];
    int32_t index;
    LATHE_TRY(lathe_params_add(&m->params, &row, &index));
    LATHE_TRY(lathe_graph_input(m->g, which ? "x_reference" : "x", lathe_desc_2d(LATHE_BF16, n, C),
                                &in[0]));
    LATHE_TRY(lathe_graph_param(m->g, index, &in[1]));
    LATHE_TRY(lathe_graph_input(m->g, which ? "targets_reference" : "targets",
                                lathe_desc_1d(LATHE_I32, n), &in[2]));
    LATHE_TRY(lathe_graph_node(m->g, LATHE_OP_HEAD_LOGPROB, NULL, in, 3, out, 1, -1, "head"));
    return which == LATHE_MODEL_REFERENCE ? lathe_graph_api_get()->detach(m->g, *out, out)
                                          : LATHE_OK;
}

static lathe_status logprobs(lathe_graph *g, int32_t which, lathe_val *out)
{
    model *m = current;
    if (g != m->g || (which != LATHE_MODEL_POLICY && which != LATHE_MODEL_REFERENCE))
        return lathe_error(LATHE_E_ARG, "logprobs of model %d", which);
    m->asked_reference |= which == LATHE_MODEL_REFERENCE;
    if (m->logp[which] == LATHE_NONE)
        LATHE_TRY(head(m, which, &m->logp[which]));
    *out = m->logp[which];
    return LATHE_OK;
}

static lathe_status check_loss(const model *m, const lathe_stage_loss *loss)
{
    lathe_desc d;
    LATHE_TRY(lathe_graph_api_get()->desc(m->g, loss->sum, &d));
    if (d.dtype != LATHE_F32 || lathe_desc_count(&d) != 1)
        return lathe_error(LATHE_E_SHAPE, "the loss is no f32 scalar");
    if (loss->count_unit != LATHE_COUNT_TOKENS && loss->count_unit != LATHE_COUNT_PAIRS)
        return lathe_error(LATHE_E_PLUGIN, "count_unit is %d", loss->count_unit);
    if (loss->count_unit == LATHE_COUNT_PAIRS && m->table->rows != LATHE_ROWS_PAIRS)
        return lathe_error(LATHE_E_PLUGIN, "counts pairs, but its rows are no pairs");
    if (loss->n_metrics < 0 || loss->n_metrics > LATHE_MAX_STAGE_METRICS)
        return lathe_error(LATHE_E_PLUGIN, "%d metrics", loss->n_metrics);
    for (int32_t i = 0; i < loss->n_metrics; i++) {
        const lathe_stage_metric *x = &loss->metrics[i];
        LATHE_TRY(lathe_graph_api_get()->desc(m->g, x->sum, &d));
        if (x->name == NULL || x->name[0] == '\0' || lathe_desc_count(&d) != 1 ||
            d.dtype != LATHE_F32)
            return lathe_error(LATHE_E_PLUGIN, "metric %d has no name or is no f32 scalar", i);
        for (int32_t k = 0; k < i; k++)
            if (strcmp(x->name, loss->metrics[k].name) == 0)
                return lathe_error(LATHE_E_PLUGIN, "two metrics are called %s", x->name);
    }
    if (m->asked_reference && !(m->table->needs & LATHE_NEEDS_REFERENCE))
        return lathe_error(LATHE_E_PLUGIN, "asks for the reference without needing it");
    if (m->logp[LATHE_MODEL_POLICY] == LATHE_NONE)
        return lathe_error(LATHE_E_PLUGIN, "the loss does not read the model");
    return LATHE_OK;
}

/* Loss, derivative, plan with n_rows rows. */
static lathe_status build(lathe__subject *s, int32_t n_rows, int32_t *out_metrics,
                          lathe_buffer *text)
{
    lathe_instance instance;
    LATHE_TRY(lathe__instance(s, &instance));
    model m = {.table = s->table, .n_rows = n_rows, .logp = {LATHE_NONE, LATHE_NONE}};
    lathe_stage_loss loss = {.size = sizeof loss, .sum = LATHE_NONE};
    lathe_params_init(&m.params, LATHE_BF16);
    lathe_status status = lathe_graph_create(&m.params, &m.g);
    current = &m;
    lathe_val pair_mask = LATHE_NONE;
    if (status == LATHE_OK && m.table->rows == LATHE_ROWS_PAIRS)
        status =
            lathe_graph_input(m.g, "pair_mask", lathe_desc_1d(LATHE_F32, n_rows / 2), &pair_mask);
    const lathe_stage_build given = {.size = sizeof given,
                                     .n_rows = n_rows,
                                     .row_tokens = T,
                                     .api = lathe_graph_api_get(),
                                     .graph = m.g,
                                     .logprobs = logprobs,
                                     .pair_mask = pair_mask};
    if (status == LATHE_OK)
        status = m.table->loss(instance.self, &given, &loss);
    if (status == LATHE_OK)
        status = check_loss(&m, &loss);
    if (status == LATHE_OK)
        for (int32_t i = 0; i < loss.n_metrics; i++)
            lathe_graph_output(m.g, loss.metrics[i].sum);
    if (status == LATHE_OK)
        status = lathe__train_graph(s, m.g, loss.sum, text);
    *out_metrics = loss.n_metrics;
    current = NULL;
    lathe_graph_destroy(m.g);
    lathe_params_fini(&m.params);
    lathe_instance_fini(&instance);
    return status;
}

static lathe_status declares_its_data(lathe__subject *s)
{
    const lathe_stage_v1 *t = s->table;
    int32_t required = 0;
    if (t->columns == NULL || t->n_columns < 1)
        return lathe_error(LATHE_E_PLUGIN, "it names no column of its dataset");
    for (int32_t i = 0; i < t->n_columns; i++) {
        if (t->columns[i].name == NULL || t->columns[i].name[0] == '\0' ||
            t->columns[i].doc == NULL)
            return lathe_error(LATHE_E_PLUGIN, "column %d has no name or no doc", i);
        required += t->columns[i].required;
    }
    if (required == 0)
        return lathe_error(LATHE_E_PLUGIN, "no column is required");
    if (t->rows != LATHE_ROWS_PACKED && t->rows != LATHE_ROWS_PAIRS)
        return lathe_error(LATHE_E_PLUGIN, "rows is %d", t->rows);
    if (t->needs & ~(uint32_t)LATHE_NEEDS_REFERENCE)
        return lathe_error(LATHE_E_PLUGIN, "needs has unknown bits: 0x%x", t->needs);
    return LATHE_OK;
}

static lathe_status loss_trains(lathe__subject *s)
{
    static const int32_t rows[] = {2, 4, 8};
    int32_t metrics = 0;
    for (int i = 0; i < 3; i++) {
        lathe_buffer text = LATHE_BUFFER_INIT;
        const lathe_status status = build(s, rows[i], &metrics, &text);
        lathe_buffer_fini(&text);
        LATHE_TRY(status);
    }
    lathe__note(s, "%d metrics beside the loss", metrics);
    return LATHE_OK;
}

static lathe_status builds_the_same_again(lathe__subject *s)
{
    lathe_buffer text[2] = {LATHE_BUFFER_INIT, LATHE_BUFFER_INIT};
    int32_t metrics;
    lathe_status status = build(s, 4, &metrics, &text[0]);
    if (status == LATHE_OK)
        status = build(s, 4, &metrics, &text[1]);
    if (status == LATHE_OK && strcmp(text[0].data, text[1].data) != 0)
        status = lathe_error(LATHE_E_PLUGIN, "it builds another graph the second time");
    lathe_buffer_fini(&text[0]);
    lathe_buffer_fini(&text[1]);
    return status;
}

const lathe__check *lathe__checks_stage(void)
{
    static const lathe__check checks[] = {
        {"declares_its_data", declares_its_data, 0},
        {"loss_trains", loss_trains, 0},
        {"builds_the_same_again", builds_the_same_again, 0},
        {NULL, NULL, 0},
    };
    return checks;
}
