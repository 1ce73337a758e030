/* The clipped policy loss of PPO (arXiv:1707.06347, equation 7) on rollouts that the caller gives.
 *
 *     ratio = exp(log p - log p_old)
 *     loss  = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) - entropy_coef H
 *
 * summed over the targets, with A the advantage of a token and H the entropy of the model's
 * distribution there. log p_old and A come with each batch: rollout.c shows how.
 */
#include <lathe/kit/expression.h>
#include <lathe/plugin.h>
#include <lathe/stage.h>

typedef struct policy {
    const lathe_host *host;
    double clip_low, clip_high, entropy_coef;
} policy;

static const lathe_field fields[] = {
    {"clip_low", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "0.2", 0.0, 1.0, NULL, "1",
     "the ratio is clipped below 1 - clip_low"},
    {"clip_high", LATHE_T_FLOAT, 0, "0.2", 0.0, 100.0, NULL, "1",
     "the ratio is clipped above 1 + clip_high"},
    {"entropy_coef", LATHE_T_FLOAT, 0, "0.0", 0.0, 100.0, NULL, "1",
     "factor on the entropy, which the loss rewards"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const lathe_column columns[] = {
    {"text", 1, 0, "read by evaluation alone"},
};

enum { INPUT_OLD_LOGPROBS, INPUT_ADVANTAGES, N_INPUTS };
static const lathe_stage_input inputs[N_INPUTS] = {
    {.name = "old_logprobs",
     .per = LATHE_PER_TOKEN,
     .source = LATHE_INPUT_CALLER,
     .doc = "log-probability of each target when it was sampled"},
    {.name = "advantages",
     .per = LATHE_PER_TOKEN,
     .source = LATHE_INPUT_CALLER,
     .doc = "advantage of each target"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "policy takes %d values, got %d", N_FIELDS, n_values);
    policy *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of policy");
    *self = (policy){host, values[0].f, values[1].f, values[2].f};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((policy *)self)->host->free(self);
}

/* Metrics are means over the targets; they get no gradient. */
static void add_metric(lathe_expression *e, const char *name, lathe_val x, lathe_val mask,
                       lathe_stage_loss *out)
{
    out->metrics[out->n_metrics++] =
        (lathe_stage_metric){name, lathe_expr_weighted_sum(e, x, mask), 0};
}

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const policy *const p = self;
    lathe_expression e = {build->api, build->graph, "policy", LATHE_OK};
    lathe_val logp, mask, entropy;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    LATHE_TRY(build->entropy(build->ctx, LATHE_MODEL_POLICY, &entropy));
    const lathe_val advantage = build->inputs[INPUT_ADVANTAGES];
    const lathe_val shift =
        lathe_expr_two(&e, LATHE_OP_SUB, logp, build->inputs[INPUT_OLD_LOGPROBS]);
    const lathe_val ratio = lathe_expr_one(&e, LATHE_OP_EXP, shift);
    const lathe_val clipped = lathe_expr_clamp(&e, 1.0 - p->clip_low, ratio, 1.0 + p->clip_high);
    const lathe_val plain = lathe_expr_two(&e, LATHE_OP_MUL, ratio, advantage);
    const lathe_val bounded = lathe_expr_two(&e, LATHE_OP_MUL, clipped, advantage);
    const lathe_val gain = lathe_expr_two(&e, LATHE_OP_MIN, plain, bounded);
    out->sum = lathe_expr_affine(&e, -1.0, lathe_expr_weighted_sum(&e, gain, mask), 0.0);
    if (p->entropy_coef > 0.0) {
        const lathe_val bonus = lathe_expr_weighted_sum(&e, entropy, mask);
        out->sum = lathe_expr_two(&e, LATHE_OP_ADD, out->sum,
                                  lathe_expr_affine(&e, -p->entropy_coef, bonus, 0.0));
    }
    out->count_unit = LATHE_COUNT_TOKENS;
    out->n_metrics = 0;
    add_metric(&e, "ratio", ratio, mask, out);
    add_metric(&e, "clip_fraction", lathe_expr_two(&e, LATHE_OP_LESS, bounded, plain), mask, out);
    /* (ratio - 1) - log ratio: the estimate k3 of KL(old || new), never negative */
    const lathe_val less_one = lathe_expr_affine(&e, 1.0, ratio, -1.0);
    add_metric(&e, "kl", lathe_expr_two(&e, LATHE_OP_SUB, less_one, shift), mask, out);
    add_metric(&e, "entropy", entropy, mask, out);
    return e.status;
}

static const lathe_stage_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PACKED,
    .loss = loss,
    .inputs = inputs,
    .n_inputs = N_INPUTS,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "policy",
    .version = "0.1.0",
    .summary = "clipped policy loss on rollouts that the caller gives",
    .source = "arXiv:1707.06347",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
