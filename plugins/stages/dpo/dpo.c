/* Direct preference optimization: a preference loss on pairs of completions, and the implicit
 * rewards of the chosen and the rejected completion, beta times their log-ratios, as TRL reports
 * them. losses.h has the formulas of the losses.
 */
#include <string.h>

#include "losses.h"

#include "lathe/plugin.h"

typedef struct dpo {
    const lathe_host *host;
    dpo_settings settings;
    const dpo_loss_type *loss;
    int32_t has_reference;
} dpo;

enum {
    FIELD_BETA,
    FIELD_LABEL_SMOOTHING,
    FIELD_LOSS_TYPE,
    FIELD_DISCOPOP_TAU,
    FIELD_SIMPO_GAMMA,
    FIELD_CPO_ALPHA,
    FIELD_REFERENCE_FREE,
    N_FIELDS
};

static const lathe_field fields[N_FIELDS] = {
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.1", 0.0, 1e6, NULL, "1",
     "beta of DPO: a larger one keeps the policy closer to the reference model; orpo: weight of "
     "the odds ratio; simpo: factor of the mean log-probabilities, 2 in the paper"},
    {"label_smoothing", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.0", 0.0, 0.5, NULL, "1",
     "probability that a pair's labels are swapped (sigmoid, robust, exo_pair, cpo, simpo)"},
    LATHE_FIELD_STRING("loss_type", "\"sigmoid\"", DPO_LOSS_NAMES, "loss of a pair"),
    {"discopop_tau", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.05", 0.0, 1e6, NULL, "1",
     "temperature at which discopop mixes its two losses"},
    {"simpo_gamma", LATHE_T_FLOAT, 0, "0.5", 0.0, 1e6, NULL, "1",
     "simpo: margin by which the chosen completion has to lead"},
    {"cpo_alpha", LATHE_T_FLOAT, 0, "1.0", 0.0, 1e6, NULL, "1",
     "cpo: weight of the mean negative log-likelihood of the chosen completion"},
    LATHE_FIELD_BOOL("reference_free", "false",
                     "no reference model: the policy's own log-probabilities take the place of its "
                     "ratios to the reference (losses of the difference of both completions)"),
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "what both completions answer; unset: their common beginning"},
    {"chosen", 1, 0, "the preferred completion"},
    {"rejected", 1, 0, "the other completion"},
};

/* Refuses settings that the loss does not read, and a loss that lacks a setting it needs. */
static lathe_status check_values(const lathe_host *host, const dpo_loss_type *loss,
                                 const lathe_value *values)
{
    static const struct {
        int32_t field;
        const char *loss;
    } settings_of_one_loss[] = {
        {FIELD_DISCOPOP_TAU, "discopop"}, {FIELD_SIMPO_GAMMA, "simpo"}, {FIELD_CPO_ALPHA, "cpo"}};
    const double smoothing = values[FIELD_LABEL_SMOOTHING].f;
    if (smoothing != 0.0 && loss->smoothing == DPO_SMOOTHING_UNUSED)
        return lathe_fail_at(host, LATHE_E_CONFIG, "label_smoothing",
                             "label_smoothing = %g has no meaning for loss_type \"%s\"; leave it "
                             "out, or use sigmoid, robust, exo_pair, cpo or simpo",
                             smoothing, loss->name);
    if (smoothing == 0.0 && loss->smoothing == DPO_SMOOTHING_REQUIRED)
        return lathe_fail_at(host, LATHE_E_CONFIG, "loss_type",
                             "loss_type \"%s\" needs label_smoothing above 0, such as 1e-3: its "
                             "logarithm is part of the loss",
                             loss->name);
    for (size_t i = 0; i < sizeof settings_of_one_loss / sizeof *settings_of_one_loss; i++)
        if (values[settings_of_one_loss[i].field].is_explicit &&
            strcmp(loss->name, settings_of_one_loss[i].loss) != 0)
            return lathe_fail_at(host, LATHE_E_CONFIG, fields[settings_of_one_loss[i].field].key,
                                 "%s has no meaning for loss_type \"%s\"; leave it out",
                                 fields[settings_of_one_loss[i].field].key, loss->name);
    const lathe_value *reference_free = &values[FIELD_REFERENCE_FREE];
    if (reference_free->is_explicit && loss->reference >= DPO_SUMS)
        return lathe_fail_at(host, LATHE_E_CONFIG, "reference_free",
                             "reference_free has no effect on loss_type \"%s\", which never reads "
                             "a reference model; leave it out",
                             loss->name);
    if (reference_free->i && loss->reference == DPO_REFERENCE)
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "loss_type",
            "loss_type \"%s\" compares each completion with the reference model, "
            "so reference_free is not possible; use sigmoid, or another loss of the "
            "difference",
            loss->name);
    return LATHE_OK;
}

