/* Reward model: a score of the whole sequence, learnt from pairs of completions.
 *
 * r_w, r_l: score of the chosen and of the rejected completion with its prompt, the output of the
 * head at the last token. s: the logistic function. A pair adds
 *
 *   -log s(r_w - r_l - m) + c (r_w + r_l)^2
 *
 * with its margin m and c = center_rewards_coefficient.
 *
 * The first part is the Bradley-Terry model's negative log-likelihood (arXiv:1909.08593, eq. 1)
 * with a margin (arXiv:2307.09288, eq. 2); the second keeps the mean of the rewards near 0
 * (arXiv:2312.09244, eq. 2).
 */
#include "lathe/plugin.h"
#include "lathe/stage.h"

typedef struct rm {
    const lathe_host *host;
    double centre;
} rm;

enum { FIELD_CENTRE, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"center_rewards_coefficient", LATHE_T_FLOAT, 0, "0.0", 0.0, 1e6, NULL, "1",
     "factor of (r_w + r_l)^2, which keeps the mean reward near 0; 0.01 is usual"},
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "what both completions answer; unset: their common beginning"},
    {"chosen", 1, 0, "the preferred completion"},
    {"rejected", 1, 0, "the other completion"},
};

enum { INPUT_MARGIN, N_INPUTS };

static const lathe_stage_input inputs[N_INPUTS] = {
    {.name = "margin",
     .per = LATHE_PER_ROW,
     .source = LATHE_INPUT_COLUMN,
     .doc = "by how much the reward of the chosen completion should be higher; unset: 0"},
};

static const lathe_stage_head heads[] = {{"score", 1, 0, "reward of the sequence"}};

static lathe_status rm_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                              void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    rm *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (rm){.host = host, .centre = values[FIELD_CENTRE].f};
    *out_self = self;
    return LATHE_OK;
}

static void rm_destroy(void *self)
{
    if (self != NULL)
        ((rm *)self)->host->free(self);
}

/* ---- the graph ---- */

typedef struct rewards {
    const lathe_stage_build *build;
    int64_t n;                  /* P: pairs */
    lathe_val all;              /* f32[2P] */
    lathe_val chosen, rejected; /* f32[P] */
    lathe_val difference;       /* f32[P]: chosen - rejected */
} rewards;

static lathe_status node(const rewards *r, int32_t op, const lathe_op_attrs *attrs, lathe_val a,
                         lathe_val b, const char *label, lathe_val *out)
{
    const lathe_val in[2] = {a, b};
    return r->build->api->node(r->build->graph, op, attrs, in, b == LATHE_NONE ? 1 : 2, out, 1, -1,
                               label);
}

static lathe_status scale(const rewards *r, double alpha, double beta, lathe_val x,
                          const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = alpha, .beta = beta};
    return node(r, LATHE_OP_SCALE, &attrs, x, LATHE_NONE, label, out);
}

/* The sum over the pairs of the batch, without padding. */
static lathe_status masked_sum(const rewards *r, lathe_val x, const char *label, lathe_val *out)
{
    LATHE_TRY(node(r, LATHE_OP_MUL, NULL, x, r->build->record_mask, label, &x));
    return node(r, LATHE_OP_SUM, NULL, x, LATHE_NONE, label, out);
}

/* The score of each row: the head's output at its last token. */
static lathe_status build_rewards(rewards *r)
{
    const lathe_stage_build *build = r->build;
    const lathe_op_attrs row = {.count = build->row_tokens};
    const lathe_op_attrs first = {.start = 0, .count = r->n},
                         second = {.start = r->n, .count = r->n};
    lathe_val score, last;
    LATHE_TRY(build->head(build->ctx, 0, &score));
    LATHE_TRY(build->last_mask(build->ctx, &last));
    LATHE_TRY(node(r, LATHE_OP_MUL, NULL, score, last, "rm.last", &score));
    LATHE_TRY(node(r, LATHE_OP_ROW_SUM, &row, score, LATHE_NONE, "rm.rewards", &r->all));
    LATHE_TRY(node(r, LATHE_OP_SLICE, &first, r->all, LATHE_NONE, "rm.chosen", &r->chosen));
    LATHE_TRY(node(r, LATHE_OP_SLICE, &second, r->all, LATHE_NONE, "rm.rejected", &r->rejected));
    return node(r, LATHE_OP_SUB, NULL, r->chosen, r->rejected, "rm.difference", &r->difference);
}

