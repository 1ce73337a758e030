/* Describes a matrix product, and gives the product that each linear op computes. */
#ifndef LATHE_MATMUL_SPEC_H
#define LATHE_MATMUL_SPEC_H

#include "shared/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** c[m,n] (= or +=) alpha * op(a) op(b) + bias; all row-major, and dense unless a stride is set. a
 *  is [m,k], or [k,m] with trans_a; b is [k,n], or [n,k] with trans_b. dtypes: f32, bf16, f16.
 *  cuBLASLt also takes f8 for a and b: only with trans_b, and `fp8` then says how to scale the
 *  result. */
typedef struct matmul_spec {
    int64_t m, n, k;
    int32_t a_dtype, b_dtype, c_dtype;
    int32_t trans_a, trans_b;
    int32_t bias; /* 1: f32[n] is added to each row */
    int32_t may_overwrite, may_accumulate;
    int32_t prefer_gemm; /* oneDNN: use its gemm if it offers one */
    int32_t invariant;   /* the bits of a row of c do not depend on m */
    double alpha;
    /* elements from one row to the next, 0: dense. a: cuBLASLt only; c: cuBLASLt, oneDNN, packed.c
     */
    int64_t a_stride, c_stride;
    int32_t fp8;          /* LATHE_FP8_*: first cast a and b, which are bf16, to these: */
    int32_t a_fp8, b_fp8; /* LATHE_F8_* */
} matmul_spec;

/** Elements from one row of c to the next. */
static inline int64_t matmul_c_stride(const matmul_spec *s)
{
    return s->c_stride > 0 ? s->c_stride : s->n;
}

/** The product of a problem that was checked. LINEAR_DX_GELU and LINEAR_GELU use `dx` and
 *  `linear`. */
void kernel_product_linear(const lathe_kernel *k, matmul_spec *out);
void kernel_product_dx(const lathe_kernel *k, matmul_spec *out);
void kernel_product_dw(const lathe_kernel *k, matmul_spec *out);
void kernel_product_matmul(const lathe_kernel *k, matmul_spec *out);

#ifdef __cplusplus
}
#endif

#endif