static lathe_status dpo_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    const char *name = values[FIELD_LOSS_TYPE].s;
    int32_t type = 0;
    while (type < dpo_n_losses && strcmp(dpo_losses[type].name, name) != 0)
        type++;
    if (type == dpo_n_losses)
        return lathe_fail_at(host, LATHE_E_CONFIG, "loss_type", "no loss_type \"%s\"", name);
    LATHE_TRY(check_values(host, &dpo_losses[type], values));
    dpo *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (dpo){.host = host,
                  .settings = {.beta = values[FIELD_BETA].f,
                               .label_smoothing = values[FIELD_LABEL_SMOOTHING].f,
                               .discopop_tau = values[FIELD_DISCOPOP_TAU].f,
                               .simpo_gamma = values[FIELD_SIMPO_GAMMA].f,
                               .cpo_alpha = values[FIELD_CPO_ALPHA].f},
                  .loss = &dpo_losses[type],
                  .has_reference =
                      dpo_losses[type].reference < DPO_SUMS && !values[FIELD_REFERENCE_FREE].i};
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

/* *policy: the log-probability of each row, a sum or a mean over its tokens. *ratio: that less the
 * reference model's; without a reference, the same as *policy. */
static lathe_status build_rows(const dpo *self, const dpo_pairs *p, lathe_val *policy,
                               lathe_val *ratio)
{
    const lathe_stage_build *build = p->build;
    lathe_val reference, counts;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, policy));
    LATHE_TRY(dpo_row_sum(p, *policy, "dpo.policy_logps", policy));
    if (self->loss->reference == DPO_MEANS) {
        LATHE_TRY(dpo_counts(p, &counts));
        LATHE_TRY(dpo_binary(p, LATHE_OP_DIV, *policy, counts, "dpo.policy_means", policy));
    }
    *ratio = *policy;
    if (!self->has_reference)
        return LATHE_OK;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &reference));
    LATHE_TRY(p->api->detach(p->g, reference, &reference));
    LATHE_TRY(dpo_row_sum(p, reference, "dpo.reference_logps", &reference));
    return dpo_binary(p, LATHE_OP_SUB, *policy, reference, "dpo.logratios", ratio);
}

static lathe_status build_pairs(const dpo *self, dpo_pairs *p)
{
    const int64_t n = p->build->n_rows / 2;
    lathe_val policy, ratio;
    LATHE_TRY(build_rows(self, p, &policy, &ratio));
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

/* Figures that only TRL's CPOTrainer and ORPOTrainer have. */
static lathe_status build_own_metrics(const dpo *self, const dpo_pairs *p, lathe_stage_loss *out)
{
    lathe_val x;
    if (strcmp(self->loss->name, "cpo") == 0) {
        LATHE_TRY(dpo_nll(p, &x));
        return add_metric(p, "nll_loss", 1.0, x, out);
    }
    if (strcmp(self->loss->name, "orpo") != 0)
        return LATHE_OK;
    LATHE_TRY(add_metric(p, "nll_loss", -1.0, p->policy_chosen, out));
    LATHE_TRY(dpo_log_odds(p, &x));
    LATHE_TRY(add_metric(p, "log_odds_chosen", 1.0, x, out));
    LATHE_TRY(dpo_unary(p, LATHE_OP_LOGSIGMOID, x, "dpo.log_odds_ratio", &x));
    return add_metric(p, "log_odds_ratio", 1.0, x, out);
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
    LATHE_TRY(add_metric(p, "logps/rejected", 1.0, p->policy_rejected, out));
    return build_own_metrics(self, p, out);
}

static lathe_status dpo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const dpo *d = self;
    dpo_pairs p = {
        .build = build, .api = build->api, .g = build->graph, .mask = build->record_mask};
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

static uint32_t dpo_needs_of(void *self)
{
    return ((const dpo *)self)->has_reference ? LATHE_NEEDS_REFERENCE : 0;
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PAIRS,
    .needs = LATHE_NEEDS_REFERENCE,
    .loss = dpo_loss,
    .needs_of = dpo_needs_of,
    .headline = "rewards/accuracies",
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
