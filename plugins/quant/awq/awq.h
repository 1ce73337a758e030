/* awq: the instance, its encoder and its search for scales. */
#ifndef LATHE_AWQ_H
#define LATHE_AWQ_H

#include "awq_kernel.h"
#include "shared/quant_codec.h"
#include "shared/range_quantizer.h"

enum { AWQ_BITS = 4, AWQ_N_PLANES = 3, AWQ_WORD = 8 };

typedef struct awq {
    codec_head head;
    int64_t group; /* 0: the whole row of inputs */
    int32_t scales_inputs;
    int32_t symmetric; /* every zero point is in the middle of the range */
    int32_t dtype;     /* of the scales: F16 or BF16 */
} awq;

/** Inputs of one group. */
static inline int64_t awq_group(const awq *q, int64_t cols)
{
    return q->group > 0 ? q->group : cols;
}

/** Functions of lathe_quant_v1. */
lathe_status awq_accepts(void *self, int64_t rows, int64_t cols);
lathe_status awq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                        void *const *planes);
lathe_status awq_encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                   const lathe_quant_inputs *inputs, void *const *planes);
lathe_status awq_scale_inputs(void *self, const lathe_quant_layers *layers, float *scales);

#endif
