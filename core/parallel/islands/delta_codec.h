/* How the change of the weights travels between islands: n f32 numbers as bytes.
 *
 *   fp32, bf16, fp16   n numbers, rounded to nearest even
 *   int8               blocks of 256: f32 scales s = max|x| / 127, then n bytes q = round(x / s)
 *   int4               blocks of 64: f32 scales s = max|x| / 7, then two numbers q + 8 per byte,
 * the first in the low half
 *
 * A number is read as q * s. Source: ours; absmax blocks as in arXiv:2110.02861.
 */
#ifndef LATHE_PARALLEL_DELTA_CODEC_H
#define LATHE_PARALLEL_DELTA_CODEC_H

#include <stdint.h>

#include "lathe/status.h"

/* parallel.diloco_pseudo_gradient_dtype */
enum {
    LATHE_DELTA_FP32 = 0,
    LATHE_DELTA_BF16 = 1,
    LATHE_DELTA_FP16 = 2,
    LATHE_DELTA_INT8 = 3,
    LATHE_DELTA_INT4 = 4,
    LATHE_N_DELTAS = 5
};

/* Numbers that are encoded together begin at multiples of this many, so that blocks are whole. */
enum { LATHE_DELTA_ALIGNED = 256 };

/** Whether what is lost is added to the next change (int8, int4). */
int32_t lathe_delta_has_error(int32_t dtype);

/** Bytes of n numbers. */
int64_t lathe_delta_bytes(int32_t dtype, int64_t n);

/** out: [lathe_delta_bytes]. A block with a number that is not finite is read as NaN. */
void lathe_delta_encode(int32_t dtype, const float *x, int64_t n, void *out);
/** x: [n]. */
void lathe_delta_decode(int32_t dtype, const void *in, int64_t n, float *x);

#endif
