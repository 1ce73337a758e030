/* gptq: the codes of a part of a weight of four bits, for devices that multiply them undecoded. */
#include "gptq.h"

#include "shared/packed_codes.h"

#if defined(__x86_64__)
/* The values of the codes of PACKED_LINE outputs from `row` on, a multiple of 8, in a group; those
 * of an output follow `stride` after those of the one before. */
CODEC_WIDE static void wide_outputs(const codec_job *job, int64_t row, int32_t group, float *values,
                                    int64_t stride)
{
    const gptq *const q = (const gptq *)(const void *)job->self;
    const wide_line line = {(const uint32_t *)job->planes[PACKED_ZEROS] + group * (job->rows / 8) +
                                row / 8,
                            (const uint16_t *)job->planes[PACKED_SCALES] + group * job->rows + row,
                            q->dtype, q->zero_offset, 0};
    wide_line_values(&line, values, stride, job->dtype);
}

/* Turns n rows of words, a multiple of 16, of `outputs` outputs, a multiple of PACKED_LINE, to
 * out[output][row]. */
CODEC_WIDE static void wide_turn(const uint32_t *words, int64_t stride, int64_t n, int64_t outputs,
                                 uint32_t *out)
{
    for (int64_t i = 0; i < n; i += PACKED_LINE)
        for (int64_t k = 0; k < outputs; k += PACKED_LINE) {
            const uint32_t *const from = words + i * stride + k;
            for (int64_t r = 0; r < PACKED_LINE;
                 r++) /* too far apart for the hardware to predict */
                _mm_prefetch((const char *)(from + (r + PACKED_LINE) * stride), _MM_HINT_T1);
            wide_turn16(from, stride, out + k * n + i, n);
        }
}
#else /* the build for AVX-512 is never chosen */
static inline void wide_outputs(const codec_job *job, int64_t row, int32_t group, float *values,
                                int64_t stride)
{
    (void)job, (void)row, (void)group, (void)values, (void)stride;
}

static inline void wide_turn(const uint32_t *words, int64_t stride, int64_t n, int64_t outputs,
                             uint32_t *out)
{
    (void)words, (void)stride, (void)n, (void)outputs, (void)out;
}
#endif

int64_t gptq_code_group(void *self, int64_t rows, int64_t cols)
{
    const gptq *q = self;
    (void)rows;
    return q->bits == 4 && q->act_order != GPTQ_ORDER_FULL
               ? codec_code_group(gptq_group(q, cols), cols)
               : 0;
}

/* The values of the 16 codes of an output's group. */
static void group_values(const codec_job *job, int64_t row, int32_t group, float *values)
{
    const gptq *const q = (const gptq *)(const void *)job->self;
    const uint32_t *const zeros =
        (const uint32_t *)job->planes[PACKED_ZEROS] + group * (job->rows / 8);
    const uint32_t zero = packed_bits(zeros, 1, row * 4, 4) + (uint32_t)q->zero_offset;
    const uint16_t scale = ((const uint16_t *)job->planes[PACKED_SCALES])[group * job->rows + row];
    for (uint32_t i = 0; i < LATHE_CODE_VALUES; i++)
        values[i] = codec_rounded(packed_value(i, zero, packed_scale(scale, q->dtype)), job->dtype);
}

/* Computes the values of the groups of `rows` outputs; groups[i * size]: of n. */
static void part_values(const codec_job *job, const lathe_weight_part *part, const int32_t *groups,
                        int64_t size, float *values)
{
    const int64_t n = part->cols / size, stride = n * LATHE_CODE_VALUES;
    int64_t i = 0;
    for (; job->self->build == CODEC_AVX512 && part->row % 8 == 0 && i + PACKED_LINE <= part->rows;
         i += PACKED_LINE)
        for (int64_t k = 0; k < n; k++)
            wide_outputs(job, part->row + i, groups[k * size],
                         values + i * stride + k * LATHE_CODE_VALUES, stride);
    for (; i < part->rows; i++)
        for (int64_t k = 0; k < n; k++)
            group_values(job, part->row + i, groups[k * size],
                         values + i * stride + k * LATHE_CODE_VALUES);
}

/* Turns the words of a part of four bits: to out[output][columns / 2] bytes. */
static void turn_part(const codec_job *job, const lathe_weight_part *part, void *out)
{
    const int64_t n = part->cols / 8, stride = job->rows;
    const uint32_t *const words =
        (const uint32_t *)job->planes[PACKED_CODES] + part->col / 8 * stride + part->row;
    uint32_t *const to = out;
    const int64_t lines = part->rows / PACKED_LINE * PACKED_LINE;
    const int64_t wide = job->self->build == CODEC_AVX512 && n % PACKED_LINE == 0 ? lines : 0;
    wide_turn(words, stride, wide > 0 ? n : 0, wide, to);
    for (int64_t i = 0; wide < part->rows && i < n; i++)
        for (int64_t k = wide; k < part->rows; k++)
            to[k * n + i] = words[i * stride + k];
}

/* Whether each `size` of n inputs are of one group. */
static int are_grouped(const int32_t *groups, int64_t n, int64_t size)
{
    int32_t differ = 0;
    for (int64_t i = 0; i < n; i += size)
        for (int64_t k = i; k < i + size; k++)
            differ |= groups[k] ^ groups[i];
    return differ == 0;
}

int32_t gptq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                   lathe_weight_codes *out)
{
    const gptq *q = self;
    const int64_t size = codec_code_group(gptq_group(q, cols), cols);
    (void)rows;
    if (q->bits == 3 || q->act_order == GPTQ_ORDER_FULL || size == 0 ||
        (planes != NULL && !are_grouped(planes[PACKED_GROUPS], cols, size)))
        return 0;
    *out = packed_weight_codes(LATHE_CODES_DOWN, q->bits, size);
    return 1;
}

void gptq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                      const lathe_weight_part *part, float *scales, float *offsets)
{
    const gptq *q = self;
    const int64_t size = codec_code_group(gptq_group(q, cols), cols);
    const int32_t *const groups = (const int32_t *)planes[PACKED_GROUPS] + part->col;
    for (int64_t k = 0; k < part->cols / size; k++) {
        const int64_t of = groups[k * size] * rows + part->row;
        const packed_group g = {(const uint32_t *)planes[PACKED_ZEROS] + of * q->bits / 32,
                                (const uint16_t *)planes[PACKED_SCALES] + of,
                                q->dtype,
                                q->bits,
                                q->zero_offset,
                                0};
        packed_scales(&g, part->rows, scales + k * part->stride, offsets + k * part->stride,
                      q->head.build);
    }
}

/* The words are turned, so that the codes of an output lie one after another. */
int32_t gptq_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                        const lathe_weight_part *part, int32_t dtype, float *values, void *room,
                        lathe_part_codes *out)
{
    const gptq *q = self;
    const int64_t size = gptq_code_group(self, rows, cols), row_bytes = part->cols / 2;
    const int32_t *const groups = (const int32_t *)planes[PACKED_GROUPS] + part->col;
    const codec_job job = codec_whole(&q->head, rows, cols, planes, NULL, dtype);
    if (size == 0 || part->runs != 1 || !are_grouped(groups, part->cols, size))
        return 0;
    turn_part(&job, part, room);
    part_values(&job, part, groups, size, values);
    *out =
        (lathe_part_codes){.codes = room, .row_bytes = row_bytes, .layout = LATHE_CODES_LOW_FIRST};
    return 1;
}
