/* Direct preference optimization: a preference loss on pairs of completions.
 *
 * r_w and r_l are the policy's log-probabilities of the chosen and the rejected completion minus
 * the reference's; d = r_w - r_l (arXiv:2305.18290, eq. 7). Each pair adds
 *
 *   sigmoid   -(1-e) log s(b d) - e log s(-b d)                 e = label_smoothing (cDPO; 0: DPO)
 *   robust    (-(1-e) log s(b d) + e log s(-b d)) / (1-2e)      arXiv:2403.00409
 *   hinge     max(0, 1 - b d)                                   arXiv:2305.10425
 *   nca_pair  -log s(b r_w) - log s(-b r_w)/2 - log s(-b r_l)/2 arXiv:2402.05369
 *
 * where s is the sigmoid and b is beta. Rewards are b r_w and b r_l, as TRL reports them.
 */
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

enum { LOSS_SIGMOID, LOSS_ROBUST, LOSS_HINGE, LOSS_NCA_PAIR };

typedef struct dpo {
    const lathe_host *host;
    double beta, label_smoothing;
    int loss_type;
} dpo;

enum { FIELD_BETA, FIELD_LABEL_SMOOTHING, FIELD_LOSS_TYPE, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.1", 0.0, 1e6, NULL, "1",
     "beta of DPO: a larger one keeps the policy closer to the reference model"},
    {"label_smoothing", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.0", 0.0, 0.5, NULL, "1",
     "probability that a pair's labels are swapped (sigmoid, robust)"},
    LATHE_FIELD_STRING("loss_type", "\"sigmoid\"", "sigmoid|robust|hinge|nca_pair",
                       "loss function of the margin"),
};

static const lathe_column columns[] = {
    {"prompt", 1, 0, "what both completions answer"},
    {"chosen", 1, 0, "the preferred completion"},
    {"rejected", 1, 0, "the other completion"},
};

/* The values from which losses and metrics are computed. */
typedef struct pairs {
    const lathe_graph_api *api;
    lathe_graph *g;
    lathe_val policy_chosen, policy_rejected; /* f32[P]: summed log-probabilities */
    lathe_val ratio_chosen, ratio_rejected;   /* f32[P]: r_w, r_l */
    lathe_val margin;                         /* f32[P]: b d */
    lathe_val mask;                           /* f32[P]: 1, or 0 for a padding pair */
} pairs;

static lathe_status dpo_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    static const char *const names[] = {"sigmoid", "robust", "hinge", "nca_pair"};
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "dpo: got %d values, expected %d", n_values, N_FIELDS);
    const double smoothing = values[FIELD_LABEL_SMOOTHING].f;
    const char *name = values[FIELD_LOSS_TYPE].s;
    int type = 0;
    while (type < 4 && strcmp(names[type], name) != 0)
        type++;
    if (type == 4)
        return lathe_fail(host, LATHE_E_CONFIG, "dpo: no loss_type \"%s\"", name);
    if (smoothing != 0.0 && type != LOSS_SIGMOID && type != LOSS_ROBUST)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "dpo: label_smoothing = %g has no meaning for loss_type \"%s\"; leave it "
                          "out, or use sigmoid or robust",
                          smoothing, name);
    dpo *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "dpo: no memory for the instance");
    self->host = host;
    self->beta = values[FIELD_BETA].f;
    self->label_smoothing = smoothing;
    self->loss_type = type;
    *out_self = self;
    return LATHE_OK;
}

static void dpo_destroy(void *self)
{
    if (self != NULL)
        ((dpo *)self)->host->free(self);
}

/* ---- helpers that add one node ---- */

static lathe_status unary(const pairs *p, int32_t op, lathe_val x, const char *label,
                          lathe_val *out)
{
    return p->api->node(p->g, op, NULL, &x, 1, out, 1, -1, label);
}

static lathe_status binary(const pairs *p, int32_t op, lathe_val a, lathe_val b, const char *label,
                           lathe_val *out)
{
    const lathe_val in[2] = {a, b};
    return p->api->node(p->g, op, NULL, in, 2, out, 1, -1, label);
}

