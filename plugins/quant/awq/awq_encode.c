/* awq: encodes a weight, with the range of each group cut by calibration data. */
#include <stdlib.h>

#include "awq.h"

typedef struct encoder {
    const awq *q;
    int64_t rows, cols, group;
    const float *w;
    const lathe_quant_inputs *inputs; /* NULL: ranges are not clipped */
    void *const *planes;
    int32_t bad; /* 1: a value is not finite, 2: a scale is not finite in f16 */
} encoder;

/* The error that a group's rounding adds to the output, d^T H d for the difference d of its weights
 * and the block H of the inputs' products. */
static double output_error(const encoder *e, const float *w, int64_t first, const range_params *r)
{
    float d[512];
    double sum = 0.0;
    for (int64_t at = 0; at < e->group; at += 512) {
        const int64_t n = e->group - at < 512 ? e->group - at : 512;
        for (int64_t i = 0; i < n; i++)
            d[i] = w[at + i] - range_value(r, range_code(r, w[at + i], AWQ_BITS));
        for (int64_t i = 0; i < n; i++) {
            const float *const h = e->inputs->products + (first + at + i) * e->cols + first + at;
            float dot = 0.0f;
            for (int64_t k = 0; k < n; k++)
                dot += h[k] * d[k];
            sum += (double)d[i] * (double)dot;
        }
    }
    return sum;
}

/* AutoAWQ's search: the range is cut by 0 to 45 % in steps of 5 %; the least error wins. */
static range_params clipped(const encoder *e, const float *w, int64_t first, float *cut)
{
    range_params best = range_of(w, e->group, AWQ_BITS, e->q->symmetric, 0, e->q->dtype);
    double least = output_error(e, w, first, &best);
    float top = 0.0f;
    for (int64_t i = 0; i < e->group; i++)
        top = fabsf(w[i]) > top ? fabsf(w[i]) : top;
    for (int step = 1; step < 10; step++) {
        const float limit = top * (1.0f - 0.05f * (float)step);
        for (int64_t i = 0; i < e->group; i++)
            cut[i] = w[i] > limit ? limit : w[i] < -limit ? -limit : w[i];
        const range_params r = range_of(cut, e->group, AWQ_BITS, e->q->symmetric, 0, e->q->dtype);
        const double error = output_error(e, w, first, &r);
        if (error < least) {
            least = error;
            best = r;
        }
    }
    return best;
}

static void put(uint32_t *words, int64_t row, uint32_t code)
{
    words[row / AWQ_WORD] |= code << awq_shift(row);
}

static void encode_group(encoder *e, int64_t row, int64_t group, float *cut)
{
    const int64_t words = e->rows / AWQ_WORD, first = group * e->group;
    const float *const w = e->w + row * e->cols + first;
    const range_params r = e->inputs != NULL
                               ? clipped(e, w, first, cut)
                               : range_of(w, e->group, AWQ_BITS, e->q->symmetric, 0, e->q->dtype);
    if (!isfinite(r.scale))
        __atomic_store_n(&e->bad, 2, __ATOMIC_RELAXED);
    put((uint32_t *)e->planes[PACKED_ZEROS] + group * words, row, (uint32_t)r.zero);
    ((uint16_t *)e->planes[PACKED_SCALES])[group * e->rows + row] = r.bits16;
    for (int64_t i = 0; i < e->group; i++)
        put((uint32_t *)e->planes[PACKED_CODES] + (first + i) * words, row,
            range_code(&r, w[i], AWQ_BITS));
}

/* Eight outputs share words, so a thread takes whole eights. */
static void encode_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    encoder *e = arg;
    float *cut = malloc((size_t)e->group * sizeof *cut);
    (void)worker;
    for (int64_t row = begin * AWQ_WORD; cut != NULL && row < end * AWQ_WORD; row++) {
        if (codec_largest(e->w + row * e->cols, e->cols) < 0) {
            __atomic_store_n(&e->bad, 1, __ATOMIC_RELAXED);
            break;
        }
        for (int64_t group = 0; group < e->cols / e->group; group++)
            encode_group(e, row, group, cut);
    }
    if (cut == NULL)
        __atomic_store_n(&e->bad, 3, __ATOMIC_RELAXED);
    free(cut);
}

lathe_status awq_encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                   const lathe_quant_inputs *inputs, void *const *planes)
{
    const awq *q = self;
    encoder e = {.q = q,
                 .rows = rows,
                 .cols = cols,
                 .group = awq_group(q, cols),
                 .w = w,
                 .inputs = inputs,
                 .planes = planes};
    LATHE_TRY(awq_accepts(self, rows, cols));
    memset(planes[PACKED_CODES], 0, (size_t)(cols * rows / AWQ_WORD) * sizeof(uint32_t));
    memset(planes[PACKED_ZEROS], 0, (size_t)(cols / e.group * rows / AWQ_WORD) * sizeof(uint32_t));
    q->head.host->parallel_for(rows / AWQ_WORD, 1, encode_rows, &e);
    if (e.bad == 3)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "awq: no memory to encode a weight");
    if (e.bad == 2)
        return lathe_fail(q->head.host, LATHE_E_NUMERIC,
                          "awq: the weight [%lld, %lld] needs a scale above 65504, which f16 does "
                          "not have",
                          (long long)rows, (long long)cols);
    const codec_job job = {.self = &q->head, .rows = rows, .cols = cols, .bad = e.bad};
    return codec_encoded(&job, "awq");
}

lathe_status awq_encode(void *self, int64_t rows, int64_t cols, const float *w, void *const *planes)
{
    return awq_encode_calibrated(self, rows, cols, w, NULL, planes);
}
