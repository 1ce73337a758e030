/* The logits of one model's head over the vocabulary, a chunk of rows at a time, and from their
 * gradient the gradients of the operands:
 *
 *   l = (x W^T + u v^T) * s       x [N,C], W [V,C], u [N,R], v [V,R], s f32[V]
 *
 * A term x W^T or u v^T is a pair of operands; without u and v there is one pair. With s, the
 * products keep the compute dtype, and l is in f32 beside them; without s, l is the products. Rows
 * of logits are padded to 64 elements, so that products and kernels can use wide loads even if the
 * vocabulary is odd.
 *
 *   scratch: | products [rows, stride] | l f32 [rows, stride], with s |
 */
#ifndef LATHE_CUDA_HEAD_LOGITS_CUH
#define LATHE_CUDA_HEAD_LOGITS_CUH

#include "products/blas.h"
#include "products/invariant_product.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HEAD_WHOLE, HEAD_LAST, HEAD_SIZES }; /* sizes of chunks; the last may be smaller */

enum { HEAD_MOST_PAIRS = 2 };

/** A term x W^T: x [N,c], W [V,c]. */
typedef struct head_pair {
    int64_t c;
    int32_t in_x, in_w, out_dx, out_dw; /* numbers of inputs and outputs; -1: not wanted */
    cuda_product *logits[HEAD_SIZES], *dx[HEAD_SIZES], *dw[HEAD_SIZES]; /* NULL: not wanted */
    cuda_invariant_product *invariant; /* with attrs.invariant: instead of `logits` */
} head_pair;

typedef struct head_logits {
    int64_t v, stride,
        rows; /* the vocabulary; elements from a row of logits to the next; a chunk */
    int32_t dtype, n_pairs;
    int32_t in_s, out_ds; /* numbers of s and its gradient; -1: none */
    head_pair pairs[HEAD_MOST_PAIRS];
    int64_t products_at, scaled_at; /* offsets in scratch */
} head_logits;

/** Finds the terms: x is input in_x, W the next one; u is input in_u, then v and s. backward: their
 *  gradients are outputs 1 to 5, in the order dx, dW, du, ds, dv. */
void cuda_head_logits_find(const lathe_kernel *k, head_logits *t, int32_t in_x, int32_t in_u,
                           int32_t backward);
/** Bytes that a row of the logits takes. */
int64_t cuda_head_logits_row_bytes(const head_logits *t);
/** Rows of a chunk of n rows, of which each takes row_bytes: attrs.chunk_rows, or chunks of equal
 *  size that fit. */
int64_t cuda_head_logits_choose_rows(const lathe_kernel *k, int64_t n, int64_t row_bytes);
/** Prepares the products for chunks of t->rows of n rows; raises *io_scratch to the largest need.
 *  Call cuda_head_logits_fini also after a failure. */
lathe_status cuda_head_logits_products(lathe_kernel *k, head_logits *t, int64_t n,
                                       int64_t *io_scratch);
/** Takes scratch from *io_at on. */
void cuda_head_logits_lay_out(head_logits *t, int64_t *io_at);
void cuda_head_logits_fini(lathe_kernel *k, head_logits *t);

/** Address and dtype of l [rows, stride]. A gradient of l, with zeros in the padding, is written
 *  there. */
void *cuda_head_logits_logits(const head_logits *t, const lathe_kernel_args *a, int32_t *out_dtype);
/** Queues the computation of l of n rows from row `first` on. */
lathe_status cuda_head_logits_forward(lathe_kernel *k, const lathe_kernel_args *a,
                                      const head_logits *t, int64_t first, int64_t n);
/** Queues the computation of the operands' gradients from the gradient of l, which it destroys.
 * Call cuda_head_logits_forward before. */
lathe_status cuda_head_logits_backward(lathe_kernel *k, const lathe_kernel_args *a,
                                       const head_logits *t, int64_t first, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
