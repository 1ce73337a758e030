/* Mixtures of experts in a decoder (lathe/kit/decoder.h): the router, the experts, and the balance
 * of their load. */
#ifndef LATHE_KIT_DECODER_EXPERTS_H
#define LATHE_KIT_DECODER_EXPERTS_H

#include "decoder_activation.h"

/** Adds a node without attributes with one or two inputs (b LATHE_NONE: one). */
static inline lathe_status lathe_decoder_op(const lathe_decoder_at *at, int32_t op, lathe_val a,
                                            lathe_val b, const char *label, lathe_val *out)
{
    const lathe_val in[2] = {a, b};
    return lathe_decoder_node(at, op, NULL, in, b == LATHE_NONE ? 1 : 2, label, out);
}

/** alpha*x + beta */
static inline lathe_status lathe_decoder_scaled(const lathe_decoder_at *at, lathe_val x,
                                                double alpha, double beta, const char *label,
                                                lathe_val *out)
{
    const lathe_op_attrs attrs = {.alpha = alpha, .beta = beta};
    return lathe_decoder_node(at, LATHE_OP_SCALE, &attrs, &x, 1, label, out);
}

/** Divides each row of x f32[N,K] by its sum; sum_plus and sum_least of the layer raise the sum
 *  first. */
static inline lathe_status lathe_decoder_shares(const lathe_decoder_at *at, lathe_val x, int64_t k,
                                                lathe_val *out)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs columns = {.count = k, .dtype = LATHE_F32};
    const lathe_op_attrs bounds = {.alpha = e->sum_least, .beta = 3e38};
    lathe_val sum[2] = {LATHE_NONE, LATHE_NONE};
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM_COLUMNS, x, LATHE_NONE, "router.sum", &sum[0]));
    if (e->sum_plus > 0.0)
        LATHE_TRY(lathe_decoder_scaled(at, sum[0], 1.0, e->sum_plus, "router.sum", &sum[0]));
    if (e->sum_least > 0.0)
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CLAMP, &bounds, sum, 2, "router.sum", &sum[0]));
    LATHE_TRY(
        lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &columns, sum, 1, "router.sum", &sum[0]));
    return lathe_decoder_op(at, LATHE_OP_DIV, x, sum[0], "router.weights", out);
}

/** *io += x; the first one is taken as it is. */
static inline lathe_status lathe_decoder_add_up(const lathe_decoder_at *at, lathe_val x,
                                                const char *label, lathe_val *io)
{
    const lathe_val before = *io;
    *io = x;
    return before == LATHE_NONE ? LATHE_OK
                                : lathe_decoder_op(at, LATHE_OP_ADD, before, x, label, io);
}

/** *io [N, columns] times the mask of the tokens, if there is one. */
static inline lathe_status lathe_decoder_masked(const lathe_decoder_at *at, int64_t columns,
                                                lathe_val *io)
{
    const lathe_op_attrs attrs = {.count = columns, .dtype = LATHE_F32};
    lathe_val mask = at->routers->mask;
    if (mask == LATHE_NONE)
        return LATHE_OK;
    LATHE_TRY(
        lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &attrs, &mask, 1, "router.mask", &mask));
    return lathe_decoder_op(at, LATHE_OP_MUL, *io, mask, "router.mask", io);
}

/** Adds figures of a layer's router to the sums: the entropy of each token's probabilities, the
 *  number of tokens that chose the most popular expert, and the number of experts that no token
 *  chose. They have no gradient. probability f32[N,E], chosen f32[E] */
