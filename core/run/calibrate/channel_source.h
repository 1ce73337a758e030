/* Finds what makes the channels of a value, so that a number per channel can move from the layers
 * that read it into the parameters before it.
 *
 *   in   a graph that evaluates, and a value that linear layers read
 *   out  for each channel i of the value: the place from[i] of the norm or of the linear layer that
 *        is proportional to it
 *
 *   x = norm(h) * w + b            x[i] is divided by s when w[i] and b[i] are
 *   x = activation(gate) * up      ... when row i of up's weight, and its bias, are
 *   x = attention(q, k, v)         ... when the row of v is; query heads that share a head of keys
 *                                  and values also share its rows, so from[] has equal places
 *
 * Splits, copies, casts and reorderings of a joined projection lie between. A value that anything
 * but the given readers reads has no source, because that would see the division.
 */
#ifndef LATHE_RUN_CHANNEL_SOURCE_H
#define LATHE_RUN_CHANNEL_SOURCE_H

#include "graph/ir/ir_graph.h"

typedef struct lathe_channel_source {
    int32_t node;       /* the norm, or the linear layer; -1: none */
    int32_t weight;     /* its parameter: a vector of a norm, or the matrix of a linear layer */
    int32_t bias;       /* -1: none */
    int32_t is_norm;    /* 0: the rows of a matrix */
    int32_t offset_one; /* the norm multiplies with 1 + w */
    int32_t n;          /* places: elements of the norm, or rows of the matrix */
    int32_t *from;      /* [channels of the value], the caller's */
} lathe_channel_source;

/** Looks for the source of `v`, whose readers are linear layers and whose channels are its columns.
 *
 *   from  [columns of v] is filled, and kept as out->from
 *
 *  Errors  none: out->node is -1 if there is no source. */
void lathe__channel_source_find(const lathe_graph *g, lathe_val v, int32_t *from,
                                lathe_channel_source *out);

#endif
