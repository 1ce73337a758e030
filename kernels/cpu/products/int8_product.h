/* Products of activations in 8 bits with a weight of 8 bits, for formats that ask for it
 * (lathe_quant_v1.activations):
 *
 *   y[r,o] = scale[o] * (step[r] * sum_i c[r,i] q[o,i] + sum_outliers x[r,i] q[o,i]) + bias[o]
 *
 * The first sum is exact; the second is in f32, in the order of the columns. So the bits of a row
 * depend neither on the other rows, nor on the number of workers, nor on the build. */
#ifndef LATHE_CPU_INT8_PRODUCT_H
#define LATHE_CPU_INT8_PRODUCT_H

#include "lathe/quant.h"
#include "products/gemv.h"
#include "products/int8_activations.h"
#include "shared/matmul_spec.h"

typedef struct cpu_int8 {
    matmul_spec spec;
    lathe_packed_weight weight;
    int32_t plane;   /* that has the codes */
    float threshold; /* as in int8_inputs_fill */
    int32_t n_workers;
    int64_t input_bytes;  /* of scratch for the rows; products of one threshold share them */
    int64_t worker_bytes; /* of scratch for each worker */
} cpu_int8;

/** Whether this product quantizes its rows: y = x W^T with a weight whose format asks for it. */
int cpu_int8_serves(const matmul_spec *spec, const lathe_packed_weight *weight);
/** Fills *out for such a product. *out_scratch: bytes of scratch; products that run together need
 *  the sum. LATHE_E_UNSUPPORTED: the format's codes are not rows of signed bytes. */
lathe_status cpu_int8_init(const lathe_host *host, const matmul_spec *spec,
                           const lathe_packed_weight *weight, cpu_int8 *out, int64_t *out_scratch);

/** One of several products of one `a`. */
typedef struct cpu_int8_use {
    const cpu_int8 *product;
    const void *const *planes;
    const float *bias; /* NULL: none */
    void *c;
} cpu_int8_use;

/** Runs n <= CPU_GEMV_JOINED products of one `a` in one parallel loop. LATHE_E_STATE: the pool has
 *  more workers than the scratch was made for. */
lathe_status cpu_int8_run(const lathe_host *host, const cpu_int8_use *uses, int32_t n,
                          const void *a, void *scratch);

#endif
