/* Products of rows in bf16 with codes of a packed weight: codes, which bf16 holds exactly, are
 * multiplied as they are, and the sum of each group is scaled after it:
 *
 *   y[o] = sum_g scale[o,g] * (sum_i value(code[o,i]) * x[i]) + offset[o,g] * (sum_i x[i])
 *
 * For processors with VDPBF16PS. All sums are f32; their order depends only on the weight's shape
 * and format, neither on the number of rows nor on how the weight is cut.
 */
#ifndef LATHE_CPU_QUANTIZED_DOT_H
#define LATHE_CPU_QUANTIZED_DOT_H

#include "lathe/quant.h"
#include "products/quantized_dot_inputs.h"

/** A product of at most QUANTIZED_DOT_ROWS rows at a time, and how its weight is cut. */
#define QUANTIZED_DOT_ROWS 16
typedef struct cpu_quantized_dot {
    lathe_packed_weight weight;
    lathe_weight_codes codes; /* as far as they do not depend on the planes */
    dot_layout layout;
    int64_t n, k;           /* rows and columns of the weight */
    int64_t rows;           /* of a part in each of its runs */
    int64_t runs, distance; /* of a part */
    int64_t n_parts;
    int64_t block;                 /* columns whose scales are taken at a time */
    int64_t stride;                /* floats from one row of scales to the next */
    int64_t scales, sums, columns; /* floats of a worker's scales; of its sums; columns of these */
    int64_t worker_bytes;
} cpu_quantized_dot;

/** Returns whether this build multiplies codes of this weight, and then fills *out. */
int cpu_quantized_dot_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                           int32_t n_workers, cpu_quantized_dot *out);

/** One run of it. */
typedef struct quantized_dot_run {
    const cpu_quantized_dot *product;
    const void *const *planes;
    const char *x;      /* rows in the product's layout */
    int64_t m;          /* of them */
    uint16_t table[32]; /* bf16 values of 16-bit lanes whose low bits are a code */
} quantized_dot_run;

/** Fills run->table with the values of codes of fewer than eight bits; sets the product before. */
void cpu_quantized_dot_begin(quantized_dot_run *run, const float *table);

/** Multiplies part i with `rows` rows of x from `row` on. Returns the sums [rows][columns], in
 *  `own`, of which the part's runs follow one another; *out: the part. */
const float *cpu_quantized_dot_part(const quantized_dot_run *run, int64_t i, int64_t row,
                                    int64_t rows, char *own, lathe_weight_part *out);

#endif
