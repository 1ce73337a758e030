/* A term x W^T of the logits of the vocabulary head, with the products for one chunk of rows and
 * one block of the vocabulary: the logits, the gradient of x and that of W. */
#ifndef LATHE_CPU_HEAD_PAIR_H
#define LATHE_CPU_HEAD_PAIR_H

#include "products/product.h"

/* x [N,c], W [V,c] */
typedef struct head_pair {
    int64_t c;
    int32_t in_x, in_w, out_dx, out_dw;     /* numbers of inputs and outputs; -1: not wanted */
    int32_t adds;                           /* 1: its logits are added to those of a term before */
    int32_t by_blocks;                      /* 1: dx is added to over blocks of the vocabulary */
    cpu_product *logits[2], *dx[2], *dw[2]; /* [1]: for the last block, if it is narrower */
    int64_t x_at, dx_at;                    /* offsets in scratch */
} head_pair;

/** Prepares the products number i for chunks of `rows` rows and blocks of `width` columns; raises
 *  *io_scratch to the largest need. Call cpu_head_pair_fini also after a failure. */
lathe_status cpu_head_pair_products(lathe_kernel *k, head_pair *pair, int i, int64_t rows,
                                    int64_t width, int64_t *io_scratch);
void cpu_head_pair_fini(cpu_device *device, head_pair *pair);

#endif
