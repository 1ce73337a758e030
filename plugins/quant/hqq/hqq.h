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

/* a / b of numbers that are not negative: most processors divide 32 bits several times as fast. */
CODEC_BODY int64_t divided(int64_t a, int64_t b)
{
    return a <= INT32_MAX && b <= INT32_MAX ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/** Functions of lathe_quant_v1. */
void hqq_part_rows(void *self, int64_t rows, int64_t cols, lathe_part_rows *out);
int64_t hqq_code_group(void *self, int64_t rows, int64_t cols);
int32_t hqq_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                       const lathe_weight_part *part, int32_t dtype, float *values, void *room,
                       lathe_part_codes *out);
int32_t hqq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                  lathe_weight_codes *out);
void hqq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                     const lathe_weight_part *part, float *scales, float *offsets);

#endif
