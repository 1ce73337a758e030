/* The clipped policy loss of PPO (arXiv:1707.06347, equation 7) on rollouts that the caller gives.
 *
 *     ratio = exp(log p - log p_old)
 *     loss  = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) - entropy_coef H
 *
 * summed over the targets, with A the advantage of a token and H the entropy of the model's
 * distribution there. log p_old and A come with each batch: rollout.c shows how.
 */
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

/* The graph, and the status of the first node that failed: later ones are then not added. */
typedef struct builder {
    const lathe_graph_api *api;
    lathe_graph *g;
    lathe_status status;
} builder;

static lathe_val node(builder *b, int32_t op, lathe_op_attrs attrs, lathe_val x, lathe_val y)
{
    const lathe_val in[2] = {x, y};
    lathe_val out = LATHE_NONE;
    if (b->status == LATHE_OK)
        b->status =
            b->api->node(b->g, op, &attrs, in, y == LATHE_NONE ? 1 : 2, &out, 1, -1, "policy");
    return out;
}

static lathe_val one(builder *b, int32_t op, lathe_val x)
{
    return node(b, op, (lathe_op_attrs){0}, x, LATHE_NONE);
}

static lathe_val two(builder *b, int32_t op, lathe_val x, lathe_val y)
{
    return node(b, op, (lathe_op_attrs){0}, x, y);
}

static lathe_val scaled(builder *b, double alpha, lathe_val x)
{
    return node(b, LATHE_OP_SCALE, (lathe_op_attrs){.alpha = alpha}, x, LATHE_NONE);
}

static lathe_val sum_over_targets(builder *b, lathe_val x, lathe_val mask)
{
    return one(b, LATHE_OP_SUM, two(b, LATHE_OP_MUL, x, mask));
}

/* Metrics are means over the targets; they get no gradient. */
static void add_metric(builder *b, const char *name, lathe_val x, lathe_val mask,
                       lathe_stage_loss *out)
{
    out->metrics[out->n_metrics++] = (lathe_stage_metric){name, sum_over_targets(b, x, mask), 0};
}

static lathe_status loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const policy *const p = self;
    builder b = {build->api, build->graph, LATHE_OK};
    lathe_val logp, mask, entropy;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    LATHE_TRY(build->entropy(build->ctx, LATHE_MODEL_POLICY, &entropy));
    const lathe_val advantage = build->inputs[INPUT_ADVANTAGES];
    const lathe_op_attrs bounds = {.alpha = 1.0 - p->clip_low, .beta = 1.0 + p->clip_high};
    const lathe_val shift = two(&b, LATHE_OP_SUB, logp, build->inputs[INPUT_OLD_LOGPROBS]);
    const lathe_val ratio = one(&b, LATHE_OP_EXP, shift);
    const lathe_val clipped = node(&b, LATHE_OP_CLAMP, bounds, ratio, LATHE_NONE);
    const lathe_val plain = two(&b, LATHE_OP_MUL, ratio, advantage);
    const lathe_val bounded = two(&b, LATHE_OP_MUL, clipped, advantage);
    const lathe_val gain = two(&b, LATHE_OP_MIN, plain, bounded);
    out->sum = scaled(&b, -1.0, sum_over_targets(&b, gain, mask));
    if (p->entropy_coef > 0.0)
        out->sum = two(&b, LATHE_OP_ADD, out->sum,
                       scaled(&b, -p->entropy_coef, sum_over_targets(&b, entropy, mask)));
    out->count_unit = LATHE_COUNT_TOKENS;
    out->n_metrics = 0;
    add_metric(&b, "ratio", ratio, mask, out);
    add_metric(&b, "clip_fraction", two(&b, LATHE_OP_LESS, bounded, plain), mask, out);
    /* (ratio - 1) - log ratio: the estimate k3 of KL(old || new), never negative */
    add_metric(&b, "kl",
               two(&b, LATHE_OP_SUB,
                   node(&b, LATHE_OP_SCALE, (lathe_op_attrs){.alpha = 1.0, .beta = -1.0}, ratio,
                        LATHE_NONE),
                   shift),
               mask, out);
    add_metric(&b, "entropy", entropy, mask, out);
    return b.status;
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