static inline lathe_status lathe_decoder_router_figures(const lathe_decoder_at *at,
                                                        lathe_val probability, lathe_val chosen)
{
    const lathe_op_attrs one_row = {.count = 1, .dtype = LATHE_F32}, first = {.count = 1};
    lathe_router_sums *s = at->routers;
    lathe_val p, y, row[2];
    LATHE_TRY(at->b->api->detach(at->b->graph, probability, &p));
    /* log(0) has no product with 0; 1e-30 changes no other probability */
    LATHE_TRY(lathe_decoder_scaled(at, p, 1.0, 1e-30, "router.entropy", &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_LOG, y, LATHE_NONE, "router.entropy", &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_MUL, p, y, "router.entropy", &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, y, LATHE_NONE, "router.entropy", &y));
    LATHE_TRY(lathe_decoder_add_up(at, y, "router.entropy", &s->entropy));
    LATHE_TRY(
        lathe_decoder_node(at, LATHE_OP_BROADCAST_ROW, &one_row, &chosen, 1, "router.load", &y));
    LATHE_TRY(
        at->b->api->node(at->b->graph, LATHE_OP_TOPK, &first, &y, 1, row, 2, -1, "router.load"));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, row[0], LATHE_NONE, "router.load", &y));
    LATHE_TRY(lathe_decoder_add_up(at, y, "router.load", &s->largest));
    /* 1 - min(chosen, 1) of whole numbers is 1 where nothing was chosen */
    const lathe_op_attrs bounds = {.alpha = 0.0, .beta = 1.0};
    const lathe_val in[2] = {chosen, LATHE_NONE};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CLAMP, &bounds, in, 2, "router.dead", &y));
    LATHE_TRY(lathe_decoder_scaled(at, y, -1.0, 1.0, "router.dead", &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, y, LATHE_NONE, "router.dead", &y));
    return lathe_decoder_add_up(at, y, "router.dead", &s->dead);
}

/** Counts the tokens that chose each expert: *out f32[E]. index i32[N,K]; like f32[N,K]: any
 *  numbers. Padding does not count. */
static inline lathe_status lathe_decoder_count_chosen(const lathe_decoder_at *at, lathe_val like,
                                                      lathe_val index, lathe_val *out)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs back = {.count = e->n_experts};
    lathe_val in[2] = {LATHE_NONE, index};
    /* ones: x < x is 0 everywhere */
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_LESS, like, like, "router.ones", &in[0]));
    LATHE_TRY(lathe_decoder_scaled(at, in[0], 1.0, 1.0, "router.ones", &in[0]));
    LATHE_TRY(at->b->api->detach(at->b->graph, in[0], &in[0]));
    LATHE_TRY(lathe_decoder_masked(at, e->n_chosen, &in[0]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_TOPK_BWD, &back, in, 2, "router.chosen", &in[0]));
    return lathe_decoder_op(at, LATHE_OP_SUM_ROWS, in[0], LATHE_NONE, "router.chosen", out);
}

/** Adds to the sums of the load balancing loss: how many tokens chose each expert, and its
 *  probabilities f32[N,E], which are softmax(scores). */
static inline lathe_status lathe_decoder_count_balance(const lathe_decoder_at *at,
                                                       lathe_val probability, lathe_val chosen)
{
    lathe_router_sums *s = at->routers;
    lathe_val sum;
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM_ROWS, probability, LATHE_NONE, "router.probability",
                               &sum));
    if (at->b->balance_by_layer) {
        LATHE_TRY(lathe_decoder_op(at, LATHE_OP_MUL, chosen, sum, "router.balance", &sum));
        LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, sum, LATHE_NONE, "router.balance", &sum));
        return lathe_decoder_add_up(at, sum, "router.balance", &s->balance);
    }
    LATHE_TRY(lathe_decoder_add_up(at, chosen, "router.chosen", &s->chosen));
    return lathe_decoder_add_up(at, sum, "router.probability", &s->probability);
}

/** Adds to the sum of the z-loss (ST-MoE, arXiv:2202.08906, equation 5): the squares of log(sum of
 *  exp(scores)) of each token. scores f32[N,E] */
static inline lathe_status lathe_decoder_count_z(const lathe_decoder_at *at, lathe_val scores)
{
    const lathe_op_attrs first = {.count = 1};
    const lathe_op_attrs columns = {.count = at->d->layers[at->layer].experts->n_experts,
                                    .dtype = LATHE_F32};
    const char *label = "router.z";
    lathe_val top[2], largest, y;
    /* exp() of a large score has no place in f32. The largest score is subtracted as a constant,
     * and added to the logarithm again: then the gradient is softmax(scores), also where two scores
     * are equal. */
    LATHE_TRY(at->b->api->detach(at->b->graph, scores, &y));
    LATHE_TRY(at->b->api->node(at->b->graph, LATHE_OP_TOPK, &first, &y, 1, top, 2, -1, label));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM_COLUMNS, top[0], LATHE_NONE, label, &largest));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &columns, &largest, 1, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUB, scores, y, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_EXP, y, LATHE_NONE, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM_COLUMNS, y, LATHE_NONE, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_LOG, y, LATHE_NONE, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_ADD, y, largest, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_MUL, y, y, label, &y));
    if (at->routers->mask != LATHE_NONE)
        LATHE_TRY(lathe_decoder_op(at, LATHE_OP_MUL, y, at->routers->mask, label, &y));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, y, LATHE_NONE, label, &y));
    return lathe_decoder_add_up(at, y, label, &at->routers->z);
}

