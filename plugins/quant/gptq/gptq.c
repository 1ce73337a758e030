/* gptq: weights of 2, 3, 4 or 8 bits in groups of inputs, in the layout of AutoGPTQ and GPTQModel.
 *
 *   W' = (q - zero) * scale, with f16 scales
 *
 * Sources: arXiv:2210.17323 (the method); GPTQModel 5 for the layout (checkpoint_format "gptq" and
 * "gptq_v2").
 */
#include "gptq.h"

#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "shared/quant_source.h"

enum {
    FIELD_BITS,
    FIELD_GROUP_SIZE,
    FIELD_SYMMETRIC,
    FIELD_ACT_ORDER,
    FIELD_DAMPING,
    FIELD_VERSION
};
#define VERSIONS "gptq|gptq_v2"

static const lathe_field fields[] = {
    LATHE_FIELD_INT("bits", "4", 2, 8, NULL, "bits of a code: 2, 3, 4 or 8"),
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale and a zero point; -1: all inputs of an output"),
    LATHE_FIELD_BOOL("symmetric", "true", "the zero point is in the middle of the range"),
    LATHE_FIELD_BOOL("act_order", "false",
                     "quantize the inputs with the largest products first (desc_act)"),
    LATHE_FIELD_FLOAT("damping", "0.05", 0.0, 1.0, "1",
                      "share of the mean of the products' diagonal that is added to it"),
    LATHE_FIELD_STRING("checkpoint_format", "\"gptq\"", VERSIONS,
                       "layout in files; gptq stores zero points minus 1"),
};

static lathe_status read_values(const lathe_host *host, gptq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->bits = values[FIELD_BITS].i;
    q->group = values[FIELD_GROUP_SIZE].i > 0 ? values[FIELD_GROUP_SIZE].i : 0;
    q->symmetric = values[FIELD_SYMMETRIC].i != 0;
    q->act_order = values[FIELD_ACT_ORDER].i != 0;
    q->damping = values[FIELD_DAMPING].f;
    q->zero_offset = lathe_choice(VERSIONS, values[FIELD_VERSION].s) == 0;
    if (q->bits != 2 && q->bits != 3 && q->bits != 4 && q->bits != 8)
        return lathe_fail(host, LATHE_E_CONFIG, "gptq: bits = %d; expected 2, 3, 4 or 8",
                          (int)q->bits);
    if (values[FIELD_GROUP_SIZE].i == 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "gptq: group_size = 0; expected -1 or a number of inputs");
    return LATHE_OK;
}

static lathe_status gptq_accepts(void *self, int64_t rows, int64_t cols)
{
    const gptq *q = self;
    LATHE_TRY(codec_check_dims(&q->head, "gptq", rows, cols));
    if (rows * q->bits % 32 == 0 && cols * q->bits % 32 == 0)
        return LATHE_OK;
    return lathe_fail(q->head.host, LATHE_E_SHAPE,
                      "gptq: a weight of [%lld, %lld]; with %d bits both must be multiples of %d",
                      (long long)rows, (long long)cols, (int)q->bits,
                      q->bits == 3 ? 32 : (int)(32 / q->bits));
}

static int32_t gptq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const gptq *q = self;
    const int64_t groups = gptq_groups(q, cols);
    const lathe_plane planes[GPTQ_N_PLANES] = {
        {"qweight", "../qweight", lathe_desc_2d(LATHE_I32, cols * q->bits / 32, rows)},
        {"qzeros", "../qzeros", lathe_desc_2d(LATHE_I32, groups, rows * q->bits / 32)},
        {"scales", "../scales", lathe_desc_2d(LATHE_F16, groups, rows)},
        {"g_idx", "../g_idx", lathe_desc_1d(LATHE_I32, cols)},
    };
    memcpy(out, planes, sizeof planes);
    return GPTQ_N_PLANES;
}

/* ---- decoding ---- */

