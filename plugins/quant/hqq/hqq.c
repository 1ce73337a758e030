/* hqq: weights of 1, 2, 3, 4 or 8 bits in groups with a scale and a zero point, in hqq's layout.
 *
 *   W' = (q - zero) * scale, each step rounded to the compute dtype
 *
 * Source: Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models" (2023);
 * the package hqq 0.2.8 for layout and arithmetic.
 */
#include "hqq.h"

#include <stdlib.h>

#include "hqq_avx512.h"
#include "lathe/kit/instance.h"
#include "shared/quant_source.h"

enum { FIELD_BITS, FIELD_GROUP_SIZE, FIELD_COMPUTE_DTYPE };
#define DTYPES "float16|bfloat16|float32"

static const lathe_field fields[] = {
    LATHE_FIELD_INT("bits", "4", 1, 8, NULL, "bits of a code: 1, 2, 3, 4 or 8"),
    LATHE_FIELD_INT("group_size", "64", 8, 65536, NULL,
                    "weights that share a scale and a zero point; a multiple of 8"),
    LATHE_FIELD_STRING("compute_dtype", "\"float16\"", DTYPES,
                       "dtype of scales and zero points, to which decoding rounds each step"),
};

static lathe_status read_values(const lathe_host *host, hqq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->bits = values[FIELD_BITS].i;
    q->group = values[FIELD_GROUP_SIZE].i;
    const int32_t dtype = lathe_choice(DTYPES, values[FIELD_COMPUTE_DTYPE].s);
    q->dtype = dtype == 1 ? LATHE_BF16 : dtype == 2 ? LATHE_F32 : LATHE_F16;
    if (q->bits > 4 && q->bits < 8)
        return lathe_fail(host, LATHE_E_CONFIG, "hqq: bits = %d; expected 1, 2, 3, 4 or 8",
                          (int)q->bits);
    if (q->group % 8 != 0)
        return lathe_fail(host, LATHE_E_CONFIG, "hqq: group_size = %d; expected a multiple of 8",
                          (int)q->group);
    return LATHE_OK;
}

static lathe_status hqq_accepts(void *self, int64_t rows, int64_t cols)
{
    const hqq *q = self;
    LATHE_TRY(codec_check_dims(&q->head, "hqq", rows, cols));
    const int64_t whole = q->bits == 3 ? q->group : q->group * hqq_per_word(q->bits);
    if (rows * cols % whole != 0)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "hqq: a weight of [%lld, %lld]; with %d bits and groups of %lld its size "
                          "must be a multiple of %lld",
                          (long long)rows, (long long)cols, (int)q->bits, (long long)q->group,
                          (long long)whole);
    return LATHE_OK;
}

static int32_t hqq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const hqq *q = self;
    const int64_t groups = rows * cols / q->group;
    out[HQQ_CODES] = (lathe_plane){"W_q", "../W_q",
                                   lathe_desc_2d(q->bits == 3 ? LATHE_I32 : LATHE_U8,
                                                 hqq_word_rows(groups, q->bits), q->group)};
    out[HQQ_SCALE] = (lathe_plane){"scale", "../scale", lathe_desc_2d(q->dtype, groups, 1)};
    out[HQQ_ZERO] = (lathe_plane){"zero", "../zero", lathe_desc_2d(q->dtype, groups, 1)};
    return HQQ_N_PLANES;
}

static lathe_status hqq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    LATHE_TRY(hqq_accepts(self, rows, cols));
    return hqq_encode_weight(self, rows, cols, w, planes);
}

/* ---- decoding ---- */

/* Rounds n values to f16 or bf16 and back. */
CODEC_BODY void round_to(float *x, int64_t n, int32_t dtype, int build)
{
    if (dtype == LATHE_F32)
        return;
    if (build == CODEC_AVX2 && dtype == LATHE_F16)
        eight_round_f16(x, n);
    else if (dtype == LATHE_BF16)
        for (int64_t i = 0; i < n; i++)
            x[i] = lathe_bf16_to_f32(lathe_f32_to_bf16(x[i]));
    else
        for (int64_t i = 0; i < n; i++)
            x[i] = lathe_f16_to_f32(lathe_f32_to_f16(x[i]));
}

