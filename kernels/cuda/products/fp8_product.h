/* Products of bf16 operands in fp8 (lathe/fp8.h): casts into scratch, then cuBLASLt's product. */
#ifndef LATHE_CUDA_FP8_PRODUCT_H
#define LATHE_CUDA_FP8_PRODUCT_H

#include "products/blas.h"

/** One operand in the form that the product reads: codes [outer, inner], with one factor per
 *  element of the outer dim (rowwise) or a single factor. Offsets are in the kernel's scratch. */
typedef struct cuda_fp8_cast {
    int64_t outer, inner;
    int32_t is_transposed; /* the source is [inner, outer] */
    int32_t dtype, recipe; /* LATHE_F8_*, LATHE_FP8_* */
    int64_t codes_at;
    int64_t factors_at, inverses_at; /* f32[outer] or f32[1] */
    int64_t parts_at;                /* u32: partial maxima of the source's magnitudes */
} cuda_fp8_cast;

/** Assigns offsets from `at` on to codes, factors and parts. Returns the end. */
int64_t cuda_fp8_cast_place(cuda_fp8_cast *cast, int64_t at);
/** Queues the cast of `source`, which is bf16 and 16-byte aligned. */
lathe_status cuda_fp8_cast_run(const lathe_kernel *k, const lathe_kernel_args *a,
                               const cuda_fp8_cast *cast, const void *source);

typedef struct cuda_fp8_product cuda_fp8_product;

/** Prepares the product of `spec`, whose fp8 is set. LATHE_E_UNSUPPORTED: cuBLASLt does not have
 *  it. */
lathe_status cuda_fp8_product_create(const lathe_kernel *k, const matmul_spec *spec,
                                     cuda_fp8_product **out, int64_t *out_scratch);
/** Frees a product; NULL is fine. */
void cuda_fp8_product_destroy(const lathe_kernel *k, cuda_fp8_product *p);
/** Queues the product of the kernel's inputs 0 and 1 to output 0; `bias` is f32[n] or NULL. */
lathe_status cuda_fp8_product_run(const lathe_kernel *k, const lathe_kernel_args *a,
                                  const cuda_fp8_product *p, const float *bias);

#endif