/** Whether the load balancing loss is computed. A family without one has it on request. */
static inline int lathe_decoder_balances(const lathe_decoder_at *at)
{
    return !at->d->experts.no_balance || !isnan(at->b->balance_loss);
}

/** Adds what this layer's router did to the sums over the layers. scores f32[N,E]: of the router;
 *  probability f32[N,E]; weights f32[N,K] and index i32[N,K]: of the chosen experts. Padding does
 *  not count.
 *
 *  The load balancing loss is transformers' also where a token chooses in another way: it counts
 *  the K largest of softmax(scores). */
static inline lathe_status lathe_decoder_count_experts(const lathe_decoder_at *at, lathe_val scores,
                                                       lathe_val probability, lathe_val weights,
                                                       lathe_val index)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs largest = {.count = e->n_chosen};
    const int is_other = e->sigmoid || e->correction != NULL || e->n_groups > 1;
    lathe_val chosen, share = probability, top[2];
    char name[256];
    LATHE_TRY(lathe_decoder_count_chosen(at, weights, index, &chosen));
    if (e->correction != NULL) {
        lathe_decoder_name(at, e->correction, name, sizeof name);
        LATHE_TRY(at->b->expert_load(at->b->ctx, name, chosen));
    }
    if (e->sigmoid)
        LATHE_TRY(lathe_decoder_shares(at, probability, e->n_experts, &share));
    LATHE_TRY(lathe_decoder_masked(at, e->n_experts, &share));
    LATHE_TRY(lathe_decoder_router_figures(at, share, chosen));
    at->routers->n_layers++;
    if (!isnan(at->b->router_z_loss))
        LATHE_TRY(lathe_decoder_count_z(at, scores));
    if (!lathe_decoder_balances(at))
        return LATHE_OK;
    if (!is_other)
        return lathe_decoder_count_balance(at, share, chosen);
    LATHE_TRY(
        lathe_decoder_op(at, LATHE_OP_SOFTMAX, scores, LATHE_NONE, "router.softmax", &probability));
    LATHE_TRY(at->b->api->node(at->b->graph, LATHE_OP_TOPK, &largest, &probability, 1, top, 2, -1,
                               "router.balance"));
    LATHE_TRY(lathe_decoder_count_chosen(at, top[0], top[1], &chosen));
    LATHE_TRY(lathe_decoder_masked(at, e->n_experts, &probability));
    return lathe_decoder_count_balance(at, probability, chosen);
}

/** The scores f32[N,E] of the experts for x c[N,C]. */
static inline lathe_status lathe_decoder_scores(const lathe_decoder_at *at, lathe_val x,
                                                lathe_val *out)
{
    const lathe_op_attrs wide = {.dtype = LATHE_F32};
    lathe_desc desc;
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    lathe_val w, bias = LATHE_NONE;
    char name[256], tensor[264];
    lathe_decoder_name(at, e->router, name, sizeof name);
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &w));
    (void)snprintf(tensor, sizeof tensor, "%s.bias", name);
    if (e->bias)
        LATHE_TRY(at->b->tensor(at->b->ctx, tensor, &bias));
    LATHE_TRY(at->b->api->linear(at->b->graph, x, w, bias, lathe_decoder_label(at, name), out));
    LATHE_TRY(at->b->api->desc(at->b->graph, *out, &desc));
    return desc.dtype == LATHE_F32
               ? LATHE_OK
               : lathe_decoder_node(at, LATHE_OP_CAST, &wide, out, 1, "router.f32", out);
}

/** The K experts of the largest p f32[N,E], corrected and in groups if the layer is so: out[0]
 *  f32[N,K] has their p, out[1] i32[N,K] their numbers. */