/* alpha*x + beta */
static lathe_status affine(const pairs *p, double alpha, double beta, lathe_val x,
                           const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = alpha, .beta = beta};
    return p->api->node(p->g, LATHE_OP_SCALE, &attrs, &x, 1, out, 1, -1, label);
}

static lathe_status rows(const pairs *p, int64_t start, int64_t count, lathe_val x,
                         const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.start = start, .count = count};
    return p->api->node(p->g, LATHE_OP_SLICE, &attrs, &x, 1, out, 1, -1, label);
}

/* alpha * log sigmoid(sign * x) */
static lathe_status log_sigmoid(const pairs *p, double alpha, double sign, lathe_val x,
                                lathe_val *out)
{
    lathe_val y = x;
    if (sign != 1.0)
        LATHE_TRY(affine(p, sign, 0.0, y, "dpo.negated", &y));
    LATHE_TRY(unary(p, LATHE_OP_LOGSIGMOID, y, "dpo.logsigmoid", &y));
    return affine(p, alpha, 0.0, y, "dpo.term", out);
}

/* The sum over the pairs of the batch, without padding. */
static lathe_status masked_sum(const pairs *p, lathe_val x, const char *label, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(binary(p, LATHE_OP_MUL, x, p->mask, label, &y));
    return unary(p, LATHE_OP_SUM, y, label, out);
}

/* 1 where x > 0, else 0: a sigmoid of a huge multiple of x, which is exactly 0 or 1 for |x| >
 * 1e-26, and 0 at x = 0. It has no derivative: the factor at both ends is exactly 0. */
static lathe_status is_positive(const pairs *p, lathe_val x, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(affine(p, 1e30, -1000.0, x, "dpo.steep", &y));
    return unary(p, LATHE_OP_SIGMOID, y, "dpo.is_positive", out);
}

/* ---- the graph ---- */

static lathe_status build_pairs(const dpo *self, const lathe_stage_build *build, pairs *p)
{
    const int64_t n = build->n_rows / 2;
    const lathe_op_attrs per_row = {.count = build->row_tokens};
    lathe_val policy, reference, ratio;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &policy));
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &reference));
    LATHE_TRY(p->api->detach(p->g, reference, &reference));
    LATHE_TRY(p->api->node(p->g, LATHE_OP_ROW_SUM, &per_row, &policy, 1, &policy, 1, -1,
                           "dpo.policy_logps"));
    LATHE_TRY(p->api->node(p->g, LATHE_OP_ROW_SUM, &per_row, &reference, 1, &reference, 1, -1,
                           "dpo.reference_logps"));
    LATHE_TRY(binary(p, LATHE_OP_SUB, policy, reference, "dpo.logratios", &ratio));
    LATHE_TRY(rows(p, 0, n, policy, "dpo.policy_chosen", &p->policy_chosen));
    LATHE_TRY(rows(p, n, n, policy, "dpo.policy_rejected", &p->policy_rejected));
    LATHE_TRY(rows(p, 0, n, ratio, "dpo.ratio_chosen", &p->ratio_chosen));
    LATHE_TRY(rows(p, n, n, ratio, "dpo.ratio_rejected", &p->ratio_rejected));
    LATHE_TRY(binary(p, LATHE_OP_SUB, p->ratio_chosen, p->ratio_rejected, "dpo.delta", &p->margin));
    return affine(p, self->beta, 0.0, p->margin, "dpo.margin", &p->margin);
}

static lathe_status build_log_loss(const dpo *self, const pairs *p, lathe_val *out)
{
    const double e = self->label_smoothing;
    const int robust = self->loss_type == LOSS_ROBUST;
    const double whole = robust ? 1.0 - 2.0 * e : 1.0;
    lathe_val kept, swapped;
    LATHE_TRY(log_sigmoid(p, -(1.0 - e) / whole, 1.0, p->margin, &kept));
    *out = kept;
    if (e == 0.0)
        return LATHE_OK;
    LATHE_TRY(log_sigmoid(p, (robust ? e : -e) / whole, -1.0, p->margin, &swapped));
    return binary(p, LATHE_OP_ADD, kept, swapped, "dpo.losses", out);
}