/* -log s(d - m) + c (r_w + r_l)^2 of each pair */
static lathe_status build_losses(const rm *self, const rewards *r, lathe_val *out)
{
    const lathe_op_attrs first = {.start = 0, .count = r->n};
    lathe_val square, margin = r->build->inputs[INPUT_MARGIN]; /* the same in both rows of a pair */
    LATHE_TRY(node(r, LATHE_OP_SLICE, &first, margin, LATHE_NONE, "rm.margin", &margin));
    LATHE_TRY(node(r, LATHE_OP_SUB, NULL, r->difference, margin, "rm.beyond_margin", out));
    LATHE_TRY(node(r, LATHE_OP_LOGSIGMOID, NULL, *out, LATHE_NONE, "rm.log", out));
    LATHE_TRY(scale(r, -1.0, 0.0, *out, "rm.loss", out));
    if (self->centre == 0.0)
        return LATHE_OK;
    LATHE_TRY(node(r, LATHE_OP_ADD, NULL, r->chosen, r->rejected, "rm.both", &square));
    LATHE_TRY(node(r, LATHE_OP_MUL, NULL, square, square, "rm.square", &square));
    LATHE_TRY(scale(r, self->centre, 0.0, square, "rm.centre", &square));
    return node(r, LATHE_OP_ADD, NULL, *out, square, "rm.centred", out);
}

/* ---- metrics ---- */

static lathe_status add_metric(const rewards *r, const char *name, lathe_val x,
                               lathe_stage_loss *out)
{
    out->metrics[out->n_metrics] = (lathe_stage_metric){.name = name};
    return masked_sum(r, x, name, &out->metrics[out->n_metrics++].sum);
}

/* The largest (sign 1) or smallest (sign -1) reward of the micro-batch, times its number of
 * pairs. */
static lathe_status add_extreme(const rewards *r, const char *name, double sign,
                                lathe_stage_loss *out)
{
    const lathe_graph_api *api = r->build->api;
    lathe_graph *g = r->build->graph;
    const lathe_op_attrs one = {.count = 1, .dtype = LATHE_F32};
    lathe_val half[2], top[2], pairs, largest = LATHE_NONE;
    lathe_stage_metric *metric = &out->metrics[out->n_metrics++];
    half[0] = r->chosen;
    half[1] = r->rejected;
    metric->name = name;
    for (int i = 0; i < 2; i++) {
        lathe_val low, x[3] = {r->build->record_mask, half[i], LATHE_NONE};
        LATHE_TRY(scale(r, sign, 0.0, x[1], name, &x[1]));
        LATHE_TRY(scale(r, 0.0, -3e38, x[1], name, &low));
        x[2] = low; /* for a padding pair */
        LATHE_TRY(api->node(g, LATHE_OP_WHERE, NULL, x, 3, &x[0], 1, -1, name));
        LATHE_TRY(node(r, LATHE_OP_BROADCAST_ROW, &one, x[0], LATHE_NONE, name, &x[0]));
        LATHE_TRY(api->node(g, LATHE_OP_TOPK, &one, x, 1, top, 2, -1, name));
        LATHE_TRY(node(r, LATHE_OP_SUM, NULL, top[0], LATHE_NONE, name, &half[i]));
    }
    LATHE_TRY(node(r, LATHE_OP_MAX, NULL, half[0], half[1], name, &largest));
    LATHE_TRY(node(r, LATHE_OP_SUM, NULL, r->build->record_mask, LATHE_NONE, name, &pairs));
    LATHE_TRY(node(r, LATHE_OP_MUL, NULL, largest, pairs, name, &largest));
    return scale(r, sign, 0.0, largest, name, &metric->sum);
}

static lathe_status build_metrics(const rewards *r, lathe_stage_loss *out)
{
    const lathe_op_attrs half = {.alpha = 0.5, .beta = 0.5};
    lathe_val correct, mean;
    out->n_metrics = 0;
    LATHE_TRY(node(r, LATHE_OP_LESS, NULL, r->rejected, r->chosen, "rm.correct", &correct));
    LATHE_TRY(node(r, LATHE_OP_LINCOMB, &half, r->chosen, r->rejected, "rm.mean", &mean));
    LATHE_TRY(add_metric(r, "accuracy", correct, out));
    LATHE_TRY(add_metric(r, "margin", r->difference, out));
    LATHE_TRY(add_metric(r, "mean_reward", mean, out));
    LATHE_TRY(add_extreme(r, "min_reward", -1.0, out));
    return add_extreme(r, "max_reward", 1.0, out);
}

static lathe_status rm_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const rm *m = self;
    rewards r = {.build = build, .n = build->n_rows / 2};
    lathe_val losses;
    if (build->n_rows < 2 || build->n_rows % 2 != 0)
        return lathe_fail(m->host, LATHE_E_SHAPE,
                          "rm: a micro-batch of %d rows; expected chosen and rejected rows in "
                          "equal number",
                          build->n_rows);
    LATHE_TRY(build_rewards(&r));
    LATHE_TRY(build_losses(m, &r, &losses));
    LATHE_TRY(masked_sum(&r, losses, "rm.sum", &out->sum));
    out->count_unit = LATHE_COUNT_PAIRS;
    return build_metrics(&r, out);
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PAIRS,
    .loss = rm_loss,
    .inputs = inputs,
    .n_inputs = N_INPUTS,
    .heads = heads,
    .n_heads = sizeof heads / sizeof *heads,
    .headline = "accuracy",
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "rm",
    .version = "1.0.0",
    .summary = "reward model: a score learnt from chosen and rejected completions",
    .source = "arXiv:1909.08593",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = rm_create,
    .destroy = rm_destroy,
};