static inline lathe_status lathe_decoder_choose(const lathe_decoder_at *at, lathe_val p,
                                                lathe_val out[2])
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs attrs = {
        .batch = e->n_groups, .start = e->n_chosen_groups, .count = e->n_chosen};
    char name[256];
    lathe_val in[2] = {p, LATHE_NONE};
    if (e->correction == NULL && e->n_groups < 2)
        return at->b->api->node(at->b->graph, LATHE_OP_TOPK, &attrs, in, 1, out, 2, -1,
                                "router.topk");
    if (e->correction != NULL) {
        lathe_decoder_name(at, e->correction, name, sizeof name);
        LATHE_TRY(at->b->tensor(at->b->ctx, name, &in[1]));
    }
    return at->b->api->node(at->b->graph, LATHE_OP_EXPERT_CHOICE, &attrs, in, 2, out, 2, -1,
                            "router.choice");
}

/** Chooses the experts of each token of x c[N,C]: *out_weights f32[N,K], *out_index i32[N,K]. Ties
 *  go to the lower number. Probabilities are computed in f32, as in transformers. */
static inline lathe_status lathe_decoder_route(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *out_weights, lathe_val *out_index)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    lathe_val scores, probability, out[2];
    LATHE_TRY(lathe_decoder_scores(at, x, &scores));
    LATHE_TRY(lathe_decoder_op(at, e->sigmoid ? LATHE_OP_SIGMOID : LATHE_OP_SOFTMAX, scores,
                               LATHE_NONE, "router.probability", &probability));
    LATHE_TRY(lathe_decoder_choose(at, e->softmax_chosen ? scores : probability, out));
    if (at->routers != NULL)
        LATHE_TRY(lathe_decoder_count_experts(at, scores, probability, out[0], out[1]));
    *out_weights = out[0];
    *out_index = out[1];
    if (e->softmax_chosen)
        LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SOFTMAX, out[0], LATHE_NONE, "router.weights",
                                   out_weights));
    else if (e->normalize)
        LATHE_TRY(lathe_decoder_shares(at, out[0], e->n_chosen, out_weights));
    return e->weight_scale > 0.0 && e->weight_scale != 1.0
               ? lathe_decoder_scaled(at, *out_weights, e->weight_scale, 0.0, "router.scale",
                                      out_weights)
               : LATHE_OK;
}

/** Adds the linear layer `module` of the experts, applied to rows in their order. */
static inline lathe_status lathe_decoder_expert_linear(const lathe_decoder_at *at,
                                                       const char *module, lathe_val first,
                                                       lathe_val x, lathe_val *out)
{
    char name[256];
    lathe_decoder_name(at, module, name, sizeof name);
    return at->b->experts(at->b->ctx, at->layer, name, at->d->layers[at->layer].experts->n_experts,
                          first, x, out);
}

/** *io += shared(x), the MLP of all tokens; times sigmoid(shared_score(x)) if it has that. */
static inline lathe_status lathe_decoder_add_shared_mlp(const lathe_decoder_at *at, lathe_val x,
                                                        lathe_val *io)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const int64_t widths[2] = {e->shared_ffn, e->shared_ffn};
    const int32_t bias = e->shared_bias;
    lathe_val pair[2], y[2], score;
    lathe_desc desc;
    if (e->shared_gate_up != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, e->shared_gate_up, bias, x, &y[0]));
        LATHE_TRY(lathe_decoder_split(at, y[0], LATHE_NONE, widths, 2, "shared.gate_up", pair));
    } else {
        LATHE_TRY(lathe_decoder_linear(at, e->shared_gate, bias, x, &pair[0]));
        LATHE_TRY(lathe_decoder_linear(at, e->shared_up, bias, x, &pair[1]));
    }
    LATHE_TRY(lathe_decoder_gated(at, pair, &y[0]));
    LATHE_TRY(lathe_decoder_linear(at, e->shared_down, bias, y[0], &y[0]));
    if (e->shared_score != NULL) {
        LATHE_TRY(lathe_decoder_linear(at, e->shared_score, 0, x, &score));
        LATHE_TRY(at->b->api->desc(at->b->graph, y[0], &desc));
        const lathe_op_attrs columns = {.count = desc.dims[1], .dtype = desc.dtype};
        /* c[N,1] becomes f32[N] */
        LATHE_TRY(
            lathe_decoder_op(at, LATHE_OP_SUM_COLUMNS, score, LATHE_NONE, "shared.score", &score));
        LATHE_TRY(
            lathe_decoder_op(at, LATHE_OP_SIGMOID, score, LATHE_NONE, "shared.score", &score));
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &columns, &score, 1,
                                     "shared.score", &y[1]));
        LATHE_TRY(lathe_decoder_node(at, LATHE_OP_MUL, NULL, y, 2, "shared.gated", &y[0]));
    }
    return lathe_decoder_op(at, LATHE_OP_ADD, *io, y[0], "experts.shared", io);
}

