/* The losses of the stage dpo (formulas: losses.h). */
#include "losses.h"

#include <math.h>

/* alpha * log s(scale * x) */
static lathe_status log_sigmoid(const dpo_pairs *p, double alpha, double scale, lathe_val x,
                                lathe_val *out)
{
    lathe_val y = x;
    if (scale != 1.0)
        LATHE_TRY(dpo_affine(p, scale, 0.0, y, "dpo.scaled", &y));
    LATHE_TRY(dpo_unary(p, LATHE_OP_LOGSIGMOID, y, "dpo.logsigmoid", &y));
    return dpo_affine(p, alpha, 0.0, y, "dpo.term", out);
}

/* alpha * s(scale * x) + beta */
static lathe_status sigmoid(const dpo_pairs *p, double scale, lathe_val x, double alpha,
                            double beta, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(dpo_affine(p, scale, 0.0, x, "dpo.scaled", &y));
    LATHE_TRY(dpo_unary(p, LATHE_OP_SIGMOID, y, "dpo.sigmoid", &y));
    return dpo_affine(p, alpha, beta, y, "dpo.term", out);
}

/* (x + shift)^2 */
static lathe_status square(const dpo_pairs *p, lathe_val x, double shift, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(dpo_affine(p, 1.0, shift, x, "dpo.shifted", &y));
    return dpo_binary(p, LATHE_OP_MUL, y, y, "dpo.square", out);
}

static lathe_status add(const dpo_pairs *p, lathe_val a, lathe_val b, lathe_val *out)
{
    return dpo_binary(p, LATHE_OP_ADD, a, b, "dpo.losses", out);
}

lathe_status dpo_counts(const dpo_pairs *p, lathe_val *out)
{
    lathe_val mask, count, one;
    LATHE_TRY(p->build->target_mask(p->build->ctx, &mask));
    LATHE_TRY(dpo_row_sum(p, mask, "dpo.counts", &count));
    LATHE_TRY(dpo_affine(p, 0.0, 1.0, count, "dpo.one", &one));
    return dpo_binary(p, LATHE_OP_MAX, count, one, "dpo.counts", out);
}

/* r_w/n_w - r_l/n_l */
static lathe_status normalised_delta(const dpo_pairs *p, lathe_val *out)
{
    const int64_t n = p->build->n_rows / 2;
    const lathe_val ratios[2] = {p->ratio_chosen, p->ratio_rejected};
    lathe_val count, mean[2];
    LATHE_TRY(dpo_counts(p, &count));
    for (int i = 0; i < 2; i++) {
        LATHE_TRY(dpo_slice(p, i * n, n, count, "dpo.count", &mean[i]));
        LATHE_TRY(dpo_binary(p, LATHE_OP_DIV, ratios[i], mean[i], "dpo.mean", &mean[i]));
    }
    return dpo_binary(p, LATHE_OP_SUB, mean[0], mean[1], "dpo.normalised_delta", out);
}

/* first * log s(x) + second * log s(-x) */
static lathe_status both_sides(const dpo_pairs *p, double first, double second, lathe_val x,
                               lathe_val *out)
{
    lathe_val given, swapped; /* the labels as given, and swapped */
    LATHE_TRY(log_sigmoid(p, first, 1.0, x, &given));
    *out = given;
    if (second == 0.0)
        return LATHE_OK;
    LATHE_TRY(log_sigmoid(p, second, -1.0, x, &swapped));
    return add(p, given, swapped, out);
}

static lathe_status build_sigmoid(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    return both_sides(p, -(1.0 - s->label_smoothing), -s->label_smoothing, p->margin, out);
}

static lathe_status build_robust(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    const double e = s->label_smoothing, divisor = 1.0 - 2.0 * e;
    return both_sides(p, -(1.0 - e) / divisor, e / divisor, p->margin, out);
}

static lathe_status build_hinge(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val gap, on;
    (void)s;
    LATHE_TRY(dpo_affine(p, -1.0, 1.0, p->margin, "dpo.gap", &gap));
    LATHE_TRY(dpo_is_positive(p, gap, &on));
    LATHE_TRY(p->api->detach(p->g, on, &on));
    return dpo_binary(p, LATHE_OP_MUL, gap, on, "dpo.losses", out);
}

static lathe_status build_ipo(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val delta;
    LATHE_TRY(normalised_delta(p, &delta));
    return square(p, delta, -0.5 / s->beta, out);
}

static lathe_status build_sigmoid_norm(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val delta;
    LATHE_TRY(normalised_delta(p, &delta));
    return log_sigmoid(p, -1.0, s->beta, delta, out);
}

