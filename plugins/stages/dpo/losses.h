/* The losses of the stage dpo: what they read, and a table of them.
 *
 * r_w, r_l: the policy's log-probability of the chosen and of the rejected completion less the
 * reference's; n_w, n_l: their numbers of tokens; d = r_w - r_l (arXiv:2305.18290, eq. 7); s: the
 * logistic function; b: beta; e: label_smoothing; t: discopop_tau. A pair adds
 *
 *   sigmoid       -(1-e) log s(b d) - e log s(-b d)                 e > 0 is conservative DPO
 *   sigmoid_norm  -log s(b (r_w/n_w - r_l/n_l))
 *   robust        (-(1-e) log s(b d) + e log s(-b d)) / (1-2e)      arXiv:2403.00409
 *   hinge         max(0, 1 - b d)                                   arXiv:2305.10425
 *   ipo           (r_w/n_w - r_l/n_l - 1/(2b))^2                    arXiv:2310.12036, eq. 17
 *   exo_pair      s(b d) (log s(b d) - log(1-e))
 *                 + s(-b d) (log s(-b d) - log e)                   arXiv:2402.00856, eq. 16
 *   nca_pair      -log s(b r_w) - log s(-b r_w)/2 - log s(-b r_l)/2 arXiv:2402.05369
 *   bco_pair      -log s(b r_w) - log s(-b r_l)                     arXiv:2404.04656
 *   sppo_hard     (r_w - 1/(2b))^2 + (r_l + 1/(2b))^2               arXiv:2405.00675, eq. 4.7
 *   apo_zero      1 - s(b r_w) + s(b r_l)                           arXiv:2408.06266, eq. 7
 *   apo_down      s(b r_w) + 1 - s(b d)                             arXiv:2408.06266, eq. 8
 *   discopop      -(1-c) log s(b d) + c exp(-b d), c = s(b d / t)   arXiv:2406.08414, eq. 5
 *
 * These read no reference model; R_w, R_l: the policy's log-probabilities, g: simpo_gamma, a:
 * cpo_alpha; m_w = R_w/n_w, m_l = R_l/n_l; o(m) = m - log(1 - exp(m)):
 *
 *   cpo    -(1-e) log s(b D) - e log s(-b D) - a m_w, D = R_w - R_l  arXiv:2401.08417, eq. 3
 *   simpo  -(1-e) log s(z) - e log s(-z), z = b (m_w - m_l) - g      arXiv:2405.14734, eq. 6
 *   orpo   -m_w - b log s(o(m_w) - o(m_l))                           arXiv:2403.07691, eq. 6
 *
 * With reference_free, the losses of d alone take R_w and R_l in place of r_w and r_l.
 *
 * All are as TRL's DPOTrainer, CPOTrainer and ORPOTrainer compute them, with three differences:
 * TRL's DPOTrainer ignores e > 0 of `sigmoid`; the mean -m_w of cpo and orpo is over the tokens of
 * a pair, where TRL takes it over those of the batch; and orpo's is over the completion, as in the
 * paper, where TRL adds the prompt.
 */
#ifndef LATHE_DPO_LOSSES_H
#define LATHE_DPO_LOSSES_H

#include "lathe/stage.h"

/* The settings that a loss reads. */
typedef struct dpo_settings {
    double beta, label_smoothing, discopop_tau, simpo_gamma, cpo_alpha;
} dpo_settings;

/* The values that losses and metrics are made of. */
typedef struct dpo_pairs {
    const lathe_stage_build *build;
    const lathe_graph_api *api;
    lathe_graph *g;
    /* f32[P]: summed log-probabilities, or their means per token for losses of means */
    lathe_val policy_chosen, policy_rejected;
    lathe_val ratio_chosen, ratio_rejected; /* f32[P]: r_w, r_l; without a reference as above */
    lathe_val margin;                       /* f32[P]: b d */
    lathe_val mask;                         /* f32[P]: 1, or 0 for a padding pair */
} dpo_pairs;

