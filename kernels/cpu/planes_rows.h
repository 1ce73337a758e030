/* Products of rows with a packed weight, as in decoding: the weight is decoded part by part into
 * the cache of the worker that multiplies it. */
#ifndef LATHE_CPU_PLANES_ROWS_H
#define LATHE_CPU_PLANES_ROWS_H

#include "code_sums.h"
#include "rows.h"

/** A product as cpu_rows_serves takes it, whose b is in planes, and how its weight is cut. */
typedef struct cpu_planes_rows {
    matmul_spec spec;
    lathe_packed_weight weight;
    lathe_part_rows by;
    int64_t rows;      /* of a part in each of its runs */
    int64_t cols;      /* of a part; the sums of further columns are added to those before */
    int64_t n_parts;   /* groups of rows */
    int64_t group;     /* > 0: codes are multiplied, and this many columns share their values */
    int32_t n_workers; /* number of workers that the scratch is made for */
    int64_t part_bytes, worker_bytes;
    int32_t sums_codes; /* 1: as code_sums.h has it, unless the planes do not allow it */
    cpu_code_sums sums;
    int64_t form_bytes; /* of the rows of `a` in the order that these need */
} cpu_planes_rows;

/** Fills *out for a spec that cpu_rows_serves takes. Products that run together need the largest of
 *  their *out_scratch bytes, and the form_bytes of each. */
void cpu_planes_rows_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                          int32_t n_workers, cpu_planes_rows *out, int64_t *out_scratch);

/** One of several products of one `a`. */
typedef struct cpu_planes_use {
    const cpu_planes_rows *product;
    const void *const *planes;
    const float *bias; /* NULL: none */
    void *c;
} cpu_planes_use;

/** Runs n <= CPU_ROWS_JOINED products of one `a` in one parallel loop. The bits are those of
 *  cpu_rows_run with the decoded weight, except of products that sum codes: those have the order of
 *  code_sums.h. Neither depends on the number of rows or workers. LATHE_E_STATE: the pool has more
 * workers than the scratch was made for. */
lathe_status cpu_planes_rows_run(const lathe_host *host, const cpu_planes_use *uses, int32_t n,
                                 const void *a, void *scratch, int accumulate);

#endif
