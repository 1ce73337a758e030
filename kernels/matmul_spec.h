/* A matrix product, and which one each linear op is. */
#ifndef LATHE_MATMUL_SPEC_H
#define LATHE_MATMUL_SPEC_H

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** c[m,n] (= or +=) alpha * op(a) op(b) + bias; everything row-major, and dense but for the
 * strides. a is [m,k], with trans_a [k,m]; b is [k,n], with trans_b [n,k]. dtypes: f32, bf16 or
 * f16; by cuBLASLt also f8 for a and b, with trans_b alone, where fp8 says by what the result is
 * scaled. */
typedef struct matmul_spec {
    int64_t m, n, k;
    int32_t a_dtype, b_dtype, c_dtype;
    int32_t trans_a, trans_b;
    int32_t bias; /* f32[n] is added */
    int32_t may_overwrite, may_accumulate;
    int32_t prefer_gemm; /* oneDNN: its gemm, where it offers one, before its first choice */
    double alpha;
    int64_t a_stride, c_stride; /* elements from a row to the next, 0: dense; cuBLASLt only */
    int32_t fp8;                /* LATHE_FP8_*: a and b, of bf16, are cast to these first: */
    int32_t a_fp8, b_fp8;       /* LATHE_F8_* */
} matmul_spec;

/** The product of a problem that was checked. dx and linear serve LINEAR_DX_GELU and LINEAR_GELU
 * too. */
void kernel_product_linear(const lathe_kernel *k, matmul_spec *out);
void kernel_product_dx(const lathe_kernel *k, matmul_spec *out);
void kernel_product_dw(const lathe_kernel *k, matmul_spec *out);
void kernel_product_matmul(const lathe_kernel *k, matmul_spec *out);

#ifdef __cplusplus
}
#endif

#endif
