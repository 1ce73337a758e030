/* Kahneman-Tversky optimization: a loss on single completions that are desirable or not.
 *
 * r: the policy's log-probability of an example's completion less the reference's; y: 1 if the
 * example is desirable, -1 if not; w: its weight; b: beta; s: the logistic function. An example
 * adds
 *
 *   kto                 w (1 - s(y b (r - z)))   arXiv:2402.01306, eq. 7 and 8
 *   apo_zero_unpaired   w (1 - s(y b r))         arXiv:2408.06266, eq. 7, one completion at a time
 *
 * z = max(0, mean of r over the batch's mismatched examples), an estimate of the divergence from
 * the reference; it has no gradient. All as TRL's KTOTrainer computes them.
 */
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

typedef struct kto {
    const lathe_host *host;
    double beta, desirable_weight, undesirable_weight;
    int32_t has_kl; /* 1: loss_type kto */
} kto;

enum { FIELD_BETA, FIELD_LOSS_TYPE, FIELD_DESIRABLE, FIELD_UNDESIRABLE, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.1", 0.0, 1e6, NULL, "1",
     "beta of KTO: a larger one keeps the policy closer to the reference model"},
    LATHE_FIELD_STRING("loss_type", "\"kto\"", "kto|apo_zero_unpaired", "loss of an example"),
    {"desirable_weight", LATHE_T_FLOAT, 0, "1.0", 0.0, 1e6, NULL, "1",
     "weight of the desirable examples; with more undesirable ones, raise it"},
    {"undesirable_weight", LATHE_T_FLOAT, 0, "1.0", 0.0, 1e6, NULL, "1",
     "weight of the undesirable examples; with more desirable ones, raise it"},
};

static const lathe_column columns[] = {
    {"prompt", 1, 0, "what the completion answers"},
    {"completion", 1, 0, "a desirable or undesirable completion"},
    {"label", 1, 0, "true: the completion is desirable"},
};

static const lathe_stage_input inputs[] = {
    {.name = "label",
     .per = LATHE_PER_ROW,
     .source = LATHE_INPUT_COLUMN,
     .required = 1,
     .is_boolean = 1,
     .doc = "whether the completion is desirable"},
};

static lathe_status kto_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                               void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    const char *type = values[FIELD_LOSS_TYPE].s;
    const int32_t has_kl = strcmp(type, "kto") == 0;
    if (!has_kl && strcmp(type, "apo_zero_unpaired") != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "loss_type", "no loss_type \"%s\"", type);
    if (values[FIELD_DESIRABLE].f == 0.0 && values[FIELD_UNDESIRABLE].f == 0.0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "desirable_weight",
                             "desirable_weight and undesirable_weight are both 0, so that nothing "
                             "is learnt; raise one of them");
    kto *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (kto){.host = host,
                  .beta = values[FIELD_BETA].f,
                  .desirable_weight = values[FIELD_DESIRABLE].f,
                  .undesirable_weight = values[FIELD_UNDESIRABLE].f,
                  .has_kl = has_kl};
    *out_self = self;
    return LATHE_OK;
}

static void kto_destroy(void *self)
{
    if (self != NULL)
        ((kto *)self)->host->free(self);
}

/* ---- the graph ---- */

/* The values of a micro-batch. Vectors are f32[P], the others f32[]. */
typedef struct examples {
    const lathe_stage_build *build;
    int64_t n;              /* P */
    lathe_val mask;         /* 1, or 0 for a padding example */
    lathe_val chosen;       /* mask of the desirable examples */
    lathe_val rejected;     /* mask of the undesirable examples */
    lathe_val label;        /* 1 desirable, 0 not */
    lathe_val logps, ratio; /* the policy's log-probability, and r */
    lathe_val kl;           /* z; LATHE_NONE without it */
    lathe_val count;        /* examples that are not padding */
    lathe_val n_chosen, n_rejected;
} examples;

static lathe_status node(const examples *e, int32_t op, const lathe_op_attrs *attrs, lathe_val a,
                         lathe_val b, const char *label, lathe_val *out)
{
    const lathe_val in[2] = {a, b};
    return e->build->api->node(e->build->graph, op, attrs, in, b == LATHE_NONE ? 1 : 2, out, 1, -1,
                               label);
}

/* alpha x + beta */
static lathe_status affine(const examples *e, double alpha, double beta, lathe_val x,
                           const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = alpha, .beta = beta};
    return node(e, LATHE_OP_SCALE, &attrs, x, LATHE_NONE, label, out);
}

static lathe_status multiply(const examples *e, lathe_val a, lathe_val b, const char *label,
                             lathe_val *out)
{
    return node(e, LATHE_OP_MUL, NULL, a, b, label, out);
}

static lathe_status sum(const examples *e, lathe_val x, const char *label, lathe_val *out)
{
    return node(e, LATHE_OP_SUM, NULL, x, LATHE_NONE, label, out);
}