/* Whether a loss reads label_smoothing. */
enum { DPO_SMOOTHING_UNUSED, DPO_SMOOTHING_OPTIONAL, DPO_SMOOTHING_REQUIRED };

/* Where a loss needs the reference model. */
enum {
    DPO_REFERENCE,  /* it compares each completion with the reference */
    DPO_DIFFERENCE, /* it reads d alone: reference_free is allowed */
    DPO_SUMS,       /* it reads none: sums of log-probabilities */
    DPO_MEANS       /* it reads none: means per token */
};

typedef struct dpo_loss_type {
    const char *name; /* loss_type */
    int32_t smoothing, reference;
    /** Adds the loss of each pair, f32[P]. */
    lathe_status (*build)(const dpo_settings *settings, const dpo_pairs *pairs, lathe_val *out);
} dpo_loss_type;

#define DPO_LOSS_NAMES                                                                             \
    "sigmoid|robust|hinge|ipo|exo_pair|nca_pair|bco_pair|sppo_hard|apo_zero|apo_down|discopop|"    \
    "sigmoid_norm|cpo|simpo|orpo"
extern const dpo_loss_type dpo_losses[];
extern const int32_t dpo_n_losses;

/** -m_w of each pair, and orpo's log-odds o(m_w) - o(m_l). The pairs hold means for the second. */
lathe_status dpo_nll(const dpo_pairs *pairs, lathe_val *out);
lathe_status dpo_log_odds(const dpo_pairs *pairs, lathe_val *out);

/** f32[2P]: the number of target tokens of each row; a completion without tokens counts as one of
 * one token. */
lathe_status dpo_counts(const dpo_pairs *pairs, lathe_val *out);

/* ---- nodes of one or two inputs ---- */

static inline lathe_status dpo_unary(const dpo_pairs *p, int32_t op, lathe_val x, const char *label,
                                     lathe_val *out)
{
    return p->api->node(p->g, op, NULL, &x, 1, out, 1, -1, label);
}

static inline lathe_status dpo_binary(const dpo_pairs *p, int32_t op, lathe_val a, lathe_val b,
                                      const char *label, lathe_val *out)
{
    const lathe_val in[2] = {a, b};
    return p->api->node(p->g, op, NULL, in, 2, out, 1, -1, label);
}

/* alpha*x + beta */
static inline lathe_status dpo_affine(const dpo_pairs *p, double alpha, double beta, lathe_val x,
                                      const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = alpha, .beta = beta};
    return p->api->node(p->g, LATHE_OP_SCALE, &attrs, &x, 1, out, 1, -1, label);
}

/* Elements [start, start + count) of x */
static inline lathe_status dpo_slice(const dpo_pairs *p, int64_t start, int64_t count, lathe_val x,
                                     const char *label, lathe_val *out)
{
    const lathe_op_attrs attrs = {.start = start, .count = count};
    return p->api->node(p->g, LATHE_OP_SLICE, &attrs, &x, 1, out, 1, -1, label);
}

/* f32[rows] of f32[rows * row_tokens] */
static inline lathe_status dpo_row_sum(const dpo_pairs *p, lathe_val x, const char *label,
                                       lathe_val *out)
{
    const lathe_op_attrs attrs = {.count = p->build->row_tokens};
    return p->api->node(p->g, LATHE_OP_ROW_SUM, &attrs, &x, 1, out, 1, -1, label);
}

/* 1 where x > 0, else 0: the sigmoid far out, exactly 0 or 1 for |x| > 1e-26 and 0 at x = 0. No
 * derivative: its factor at both ends is exactly 0. */
static inline lathe_status dpo_is_positive(const dpo_pairs *p, lathe_val x, lathe_val *out)
{
    lathe_val y;
    LATHE_TRY(dpo_affine(p, 1e30, -1000.0, x, "dpo.steep", &y));
    return dpo_unary(p, LATHE_OP_SIGMOID, y, "dpo.is_positive", out);
}

#endif
