/* The graph of the loss.
 *
 * For each learnt token, with ratio r = exp(log p - log p_old) and advantage A:
 *
 *   ppo                   -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
 *   cispo                 -min(r, 1 + clip_high) A log p, where min(..) has no gradient
 *   importance_sampling   -r A
 *   dro                   -A log p + dro_beta / 2 (log p - log p_old)^2
 *
 * plus kl_coef times the estimate of the divergence. The sum of weight * loss over the step's
 * tokens is divided by their number, and entropy_coef times their mean entropy is subtracted.
 */
#include "ppo.h"

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
        b->status = b->api->node(b->g, op, &attrs, in, y == LATHE_NONE ? 1 : 2, &out, 1, -1, "ppo");
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

static lathe_val scaled(builder *b, double alpha, double beta, lathe_val x)
{
    return node(b, LATHE_OP_SCALE, (lathe_op_attrs){.alpha = alpha, .beta = beta}, x, LATHE_NONE);
}

static lathe_val clamped(builder *b, double low, double high, lathe_val x)
{
    return node(b, LATHE_OP_CLAMP, (lathe_op_attrs){.alpha = low, .beta = high}, x, LATHE_NONE);
}

static lathe_val detached(builder *b, lathe_val x)
{
    lathe_val out = LATHE_NONE;
    if (b->status == LATHE_OK)
        b->status = b->api->detach(b->g, x, &out);
    return out;
}

/* Means over the step's learnt tokens, without a gradient. */
static void add_metric(builder *b, const char *name, lathe_val x, lathe_val mask,
                       lathe_stage_loss *out)
{
    const lathe_val sum = one(b, LATHE_OP_SUM, two(b, LATHE_OP_MUL, x, mask));
    out->metrics[out->n_metrics++] = (lathe_stage_metric){name, sum, 0};
}

/* TRL counts a bounded ratio only where the advantage is positive. */
static void add_bounded(builder *b, lathe_val bounded, lathe_val ratio, lathe_val advantage,
                        lathe_val mask, lathe_stage_loss *out)
{
    const lathe_val zero = scaled(b, 0.0, 0.0, advantage);
    const lathe_val is_bounded = two(b, LATHE_OP_LESS, bounded, ratio);
    const lathe_val is_gain = two(b, LATHE_OP_LESS, zero, advantage);
    add_metric(b, "cispo_clip_ratio", two(b, LATHE_OP_MUL, is_bounded, is_gain), mask, out);
}

/* A log p - dro_beta / 2 shift^2, with shift = log p - log p_old */
static lathe_val dro_gain(builder *b, const ppo *p, lathe_val logp, lathe_val shift,
                          lathe_val advantage)
{
    const lathe_val square = two(b, LATHE_OP_MUL, shift, shift);
    const lathe_val plain = two(b, LATHE_OP_MUL, advantage, logp);
    return two(b, LATHE_OP_SUB, plain, scaled(b, 0.5 * p->dro_beta, 0.0, square));
}

/* The negative loss of each token. The lower bound 0 of CLAMP never acts, as a ratio is positive.
 */
static lathe_val gain(builder *b, const ppo *p, lathe_val logp, lathe_val old, lathe_val advantage,
                      lathe_val mask, lathe_stage_loss *out)
{
    const lathe_val shift = two(b, LATHE_OP_SUB, logp, old);
    if (p->loss_type == PPO_DRO)
        return dro_gain(b, p, logp, shift, advantage);
    const lathe_val ratio = one(b, LATHE_OP_EXP, shift);
    const double high = 1.0 + p->clip_high;
    if (p->loss_type == PPO_IMPORTANCE_SAMPLING)
        return two(b, LATHE_OP_MUL, ratio, advantage);
    if (p->loss_type == PPO_CISPO) {
        const lathe_val bounded = detached(b, clamped(b, 0.0, high, ratio));
        add_bounded(b, bounded, ratio, advantage, mask, out);
        return two(b, LATHE_OP_MUL, two(b, LATHE_OP_MUL, bounded, advantage), logp);
    }
    const lathe_val clipped = clamped(b, 1.0 - p->clip_low, high, ratio);
    const lathe_val plain = two(b, LATHE_OP_MUL, ratio, advantage);
    const lathe_val bounded = two(b, LATHE_OP_MUL, clipped, advantage);
    add_metric(b, "clip_ratio/region_mean", two(b, LATHE_OP_LESS, bounded, plain), mask, out);
    return two(b, LATHE_OP_MIN, plain, bounded);
}

/* The estimate of a token's divergence from the reference. */
static lathe_val divergence(builder *b, const ppo *p, lathe_val logp, lathe_val reference)
{
    const lathe_val d = two(b, LATHE_OP_SUB, reference, logp);
    if (p->kl_estimator == PPO_K1)
        return scaled(b, -1.0, 0.0, d);
    if (p->kl_estimator == PPO_K2)
        return scaled(b, 0.5, 0.0, two(b, LATHE_OP_MUL, d, d));
    return two(b, LATHE_OP_SUB, scaled(b, 1.0, -1.0, one(b, LATHE_OP_EXP, d)), d);
}

lathe_status ppo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const ppo *p = self;
    builder b = {build->api, build->graph, LATHE_OK};
    lathe_val logp, mask, other;
    out->n_metrics = 0;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    const lathe_val old =
        ppo_updates_once(p) ? detached(&b, logp) : build->inputs[PPO_INPUT_OLD_LOGPROBS];
    lathe_val loss = scaled(&b, -1.0, 0.0,
                            gain(&b, p, logp, old, build->inputs[PPO_INPUT_ADVANTAGES], mask, out));
    if (p->kl_coef > 0.0) {
        LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &other));
        const lathe_val kl = divergence(&b, p, logp, detached(&b, other));
        add_metric(&b, "kl", kl, mask, out);
        loss = two(&b, LATHE_OP_ADD, loss, scaled(&b, p->kl_coef, 0.0, kl));
    }
    out->sum = one(&b, LATHE_OP_SUM, two(&b, LATHE_OP_MUL, loss, build->inputs[PPO_INPUT_WEIGHTS]));
    if (p->entropy_coef > 0.0) {
        LATHE_TRY(build->entropy(build->ctx, LATHE_MODEL_POLICY, &other));
        add_metric(&b, "entropy", other, mask, out);
        other = one(&b, LATHE_OP_SUM, two(&b, LATHE_OP_MUL, other, mask));
        out->sum = two(&b, LATHE_OP_ADD, out->sum, scaled(&b, -p->entropy_coef, 0.0, other));
    }
    out->count_unit = LATHE_COUNT_TOKENS;
    return b.status;
}