static lathe_status half(const examples *e, int second, lathe_val x, const char *label,
                         lathe_val *out)
{
    const lathe_op_attrs attrs = {.start = second ? e->n : 0, .count = e->n};
    return node(e, LATHE_OP_SLICE, &attrs, x, LATHE_NONE, label, out);
}

/* max(x, least) */
static lathe_status at_least(const examples *e, double least, lathe_val x, const char *label,
                             lathe_val *out)
{
    lathe_val bound;
    LATHE_TRY(affine(e, 0.0, least, x, label, &bound));
    return node(e, LATHE_OP_MAX, NULL, x, bound, label, out);
}

/* The summed log-probability of each row's completion under a model. */
static lathe_status row_logps(const examples *e, int32_t model, const char *label, lathe_val *out)
{
    const lathe_op_attrs row = {.count = e->build->row_tokens};
    lathe_val x;
    LATHE_TRY(e->build->logprobs(e->build->ctx, model, &x));
    return node(e, LATHE_OP_ROW_SUM, &row, x, LATHE_NONE, label, out);
}

/* z = max(0, mean of the mismatched rows' ratios) */
static lathe_status build_kl(examples *e, lathe_val ratios)
{
    lathe_val x, n;
    LATHE_TRY(half(e, 1, ratios, "kto.mismatched", &x));
    LATHE_TRY(e->build->api->detach(e->build->graph, x, &x));
    LATHE_TRY(multiply(e, x, e->mask, "kto.mismatched", &x));
    LATHE_TRY(sum(e, x, "kto.kl", &x));
    LATHE_TRY(at_least(e, 1.0, e->count, "kto.count", &n));
    LATHE_TRY(node(e, LATHE_OP_DIV, NULL, x, n, "kto.kl", &x));
    return at_least(e, 0.0, x, "kto.kl", &e->kl);
}

static lathe_status build_examples(const kto *self, examples *e)
{
    const lathe_stage_build *build = e->build;
    lathe_val policy, reference, ratios;
    LATHE_TRY(half(e, 0, build->inputs[0], "kto.label", &e->label));
    LATHE_TRY(multiply(e, e->mask, e->label, "kto.chosen", &e->chosen));
    LATHE_TRY(node(e, LATHE_OP_SUB, NULL, e->mask, e->chosen, "kto.rejected", &e->rejected));
    LATHE_TRY(sum(e, e->mask, "kto.count", &e->count));
    LATHE_TRY(sum(e, e->chosen, "kto.n_chosen", &e->n_chosen));
    LATHE_TRY(sum(e, e->rejected, "kto.n_rejected", &e->n_rejected));
    LATHE_TRY(row_logps(e, LATHE_MODEL_POLICY, "kto.policy_logps", &policy));
    LATHE_TRY(row_logps(e, LATHE_MODEL_REFERENCE, "kto.reference_logps", &reference));
    LATHE_TRY(build->api->detach(build->graph, reference, &reference));
    LATHE_TRY(node(e, LATHE_OP_SUB, NULL, policy, reference, "kto.logratios", &ratios));
    LATHE_TRY(half(e, 0, policy, "kto.logps", &e->logps));
    LATHE_TRY(half(e, 0, ratios, "kto.ratio", &e->ratio));
    e->kl = LATHE_NONE;
    return self->has_kl ? build_kl(e, ratios) : LATHE_OK;
}

/* w (1 - s(y b (r - z))) of each example */
static lathe_status build_losses(const kto *self, const examples *e, lathe_val *out)
{
    const lathe_op_attrs copies = {.count = e->n};
    const double more = self->desirable_weight - self->undesirable_weight;
    lathe_val x = e->ratio, kl, sign, weight;
    if (self->has_kl) {
        LATHE_TRY(node(e, LATHE_OP_BROADCAST, &copies, e->kl, LATHE_NONE, "kto.kl", &kl));
        LATHE_TRY(node(e, LATHE_OP_SUB, NULL, x, kl, "kto.value", &x));
    }
    LATHE_TRY(affine(e, 2.0 * self->beta, -self->beta, e->label, "kto.sign", &sign));
    LATHE_TRY(multiply(e, sign, x, "kto.value", &x));
    LATHE_TRY(node(e, LATHE_OP_SIGMOID, NULL, x, LATHE_NONE, "kto.value", &x));
    LATHE_TRY(affine(e, -1.0, 1.0, x, "kto.loss", &x));
    LATHE_TRY(affine(e, more, self->undesirable_weight, e->label, "kto.weight", &weight));
    return multiply(e, weight, x, "kto.loss", out);
}

/* ---- metrics ---- */

enum { N_CHOSEN = 0, N_REJECTED = 1, N_MIXED = 2 }; /* sums that others are divided by */

static lathe_status add_count(const char *name, lathe_val value, int32_t over,
                              lathe_stage_loss *out)
{
    out->metrics[out->n_metrics++] = (lathe_stage_metric){.name = name, .sum = value, .over = over};
    return LATHE_OK;
}