/** Adds to each row of *io [M,O] the bias of its expert: a product with ones, as experts whose
 *  matrices [O,1] are the biases. */
static inline lathe_status lathe_decoder_expert_bias(const lathe_decoder_at *at, const char *module,
                                                     lathe_val first, lathe_val *io)
{
    const lathe_desc one = {LATHE_F32, 1, {1, 1, 1, 1}};
    const float value = 1.0f;
    char name[256], bias[264];
    lathe_desc desc;
    lathe_val in[3] = {LATHE_NONE, LATHE_NONE, first}, pair[2] = {*io, LATHE_NONE};
    lathe_decoder_name(at, module, name, sizeof name);
    (void)snprintf(bias, sizeof bias, "%s_bias", name);
    const char *label = lathe_decoder_label(at, bias);
    LATHE_TRY(at->b->api->desc(at->b->graph, *io, &desc));
    const lathe_op_attrs rows = {.count = desc.dims[0], .dtype = desc.dtype};
    const lathe_op_attrs column = {.count = 1, .dtype = desc.dtype};
    LATHE_TRY(at->b->constant(at->b->ctx, "experts.one", &one, &value, &in[0]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_ROW, &rows, in, 1, label, &in[0]));
    LATHE_TRY(at->b->tensor(at->b->ctx, bias, &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_BROADCAST_COLUMN, &column, &in[1], 1, label, &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_EXPERT_LINEAR, NULL, in, 3, label, &pair[1]));
    return lathe_decoder_node(at, LATHE_OP_ADD, NULL, pair, 2, label, io);
}

/** The experts with one projection to pairs of gate and up, from the rows to the rows. */
static inline lathe_status lathe_decoder_paired_experts(const lathe_decoder_at *at, lathe_val first,
                                                        lathe_val x, lathe_val *out)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs clamped = {.alpha = e->alpha, .beta = e->limit};
    LATHE_TRY(lathe_decoder_expert_linear(at, e->gate_up, first, x, &x));
    if (e->bias)
        LATHE_TRY(lathe_decoder_expert_bias(at, e->gate_up, first, &x));
    LATHE_TRY(
        lathe_decoder_node(at, LATHE_OP_SWIGLU_CLAMPED, &clamped, &x, 1, "experts.swiglu", &x));
    LATHE_TRY(lathe_decoder_expert_linear(at, e->down, first, x, out));
    return e->bias ? lathe_decoder_expert_bias(at, e->down, first, out) : LATHE_OK;
}

/** The experts, from rows in the order of EXPERT_PLACES to rows. */
static inline lathe_status lathe_decoder_experts(const lathe_decoder_at *at, lathe_val first,
                                                 lathe_val x, lathe_val *out)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const int64_t widths[2] = {e->ffn, e->ffn};
    lathe_val pair[2], h;
    if (e->limit > 0.0)
        return lathe_decoder_paired_experts(at, first, x, out);
    if (e->gate_up != NULL) {
        LATHE_TRY(lathe_decoder_expert_linear(at, e->gate_up, first, x, &h));
        LATHE_TRY(lathe_decoder_split(at, h, LATHE_NONE, widths, 2, "experts.gate_up", pair));
    } else {
        LATHE_TRY(lathe_decoder_expert_linear(at, e->gate, first, x, &pair[0]));
        LATHE_TRY(lathe_decoder_expert_linear(at, e->up, first, x, &pair[1]));
    }
    LATHE_TRY(lathe_decoder_gated(at, pair, &h));
    return lathe_decoder_expert_linear(at, e->down, first, h, out);
}

/** The mixture of experts, applied to the normalised x: each token's sum over its K experts of
 *  weight * down(activation(gate(x)) * up(x)), and the MLP of all tokens. */
