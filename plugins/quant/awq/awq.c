/* awq: 4-bit weights in groups of inputs, in the layout of AutoAWQ (version gemm), clipped by
 * calibration data.
 *
 *   W' = (q - zero) * scale, with f16 scales
 *
 * Sources: arXiv:2306.00978 (the method); AutoAWQ 0.2 for the layout and the search for clipping.
 * Folders made elsewhere also carry AWQ's scales of inputs: they are folded into the layers before,
 * so that reading needs nothing more. Here only the range of each group is searched.
 */
#include <math.h>
#include <stdlib.h>

#include "awq_kernel.h"
#include "lathe/kit/instance.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"
#include "shared/range_quantizer.h"

enum { AWQ_BITS = 4, AWQ_N_PLANES = 3, AWQ_WORD = 8 };

typedef struct awq {
    codec_head head;
    int64_t group; /* 0: the whole row of inputs */
} awq;

enum { FIELD_GROUP_SIZE };

static const lathe_field fields[] = {
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale and a zero point; -1: all inputs of an output"),
};

static lathe_status read_values(const lathe_host *host, awq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->group = values[FIELD_GROUP_SIZE].i > 0 ? values[FIELD_GROUP_SIZE].i : 0;
    if (values[FIELD_GROUP_SIZE].i == 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "awq: group_size = 0; expected -1 or a number of inputs");
    return LATHE_OK;
}

static int64_t group_of(const awq *q, int64_t cols)
{
    return q->group > 0 ? q->group : cols;
}

static lathe_status awq_accepts(void *self, int64_t rows, int64_t cols)
{
    const awq *q = self;
    LATHE_TRY(codec_check_groups(&q->head, "awq", rows, cols, group_of(q, cols)));
    if (rows % AWQ_WORD != 0)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "awq: a weight of [%lld, %lld]; the rows must be a multiple of 8",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

static int32_t awq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const int64_t groups = cols / group_of(self, cols);
    out[PACKED_CODES] =
        (lathe_plane){"qweight", "../qweight", lathe_desc_2d(LATHE_I32, cols, rows / AWQ_WORD)};
    out[PACKED_ZEROS] =
        (lathe_plane){"qzeros", "../qzeros", lathe_desc_2d(LATHE_I32, groups, rows / AWQ_WORD)};
    out[PACKED_SCALES] =
        (lathe_plane){"scales", "../scales", lathe_desc_2d(LATHE_F16, groups, rows)};
    return AWQ_N_PLANES;
}

/* ---- decoding ---- */

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int wide)
{
    const awq *const q = (const awq *)(const void *)job->self;
    const int64_t words = job->rows / AWQ_WORD, size = group_of(q, job->cols);
    const int shift = (int)awq_shift(row);
    const uint32_t *const codes = (const uint32_t *)job->planes[PACKED_CODES] + row / AWQ_WORD;
    const uint32_t *const zeros = (const uint32_t *)job->planes[PACKED_ZEROS] + row / AWQ_WORD;
    const uint16_t *const scales = (const uint16_t *)job->planes[PACKED_SCALES] + row;
    (void)wide;
    for (int64_t i = 0; i < n;) {
        const int64_t group = (col + i) / size, left = (group + 1) * size - col;
        const int64_t end = left < n ? left : n;
        const int32_t zero = (int32_t)(zeros[group * words] >> shift & 15u);
        const float scale = lathe_f16_to_f32(scales[group * job->rows]);
        for (; i < end; i++)
            out[i] = (float)((int32_t)(codes[(col + i) * words] >> shift & 15u) - zero) * scale;
    }
}
CODEC_DECODER(decode_rows, decode_span)

static lathe_status awq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    return codec_decode(self, "awq", rows, cols, planes, w, dtype, decode_rows);
}

/* ---- encoding ---- */

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
    range_params best = range_of(w, e->group, AWQ_BITS, 0, 0);
    double least = output_error(e, w, first, &best);
    float top = 0.0f;
    for (int64_t i = 0; i < e->group; i++)
        top = fabsf(w[i]) > top ? fabsf(w[i]) : top;
    for (int step = 1; step < 10; step++) {
        const float limit = top * (1.0f - 0.05f * (float)step);
        for (int64_t i = 0; i < e->group; i++)
            cut[i] = w[i] > limit ? limit : w[i] < -limit ? -limit : w[i];
        const range_params r = range_of(cut, e->group, AWQ_BITS, 0, 0);
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
    const range_params r =
        e->inputs != NULL ? clipped(e, w, first, cut) : range_of(w, e->group, AWQ_BITS, 0, 0);
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

static lathe_status awq_encode_calibrated(void *self, int64_t rows, int64_t cols, const float *w,
                                          const lathe_quant_inputs *inputs, void *const *planes)
{
    const awq *q = self;
    encoder e = {.q = q,
                 .rows = rows,
                 .cols = cols,
                 .group = group_of(q, cols),
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

static lathe_status awq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    return awq_encode_calibrated(self, rows, cols, w, NULL, planes);
}

/* ---- files ---- */

static int64_t awq_config_json(void *self, char *out, int64_t capacity)
{
    const awq *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": %lld, \"zero_point\": "
        "true, \"version\": \"gemm\", \"modules_to_not_convert\": null}",
        q->group > 0 ? (long long)q->group : -1LL);
}

static const char *const methods[] = {"awq", NULL};

static lathe_status awq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    const char *group = config->get(config->ctx, "group_size");
    if (group == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "awq reads weights with group_size, and here it is absent");
    LATHE_TRY(source_expect(host, config, "awq", "bits", "4"));
    LATHE_TRY(source_expect(host, config, "awq", "zero_point", "true"));
    LATHE_TRY(source_expect(host, config, "awq", "version", "gemm"));
    values[FIELD_GROUP_SIZE].i = strtol(group, NULL, 10);
    return LATHE_OK;
}

static void awq_image_settings(void *self, int64_t *out)
{
    const awq *q = self;
    out[PACKED_BITS] = AWQ_BITS;
    out[PACKED_GROUP_SIZE] = q->group;
}

static const lathe_quant_v1 awq_table = {
    .size = sizeof awq_table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = awq_accepts,
    .planes = awq_planes,
    .encode = awq_encode,
    .decode = awq_decode,
    .config_json = awq_config_json,
    .cuda_image = LATHE_CUDA_IMAGE,
    .image_settings = awq_image_settings,
    .methods = methods,
    .read_config = awq_read_config,
    .encode_calibrated = awq_encode_calibrated,
};

LATHE_INSTANCE(awq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(awq),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.0.0",
    .summary = "4-bit weights in AutoAWQ's layout, clipped by calibration data",
    .source = "arXiv:2306.00978",
    .license = "Apache-2.0",
};
