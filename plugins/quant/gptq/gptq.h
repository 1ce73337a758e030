/* gptq: the instance, its encoders and its codes. */
#ifndef LATHE_GPTQ_H
#define LATHE_GPTQ_H

#include "gptq_kernel.h"
#include "shared/quant_codec.h"
#include "shared/range_quantizer.h"

enum { GPTQ_N_PLANES = 4 };

/* In which order a calibrated encoding takes the inputs: as they lie; by groups; or one by one,
 * which makes groups of inputs that do not lie together. */
enum { GPTQ_ORDER_NONE, GPTQ_ORDER_GROUP, GPTQ_ORDER_FULL };
#define GPTQ_ORDERS "none|group|full"

typedef struct gptq {
    codec_head head;
    int64_t bits, group; /* group 0: the whole row of inputs */
    int32_t symmetric;
    int32_t act_order;    /* GPTQ_ORDER_* */
    int32_t zero_offset;  /* 1: files of version 1 store the zero point minus 1 */
    int32_t checks_zeros; /* the configuration says that every zero point is in the middle */
    int32_t dtype;        /* of the scales: F16 or BF16 */
    double damping;
} gptq;

/** Inputs of one group. */
static inline int64_t gptq_group(const gptq *q, int64_t cols)
{
    return q->group > 0 && q->group < cols ? q->group : cols;
}

static inline int64_t gptq_groups(const gptq *q, int64_t cols)
{
    return (cols + gptq_group(q, cols) - 1) / gptq_group(q, cols);
}

/** lathe_quant_v1.encode and encode_calibrated, for dims that accepts() took. */
lathe_status gptq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                         void *const *planes);
lathe_status gptq_encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                    const lathe_quant_inputs *inputs, void *const *planes);

/** Functions of lathe_quant_v1. */
int64_t gptq_code_group(void *self, int64_t rows, int64_t cols);
int32_t gptq_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *part, int32_t dtype, float *values, void *room,
                        lathe_part_codes *out);
int32_t gptq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                   lathe_weight_codes *out);
void gptq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                      const lathe_weight_part *part, float *scales, float *offsets);

#endif
