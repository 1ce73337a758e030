/* The graph of the loss.
 *
 * For each learnt token, with ratio r = exp(log p - log p_old) and advantage A:
 *
 *   ppo                   -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
 *   cispo                 -min(r, 1 + clip_high) A log p, where min(..) has no gradient
 *   importance_sampling   -r A
 *   dro                   -A log p + dro_beta / 2 (log p - log p_old)^2
 *
 * plus kl_coef times the estimate of the divergence, unless it is part of the reward. The sum of
 * weight * loss over the step's tokens is divided by their number, and entropy_coef times their
 * mean entropy is subtracted. A critic adds vf_coef times the mean over the tokens of
 *
 *   1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2),   c = cliprange_value
 *
 * with the values V now, V_old when the rollout was made, and the return R.
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

/* Makes the reference model's log-probabilities an output, and adds kl_coef times the estimate of
 * the divergence to the loss of each token, unless it is part of the reward. */
static lathe_status add_divergence(lathe_expression *e, const ppo *p,
                                   const lathe_stage_build *build, lathe_val logp, lathe_val mask,
                                   lathe_stage_loss *out, lathe_val *io_loss)
{
    lathe_val reference;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_REFERENCE, &reference));
    if (ppo_measures_kl(p))
        out->outputs[PPO_OUTPUT_REFERENCE] = reference;
    if (p->kl_in_reward)
        return LATHE_OK;
    const lathe_val kl = divergence(e, p, logp, lathe_expr_detach(e, reference));
    add_metric(e, "kl", kl, mask, out);
    const lathe_val weighted =
        p->kl_target > 0.0 ? lathe_expr_two(e, LATHE_OP_MUL, kl, build->inputs[PPO_INPUT_KL_COEF])
                           : lathe_expr_affine(e, p->kl_coef, kl, 0.0);
    *io_loss = lathe_expr_two(e, LATHE_OP_ADD, *io_loss, weighted);
    return LATHE_OK;
}

/* The critic's loss, summed over the learnt tokens. V_old is subtracted from all values, so that a
 * value within the bounds has the same loss twice, to the last bit. */
static lathe_val value_loss(lathe_expression *e, const ppo *p, const lathe_val *inputs,
                            lathe_val values, lathe_val mask, lathe_stage_loss *out)
{
    lathe_val losses;
    if (ppo_updates_once(p)) {
        const lathe_val error = lathe_expr_two(e, LATHE_OP_SUB, values, inputs[PPO_INPUT_RETURNS]);
        losses = lathe_expr_two(e, LATHE_OP_MUL, error, error);
    } else {
        const lathe_val old = inputs[PPO_INPUT_OLD_VALUES];
        const lathe_val shift = lathe_expr_two(e, LATHE_OP_SUB, values, old);
        const lathe_val wanted = lathe_expr_two(e, LATHE_OP_SUB, inputs[PPO_INPUT_RETURNS], old);
        const lathe_val clipped =
            lathe_expr_clamp(e, -p->cliprange_value, shift, p->cliprange_value);
        const lathe_val error = lathe_expr_two(e, LATHE_OP_SUB, shift, wanted);
        const lathe_val clipped_error = lathe_expr_two(e, LATHE_OP_SUB, clipped, wanted);
        const lathe_val plain = lathe_expr_two(e, LATHE_OP_MUL, error, error);
        const lathe_val bounded = lathe_expr_two(e, LATHE_OP_MUL, clipped_error, clipped_error);
        losses = lathe_expr_two(e, LATHE_OP_MAX, plain, bounded);
        add_metric(e, "val/clipfrac", lathe_expr_two(e, LATHE_OP_LESS, plain, bounded), mask, out);
    }
    losses = lathe_expr_affine(e, 0.5, losses, 0.0);
    add_metric(e, "loss/value", losses, mask, out);
    return out->metrics[out->n_metrics - 1].sum;
}

/* Adds what the loss has beside that of each token: the entropy and the critic. */
static lathe_status add_sums(lathe_expression *e, const ppo *p, const lathe_stage_build *build,
                             lathe_val mask, lathe_stage_loss *out)
{
    lathe_val x;
    if (p->entropy_coef > 0.0) {
        LATHE_TRY(build->entropy(build->ctx, LATHE_MODEL_POLICY, &x));
        add_metric(e, "entropy", x, mask, out);
        x = lathe_expr_weighted_sum(e, x, mask);
        out->sum = lathe_expr_two(e, LATHE_OP_ADD, out->sum,
                                  lathe_expr_affine(e, -p->entropy_coef, x, 0.0));
    }
    if (p->advantage == PPO_GAE) {
        LATHE_TRY(build->head(build->ctx, 0, &x));
        out->outputs[PPO_OUTPUT_VALUES] = x;
        x = value_loss(e, p, build->inputs, x, mask, out);
        out->sum =
            lathe_expr_two(e, LATHE_OP_ADD, out->sum, lathe_expr_affine(e, p->vf_coef, x, 0.0));
    }
    return LATHE_OK;
}

lathe_status ppo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out)
{
    const ppo *p = self;
    const lathe_val *inputs = build->inputs;
    lathe_expression e = {build->api, build->graph, "ppo", LATHE_OK};
    lathe_val logp, mask;
    out->n_metrics = 0;
    out->n_outputs = PPO_N_OUTPUTS;
    for (int i = 0; i < PPO_N_OUTPUTS; i++)
        out->outputs[i] = LATHE_NONE;
    LATHE_TRY(build->logprobs(build->ctx, LATHE_MODEL_POLICY, &logp));
    LATHE_TRY(build->target_mask(build->ctx, &mask));
    out->outputs[PPO_OUTPUT_LOGPROBS] = logp;
    const lathe_val old =
        ppo_updates_once(p) ? lathe_expr_detach(&e, logp) : inputs[PPO_INPUT_OLD_LOGPROBS];
    lathe_val loss = gain(&e, p, logp, old, inputs[PPO_INPUT_ADVANTAGES], mask, out);
    loss = lathe_expr_affine(&e, -1.0, loss, 0.0);
    if (p->kl_coef > 0.0)
        LATHE_TRY(add_divergence(&e, p, build, logp, mask, out, &loss));
    out->sum = lathe_expr_weighted_sum(&e, loss, inputs[PPO_INPUT_WEIGHTS]);
    LATHE_TRY(add_sums(&e, p, build, mask, out));
    out->count_unit = LATHE_COUNT_TOKENS;
    return e.status;
}
