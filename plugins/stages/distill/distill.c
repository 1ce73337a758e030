/* Distillation: the policy learns the completions and the distribution of a teacher at each of
 * their tokens.
 *
 * p, q: distributions of the policy and of the teacher over the vocabulary at a target, both of
 * logits divided by T; p_n: the policy's probability of the target itself (of logits as they are).
 * A target adds
 *
 *   -a log p_n + (1-a) T^2 D          a: alpha, T: temperature
 *
 *   D  forward  KL(q || p)                                              arXiv:1503.02531
 *      reverse  KL(p || q)                                              arXiv:2306.08543
 *      jsd      b KL(q || m) + (1-b) KL(p || m), m = b q + (1-b) p       arXiv:2306.13649, eq. 1
 */
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

typedef struct distill {
    const lathe_host *host;
    double alpha, temperature;
    double beta; /* of lathe_stage_build.divergence */
} distill;

enum { FIELD_ALPHA, FIELD_TEMPERATURE, FIELD_DIVERGENCE, FIELD_BETA, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"alpha", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.5", 0.0, 1.0, NULL, "1",
     "weight of the cross-entropy of the completions; that of the divergence is 1 - alpha"},
    {"temperature", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0.0, 1000.0, NULL, "1",
     "divides the logits of both models before the divergence, which is multiplied by its square"},
    LATHE_FIELD_STRING("divergence", "\"forward\"", "forward|reverse|jsd",
                       "forward: KL(teacher || policy); reverse: KL(policy || teacher); jsd: the "
                       "generalized Jensen-Shannon divergence"),
    {"beta", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE | LATHE_FIELD_MAX_EXCLUSIVE, "0.5", 0.0, 1.0,
     NULL, "1", "jsd: share of the teacher in the mixture"},
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "what is answered; its tokens are not learnt"},
    {"completion", 1, 0, "the answer"},
};

static lathe_status distill_create(const lathe_host *host, const lathe_value *values,
                                   int32_t n_values, void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "distill: got %d values, expected %d", n_values,
                          N_FIELDS);
    const char *name = values[FIELD_DIVERGENCE].s;
    const int is_forward = strcmp(name, "forward") == 0, is_reverse = strcmp(name, "reverse") == 0;
    if ((is_forward || is_reverse) && values[FIELD_BETA].is_explicit)
        return lathe_fail(
            host, LATHE_E_CONFIG,
            "distill: beta has no meaning for divergence \"%s\"; leave it out, or use "
            "\"jsd\"",
            name);
    distill *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "distill: no memory for the instance");
    *self = (distill){.host = host,
                      .alpha = values[FIELD_ALPHA].f,
                      .temperature = values[FIELD_TEMPERATURE].f,
                      .beta = is_forward   ? 0.0
                              : is_reverse ? 1.0
                                           : values[FIELD_BETA].f};
    *out_self = self;
    return LATHE_OK;
}

static void distill_destroy(void *self)
{
    if (self != NULL)
        ((distill *)self)->host->free(self);
}

/* alpha * sum of x */
static lathe_status scaled_sum(const lathe_stage_build *build, double alpha, lathe_val x,
                               const char *label, lathe_val *out)
{
    const lathe_graph_api *api = build->api;
    const lathe_op_attrs attrs = {.alpha = alpha};
    LATHE_TRY(api->node(build->graph, LATHE_OP_SUM, NULL, &x, 1, &x, 1, -1, label));
    return api->node(build->graph, LATHE_OP_SCALE, &attrs, &x, 1, out, 1, -1, label);
}

static lathe_status distill_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const distill *d = self;
    const double share = (1.0 - d->alpha) * d->temperature * d->temperature;
    const lathe_op_attrs weights = {.alpha = d->alpha, .beta = share};
    lathe_val logp, divergence, in[2];
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(
        build->divergence(build->ctx, LATHE_MODEL_TEACHER, d->beta, d->temperature, &divergence));
    LATHE_TRY(scaled_sum(build, -1.0, logp, "distill.cross_entropy", &in[0]));
    LATHE_TRY(scaled_sum(build, 1.0, divergence, "distill.divergence", &in[1]));
    LATHE_TRY(build->api->node(build->graph, LATHE_OP_LINCOMB, &weights, in, 2, &out->sum, 1, -1,
                               "distill.loss"));
    out->count_unit = LATHE_COUNT_TOKENS;
    out->metrics[0] = (lathe_stage_metric){.name = "cross_entropy", .sum = in[0]};
    out->metrics[1] = (lathe_stage_metric){.name = "divergence", .sum = in[1]};
    out->n_metrics = 2;
    return LATHE_OK;
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_COMPLETIONS,
    .needs = LATHE_NEEDS_TEACHER,
    .loss = distill_loss,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "distill",
    .version = "1.0.0",
    .summary = "distillation: learns completions and a teacher's distribution over their tokens",
    .source = "arXiv:1503.02531, arXiv:2306.13649",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = distill_create,
    .destroy = distill_destroy,
};
