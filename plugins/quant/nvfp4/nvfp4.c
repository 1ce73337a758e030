/* nvfp4: E2M1 weights in groups of 16 with an E4M3 scale each and one f32 scale for the tensor.
 *
 * Sources: compressed-tensors "nvfp4-pack-quantized" and NVIDIA's ModelOpt, which name and invert
 * the tensor's scale differently. All arithmetic is f32 in their order.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "nvfp4_kernel.h"
#include "shared/e2m1_codec.h"
#include "shared/quant_source.h"

#define LAYOUTS "compressed-tensors|modelopt"
#define E2M1_MAX 6.0f

typedef struct nvfp4 {
    codec_head head;
    int32_t layout;
} nvfp4;

enum { FIELD_LAYOUT };

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("layout", "\"compressed-tensors\"", LAYOUTS,
                       "names of the tensors in files, and which way the tensor's scale is stored"),
};

static lathe_status read_values(const lathe_host *host, nvfp4 *q, const lathe_value *values)
{
    (void)host;
    q->head.build = codec_best_build();
    q->layout = lathe_choice(LAYOUTS, values[FIELD_LAYOUT].s);
    return LATHE_OK;
}

static lathe_status nvfp4_accepts(void *self, int64_t rows, int64_t cols)
{
    return codec_check_groups(self, "nvfp4", rows, cols, NVFP4_GROUP);
}

static int32_t nvfp4_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const nvfp4 *q = self;
    const int is_modelopt = q->layout == NVFP4_MODELOPT;
    out[NVFP4_WEIGHT] = (lathe_plane){"weight_packed", is_modelopt ? "" : "_packed",
                                      lathe_desc_2d(LATHE_U8, rows, cols / 2)};
    out[NVFP4_SCALE] = (lathe_plane){"weight_scale", "_scale",
                                     lathe_desc_2d(LATHE_F8_E4M3, rows, cols / NVFP4_GROUP)};
    out[NVFP4_GLOBAL] = (lathe_plane){"global_scale", is_modelopt ? "_scale_2" : "_global_scale",
                                      lathe_desc_1d(LATHE_F32, 1)};
    if (is_modelopt) /* a scalar there */
        out[NVFP4_GLOBAL].desc.rank = 0;
    return NVFP4_N_PLANES;
}

/* ---- encoding ---- */

CODEC_BODY void find_largest_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    for (int64_t row = begin; row < end; row++) {
        job->scratch[row] = codec_largest(job->w + row * job->cols, job->cols);
        if (job->scratch[row] < 0)
            codec_set_bad(job);
    }
}
CODEC_LOOP(find_largest, find_largest_body)

/* The tensor's scale, for which the largest group gets the largest scale that E4M3 has. */
static float global_of(float largest, int32_t layout)
{
    if (layout == NVFP4_MODELOPT) {
        const float scale = largest / (E2M1_MAX * LATHE_E4M3_MAX);
        return scale > 0.0f ? scale : 1.0f;
    }
    /* torch divides a number by a tensor in two steps */
    const float scale =
        1.0f / (largest > FLT_MIN ? largest : FLT_MIN) * (E2M1_MAX * LATHE_E4M3_MAX);
    return isinf(scale) ? 1.0f : scale;
}

/* The code of a group's scale. A scale that rounds to 0 is replaced: by 0.125 in
 * compressed-tensors, by the smallest one in ModelOpt (by 1 in a group of zeros). */
CODEC_BODY uint8_t group_scale(float largest, float global, int32_t layout)
{
    if (layout == NVFP4_MODELOPT) {
        float scale = largest / (E2M1_MAX * global);
        scale = scale == 0.0f ? 1.0f : scale;
        return lathe_f32_to_e4m3(scale < 0x1p-9f ? 0x1p-9f : scale);
    }
    const uint8_t code = lathe_f32_to_e4m3(global * (largest / E2M1_MAX));
    return code == 0 ? 0x20 : code; /* 0x20: 0.125 */
}

