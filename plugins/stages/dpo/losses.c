/* The losses of the stage dpo (formulas: losses.h). */
#include "losses.h"

#include <math.h>

/* alpha * log s(sign * x) */
static lathe_status log_sigmoid(const dpo_pairs *p, double alpha, double sign, lathe_val x,
                                lathe_val *out)
{
    lathe_val y = x;
    if (sign != 1.0)
        LATHE_TRY(dpo_affine(p, sign, 0.0, y, "dpo.negated", &y));
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

/* r_w/n_w - r_l/n_l; a completion without tokens counts as one of one token. */
static lathe_status normalised_delta(const dpo_pairs *p, lathe_val *out)
{
    const int64_t n = p->build->n_rows / 2;
    const lathe_val ratios[2] = {p->ratio_chosen, p->ratio_rejected};
    lathe_val mask, count, one, mean[2];
    LATHE_TRY(p->build->target_mask(p->build->ctx, &mask));
    LATHE_TRY(dpo_row_sum(p, mask, "dpo.counts", &count));
    LATHE_TRY(dpo_affine(p, 0.0, 1.0, count, "dpo.one", &one));
    LATHE_TRY(dpo_binary(p, LATHE_OP_MAX, count, one, "dpo.counts", &count));
    for (int i = 0; i < 2; i++) {
        LATHE_TRY(dpo_slice(p, i * n, n, count, "dpo.count", &mean[i]));
        LATHE_TRY(dpo_binary(p, LATHE_OP_DIV, ratios[i], mean[i], "dpo.mean", &mean[i]));
    }
    return dpo_binary(p, LATHE_OP_SUB, mean[0], mean[1], "dpo.normalised_delta", out);
}

/* first: alpha of log s(b d); second: of log s(-b d) */
static lathe_status both_sides(const dpo_pairs *p, double first, double second, lathe_val *out)
{
    lathe_val kept, swapped;
    LATHE_TRY(log_sigmoid(p, first, 1.0, p->margin, &kept));
    *out = kept;
    if (second == 0.0)
        return LATHE_OK;
    LATHE_TRY(log_sigmoid(p, second, -1.0, p->margin, &swapped));
    return add(p, kept, swapped, out);
}

static lathe_status build_sigmoid(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    return both_sides(p, -(1.0 - s->label_smoothing), -s->label_smoothing, out);
}

static lathe_status build_robust(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    const double e = s->label_smoothing, whole = 1.0 - 2.0 * e;
    return both_sides(p, -(1.0 - e) / whole, e / whole, out);
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

/* s(x) (log s(x) - log_p) of x = sign * b d */
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

/* -log s(b d) + m (exp(-b d) + log s(b d)) */
static lathe_status build_discopop(const dpo_settings *s, const dpo_pairs *p, lathe_val *out)
{
    lathe_val share, log_s, exponential, mixed, logistic;
    LATHE_TRY(sigmoid(p, 1.0 / s->discopop_tau, p->margin, 1.0, 0.0, &share));
    LATHE_TRY(log_sigmoid(p, 1.0, 1.0, p->margin, &log_s));
    LATHE_TRY(dpo_affine(p, -1.0, 0.0, p->margin, "dpo.negated", &exponential));
    LATHE_TRY(dpo_unary(p, LATHE_OP_EXP, exponential, "dpo.exponential", &exponential));
    LATHE_TRY(add(p, exponential, log_s, &mixed));
    LATHE_TRY(dpo_binary(p, LATHE_OP_MUL, share, mixed, "dpo.term", &mixed));
    LATHE_TRY(dpo_affine(p, -1.0, 0.0, log_s, "dpo.term", &logistic));
    return add(p, logistic, mixed, out);
}

const dpo_loss_type dpo_losses[] = {
    {"sigmoid", DPO_SMOOTHING_OPTIONAL, build_sigmoid},
    {"robust", DPO_SMOOTHING_OPTIONAL, build_robust},
    {"hinge", DPO_SMOOTHING_UNUSED, build_hinge},
    {"ipo", DPO_SMOOTHING_UNUSED, build_ipo},
    {"exo_pair", DPO_SMOOTHING_REQUIRED, build_exo_pair},
    {"nca_pair", DPO_SMOOTHING_UNUSED, build_nca_pair},
    {"bco_pair", DPO_SMOOTHING_UNUSED, build_bco_pair},
    {"sppo_hard", DPO_SMOOTHING_UNUSED, build_sppo_hard},
    {"apo_zero", DPO_SMOOTHING_UNUSED, build_apo_zero},
    {"apo_down", DPO_SMOOTHING_UNUSED, build_apo_down},
    {"discopop", DPO_SMOOTHING_UNUSED, build_discopop},
    {"sigmoid_norm", DPO_SMOOTHING_UNUSED, build_sigmoid_norm},
};
const int32_t dpo_n_losses = sizeof dpo_losses / sizeof *dpo_losses;
