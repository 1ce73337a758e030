/* Rows of activations in 8 bits with one scale each, without the outliers, which stay as they are
 * (lathe_activations in lathe/packed.h). */
#ifndef LATHE_CPU_INT8_ACTIVATIONS_H
#define LATHE_CPU_INT8_ACTIVATIONS_H

#include "base/cpu.h"

#define INT8_BLOCK 64 /* rows of codes are whole blocks of bytes, with zeros at the end */

/** Rows in scratch memory, for reading. */
typedef struct int8_inputs {
    const void *x; /* [m,k] of dtype */
    int64_t m, k;
    int32_t dtype;
    int64_t stride;          /* bytes from one row of codes to the next */
    const int8_t *codes;     /* [m][stride] */
    const uint64_t *masks;   /* [m][stride / 64] bit i: x_i is an outlier */
    const float *scales;     /* [m] value of a code step; NaN for a row that is not finite */
    const int32_t *sums;     /* [m] 128 times the sum of the codes, modulo 2^32 */
    const int32_t *outliers; /* [m] their number */
} int8_inputs;

/** Bytes of scratch for m rows of k columns. */
int64_t int8_inputs_bytes(int64_t m, int64_t k);
/** Quantizes the rows x into `to`, on all threads. threshold: magnitude from which on an element is
 *  an outlier; 0: none is. */
void int8_inputs_fill(const lathe_host *host, const void *x, int32_t dtype, int64_t m, int64_t k,
                      float threshold, void *to, int8_inputs *out);

#endif