CODEC_BODY void encode_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const nvfp4 *const q = (const nvfp4 *)(const void *)job->self;
    const float global = *(const float *)job->made[NVFP4_GLOBAL];
    for (int64_t i = begin * job->cols; i < end * job->cols; i += NVFP4_GROUP) {
        const float largest = codec_largest(job->w + i, NVFP4_GROUP);
        const uint8_t code = group_scale(largest, global, q->layout);
        ((uint8_t *)job->made[NVFP4_SCALE])[i / NVFP4_GROUP] = code;
        e2m1_encode(job->w + i, NVFP4_GROUP, nvfp4_scale(code, global, q->layout),
                    (uint8_t *)job->made[NVFP4_WEIGHT] + i / 2);
    }
}
CODEC_LOOP(encode_rows, encode_body)

static lathe_status nvfp4_encode(void *self, int64_t rows, int64_t cols, const float *w,
                                 void *const *planes)
{
    const nvfp4 *q = self;
    float largest = 0;
    codec_job job = {.self = self, .rows = rows, .cols = cols, .w = w, .made = planes};
    LATHE_TRY(nvfp4_accepts(self, rows, cols));
    job.scratch = malloc((size_t)rows * sizeof *job.scratch);
    if (job.scratch == NULL)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "nvfp4: no memory for %lld magnitudes",
                          (long long)rows);
    codec_rows(&job, find_largest, rows, cols);
    for (int64_t row = 0; row < rows; row++)
        largest = job.scratch[row] > largest ? job.scratch[row] : largest;
    free(job.scratch);
    *(float *)planes[NVFP4_GLOBAL] = global_of(largest, q->layout);
    if (!job.bad)
        codec_rows(&job, encode_rows, rows, cols);
    return codec_encoded(&job, "nvfp4");
}

/* ---- decoding ---- */

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    const nvfp4 *const q = (const nvfp4 *)(const void *)job->self;
    const int64_t at = row * job->cols + col;
    const uint8_t *const codes = (const uint8_t *)job->planes[NVFP4_SCALE] + at / NVFP4_GROUP;
    const float global = *(const float *)job->planes[NVFP4_GLOBAL];
    float scales[CODEC_SPAN / NVFP4_GROUP] = {0}; /* n may be less than a span */
    for (int64_t i = 0; i < n / NVFP4_GROUP; i++)
        scales[i] = nvfp4_scale(codes[i], global, q->layout);
    e2m1_decode((const uint8_t *)job->planes[NVFP4_WEIGHT] + at / 2, n, NVFP4_GROUP, scales,
                nvfp4_zero(q->layout), out, build);
}
CODEC_DECODER(decode_rows, decode_span)
CODEC_DECODE(nvfp4, decode_rows)

static int32_t nvfp4_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           lathe_weight_codes *out)
{
    (void)self, (void)rows, (void)cols, (void)planes;
    *out = e2m1_codes(NVFP4_WEIGHT, NVFP4_GROUP);
    return 1;
}

CODEC_BODY void scales_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    const nvfp4 *const q = (const nvfp4 *)(const void *)job->self;
    const uint8_t *const codes = job->planes[NVFP4_SCALE];
    const float global = *(const float *)job->planes[NVFP4_GLOBAL];
    const float factor = q->layout == NVFP4_MODELOPT ? global : 1.0f / global;
    for (int64_t row = job->first + begin; row < job->first + end; row++) {
        const uint8_t *const from = codes + (row * job->cols + job->col) / NVFP4_GROUP;
        float *const to = (float *)job->out + (row - job->first) * job->stride;
        const int64_t n = (job->end - job->col) / NVFP4_GROUP;
        codec_prefetch(from, n);
        if (build == CODEC_AVX512)
            wide_e4m3(from, n, factor, to);
        for (int64_t i = 0; build != CODEC_AVX512 && i < n; i++)
            to[i] = small_e4m3(from[i]) * factor;
    }
}
CODEC_BUILDS(group_scales, scales_body)

