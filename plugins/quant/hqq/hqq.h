/* hqq: the instance, and its encoder. */
#ifndef LATHE_HQQ_H
#define LATHE_HQQ_H

#include "hqq_kernel.h"
#include "shared/quant_codec.h"

typedef struct hqq {
    codec_head head;
    int32_t dtype; /* of scales and zeros, and of the decoder's arithmetic */
    int64_t bits, group;
} hqq;

/** lathe_quant_v1.encode, for dims that accepts() took. */
lathe_status hqq_encode_weight(const hqq *q, int64_t rows, int64_t cols, const float *w,
                               void *const *planes);

#endif