/* s(x) (log s(x) - log_p) with x = sign * b d */
static lathe_status divergence_term(const dpo_pairs *p, double sign, double log_p, lathe_val *out)
{
    lathe_val q, log_q;
    LATHE_TRY(sigmoid(p, sign, p->margin, 1.0, 0.0, &q));
    LATHE_TRY(log_sigmoid(p, 1.0, sign, p->margin, &log_q));
    LATHE_TRY(dpo_affine(p, 1.0, -log_p, log_q, "dpo.log_ratio", &log_q));
    return dpo_binary(p, LATHE_OP_MUL, q, log_q, "dpo.term", out);
}

static lathe_status build_exo_pair(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val chosen, rejected;
    LATHE_TRY(divergence_term(p, 1.0, log1p(-s->label_smoothing), &chosen));
    LATHE_TRY(divergence_term(p, -1.0, log(s->label_smoothing), &rejected));
    return add(p, chosen, rejected, out);
}

static lathe_status build_nca_pair(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val up, down, other;
    LATHE_TRY(log_sigmoid(p, -1.0, s->beta, p->ratio_chosen, &up));
    LATHE_TRY(log_sigmoid(p, -0.5, -s->beta, p->ratio_chosen, &down));
    LATHE_TRY(log_sigmoid(p, -0.5, -s->beta, p->ratio_rejected, &other));
    LATHE_TRY(add(p, up, down, &up));
    return add(p, up, other, out);
}

static lathe_status build_bco_pair(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val chosen, rejected;
    LATHE_TRY(log_sigmoid(p, -1.0, s->beta, p->ratio_chosen, &chosen));
    LATHE_TRY(log_sigmoid(p, -1.0, -s->beta, p->ratio_rejected, &rejected));
    return add(p, chosen, rejected, out);
}

static lathe_status build_sppo_hard(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val winner, loser;
    LATHE_TRY(square(p, p->ratio_chosen, -0.5 / s->beta, &winner));
    LATHE_TRY(square(p, p->ratio_rejected, 0.5 / s->beta, &loser));
    return add(p, winner, loser, out);
}

static lathe_status build_apo_zero(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val chosen, rejected;
    LATHE_TRY(sigmoid(p, s->beta, p->ratio_chosen, -1.0, 1.0, &chosen));
    LATHE_TRY(sigmoid(p, s->beta, p->ratio_rejected, 1.0, 0.0, &rejected));
    return add(p, chosen, rejected, out);
}

static lathe_status build_apo_down(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val chosen, rejected;
    LATHE_TRY(sigmoid(p, s->beta, p->ratio_chosen, 1.0, 0.0, &chosen));
    LATHE_TRY(sigmoid(p, 1.0, p->margin, -1.0, 1.0, &rejected));
    return add(p, chosen, rejected, out);
}

/* -(1-c) log s(b d) + c exp(-b d), c = s(b d / t). The second term is computed as
 * exp(log c - b d): exp(-b d) alone overflows where c is 0, and the product would be NaN. */
static lathe_status build_discopop(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    const double scale = 1.0 / s->discopop_tau;
    lathe_val rest, log_share, log_s, logistic, exponential;
    LATHE_TRY(sigmoid(p, -scale, p->margin, -1.0, 0.0, &rest)); /* c - 1 */
    LATHE_TRY(log_sigmoid(p, 1.0, 1.0, p->margin, &log_s));
    LATHE_TRY(dpo_binary(p, LATHE_OP_MUL, rest, log_s, "dpo.logistic", &logistic));
    LATHE_TRY(log_sigmoid(p, 1.0, scale, p->margin, &log_share));
    LATHE_TRY(dpo_binary(p, LATHE_OP_SUB, log_share, p->margin, "dpo.exponent", &exponential));
    LATHE_TRY(dpo_unary(p, LATHE_OP_EXP, exponential, "dpo.exponential", &exponential));
    return add(p, logistic, exponential, out);
}

/* ---- losses without a reference model ---- */

lathe_status dpo_nll(const dpo_pairs *p, lathe_val *out)
{
    lathe_val counts, count;
    LATHE_TRY(dpo_counts(p, &counts));
    LATHE_TRY(dpo_slice(p, 0, p->build->n_rows / 2, counts, "dpo.count", &count));
    LATHE_TRY(dpo_binary(p, LATHE_OP_DIV, p->policy_chosen, count, "dpo.mean", out));
    return dpo_affine(p, -1.0, 0.0, *out, "dpo.nll", out);
}

static lathe_status build_cpo(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val preference, nll;
    LATHE_TRY(
        both_sides(p, -(1.0 - s->label_smoothing), -s->label_smoothing, p->margin, &preference));
    *out = preference;
    if (s->cpo_alpha == 0.0)
        return LATHE_OK;
    LATHE_TRY(dpo_nll(p, &nll));
    LATHE_TRY(dpo_affine(p, s->cpo_alpha, 0.0, nll, "dpo.term", &nll));
    return add(p, preference, nll, out);
}