static lathe_status build_hinge(const pairs *p, lathe_val *out)
{
    lathe_val gap, on;
    LATHE_TRY(affine(p, -1.0, 1.0, p->margin, "dpo.gap", &gap));
    LATHE_TRY(is_positive(p, gap, &on));
    LATHE_TRY(p->api->detach(p->g, on, &on));
    return binary(p, LATHE_OP_MUL, gap, on, "dpo.losses", out);
}

static lathe_status build_nca_pair(const dpo *self, const pairs *p, lathe_val *out)
{
    lathe_val up, down, other;
    LATHE_TRY(log_sigmoid(p, -1.0, self->beta, p->ratio_chosen, &up));
    LATHE_TRY(log_sigmoid(p, -0.5, -self->beta, p->ratio_chosen, &down));
    LATHE_TRY(log_sigmoid(p, -0.5, -self->beta, p->ratio_rejected, &other));
    LATHE_TRY(binary(p, LATHE_OP_ADD, up, down, "dpo.chosen", &up));
    return binary(p, LATHE_OP_ADD, up, other, "dpo.losses", out);
}

static lathe_status add_metric(const pairs *p, const char *name, double factor, lathe_val x,
                               lathe_stage_loss *out)
{
    lathe_stage_metric *metric = &out->metrics[out->n_metrics++];
    metric->name = name;
    LATHE_TRY(masked_sum(p, x, name, &metric->sum));
    return factor == 1.0 ? LATHE_OK : affine(p, factor, 0.0, metric->sum, name, &metric->sum);
}

static lathe_status build_metrics(const dpo *self, const pairs *p, lathe_stage_loss *out)
{
    lathe_val correct;
    out->n_metrics = 0;
    LATHE_TRY(is_positive(p, p->margin, &correct));
    LATHE_TRY(add_metric(p, "rewards/chosen", self->beta, p->ratio_chosen, out));
    LATHE_TRY(add_metric(p, "rewards/rejected", self->beta, p->ratio_rejected, out));
    LATHE_TRY(add_metric(p, "rewards/margins", 1.0, p->margin, out));
    LATHE_TRY(add_metric(p, "rewards/accuracies", 1.0, correct, out));
    LATHE_TRY(add_metric(p, "logps/chosen", 1.0, p->policy_chosen, out));
    return add_metric(p, "logps/rejected", 1.0, p->policy_rejected, out);
}

static lathe_status dpo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const dpo *d = self;
    pairs p = {.api = build->api, .g = build->graph, .mask = build->pair_mask};
    lathe_val losses;
    if (build->n_rows < 2 || build->n_rows % 2 != 0)
        return lathe_fail(
            d->host, LATHE_E_SHAPE,
            "dpo: a micro-batch of %d rows; expected chosen and rejected rows in equal "
            "number",
            build->n_rows);
    LATHE_TRY(build_pairs(d, build, &p));
    if (d->loss_type == LOSS_HINGE)
        LATHE_TRY(build_hinge(&p, &losses));
    else if (d->loss_type == LOSS_NCA_PAIR)
        LATHE_TRY(build_nca_pair(d, &p, &losses));
    else
        LATHE_TRY(build_log_loss(d, &p, &losses));
    LATHE_TRY(masked_sum(&p, losses, "dpo.loss", &out->sum));
    out->count_unit = LATHE_COUNT_PAIRS;
    return build_metrics(d, &p, out);
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PAIRS,
    .needs = LATHE_NEEDS_REFERENCE,
    .loss = dpo_loss,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "dpo",
    .version = "1.0.0",
    .summary = "direct preference optimization on chosen and rejected completions",
    .source = "arXiv:2305.18290",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = dpo_create,
    .destroy = dpo_destroy,
};
