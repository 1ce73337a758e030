/* Products of rows with a packed weight, as in decoding: the weight is decoded part by part into
 * the cache of the worker that multiplies it. */
#ifndef LATHE_CPU_QUANTIZED_GEMV_H
#define LATHE_CPU_QUANTIZED_GEMV_H

#include "products/gemv.h"
#include "products/quantized_dot.h"

/** A product as cpu_gemv_serves takes it, whose b is in planes, and how its weight is cut. */
typedef struct cpu_quantized_gemv {
    matmul_spec spec;
    lathe_packed_weight weight;
    lathe_part_rows by;
    int64_t rows;      /* of a part in each of its runs */
    int64_t cols;      /* of a part; the sums of further columns are added to those before */
    int64_t n_parts;   /* groups of rows */
    int64_t group;     /* > 0: codes are multiplied, and this many columns share their values */
    int32_t n_workers; /* number of workers that the scratch is made for */
    int64_t part_bytes, worker_bytes;
    int32_t sums_codes; /* 1: as quantized_dot.h has it, unless the planes do not allow it */
    cpu_quantized_dot sums;
    int64_t layout_bytes; /* of the rows of `a` in the order that these need */
} cpu_quantized_gemv;

/** Fills *out for a spec that cpu_gemv_serves takes. Products that run together need the largest of
 *  their *out_scratch bytes, and the layout_bytes of each. */
void cpu_quantized_gemv_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                             int32_t n_workers, cpu_quantized_gemv *out, int64_t *out_scratch);

/** One of several products of one `a`. */
typedef struct cpu_quantized_gemv_use {
    const cpu_quantized_gemv *product;
    const void *const *planes;
    const float *bias; /* NULL: none */
    void *c;
} cpu_quantized_gemv_use;

/** Runs n <= CPU_GEMV_JOINED products of one `a` in one parallel loop. The bits are those of
 *  cpu_gemv_run with the decoded weight, except of products that sum codes: those have the order of
 *  quantized_dot.h. Neither depends on the number of rows or workers. LATHE_E_STATE: the pool has
 * more workers than the scratch was made for. */
lathe_status cpu_quantized_gemv_run(const lathe_host *host, const cpu_quantized_gemv_use *uses,
                                    int32_t n, const void *a, void *scratch, int accumulate);

#endif
