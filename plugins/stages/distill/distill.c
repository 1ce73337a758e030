/* Distillation: the policy learns the completions, and at each of their tokens the distribution of
 * a teacher.
 *
 * p and q are the distributions of the policy and of the teacher over the vocabulary at a target,
 * the softmax of logits divided by T. p_n is the policy's probability of the target token, from the
 * logits without T. A target adds
 *
 *   -a log p_n + (1-a) T^2 D          a: alpha, T: temperature
 *
 *   D  forward  KL(q || p)                                              arXiv:1503.02531
 *      reverse  KL(p || q)                                              arXiv:2306.08543
 *      jsd      b KL(q || m) + (1-b) KL(p || m), m = b q + (1-b) p       arXiv:2306.13649, eq. 1
 *
 * A stored teacher (teacher.stored) has only its k most likely tokens S at a target. p and q are
 * then distributions over k + 1 events, the tokens of S and "any other token" (add_tail = true), or
 * distributions over the k tokens of S alone, normalised to the sum 1 (add_tail = false). These are
 * the two conventions of TRL's ServerDistillationTrainer (loss_add_tail, TRL 1.16). The extra event
 * is the "ghost token" of arXiv:2503.16870. With k = V both give the D above.
 */
#include <math.h>
#include <string.h>

#include "lathe/plugin.h"
#include "lathe/stage.h"

typedef struct distill {
    const lathe_host *host;
    double alpha, temperature;
    double beta; /* as in lathe_stage_build.divergence: 0 forward, 1 reverse, between: jsd */
    int add_tail, sets_add_tail; /* sets_add_tail: the configuration has the key */
} distill;

enum { FIELD_ALPHA, FIELD_TEMPERATURE, FIELD_DIVERGENCE, FIELD_BETA, FIELD_ADD_TAIL, N_FIELDS };
enum { INPUT_TOKENS, INPUT_VALUES, N_INPUTS };

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
    LATHE_FIELD_BOOL("add_tail", "true",
                     "teacher.stored: all tokens that are not stored count as one more (true), or "
                     "both distributions are normalised over the stored tokens (false)"),
};

static const lathe_stage_input inputs[N_INPUTS] = {
    [INPUT_TOKENS] = {.name = "teacher_tokens",
                      .per = LATHE_PER_TOKEN,
                      .source = LATHE_INPUT_STORED,
                      .doc = "the stored teacher's most likely tokens"},
    [INPUT_VALUES] = {.name = "teacher_logprobs",
                      .per = LATHE_PER_TOKEN,
                      .source = LATHE_INPUT_STORED,
                      .doc = "their log-probabilities, and that of all other tokens together"},
};
static const lathe_input_shape shapes[N_INPUTS] = {
    [INPUT_TOKENS] = {.dtype = LATHE_I32},
    [INPUT_VALUES] = {.dtype = LATHE_F32},
};

static const lathe_column columns[] = {
    {"prompt", 0, 0, "the text to answer; its tokens are not learnt"},
    {"completion", 1, 0, "the answer"},
};

