/* Rate of plain oneDNN products on the shapes of a model's linear layers; the rate of a step is
 * reported as a share of this rate. */
#ifndef LATHE_BENCH_PRODUCT_RATE_H
#define LATHE_BENCH_PRODUCT_RATE_H

#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>

/* c [m,n] = a [m,k] b [k,n], row-major; trans_a, trans_b: stored transposed. */
typedef struct product {
    const char *what;
    int64_t m, n, k;
    int32_t trans_a, trans_b;
    int32_t f32_out; /* 1: c is f32; 0: c has the type of a and b */
    int32_t count;   /* number of such products in a step */
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
    double seconds; /* of the last run */
} product;

/** Prepares n products that share three buffers. Returns 0, or the oneDNN status; that is
 *  dnnl_unimplemented if oneDNN has only its scalar reference. */
int product_rate_open(product *products, int n, dnnl_data_type_t type);

/** Runs each product once. Returns FLOP/s: the sum of 2 m n k count, divided by the sum of
 *  seconds * count. */
double product_rate_measure(product *products, int n);

#endif
