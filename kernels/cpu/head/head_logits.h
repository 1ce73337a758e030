/* The logits of one model's head over the whole vocabulary, for one chunk of rows, and from their
 * gradient the gradients of the operands:
 *
 *   l = (x W^T + u v^T) * s       x [N,C], W [V,C], u [N,R], v [V,R], s f32[V]
 *
 * A term x W^T or u v^T is a pair of operands (head_pair.h). Without u and v there is one pair.
 * With s, the products keep the compute dtype, and l is in f32 beside them; without s, l is the
 * products. Rows are taken from a list, and a chunk is filled up with rows of zeros.
 *
 *   scratch: | products | l, with s | per pair: x rows, dx rows f32 |
 */
#ifndef LATHE_CPU_HEAD_LOGITS_H
#define LATHE_CPU_HEAD_LOGITS_H

#include "head/head_pair.h"

enum { HEAD_MOST_PAIRS = 2 };

typedef struct head_logits {
    int64_t v, rows; /* the vocabulary; rows of a chunk */
    int32_t dtype;   /* of the operands and the products */
    int32_t n_pairs;
    int32_t in_s, out_ds; /* numbers of s and its gradient; -1: none */
    head_pair pairs[HEAD_MOST_PAIRS];
    int64_t products_at, scaled_at; /* offsets in scratch */
} head_logits;

/** The chunk that is computed. */
typedef struct head_chunk {
    lathe_kernel *k;
    const lathe_kernel_args *a;
    char *scratch;
    const int32_t *list; /* the rows that are computed, in order */
    int64_t from, count; /* the chunk's part of the list */
} head_chunk;

/** Finds the terms: x is input in_x, W the next one; u is input in_u, then v and s. backward: their
 *  gradients are outputs 1 to 5, in the order dx, dW, du, ds, dv. */
void cpu_head_logits_find(const lathe_kernel *k, head_logits *t, int32_t in_x, int32_t in_u,
                          int backward);
/** Bytes that a row of the logits takes. */
int64_t cpu_head_logits_row_bytes(const head_logits *t);
/** Prepares the products for chunks of t->rows rows; raises *io_scratch to the largest need. Call
 *  cpu_head_logits_fini also after a failure. */
lathe_status cpu_head_logits_products(lathe_kernel *k, head_logits *t, int64_t *io_scratch);
/** Takes scratch from *io_at on. */
void cpu_head_logits_lay_out(head_logits *t, int64_t *io_at);
void cpu_head_logits_fini(cpu_device *device, head_logits *t);

/** Address and dtype of l [rows,v]. A gradient of l is written there. */
void *cpu_head_logits_logits(const head_logits *t, char *scratch, int32_t *out_dtype);
/** Computes l of the chunk. */
lathe_status cpu_head_logits_forward(const head_logits *t, const head_chunk *c);
/** Computes the gradients of the chunk's operands from the gradient of l, and destroys it. Call
 *  cpu_head_logits_forward before. */
lathe_status cpu_head_logits_backward(const head_logits *t, const head_chunk *c);
/** The gradients of a row that is not computed: 0, unless they are added to. */
void cpu_head_logits_skip_row(const head_logits *t, const lathe_kernel_args *a, int64_t row);
/** The gradients of W or v, and of s, if no row was computed: 0, unless they are added to. */
void cpu_head_logits_skip_all(const head_logits *t, const lathe_kernel_args *a);

#endif