static lathe_status distill_create(const lathe_host *host, const lathe_value *values,
                                   int32_t n_values, void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    const char *name = values[FIELD_DIVERGENCE].s;
    const int is_forward = strcmp(name, "forward") == 0, is_reverse = strcmp(name, "reverse") == 0;
    if ((is_forward || is_reverse) && values[FIELD_BETA].is_explicit)
        return lathe_fail_at(host, LATHE_E_CONFIG, "beta",
                             "beta has no meaning for divergence \"%s\"; leave it out, or use "
                             "\"jsd\"",
                             name);
    distill *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (distill){.host = host,
                      .alpha = values[FIELD_ALPHA].f,
                      .temperature = values[FIELD_TEMPERATURE].f,
                      .add_tail = values[FIELD_ADD_TAIL].i != 0,
                      .sets_add_tail = values[FIELD_ADD_TAIL].is_explicit,
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

/* ---- a stored teacher ---- */

/* Adds a node with the inputs x and y; y LATHE_NONE: the node has one input. */
static lathe_status node(const lathe_stage_build *build, int32_t op, const lathe_op_attrs *attrs,
                         lathe_val x, lathe_val y, lathe_val *out)
{
    const lathe_val in[2] = {x, y};
    return build->api->node(build->graph, op, attrs, in, y == LATHE_NONE ? 1 : 2, out, 1, -1,
                            "distill.stored");
}

/* log of the sum of exp(x) over the rows of x f32[k,N], whose largest is row 0, as f32[k,N]. */
static lathe_status log_sum_rows(const lathe_stage_build *build, int64_t k, lathe_val x,
                                 lathe_val *out)
{
    const lathe_op_attrs first = {.start = 0, .count = 1}, rows = {.count = k};
    lathe_val top, all;
    LATHE_TRY(node(build, LATHE_OP_SLICE, &first, x, LATHE_NONE, &top));
    LATHE_TRY(node(build, LATHE_OP_SUM_ROWS, NULL, top, LATHE_NONE, &top));
    LATHE_TRY(node(build, LATHE_OP_BROADCAST_ROW, &rows, top, LATHE_NONE, &top));
    LATHE_TRY(node(build, LATHE_OP_SUB, NULL, x, top, &all));
    LATHE_TRY(node(build, LATHE_OP_EXP, NULL, all, LATHE_NONE, &all));
    LATHE_TRY(node(build, LATHE_OP_SUM_ROWS, NULL, all, LATHE_NONE, &all));
    LATHE_TRY(node(build, LATHE_OP_LOG, NULL, all, LATHE_NONE, &all));
    LATHE_TRY(node(build, LATHE_OP_BROADCAST_ROW, &rows, all, LATHE_NONE, &all));
    return node(build, LATHE_OP_ADD, NULL, all, top, out);
}

/* The teacher's log-probabilities over the stored tokens alone, f32[N,k], at temperature T. Those
 * in the file were computed at a temperature T', so they are multiplied by T'/T and normalised
 * again. */
static lathe_status normalised(const distill *d, const lathe_stage_build *build, lathe_val *out)
{
    const int64_t k = build->n_stored;
    const lathe_op_attrs stored = {.start = 0, .count = k};
    const lathe_op_attrs scale = {.alpha = build->stored_temperature / d->temperature};
    lathe_val x, all;
    LATHE_TRY(node(build, LATHE_OP_TRANSPOSE, NULL, build->inputs[INPUT_VALUES], LATHE_NONE, &x));
    LATHE_TRY(node(build, LATHE_OP_SLICE, &stored, x, LATHE_NONE, &x));
    LATHE_TRY(node(build, LATHE_OP_SCALE, &scale, x, LATHE_NONE, &x));
    LATHE_TRY(log_sum_rows(build, k, x, &all));
    LATHE_TRY(node(build, LATHE_OP_SUB, NULL, x, all, &x));
    return node(build, LATHE_OP_TRANSPOSE, NULL, x, LATHE_NONE, out);
}

/* KL(a || b) f32[N] of rows of log-probabilities. */
static lathe_status kl(const lathe_stage_build *build, lathe_val a, lathe_val b, lathe_val *out)
{
    lathe_val p, x;
    LATHE_TRY(node(build, LATHE_OP_EXP, NULL, a, LATHE_NONE, &p));
    LATHE_TRY(node(build, LATHE_OP_SUB, NULL, a, b, &x));
    LATHE_TRY(node(build, LATHE_OP_MUL, NULL, p, x, &x));
    return node(build, LATHE_OP_SUM_COLUMNS, NULL, x, LATHE_NONE, out);
}

/* b KL(q || m) + (1-b) KL(p || m). With u = log p + log(1-b) and v = log q + log b, log m is
 * u - log sigmoid(u - v). */
static lathe_status jensen_shannon(const distill *d, const lathe_stage_build *build, lathe_val p,
                                   lathe_val q, lathe_val *out)
{
    const lathe_op_attrs of_p = {.alpha = 1.0, .beta = log1p(-d->beta)};
    const lathe_op_attrs of_q = {.alpha = 1.0, .beta = log(d->beta)};
    const lathe_op_attrs mix = {.alpha = 1.0 - d->beta, .beta = d->beta};
    lathe_val u, v, m, kl_p, kl_q;
    LATHE_TRY(node(build, LATHE_OP_SCALE, &of_p, p, LATHE_NONE, &u));
    LATHE_TRY(node(build, LATHE_OP_SCALE, &of_q, q, LATHE_NONE, &v));
    LATHE_TRY(node(build, LATHE_OP_SUB, NULL, u, v, &m));
    LATHE_TRY(node(build, LATHE_OP_LOGSIGMOID, NULL, m, LATHE_NONE, &m));
    LATHE_TRY(node(build, LATHE_OP_SUB, NULL, u, m, &m));
    LATHE_TRY(kl(build, p, m, &kl_p));
    LATHE_TRY(kl(build, q, m, &kl_q));
    return node(build, LATHE_OP_LINCOMB, &mix, kl_p, kl_q, out);
}

static lathe_status check_stored(const distill *d, const lathe_stage_build *build)
{
    const double stored = build->stored_temperature;
    if (d->add_tail && (d->temperature < stored || d->temperature > stored))
        return lathe_fail_at(
            d->host, LATHE_E_CONFIG, "temperature",
            "temperature is %g, and teacher.stored was made with temperature %g; "
            "expected the same, because the probability of all other tokens is not "
            "known for another: run lathe logprobs with --temperature %g, or set "
            "stage.add_tail = false",
            d->temperature, stored, d->temperature);
    return LATHE_OK;
}

/* D of the stored teacher at each token, f32[N]; 0 where a token is not a target. */
static lathe_status stored_divergence(const distill *d, const lathe_stage_build *build,
                                      lathe_val *out)
{
    lathe_val p, q = build->inputs[INPUT_VALUES], mask;
    LATHE_TRY(check_stored(d, build));
    LATHE_TRY(build->picked(build->ctx, LATHE_MODEL_POLICY, build->inputs[INPUT_TOKENS],
                            d->temperature, !d->add_tail, &p));
    if (!d->add_tail)
        LATHE_TRY(normalised(d, build, &q));
    LATHE_TRY(d->beta <= 0.0   ? kl(build, q, p, out)
              : d->beta >= 1.0 ? kl(build, p, q, out)
                               : jensen_shannon(d, build, p, q, out));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    return node(build, LATHE_OP_MUL, NULL, *out, mask, out);
}

/* ---- the loss ---- */

static lathe_status divergence_from_teacher(const distill *d, const lathe_stage_build *build,
                                            lathe_val *out)
{
    if (build->n_stored > 0)
        return stored_divergence(d, build, out);
    if (d->sets_add_tail)
        return lathe_fail_at(
            d->host, LATHE_E_CONFIG, "add_tail",
            "add_tail has no meaning for a teacher that is a model (teacher.path): "
            "leave it out, or set teacher.stored instead");
    return build->divergence(build->ctx, LATHE_MODEL_TEACHER, d->beta, d->temperature, out);
}

static lathe_status distill_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const distill *d = self;
    const double share = (1.0 - d->alpha) * d->temperature * d->temperature;
    const lathe_op_attrs weights = {.alpha = d->alpha, .beta = share};
    lathe_val logp = LATHE_NONE, divergence = LATHE_NONE, in[2] = {LATHE_NONE, LATHE_NONE};
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(divergence_from_teacher(d, build, &divergence));
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
    .inputs = inputs,
    .n_inputs = N_INPUTS,
    .input_shapes = shapes,
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
    .source = "arXiv:1503.02531, arXiv:2306.13649, arXiv:2503.16870",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = distill_create,
    .destroy = distill_destroy,
};
