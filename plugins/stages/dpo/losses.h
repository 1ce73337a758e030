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
 *   discopop      -(1-m) log s(b d) + m exp(-b d), m = s(b d / t)   arXiv:2406.08414, eq. 5
 *
 * as TRL's DPOTrainer computes them, but for `sigmoid` with e > 0, which TRL ignores.
 */
#ifndef LATHE_DPO_LOSSES_H
#define LATHE_DPO_LOSSES_H

#include "lathe/stage.h"

/* The settings that a loss reads. */
typedef struct dpo_settings {
    double beta, label_smoothing, discopop_tau;
} dpo_settings;

/* The values that losses and metrics are made of. */
typedef struct dpo_pairs {
    const lathe_stage_build *build;
    const lathe_graph_api *api;
    lathe_graph *g;
    lathe_val policy_chosen, policy_rejected; /* f32[P]: summed log-probabilities */
    lathe_val ratio_chosen, ratio_rejected;   /* f32[P]: r_w, r_l */
    lathe_val margin;                         /* f32[P]: b d */
    lathe_val mask;                           /* f32[P]: 1, or 0 for a padding pair */
} dpo_pairs;

/* What label_smoothing is for a loss. */
enum { DPO_SMOOTHING_UNUSED, DPO_SMOOTHING_OPTIONAL, DPO_SMOOTHING_REQUIRED };

typedef struct dpo_loss_type {
    const char *name; /* loss_type */
    int32_t smoothing;
    /** Adds the loss of each pair, f32[P]. */
    lathe_status (*build)(const dpo_settings *settings, const dpo_pairs *pairs, lathe_val *out);
} dpo_loss_type;

#define DPO_LOSS_NAMES                                                                             \
    "sigmoid|robust|hinge|ipo|exo_pair|nca_pair|bco_pair|sppo_hard|apo_zero|apo_down|discopop|"    \
    "sigmoid_norm"
extern const dpo_loss_type dpo_losses[];
extern const int32_t dpo_n_losses;

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
