/* The activations of an MLP (lathe/kit/decoder.h), composed of the graph's ops. */
#ifndef LATHE_KIT_DECODER_ACTIVATION_H
#define LATHE_KIT_DECODER_ACTIVATION_H

#include "decoder_graph.h"

/** x * sigmoid(x): SWIGLU with ones as its second factor. */
static inline lathe_status lathe_decoder_silu(const lathe_decoder_at *at, lathe_val x,
                                              lathe_val *out)
{
    const lathe_op_attrs plus_one = {.alpha = 1.0, .beta = 1.0};
    lathe_val in[2] = {x, x};
    /* x < x is 0 everywhere, and LESS passes no gradient on */
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_LESS, NULL, in, 2, "mlp.zeros", &in[1]));
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &plus_one, &in[1], 1, "mlp.ones", &in[1]));
    return lathe_decoder_node(at, LATHE_OP_SWIGLU, NULL, in, 2, "mlp.silu", out);
}

/** x * sigmoid(1.702 x) */
static inline lathe_status lathe_decoder_quick_gelu(const lathe_decoder_at *at, lathe_val x,
                                                    lathe_val *out)
{
    const lathe_op_attrs in = {.alpha = 1.702}, back = {.alpha = 1.0 / 1.702};
    LATHE_TRY(lathe_decoder_node(at, LATHE_OP_SCALE, &in, &x, 1, "mlp.scaled", &x));
    LATHE_TRY(lathe_decoder_silu(at, x, &x));
    return lathe_decoder_node(at, LATHE_OP_SCALE, &back, &x, 1, "mlp.gelu", out);
}

/** max(x, 0), at most `most`. */
static inline lathe_status lathe_decoder_relu(const lathe_decoder_at *at, lathe_val x, double most,
                                              lathe_val *out)
{
    const lathe_op_attrs bounds = {.alpha = 0.0, .beta = most};
    const lathe_val in[2] = {x, LATHE_NONE};
    return lathe_decoder_node(at, LATHE_OP_CLAMP, &bounds, in, 2, "mlp.relu", out);
}

/** XIELU of x with the numbers of the layer. */
static inline lathe_status lathe_decoder_xielu(const lathe_decoder_at *at, lathe_val x,
                                               lathe_val *out)
{
    static const char *const numbers[] = {"alpha_p", "alpha_n", "beta", "eps"};
    char module[256], name[280];
    lathe_val in[5] = {x, LATHE_NONE, LATHE_NONE, LATHE_NONE, LATHE_NONE};
    lathe_decoder_name(at, at->d->layers[at->layer].names->xielu, module, sizeof module);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof name, "%s.%s", module, numbers[i]);
        LATHE_TRY(at->b->tensor(at->b->ctx, name, &in[1 + i]));
    }
    return lathe_decoder_node(at, LATHE_OP_XIELU, NULL, in, 5, "mlp.xielu", out);
}

/** activation(x), without a gate. */
static inline lathe_status lathe_decoder_activate(const lathe_decoder_at *at, lathe_val x,
                                                  lathe_val *out)
{
    const double any = 3.4e38;
    lathe_val in[2] = {x, x};
    switch (at->d->layers[at->layer].activation) {
    case LATHE_ACT_GELU_TANH:
        return lathe_decoder_node(at, LATHE_OP_GELU_TANH, NULL, in, 1, "mlp.gelu", out);
    case LATHE_ACT_GELU:
        return lathe_decoder_node(at, LATHE_OP_GELU, NULL, in, 1, "mlp.gelu", out);
    case LATHE_ACT_QUICK_GELU:
        return lathe_decoder_quick_gelu(at, x, out);
    case LATHE_ACT_RELU:
        return lathe_decoder_relu(at, x, any, out);
    case LATHE_ACT_RELU6:
        return lathe_decoder_relu(at, x, 6.0, out);
    case LATHE_ACT_RELU2:
        LATHE_TRY(lathe_decoder_relu(at, x, any, &in[0]));
        in[1] = in[0];
        return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mlp.relu2", out);
    case LATHE_ACT_XIELU:
        return lathe_decoder_xielu(at, x, out);
    case LATHE_ACT_TANH:
        return lathe_decoder_node(at, LATHE_OP_TANH, NULL, in, 1, "mlp.tanh", out);
    default:
        return lathe_decoder_silu(at, x, out);
    }
}

/** activation(gate) * up. */
static inline lathe_status lathe_decoder_gated(const lathe_decoder_at *at, const lathe_val pair[2],
                                               lathe_val *out)
{
    lathe_val in[2] = {pair[0], pair[1]};
    if (at->d->layers[at->layer].activation == LATHE_ACT_SILU)
        return lathe_decoder_node(at, LATHE_OP_SWIGLU, NULL, in, 2, "mlp.swiglu", out);
    LATHE_TRY(lathe_decoder_activate(at, pair[0], &in[0]));
    return lathe_decoder_node(at, LATHE_OP_MUL, NULL, in, 2, "mlp.gate", out);
}

#endif
