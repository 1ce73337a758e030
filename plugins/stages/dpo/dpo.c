/* Direct preference optimization: a preference loss on pairs of completions (losses.h), and the
 * rewards b r_w and b r_l as TRL reports them.
 */
#include <string.h>

#include "losses.h"

#include "lathe/plugin.h"

typedef struct dpo {
    const lathe_host *host;
    dpo_settings settings;
    const dpo_loss_type *loss;
} dpo;

enum { FIELD_BETA, FIELD_LABEL_SMOOTHING, FIELD_LOSS_TYPE, FIELD_DISCOPOP_TAU, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.1", 0.0, 1e6, NULL, "1",
     "beta of DPO: a larger one keeps the policy closer to the reference model"},
    {"label_smoothing", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.0", 0.0, 0.5, NULL, "1",
     "probability that a pair's labels are swapped (sigmoid, robust, exo_pair)"},
    LATHE_FIELD_STRING("loss_type", "\"sigmoid\"", DPO_LOSS_NAMES, "loss of a pair"),
    {"discopop_tau", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.05", 0.0, 1e6, NULL, "1",
     "temperature at which discopop mixes its two losses"},
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "what both completions answer; unset: their common beginning"},
    {"chosen", 1, 0, "the preferred completion"},
    {"rejected", 1, 0, "the other completion"},
};

/* Refuses settings without an effect, and one that is missing. */
static lathe_status check_values(const lathe_host *host, const dpo_loss_type *loss,
                                 double smoothing, const lathe_value *tau)
{
    if (smoothing != 0.0 && loss->smoothing == DPO_SMOOTHING_UNUSED)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "dpo: label_smoothing = %g has no meaning for loss_type \"%s\"; leave it "
                          "out, or use sigmoid, robust or exo_pair",
                          smoothing, loss->name);
    if (smoothing == 0.0 && loss->smoothing == DPO_SMOOTHING_REQUIRED)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "dpo: loss_type \"%s\" needs label_smoothing above 0, such as 1e-3: its "
                          "logarithm is part of the loss",
                          loss->name);
    if (tau->is_explicit && strcmp(loss->name, "discopop") != 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "dpo: discopop_tau has no meaning for loss_type \"%s\"; leave it out",
                          loss->name);
    return LATHE_OK;
}

static lathe_status dpo_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "dpo: got %d values, expected %d", n_values, N_FIELDS);
    const char *name = values[FIELD_LOSS_TYPE].s;
    int32_t type = 0;
    while (type < dpo_n_losses && strcmp(dpo_losses[type].name, name) != 0)
        type++;
    if (type == dpo_n_losses)
        return lathe_fail(host, LATHE_E_CONFIG, "dpo: no loss_type \"%s\"", name);
    LATHE_TRY(check_values(host, &dpo_losses[type], values[FIELD_LABEL_SMOOTHING].f,
                           &values[FIELD_DISCOPOP_TAU]));
    dpo *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "dpo: no memory for the instance");
    *self = (dpo){.host = host,
                  .settings = {.beta = values[FIELD_BETA].f,
                               .label_smoothing = values[FIELD_LABEL_SMOOTHING].f,
                               .discopop_tau = values[FIELD_DISCOPOP_TAU].f},
                  .loss = &dpo_losses[type]};
    *out_self = self;
    return LATHE_OK;
}

static void dpo_destroy(void *self)
{
    if (self != NULL)
        ((dpo *)self)->host->free(self);
}

/* The sum over the pairs of the batch, without padding. */
static lathe_status masked_sum(const dpo_pairs *p, lathe_val x, const char *label, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(dpo_binary(p, LATHE_OP_MUL, x, p->mask, label, &y));
    return dpo_unary(p, LATHE_OP_SUM, y, label, out);
}

/* ---- the graph ---- */

static lathe_status build_pairs(const dpo *self, dpo_pairs *p)
{
    const lathe_stage_build *build = p->build;
    const int64_t n = build->n_rows / 2;
    lathe_val policy, reference, ratio;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &policy));
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &reference));
    LATHE_TRY(p->api->detach(p->g, reference, &reference));
    LATHE_TRY(dpo_row_sum(p, policy, "dpo.policy_logps", &policy));
    LATHE_TRY(dpo_row_sum(p, reference, "dpo.reference_logps", &reference));
    LATHE_TRY(dpo_binary(p, LATHE_OP_SUB, policy, reference, "dpo.logratios", &ratio));
    LATHE_TRY(dpo_slice(p, 0, n, policy, "dpo.policy_chosen", &p->policy_chosen));
    LATHE_TRY(dpo_slice(p, n, n, policy, "dpo.policy_rejected", &p->policy_rejected));
    LATHE_TRY(dpo_slice(p, 0, n, ratio, "dpo.ratio_chosen", &p->ratio_chosen));
    LATHE_TRY(dpo_slice(p, n, n, ratio, "dpo.ratio_rejected", &p->ratio_rejected));
    LATHE_TRY(
        dpo_binary(p, LATHE_OP_SUB, p->ratio_chosen, p->ratio_rejected, "dpo.delta", &p->margin));
    return dpo_affine(p, self->settings.beta, 0.0, p->margin, "dpo.margin", &p->margin);
}

static lathe_status add_metric(const dpo_pairs *p, const char *name, double factor, lathe_val x,
                               lathe_stage_loss *out)
{
    lathe_stage_metric *metric = &out->metrics[out->n_metrics++];
    metric->name = name;
    LATHE_TRY(masked_sum(p, x, name, &metric->sum));
    return factor == 1.0 ? LATHE_OK : dpo_affine(p, factor, 0.0, metric->sum, name, &metric->sum);
}

static lathe_status build_metrics(const dpo *self, const dpo_pairs *p, lathe_stage_loss *out)
{
    lathe_val correct;
    out->n_metrics = 0;
    LATHE_TRY(dpo_is_positive(p, p->margin, &correct));
    LATHE_TRY(add_metric(p, "rewards/chosen", self->settings.beta, p->ratio_chosen, out));
    LATHE_TRY(add_metric(p, "rewards/rejected", self->settings.beta, p->ratio_rejected, out));
    LATHE_TRY(add_metric(p, "rewards/margins", 1.0, p->margin, out));
    LATHE_TRY(add_metric(p, "rewards/accuracies", 1.0, correct, out));
    LATHE_TRY(add_metric(p, "logps/chosen", 1.0, p->policy_chosen, out));
    return add_metric(p, "logps/rejected", 1.0, p->policy_rejected, out);
}

static lathe_status dpo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const dpo *d = self;
    dpo_pairs p = {.build = build, .api = build->api, .g = build->graph, .mask = build->pair_mask};
    lathe_val losses;
    if (build->n_rows < 2 || build->n_rows % 2 != 0)
        return lathe_fail(
            d->host, LATHE_E_SHAPE,
            "dpo: a micro-batch of %d rows; expected chosen and rejected rows in equal "
            "number",
            build->n_rows);
    LATHE_TRY(build_pairs(d, &p));
    LATHE_TRY(d->loss->build(&d->settings, &p, &losses));
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