/* Decodes n values of one group, from place `col` in it on. */
CODEC_BODY void decode_group(const codec_job *job, int64_t group, int64_t word_rows, int64_t col,
                             int64_t n, float *out, int build)
{
    const hqq *const q = (const hqq *)(const void *)job->self;
    const int64_t run = group / word_rows, at = (group - run * word_rows) * q->group + col;
    const int bits = (int)q->bits, shift = bits * (int)(hqq_per_word(bits) - 1 - run);
    const uint32_t mask = (1u << bits) - 1u;
    const float zero = hqq_parameter(job->planes[HQQ_ZERO], group, q->dtype);
    const float scale = hqq_parameter(job->planes[HQQ_SCALE], group, q->dtype);
    const uint8_t *const bytes = (const uint8_t *)job->planes[HQQ_CODES] + at;
    const uint32_t *const words = bits == 3 ? (const uint32_t *)job->planes[HQQ_CODES] + at : NULL;
    if (build == CODEC_AVX512) {
        wide_group(bytes, words, n, bits, shift, zero, scale, out, q->dtype);
        return;
    }
    if (build == CODEC_AVX2 && bits <= 4) { /* the values of all codes are computed once */
        float table[16];
        for (int i = 0; i < 16; i++)
            table[i] = (float)i - zero;
        round_to(table, 16, q->dtype, build);
        for (int i = 0; i < 16; i++)
            table[i] *= scale;
        round_to(table, 16, q->dtype, build);
        eight_look_up(table, bytes, words, n, bits, shift, out);
        return;
    }
    if (words != NULL)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(int32_t)(words[i] >> shift & mask) - zero;
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(int32_t)((uint32_t)bytes[i] >> shift & mask) - zero;
    round_to(out, n, q->dtype, build);
    for (int64_t i = 0; i < n; i++)
        out[i] *= scale;
    round_to(out, n, q->dtype, build);
}

/* A row of the loop is one group, or several that fit in a span. */
CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    const hqq *const q = (const hqq *)(const void *)job->self;
    const int64_t size = q->group, first = row * job->cols / size;
    const int64_t word_rows = hqq_word_rows(job->rows * job->cols / size, q->bits);
    if (job->cols == size)
        decode_group(job, first, word_rows, col, n, out, build);
    else
        for (int64_t i = 0; i < n; i += size)
            decode_group(job, first + i / size, word_rows, 0, size, out + i, build);
}
CODEC_DECODER(decode_groups, decode_span)

static lathe_status hqq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    const hqq *q = self;
    (void)scratch;
    (void)stream;
    const int64_t groups = rows * cols / q->group;
    int64_t together = 1;
    while (groups % (2 * together) == 0 && 2 * together * q->group <= CODEC_SPAN)
        together *= 2;
    return codec_decode(&q->head, "hqq", groups / together, together * q->group, planes, w, dtype,
                        decode_groups);
}

/* ---- the table ---- */

static int64_t hqq_config_json(void *self, char *out, int64_t capacity)
{
    const hqq *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"hqq\", \"quant_config\": {\"weight_quant_params\": {\"nbits\": %d, "
        "\"channel_wise\": true, \"group_size\": %lld, \"optimize\": true, \"round_zero\": false, "
        "\"axis\": 1, \"view_as_float\": false}, \"scale_quant_params\": null, "
        "\"zero_quant_params\": null, \"offload_meta\": false}, \"compute_dtype\": \"%s\", "
        "\"skip_modules\": [\"lm_head\"]}",
        (int)q->bits, (long long)q->group,
        q->dtype == LATHE_F32    ? "float32"
        : q->dtype == LATHE_BF16 ? "bfloat16"
                                 : "float16");
}

static const char *const methods[] = {"hqq", NULL};

/* hqq stores scales and zero points in the dtype of the model; folders of ours name it. */
static lathe_status hqq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    const char *const at = "quant_config.weight_quant_params.";
    const char *bits = config->get(config->ctx, "quant_config.weight_quant_params.nbits");
    const char *group = config->get(config->ctx, "quant_config.weight_quant_params.group_size");
    const char *dtype = config->get(config->ctx, "compute_dtype");
    if (bits == NULL || group == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "hqq reads weights with %snbits and %sgroup_size, and here one is absent",
                          at, at);
    LATHE_TRY(source_expect(host, config, "hqq", "quant_config.weight_quant_params.axis", "1"));
    LATHE_TRY(source_expect(host, config, "hqq", "quant_config.weight_quant_params.view_as_float",
                            "false"));
    values[FIELD_BITS].i = strtol(bits, NULL, 10);
    values[FIELD_GROUP_SIZE].i = strtol(group, NULL, 10);
    if (dtype == NULL)
        dtype = config->get(config->ctx, "/dtype");
    if (dtype == NULL)
        dtype = config->get(config->ctx, "/torch_dtype");
    if (dtype != NULL)
        values[FIELD_COMPUTE_DTYPE].s = dtype;
    return LATHE_OK;
}

static void hqq_image_settings(void *self, int64_t *out)
{
    const hqq *q = self;
    out[HQQ_BITS] = q->bits;
    out[HQQ_GROUP] = q->group;
    out[HQQ_DTYPE] = q->dtype;
}

static const lathe_quant_v1 hqq_table = {
    .size = sizeof hqq_table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = hqq_accepts,
    .planes = hqq_planes,
    .encode = hqq_encode,
    .decode = hqq_decode,
    .config_json = hqq_config_json,
    .cuda_image = LATHE_CUDA_IMAGE,
    .image_settings = hqq_image_settings,
    .methods = methods,
    .read_config = hqq_read_config,
};

LATHE_INSTANCE(hqq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(hqq),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.0.0",
    .summary = "weights of 1 to 8 bits with zero points from half-quadratic optimization",
    .source = "https://mobiusml.github.io/hqq_blog/",
    .license = "Apache-2.0",
};