/* The mean of factor * x over the desirable or undesirable examples. */
static lathe_status add_mean(const examples *e, const char *name, double factor, lathe_val x,
                             int is_rejected, lathe_stage_loss *out, lathe_val *out_sum)
{
    LATHE_TRY(multiply(e, x, is_rejected ? e->rejected : e->chosen, name, &x));
    LATHE_TRY(sum(e, x, name, &x));
    LATHE_TRY(affine(e, factor, 0.0, x, name, out_sum));
    return add_count(name, *out_sum, 1 + (is_rejected ? N_REJECTED : N_CHOSEN), out);
}

/* 1 if n > 0, else 0; n is a whole number. */
static lathe_status is_any(const examples *e, lathe_val n, lathe_val *out)
{
    LATHE_TRY(affine(e, -1.0, 0.0, n, "kto.any", out));
    LATHE_TRY(at_least(e, -1.0, *out, "kto.any", out));
    return affine(e, -1.0, 0.0, *out, "kto.any", out);
}

/* total / n, or 0 */
static lathe_status divide(const examples *e, lathe_val total, lathe_val n, lathe_val *out)
{
    LATHE_TRY(at_least(e, 1.0, n, "kto.mean", &n));
    return node(e, LATHE_OP_DIV, NULL, total, n, "kto.mean", out);
}

/* Mean reward of the desirable examples less that of the others, in a micro-batch that has both. */
static lathe_status build_margin(const examples *e, const lathe_val rewards[2], lathe_val is_mixed,
                                 lathe_val *out)
{
    lathe_val chosen, rejected;
    LATHE_TRY(divide(e, rewards[0], e->n_chosen, &chosen));
    LATHE_TRY(divide(e, rewards[1], e->n_rejected, &rejected));
    LATHE_TRY(node(e, LATHE_OP_SUB, NULL, chosen, rejected, "rewards/margins", out));
    return multiply(e, *out, is_mixed, "rewards/margins", out);
}

static lathe_status build_metrics(const kto *self, const examples *e, lathe_stage_loss *out)
{
    lathe_val any[2], is_mixed, rewards[2], logps, x;
    out->n_metrics = 0;
    LATHE_TRY(is_any(e, e->n_chosen, &any[0]));
    LATHE_TRY(is_any(e, e->n_rejected, &any[1]));
    LATHE_TRY(multiply(e, any[0], any[1], "kto.mixed", &is_mixed));
    LATHE_TRY(add_count(NULL, e->n_chosen, 0, out));
    LATHE_TRY(add_count(NULL, e->n_rejected, 0, out));
    LATHE_TRY(add_count(NULL, is_mixed, 0, out));
    LATHE_TRY(add_mean(e, "rewards/chosen", self->beta, e->ratio, 0, out, &rewards[0]));
    LATHE_TRY(add_mean(e, "rewards/rejected", self->beta, e->ratio, 1, out, &rewards[1]));
    LATHE_TRY(build_margin(e, rewards, is_mixed, &x));
    LATHE_TRY(add_count("rewards/margins", x, 1 + N_MIXED, out));
    LATHE_TRY(add_mean(e, "logps/chosen", 1.0, e->logps, 0, out, &logps));
    LATHE_TRY(add_mean(e, "logps/rejected", 1.0, e->logps, 1, out, &logps));
    if (!self->has_kl)
        return LATHE_OK;
    LATHE_TRY(multiply(e, e->kl, e->count, "kl", &x));
    return add_count("kl", x, 0, out);
}

static lathe_status kto_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const kto *k = self;
    examples e = {.build = build, .n = build->n_rows / 2, .mask = build->record_mask};
    lathe_val losses;
    if (build->n_rows < 2 || build->n_rows % 2 != 0)
        return lathe_fail(k->host, LATHE_E_SHAPE,
                          "kto: a micro-batch of %d rows; expected examples and mismatched rows in "
                          "equal number",
                          build->n_rows);
    if (k->has_kl && e.n < 2)
        return lathe_fail(k->host, LATHE_E_CONFIG,
                          "kto: a micro-batch of one example has no other completion to estimate "
                          "the divergence from; set train.micro_batch_size to 2 or more, or "
                          "loss_type to \"apo_zero_unpaired\"");
    LATHE_TRY(build_examples(k, &e));
    LATHE_TRY(build_losses(k, &e, &losses));
    LATHE_TRY(multiply(&e, losses, e.mask, "kto.loss", &losses));
    LATHE_TRY(sum(&e, losses, "kto.loss", &out->sum));
    out->count_unit = LATHE_COUNT_EXAMPLES;
    return build_metrics(k, &e, out);
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_UNPAIRED,
    .needs = LATHE_NEEDS_REFERENCE,
    .loss = kto_loss,
    .inputs = inputs,
    .n_inputs = sizeof inputs / sizeof *inputs,
    .headline = "rewards/margins",
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "kto",
    .version = "1.0.0",
    .summary = "Kahneman-Tversky optimization on desirable and undesirable completions",
    .source = "arXiv:2402.01306",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = kto_create,
    .destroy = kto_destroy,
};