static lathe_status build_simpo(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val gap;
    LATHE_TRY(dpo_affine(p, 1.0, -s->simpo_gamma, p->margin, "dpo.gap", &gap));
    return both_sides(p, -(1.0 - s->label_smoothing), -s->label_smoothing, gap, out);
}

/* log(1 - exp(m)) of a mean m < 0, computed as log(-2t / (1 - t)) with t = tanh(m/2), which is
 * exact near 0. Means above -1e-6 count as -1e-6; the mean of a padding row is 0. */
static lathe_status log_of_rest(const dpo_pairs *p, lathe_val m, lathe_val *out)
{
    lathe_val max, t, above, below;
    LATHE_TRY(dpo_affine(p, 0.0, -1e-6, m, "dpo.most", &max));
    LATHE_TRY(dpo_binary(p, LATHE_OP_MIN, m, max, "dpo.mean", &m));
    LATHE_TRY(dpo_affine(p, 0.5, 0.0, m, "dpo.half", &t));
    LATHE_TRY(dpo_unary(p, LATHE_OP_TANH, t, "dpo.tanh", &t));
    LATHE_TRY(dpo_affine(p, -2.0, 0.0, t, "dpo.above", &above));
    LATHE_TRY(dpo_affine(p, -1.0, 1.0, t, "dpo.below", &below));
    LATHE_TRY(dpo_binary(p, LATHE_OP_DIV, above, below, "dpo.rest", &above));
    return dpo_unary(p, LATHE_OP_LOG, above, "dpo.log_rest", out);
}

lathe_status dpo_log_odds(const dpo_pairs *p, lathe_val *out)
{
    const lathe_val mean[2] = {p->policy_chosen, p->policy_rejected};
    lathe_val odds[2];
    for (int i = 0; i < 2; i++) {
        LATHE_TRY(log_of_rest(p, mean[i], &odds[i]));
        LATHE_TRY(dpo_binary(p, LATHE_OP_SUB, mean[i], odds[i], "dpo.odds", &odds[i]));
    }
    return dpo_binary(p, LATHE_OP_SUB, odds[0], odds[1], "dpo.log_odds", out);
}

static lathe_status build_orpo(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val odds, nll;
    LATHE_TRY(dpo_log_odds(p, &odds));
    LATHE_TRY(log_sigmoid(p, -s->beta, 1.0, odds, &odds));
    LATHE_TRY(dpo_affine(p, -1.0, 0.0, p->policy_chosen, "dpo.nll", &nll));
    return add(p, nll, odds, out);
}

const dpo_loss_type dpo_losses[] = {
    {"sigmoid", DPO_SMOOTHING_OPTIONAL, DPO_DIFFERENCE, build_sigmoid},
    {"robust", DPO_SMOOTHING_OPTIONAL, DPO_DIFFERENCE, build_robust},
    {"hinge", DPO_SMOOTHING_UNUSED, DPO_DIFFERENCE, build_hinge},
    {"ipo", DPO_SMOOTHING_UNUSED, DPO_DIFFERENCE, build_ipo},
    {"exo_pair", DPO_SMOOTHING_REQUIRED, DPO_DIFFERENCE, build_exo_pair},
    {"nca_pair", DPO_SMOOTHING_UNUSED, DPO_REFERENCE, build_nca_pair},
    {"bco_pair", DPO_SMOOTHING_UNUSED, DPO_REFERENCE, build_bco_pair},
    {"sppo_hard", DPO_SMOOTHING_UNUSED, DPO_REFERENCE, build_sppo_hard},
    {"apo_zero", DPO_SMOOTHING_UNUSED, DPO_REFERENCE, build_apo_zero},
    {"apo_down", DPO_SMOOTHING_UNUSED, DPO_REFERENCE, build_apo_down},
    {"discopop", DPO_SMOOTHING_UNUSED, DPO_DIFFERENCE, build_discopop},
    {"sigmoid_norm", DPO_SMOOTHING_UNUSED, DPO_DIFFERENCE, build_sigmoid_norm},
    {"cpo", DPO_SMOOTHING_OPTIONAL, DPO_SUMS, build_cpo},
    {"simpo", DPO_SMOOTHING_OPTIONAL, DPO_MEANS, build_simpo},
    {"orpo", DPO_SMOOTHING_UNUSED, DPO_MEANS, build_orpo},
};
const int32_t dpo_n_losses = sizeof dpo_losses / sizeof *dpo_losses;
