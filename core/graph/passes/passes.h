/* Passes that transform the graph after the loss is built and before memory is planned. The
 * graph is valid after each pass. */
#ifndef LATHE_GRAPH_PASSES_H
#define LATHE_GRAPH_PASSES_H

#include "graph/ir/ir_graph.h"

enum {
    LATHE_RECOMPUTE_NONE = 0,
    LATHE_RECOMPUTE_LAYER = 1,     /* keep the input of each layer only */
    LATHE_RECOMPUTE_ATTENTION = 2, /* recompute the attention blocks */
    LATHE_RECOMPUTE_MLP = 3,       /* recompute the MLP blocks */
    LATHE_RECOMPUTE_POINTWISE = 4  /* recompute norms and activations, which is very little work */
};

/** Marks products for fp8; runs before the derivative. Products of the blocks' own weights whose
 *  dims are multiples of LATHE_FP8_DIM run in fp8 by this recipe (LATHE_FP8_*; NONE: no product),
 *  and so do their derivatives. */
void lathe_pass_fp8(lathe_graph *g, int32_t recipe);

/** Adds the nodes that compute d(loss * seed)/d(parameter) for every trainable parameter.
 *
 *  loss  f32[] value; seed f32[] value (the loss scale)
 *  Gradients are written to LATHE_VALUE_GRAD values, = or += by LATHE_WRITE_RUNTIME; a value used
 *  more than once gets its contributions added in the reverse of node order.
 *  Errors  LATHE_E_UNSUPPORTED: an op without a derivative between a trainable value and the loss;
 *          the message names the node. LATHE_E_CONFIG: no trainable parameter reaches the loss.
 */
lathe_status lathe_derive(lathe_graph *g, lathe_val loss, lathe_val seed);

/** Replaces the head's forward and backward by one node if the backward does not depend on the
 *  forward's result. */
lathe_status lathe_pass_merge_head(lathe_graph *g);

/** Gradient checkpointing: backward nodes read recomputed copies of forward values, computed just
 *  before their first use, instead of stored values. DEQUANT is recomputed in every mode. */
lathe_status lathe_pass_recompute(lathe_graph *g, int32_t mode);

/** Tells whether the device has a kernel for this node with these values. Errors: LATHE_E_NOMEM. */
typedef lathe_status (*lathe_offers_fn)(void *arg, const lathe_graph *g, const lathe_ir_node *n,
                                        int32_t *out_is_offered);

/** Lets a product read a quantized weight from its planes, without a DEQUANT before it, if the
 *  device offers it. Runs after the recomputation pass and before the fusions, which keep such
 *  weights. A product of parameters alone (as in the norms of DoRA) with a weight whose format
 *  quantizes activations keeps its DEQUANT, because it multiplies none. *out_n: number of these
 *  products. */
lathe_status lathe_pass_packed(lathe_graph *g, lathe_offers_fn offers, void *arg, int32_t *out_n);

/** Checks, after lathe_pass_packed, that every product of a computed value with a weight whose
 *  format quantizes activations does so: it reads the weight from its planes. LATHE_E_CONFIG: one
 *  does not; the message begins with "quant.activations". */
lathe_status lathe_pass_check_activations(const lathe_graph *g);

/** Fuses a matrix product and the GELU_TANH after it into one node, if the device offers it;
 *  likewise the derivative of a GELU_TANH and the product after it, whose result is then never
 *  stored. Runs after the recomputation pass. Values do not change, and less memory is live at
 *  once. Products that accumulate or that are in fp8 are not fused. */
lathe_status lathe_pass_gelu(lathe_graph *g, lathe_offers_fn offers, void *arg);
/** Fuses an ADD and the norm after it into one node with both results, if the device offers it.
 *  Values do not change. */
lathe_status lathe_pass_add_norm(lathe_graph *g, lathe_offers_fn offers, void *arg);

/** Joins two or three products of one input in a layer's block into one node LINEARS, at the place
 *  of the first, if the device offers it. Values do not change. Products that accumulate or that
 *  are in fp8 are not joined, nor one whose weight or bias is computed after the first product. */
lathe_status lathe_pass_linears(lathe_graph *g, lathe_offers_fn offers, void *arg);

/** Moves activations that the backward reads to the host's memory and back
 *  (train.offload_activations).
 *
 *  Nodes [0, forward_end) run as one range, the others as another. copy_out and wait_out are in the
 *  first range, copy_in and wait_in in the second. A copy to the host may last as long as the layer
 *  after the one that makes the value; the copy back begins one layer before its first use. Not
 *  moved: values that would be on the host for less than one layer, and values much smaller than
 *  the largest moved one. *out_n: number of moved values.
 */
lathe_status lathe_pass_offload(lathe_graph *g, int32_t forward_end, int32_t *out_n);

/** Removes nodes that neither contribute to an output nor write persistent memory. */
lathe_status lathe_pass_dead(lathe_graph *g);

/** Makes all shared memory legal (inserts a COPY if the old value is still needed), and lets a node
 *  reuse the memory of an input that it is the last to read. The last pass before the plan. */
lathe_status lathe_pass_inplace(lathe_graph *g);

/** Stable topological sort, for use after passes that moved uses. */
lathe_status lathe__graph_sort(lathe_graph *g);

#endif
