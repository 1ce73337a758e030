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

#include "lathe/kit/expression.h"

/* The mean of x over the step's learnt tokens, without a gradient. */
static void add_metric(lathe_expression *e, const char *name, lathe_val x, lathe_val mask,
                       lathe_stage_loss *out)
{
    out->metrics[out->n_metrics++] =
        (lathe_stage_metric){name, lathe_expr_weighted_sum(e, x, mask), 0};
}

/* TRL counts a bounded ratio only where the advantage is positive. */
static void add_bounded(lathe_expression *e, lathe_val bounded, lathe_val ratio,
                        lathe_val advantage, lathe_val mask, lathe_stage_loss *out)
{
    const lathe_val zero = lathe_expr_affine(e, 0.0, advantage, 0.0);
    const lathe_val is_bounded = lathe_expr_two(e, LATHE_OP_LESS, bounded, ratio);
    const lathe_val is_gain = lathe_expr_two(e, LATHE_OP_LESS, zero, advantage);
    add_metric(e, "cispo_clip_ratio", lathe_expr_two(e, LATHE_OP_MUL, is_bounded, is_gain), mask,
               out);
}

/* A log p - dro_beta / 2 shift^2, with shift = log p - log p_old */
static lathe_val dro_gain(lathe_expression *e, const ppo *p, lathe_val logp, lathe_val shift,
                          lathe_val advantage)
{
    const lathe_val square = lathe_expr_two(e, LATHE_OP_MUL, shift, shift);
    const lathe_val plain = lathe_expr_two(e, LATHE_OP_MUL, advantage, logp);
    return lathe_expr_two(e, LATHE_OP_SUB, plain,
                          lathe_expr_affine(e, 0.5 * p->dro_beta, square, 0.0));
}

/* The negative loss of each token. The lower bound 0 of CISPO never acts, as a ratio is positive.
 */
static lathe_val gain(lathe_expression *e, const ppo *p, lathe_val logp, lathe_val old,
                      lathe_val advantage, lathe_val mask, lathe_stage_loss *out)
{
    const double high = 1.0 + p->clip_high;
    const lathe_val shift = lathe_expr_two(e, LATHE_OP_SUB, logp, old);
    if (p->loss_type == PPO_DRO)
        return dro_gain(e, p, logp, shift, advantage);
    const lathe_val ratio = lathe_expr_one(e, LATHE_OP_EXP, shift);
    if (p->loss_type == PPO_IMPORTANCE_SAMPLING)
        return lathe_expr_two(e, LATHE_OP_MUL, ratio, advantage);
    if (p->loss_type == PPO_CISPO) {
        const lathe_val bounded = lathe_expr_detach(e, lathe_expr_clamp(e, 0.0, ratio, high));
        add_bounded(e, bounded, ratio, advantage, mask, out);
        const lathe_val weighted = lathe_expr_two(e, LATHE_OP_MUL, bounded, advantage);
        return lathe_expr_two(e, LATHE_OP_MUL, weighted, logp);
    }
    const lathe_val clipped = lathe_expr_clamp(e, 1.0 - p->clip_low, ratio, high);
    const lathe_val plain = lathe_expr_two(e, LATHE_OP_MUL, ratio, advantage);
    const lathe_val bounded = lathe_expr_two(e, LATHE_OP_MUL, clipped, advantage);
    add_metric(e, "clip_ratio/region_mean", lathe_expr_two(e, LATHE_OP_LESS, bounded, plain), mask,
               out);
    return lathe_expr_two(e, LATHE_OP_MIN, plain, bounded);
}

/* The estimate of a token's divergence from the reference. */
static lathe_val divergence(lathe_expression *e, const ppo *p, lathe_val logp, lathe_val reference)
{
    const lathe_val d = lathe_expr_two(e, LATHE_OP_SUB, reference, logp);
    if (p->kl_estimator == PPO_K1)
        return lathe_expr_affine(e, -1.0, d, 0.0);
    if (p->kl_estimator == PPO_K2)
        return lathe_expr_affine(e, 0.5, lathe_expr_two(e, LATHE_OP_MUL, d, d), 0.0);
    const lathe_val less_one = lathe_expr_affine(e, 1.0, lathe_expr_one(e, LATHE_OP_EXP, d), -1.0);
    return lathe_expr_two(e, LATHE_OP_SUB, less_one, d);
}

lathe_status ppo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const ppo *p = self;
    const lathe_val *inputs = build->inputs;
    lathe_expression e = {build->api, build->graph, "ppo", LATHE_OK};
    lathe_val logp, mask, other;
    out->n_metrics = 0;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    const lathe_val old =
        ppo_updates_once(p) ? lathe_expr_detach(&e, logp) : inputs[PPO_INPUT_OLD_LOGPROBS];
    lathe_val loss = gain(&e, p, logp, old, inputs[PPO_INPUT_ADVANTAGES], mask, out);
    loss = lathe_expr_affine(&e, -1.0, loss, 0.0);
    if (p->kl_coef > 0.0) {
        LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &other));
        const lathe_val kl = divergence(&e, p, logp, lathe_expr_detach(&e, other));
        add_metric(&e, "kl", kl, mask, out);
        loss = lathe_expr_two(&e, LATHE_OP_ADD, loss, lathe_expr_affine(&e, p->kl_coef, kl, 0.0));
    }
    out->sum = lathe_expr_weighted_sum(&e, loss, inputs[PPO_INPUT_WEIGHTS]);
    if (p->entropy_coef > 0.0) {
        LATHE_TRY(build->entropy(build->ctx, LATHE_MODEL_POLICY, &other));
        add_metric(&e, "entropy", other, mask, out);
        other = lathe_expr_weighted_sum(&e, other, mask);
        out->sum = lathe_expr_two(&e, LATHE_OP_ADD, out->sum,
                                  lathe_expr_affine(&e, -p->entropy_coef, other, 0.0));
    }
    out->count_unit = LATHE_COUNT_TOKENS;
    return e.status;
}