static void nvfp4_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                              const lathe_weight_part *part, float *scales, float *offsets)
{
    (void)offsets;
    codec_part(self, rows, cols, planes, part, scales, LATHE_F32, group_scales, 1);
}

/* ---- the table ---- */

static int64_t nvfp4_config_json(void *self, char *out, int64_t capacity)
{
    const nvfp4 *q = self;
    const size_t room = capacity > 0 ? (size_t)capacity : 0;
    if (q->layout == NVFP4_MODELOPT)
        return snprintf(out, room,
                        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", "
                        "\"producer\": {\"name\": \"modelopt\"}, \"config_groups\": {\"group_0\": "
                        "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": "
                        "\"float\", \"dynamic\": false, \"group_size\": %d}}}, \"ignore\": "
                        "[\"lm_head\"]}",
                        NVFP4_GROUP);
    return snprintf(
        out, room,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", "
        "\"quantization_status\": \"compressed\", \"config_groups\": {\"group_0\": {\"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"symmetric\": true, "
        "\"group_size\": %d, \"strategy\": \"tensor_group\", \"dynamic\": false, \"scale_dtype\": "
        "\"torch.float8_e4m3fn\", \"zp_dtype\": \"torch.float8_e4m3fn\"}, \"input_activations\": "
        "null, \"output_activations\": null, \"format\": \"nvfp4-pack-quantized\"}}, \"ignore\": "
        "[\"lm_head\"]}",
        NVFP4_GROUP);
}

static const char *const methods[] = {"compressed-tensors", "modelopt", NULL};

/* "NVFP4", also with activations in 16 bits; or, if each group of layers has its own, 4 bits. */
static int is_of_modelopt(const lathe_quant_config *config)
{
    const char *algorithm = config->get(config->ctx, "quant_algo");
    if (algorithm == NULL || strcmp(algorithm, "MIXED_PRECISION") == 0)
        return source_is(config, "weights.num_bits", "4") &&
               source_is(config, "weights.type", "float");
    return strcmp(algorithm, "NVFP4") == 0 || strcmp(algorithm, "W4A16_NVFP4") == 0;
}

static lathe_status nvfp4_read_config(const lathe_host *host, const lathe_quant_config *config,
                                      lathe_value *values)
{
    const int is_modelopt = strcmp(config->method, "modelopt") == 0;
    values[FIELD_LAYOUT].s = is_modelopt ? "modelopt" : "compressed-tensors";
    if (is_modelopt && !is_of_modelopt(config))
        return lathe_fail(host, LATHE_E_NOT_FOUND, "nvfp4 reads weights with quant_algo = NVFP4");
    if (!is_modelopt) {
        LATHE_TRY(source_compressed(host, config, "nvfp4", "nvfp4-pack-quantized", "float"));
        LATHE_TRY(source_expect(host, config, "nvfp4", "weights.symmetric", "true"));
    }
    LATHE_TRY(source_expect(host, config, "nvfp4", "group_size", "16"));
    LATHE_TRY(source_expect(host, config, "nvfp4", "weights.num_bits", "4"));
    return source_expect(host, config, "nvfp4", "weights.group_size", "16");
}

static void nvfp4_image_settings(void *self, int64_t *out)
{
    const nvfp4 *q = self;
    out[0] = q->layout;
}

static const lathe_quant_v1 nvfp4_table = {
    CODEC_TABLE(nvfp4),
    .image_settings = nvfp4_image_settings,
    .methods = methods,
};

LATHE_INSTANCE(nvfp4, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(nvfp4),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "4-bit E2M1 weights in groups of 16 with E4M3 scales and one scale for the tensor",
    .source = "compressed-tensors nvfp4-pack-quantized; NVIDIA ModelOpt NVFP4",
    .license = "Apache-2.0",
};