enum { WORDS = CODEC_SPAN / 4 }; /* of CODEC_SPAN codes of 8 bits */

/* The codes of n inputs of the output that column `k` of `lines` holds. per: codes in a word; 0
 * where a code may lie in two words (3 bits). */
CODEC_BODY void unpack(const uint32_t (*lines)[PACKED_LINE], int64_t k, int64_t n, int64_t bits,
                       int64_t per, int32_t *out)
{
    const uint32_t mask = (1u << bits) - 1u;
    int64_t i = 0;
    for (; per > 0 && i + per <= n; i += per) {
        const uint32_t word = lines[i / per][k];
        for (int64_t c = 0; c < per; c++)
            out[i + c] = (int32_t)(word >> (c * bits) & mask);
    }
    for (; i < n; i++)
        out[i] = (int32_t)packed_bits(&lines[0][k], PACKED_LINE, i * bits, bits);
}

CODEC_BODY void unpack_codes(const uint32_t (*lines)[PACKED_LINE], int64_t k, int64_t n,
                             int64_t bits, int32_t *out)
{
    switch (bits) { /* so that the compiler knows the lengths of the loops */
    case 2:
        unpack(lines, k, n, 2, 16, out);
        break;
    case 4:
        unpack(lines, k, n, 4, 8, out);
        break;
    case 8:
        unpack(lines, k, n, 8, 4, out);
        break;
    default:
        unpack(lines, k, n, 3, 0, out);
    }
}

/* The values of n codes of an output, from input `col` on. */
CODEC_BODY void decode_codes(const codec_job *job, const int32_t *codes, int64_t row, int64_t col,
                             int64_t n, float *out)
{
    const gptq *const q = (const gptq *)(const void *)job->self;
    const int64_t bits = q->bits, n_out = job->rows;
    const uint32_t *const zeros = job->planes[PACKED_ZEROS];
    const uint16_t *const scales = (const uint16_t *)job->planes[PACKED_SCALES] + row;
    const int32_t *const groups = (const int32_t *)job->planes[PACKED_GROUPS] + col;
    for (int64_t i = 0; i < n;) {
        const int32_t group = groups[i];
        const float scale = lathe_f16_to_f32(scales[group * n_out]);
        const int32_t zero =
            (int32_t)packed_bits(zeros + group * (n_out * bits / 32), 1, row * bits, bits) +
            q->zero_offset;
        int64_t end = i + 1;
        while (end < n && groups[end] == group)
            end++;
        for (; i < end; i++)
            out[i] = (float)(codes[i] - zero) * scale;
    }
}

/* A row of the loop is PACKED_LINE outputs. */
CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    const int64_t bits = ((const gptq *)(const void *)job->self)->bits;
    const int64_t width = lathe_dtype_bytes(job->dtype);
    uint32_t lines[WORDS][PACKED_LINE] = {{0}};
    int32_t codes[CODEC_SPAN];
    float room[CODEC_SPAN];
    for (int64_t first = begin * PACKED_LINE; first < end * PACKED_LINE; first += PACKED_LINE)
        for (int64_t col = 0; col < job->cols; col += CODEC_SPAN) {
            const int64_t n = job->cols - col < CODEC_SPAN ? job->cols - col : CODEC_SPAN;
            const int64_t left = job->rows - first, rows = left < PACKED_LINE ? left : PACKED_LINE;
            packed_copy((const uint32_t *)job->planes[PACKED_CODES] + col * bits / 32 * job->rows +
                            first,
                        job->rows, n * bits / 32, rows, lines);
            for (int64_t k = 0; k < rows; k++) {
                char *const out = (char *)job->out + ((first + k) * job->cols + col) * width;
                float *const values = job->dtype == LATHE_F32 ? (float *)(void *)out : room;
                unpack_codes((const uint32_t(*)[PACKED_LINE])lines, k, n, bits, codes);
                decode_codes(job, codes, first + k, col, n, values);
                if (job->dtype != LATHE_F32)
                    codec_round(values, n, out, job->dtype, build);
            }
        }
}
CODEC_BUILDS(decode_lines, decode_body)

