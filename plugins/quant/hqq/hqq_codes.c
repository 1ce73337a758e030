/* hqq: codes, their values, scales and offsets, for devices that multiply codes undecoded. */
#include "hqq_avx512.h"

#if defined(__x86_64__)
CODEC_WIDE static void wide_code_values(const hqq *q, const void *const *planes, int64_t first,
                                        int64_t n, float *values, int32_t dtype)
{
    if (q->dtype == LATHE_F16 && dtype == LATHE_BF16)
        wide_group_values(q, planes, first, n, values, LATHE_F16, LATHE_BF16);
    else if (q->dtype == LATHE_F16)
        wide_group_values(q, planes, first, n, values, LATHE_F16, dtype);
    else if (q->dtype == LATHE_BF16)
        wide_group_values(q, planes, first, n, values, LATHE_BF16, dtype);
    else
        wide_group_values(q, planes, first, n, values, LATHE_F32, dtype);
}

/* The scales and offsets of n groups from `first` on. */
CODEC_WIDE static void wide_group_scales(const hqq *q, const void *const *planes, int64_t first,
                                         int64_t n, float *scales, float *offsets)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = n - i < 16 ? wide_lanes(n - i) : 0xffff;
        const __m512 scale = wide_parameters(planes[HQQ_SCALE], first + i, lanes, q->dtype);
        const __m512 zero = wide_parameters(planes[HQQ_ZERO], first + i, lanes, q->dtype);
        wide_store_lanes(scales + i, lanes, scale);
        wide_store_lanes(offsets + i, lanes,
                         _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), zero), scale));
    }
}
#else /* the build for AVX-512 is never chosen */
static inline void wide_group_scales(const hqq *q, const void *const *planes, int64_t first,
                                     int64_t n, float *scales, float *offsets)
{
    (void)q, (void)planes, (void)first, (void)n, (void)scales, (void)offsets;
}

static inline void wide_code_values(const hqq *q, const void *const *planes, int64_t first,
                                    int64_t n, float *values, int32_t dtype)
{
    (void)q, (void)planes, (void)first, (void)n, (void)values, (void)dtype;
}
#endif

/* The values of the codes of a group, repeated where these have fewer than four bits. */
static void group_values(const hqq *q, const void *const *planes, int64_t group, int32_t dtype,
                         float *values)
{
    if (q->head.build == CODEC_AVX512) {
        wide_code_values(q, planes, group, 1, values, dtype);
        return;
    }
    const float zero = hqq_parameter(planes[HQQ_ZERO], group, q->dtype);
    const float scale = hqq_parameter(planes[HQQ_SCALE], group, q->dtype);
    for (int32_t i = 0; i < LATHE_CODE_VALUES; i++) {
        const float code = (float)(i & ((1 << q->bits) - 1));
        const float moved = hqq_rounded(code - zero, q->dtype);
        values[i] = codec_rounded(hqq_rounded(moved * scale, q->dtype), dtype);
    }
}

/* Codes of up to four bits lie one to a byte, and those of the same rows of all runs in one. */
int64_t hqq_code_group(void *self, int64_t rows, int64_t cols)
{
    const hqq *q = self;
    lathe_part_rows by;
    hqq_part_rows(self, rows, cols, &by);
    return by.runs > 1 && q->bits != 3 ? codec_code_group(q->group, cols) : 0;
}

int32_t hqq_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                       const lathe_weight_part *part, int32_t dtype, float *values, void *room,
                       lathe_part_codes *out)
{
    const hqq *q = self;
    const int64_t size = hqq_code_group(self, rows, cols), run = rows / hqq_per_word(q->bits);
    const int64_t first = part->row / run; /* the run of the first row */
    (void)room;
    if ((part->row + part->rows - 1) / run != first || (part->runs > 1 && part->distance != run))
        return 0; /* rows of a run that is cut have other bits of their bytes */
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t at = codec_part_row(part, i) * cols + part->col;
        int64_t group = divided(at, q->group), end = (group + 1) * q->group - at;
        if (size == q->group && q->head.build == CODEC_AVX512) {
            wide_code_values(q, planes, group, part->cols / size, values, dtype);
            values += part->cols / size * LATHE_CODE_VALUES;
            continue;
        }
        for (int64_t k = 0; k < part->cols; k += size, values += LATHE_CODE_VALUES) {
            if (k == end) {
                group++;
                end += q->group;
            }
            group_values(q, planes, group, dtype, values);
        }
    }
    *out = (lathe_part_codes){.codes = (const uint8_t *)planes[HQQ_CODES] +
                                       (part->row - first * run) * cols + part->col,
                              .row_bytes = cols,
                              .layout = LATHE_CODES_BYTES,
                              .shift = (int32_t)(q->bits * (hqq_per_word(q->bits) - 1 - first)),
                              .run_shift = -(int32_t)q->bits};
    return 1;
}

/* (q - zero) * scale, without the roundings between. */
int32_t hqq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                  lathe_weight_codes *out)
{
    const hqq *q = self;
    lathe_part_rows by;
    (void)planes;
    hqq_part_rows(self, rows, cols, &by);
    const int64_t size = q->bits == 8 ? q->group : codec_code_group(q->group, cols);
    if (q->bits == 3 || (q->bits < 8 && (by.runs == 1 || size == 0)) || cols % q->group != 0 ||
        size % 16 != 0)
        return 0;
    *out = (lathe_weight_codes){.order = LATHE_CODES_BYTES,
                                .bits = (int32_t)q->bits,
                                .values = q->bits == 8 ? LATHE_VALUES_U8 : LATHE_VALUES_TABLE,
                                .plane = HQQ_CODES,
                                .has_offsets = 1,
                                .group = size};
    for (int32_t i = 0; q->bits < 8 && i < 1 << q->bits; i++)
        out->table[i] = (float)i;
    return 1;
}

void hqq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                     const lathe_weight_part *part, float *scales, float *offsets)
{
    const hqq *q = self;
    const int64_t size = q->bits == 8 ? q->group : codec_code_group(q->group, cols);
    const int is_wide = q->head.build == CODEC_AVX512 && size == q->group;
    (void)rows;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t at = codec_part_row(part, i) * cols + part->col, n = part->cols / size;
        float *const to = scales + i * part->stride, *const zeros = offsets + i * part->stride;
        if (is_wide)
            wide_group_scales(q, planes, at / q->group, n, to, zeros);
        for (int64_t k = 0; !is_wide && k < n; k++) {
            const int64_t group = divided(at + k * size, q->group);
            to[k] = hqq_parameter(planes[HQQ_SCALE], group, q->dtype);
            zeros[k] = -hqq_parameter(planes[HQQ_ZERO], group, q->dtype) * to[k];
        }
    }
}