static inline lathe_status lathe_decoder_mixture(const lathe_decoder_at *at, lathe_val x,
                                                 lathe_val *out)
{
    const lathe_expert_layer *e = at->d->layers[at->layer].experts;
    const lathe_op_attrs count = {.count = e->n_experts};
    lathe_val weights, index, order[2], rows, h;
    LATHE_TRY(lathe_decoder_route(at, x, &weights, &index));
    LATHE_TRY(at->b->api->node(at->b->graph, LATHE_OP_EXPERT_PLACES, &count, &index, 1, order, 2,
                               -1, "experts.order"));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_EXPERT_ROWS, x, order[0], "experts.rows", &rows));
    LATHE_TRY(lathe_decoder_experts(at, order[1], rows, &h));
    const lathe_val in[3] = {h, weights, order[0]};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_EXPERT_SUM, NULL, in, 3, "experts.sum", out));
    return e->shared_down != NULL ? lathe_decoder_add_shared_mlp(at, x, out) : LATHE_OK;
}

/** *io f32[] times factor, divided by the number of tokens that are no padding (at least 1). */
static inline lathe_status lathe_decoder_per_token(const lathe_decoder_at *at, double factor,
                                                   lathe_val *io)
{
    const lathe_op_attrs bounds = {.alpha = 1.0, .beta = 3e38};
    lathe_val n[2] = {at->routers->mask, LATHE_NONE};
    lathe_desc tokens;
    LATHE_TRY(at->b->api->desc(at->b->graph, at->b->tokens, &tokens));
    if (n[0] == LATHE_NONE)
        return lathe_decoder_scaled(at, *io, factor / (double)lathe_desc_count(&tokens), 0.0,
                                    "router.mean", io);
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, n[0], LATHE_NONE, "router.tokens", &n[0]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_CLAMP, &bounds, n, 2, "router.tokens", &n[0]));
    LATHE_TRY(lathe_decoder_op(at, LATHE_OP_DIV, *io, n[0], "router.mean", io));
    return lathe_decoder_scaled(at, *io, factor, 0.0, "router.mean", io);
}

/** Reports the load balancing loss of Switch Transformer, after the last layer: over the tokens of
 *  all layers together, as transformers computes it (load_balancing_loss_func), or the mean of the
 *  layers' own losses. */
static inline lathe_status lathe_decoder_report_balance(const lathe_decoder_at *at)
{
    const lathe_router_sums *s = at->routers;
    const lathe_expert_layer *e = &at->d->experts;
    const double factor = isnan(at->b->balance_loss) ? e->aux_loss : at->b->balance_loss;
    const double layers = s->n_layers, each = at->b->balance_by_layer ? 1.0 : 1.0 / layers;
    lathe_val y = s->balance;
    if (!at->b->balance_by_layer) {
        LATHE_TRY(
            lathe_decoder_op(at, LATHE_OP_MUL, s->chosen, s->probability, "router.balance", &y));
        LATHE_TRY(lathe_decoder_op(at, LATHE_OP_SUM, y, LATHE_NONE, "router.balance", &y));
    }
    LATHE_TRY(lathe_decoder_per_token(at, each, &y));
    LATHE_TRY(lathe_decoder_per_token(at, e->n_experts / layers, &y));
    return at->b->report_mean(at->b->ctx, "router_aux_loss", y, factor);
}

/** Reports the losses and the figures of the routers of all layers, after the last one. */
static inline lathe_status lathe_decoder_balance(const lathe_decoder_at *at)
{
    const lathe_router_sums *s = at->routers;
    const lathe_expert_layer *e = &at->d->experts;
    const lathe_model_builder *b = at->b;
    lathe_val y;
    if (s->n_layers == 0)
        return LATHE_OK;
    const double layers = s->n_layers, experts = e->n_experts;
    if (lathe_decoder_balances(at))
        LATHE_TRY(lathe_decoder_report_balance(at));
    if (s->z != LATHE_NONE) {
        y = s->z;
        LATHE_TRY(lathe_decoder_per_token(at, 1.0 / layers, &y));
        LATHE_TRY(b->report_mean(b->ctx, "router_z_loss", y, b->router_z_loss));
    }
    y = s->entropy;
    LATHE_TRY(lathe_decoder_per_token(at, -1.0 / layers, &y));
    LATHE_TRY(b->report_mean(b->ctx, "router_entropy", y, 0.0));
    y = s->largest;
    LATHE_TRY(lathe_decoder_per_token(at, experts / (e->n_chosen * layers), &y));
    LATHE_TRY(b->report_mean(b->ctx, "router_max_load", y, 0.0));
    return b->report_mean(b->ctx, "router_dead_experts", s->dead, 0.0);
}

#endif