static lathe_status gptq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    const gptq *q = self;
    LATHE_TRY(codec_check_dtype(&q->head, "gptq", dtype));
    codec_job job = {
        .self = &q->head, .rows = rows, .cols = cols, .planes = planes, .out = w, .dtype = dtype};
    codec_rows(&job, decode_lines, (rows + PACKED_LINE - 1) / PACKED_LINE, cols * PACKED_LINE);
    return LATHE_OK;
}

static lathe_status gptq_check_planes(void *self, int64_t rows, int64_t cols,
                                      const void *const *planes)
{
    const gptq *q = self;
    const int64_t groups = gptq_groups(q, cols);
    const int32_t *const of = planes[PACKED_GROUPS];
    (void)rows;
    for (int64_t i = 0; i < cols; i++)
        if (of[i] < 0 || of[i] >= groups)
            return lathe_fail(q->head.host, LATHE_E_CORRUPT,
                              "gptq: g_idx[%lld] is %d; expected 0 to %lld, for %lld inputs in "
                              "groups of %lld",
                              (long long)i, of[i], (long long)groups - 1, (long long)cols,
                              (long long)gptq_group(q, cols));
    return LATHE_OK;
}

/* ---- files ---- */

static int64_t gptq_config_json(void *self, char *out, int64_t capacity)
{
    const gptq *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"gptq\", \"bits\": %d, \"group_size\": %lld, \"desc_act\": "
        "%s, \"sym\": %s, \"checkpoint_format\": \"%s\", \"lm_head\": false, "
        "\"damp_percent\": %.6g, \"true_sequential\": false, "
        "\"pack_dtype\": \"int32\"}",
        (int)q->bits, q->group > 0 ? (long long)q->group : -1LL, q->act_order ? "true" : "false",
        q->symmetric ? "true" : "false", q->zero_offset ? "gptq" : "gptq_v2", q->damping);
}

static const char *const methods[] = {"gptq", NULL};

static lathe_status gptq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                     lathe_value *values)
{
    const char *bits = config->get(config->ctx, "bits");
    const char *group = config->get(config->ctx, "group_size");
    const char *version = config->get(config->ctx, "checkpoint_format");
    if (bits == NULL || group == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "gptq reads weights with bits and group_size, and here one is absent");
    LATHE_TRY(source_expect(host, config, "gptq", "pack_dtype", "int32"));
    values[FIELD_BITS].i = strtol(bits, NULL, 10);
    values[FIELD_GROUP_SIZE].i = strtol(group, NULL, 10);
    values[FIELD_ACT_ORDER].i = source_is(config, "desc_act", "true");
    values[FIELD_SYMMETRIC].i = !source_is(config, "sym", "false");
    if (version != NULL)
        values[FIELD_VERSION].s = version;
    return LATHE_OK;
}

static void gptq_image_settings(void *self, int64_t *out)
{
    const gptq *q = self;
    out[PACKED_BITS] = q->bits;
    out[PACKED_ZERO_OFFSET] = q->zero_offset;
}

static const lathe_quant_v1 gptq_table = {
    .size = sizeof gptq_table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = gptq_accepts,
    .planes = gptq_planes,
    .encode = gptq_encode,
    .decode = gptq_decode,
    .config_json = gptq_config_json,
    .cuda_image = LATHE_CUDA_IMAGE,
    .image_settings = gptq_image_settings,
    .methods = methods,
    .read_config = gptq_read_config,
    .check_planes = gptq_check_planes,
    .encode_calibrated = gptq_encode_calibrated,
};

LATHE_INSTANCE(gptq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(gptq),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.0.0",
    .summary = "2, 3, 4 or 8-bit weights in GPTQ's layout, calibrated on data",
    .source = "arXiv:2210.17323",
    .license = "Apache-2.0",
};
