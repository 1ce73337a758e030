/* awq: 4-bit weights in groups of inputs, in the layout of AutoAWQ (version gemm), with scales of
 * inputs and ranges searched on calibration data.
 *
 *   W' = (q - zero) * scale, with f16 scales
 *
 * Sources: arXiv:2306.00978 (the method); AutoAWQ 0.2 for the layout. The scales of inputs are
 * folded into the ops before, so that reading needs nothing more.
 */
#include "awq.h"

#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "shared/quant_source.h"

enum { FIELD_GROUP_SIZE, FIELD_SCALE_INPUTS };

static const lathe_field fields[] = {
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale and a zero point; -1: all inputs of an output"),
    LATHE_FIELD_BOOL("scale_inputs", "true",
                     "search scales of the inputs and fold them into the norm or the layer before"),
};

static lathe_status read_values(const lathe_host *host, awq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->group = values[FIELD_GROUP_SIZE].i > 0 ? values[FIELD_GROUP_SIZE].i : 0;
    q->scales_inputs = values[FIELD_SCALE_INPUTS].i != 0;
    if (values[FIELD_GROUP_SIZE].i == 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "awq: group_size = 0; expected -1 or a number of inputs");
    return LATHE_OK;
}

lathe_status awq_accepts(void *self, int64_t rows, int64_t cols)
{
    const awq *q = self;
    LATHE_TRY(codec_check_groups(&q->head, "awq", rows, cols, awq_group(q, cols)));
    if (rows % AWQ_WORD != 0)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "awq: a weight of [%lld, %lld]; the rows must be a multiple of 8",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

static int32_t awq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const int64_t groups = cols / awq_group(self, cols);
    out[PACKED_CODES] =
        (lathe_plane){"qweight", "../qweight", lathe_desc_2d(LATHE_I32, cols, rows / AWQ_WORD)};
    out[PACKED_ZEROS] =
        (lathe_plane){"qzeros", "../qzeros", lathe_desc_2d(LATHE_I32, groups, rows / AWQ_WORD)};
    out[PACKED_SCALES] =
        (lathe_plane){"scales", "../scales", lathe_desc_2d(LATHE_F16, groups, rows)};
    return AWQ_N_PLANES;
}

/* ---- decoding ---- */

enum { SPAN = CODEC_SPAN / 2 }; /* inputs at a time */

/* Decodes the eight outputs of the words packed[n], from input `col` on. */
CODEC_BODY void decode_eight(const codec_job *job, const uint32_t *packed, int64_t row, int64_t col,
                             int64_t n, int build)
{
    const awq *const q = (const awq *)(const void *)job->self;
    const int64_t words = job->rows / AWQ_WORD, size = awq_group(q, job->cols);
    const int64_t width = lathe_dtype_bytes(job->dtype);
    const uint32_t *const zeros = (const uint32_t *)job->planes[PACKED_ZEROS] + row / AWQ_WORD;
    for (int64_t r = row; r < row + AWQ_WORD; r++) {
        const int shift = (int)awq_shift(r);
        const uint16_t *const scales = (const uint16_t *)job->planes[PACKED_SCALES] + r;
        char *const out = (char *)job->out + (r * job->cols + col) * width;
        float room[SPAN], *const values = job->dtype == LATHE_F32 ? (float *)(void *)out : room;
        for (int64_t i = 0; i < n;) {
            const int64_t group = (col + i) / size, left = (group + 1) * size - col;
            const int64_t end = left < n ? left : n;
            const int32_t zero = (int32_t)(zeros[group * words] >> shift & 15u);
            const float scale = lathe_f16_to_f32(scales[group * job->rows]);
            for (; i < end; i++)
                values[i] = (float)((int32_t)(packed[i] >> shift & 15u) - zero) * scale;
        }
        if (job->dtype != LATHE_F32)
            codec_round(values, n, out, job->dtype, build);
    }
}

/* A row of the loop is the outputs of one line of words. */
CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    const int64_t words = job->rows / AWQ_WORD;
    uint32_t lines[SPAN][PACKED_LINE], packed[SPAN];
    for (int64_t first = begin * PACKED_LINE; first < end * PACKED_LINE; first += PACKED_LINE)
        for (int64_t col = 0; col < job->cols; col += SPAN) {
            const int64_t n = job->cols - col < SPAN ? job->cols - col : SPAN;
            const int64_t n_words = words - first < PACKED_LINE ? words - first : PACKED_LINE;
            packed_copy((const uint32_t *)job->planes[PACKED_CODES] + col * words + first, words, n,
                        n_words, lines);
            for (int64_t k = 0; k < n_words; k++) {
                for (int64_t i = 0; i < n; i++)
                    packed[i] = lines[i][k];
                decode_eight(job, packed, (first + k) * AWQ_WORD, col, n, build);
            }
        }
}
CODEC_BUILDS(decode_lines, decode_body)

static lathe_status awq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    const awq *q = self;
    LATHE_TRY(codec_check_dtype(&q->head, "awq", dtype));
    codec_job job = {
        .self = &q->head, .rows = rows, .cols = cols, .planes = planes, .out = w, .dtype = dtype};
    const int64_t line = PACKED_LINE * AWQ_WORD;
    codec_rows(&job, decode_lines, (rows + line - 1) / line, cols * line);
    return LATHE_OK;
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
    .scale_inputs = awq_scale_inputs,
};

LATHE_INSTANCE(awq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(awq),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.1.0",
    .summary = "4-bit weights in AutoAWQ's layout, scaled and clipped by calibration data",
    .source = "arXiv:2306.00978",
    .license = "Apache-2.0",
};
