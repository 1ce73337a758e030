/* fp8: E4M3 weights with f32 scales, one for the tensor, for each row, or for each block of
 * 128 x 128.
 *
 * Sources: transformers' FineGrained FP8 (blocks), compressed-tensors "float-quantized" (tensor and
 * rows). All arithmetic is f32 in their order, so codes, scales and decoded values have their bits.
 */
#include <math.h>
#include <stdlib.h>

#include "fp8_kernel.h"
#include "lathe/kit/instance.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"

typedef struct fp8 {
    codec_head head;
    int32_t scaling;
    int64_t odd_rows, odd_cols; /* of the first weight with sizes that blocks do not divide; 0 */
} fp8;

enum { FIELD_SCALING };
#define SCALINGS "tensor|row|block"

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("scaling", "\"block\"", SCALINGS,
                       "what one scale is for: the tensor, a row, or a block of 128 x 128"),
};

static lathe_status read_values(const lathe_host *host, fp8 *q, const lathe_value *values)
{
    (void)host;
    q->head.build = codec_best_build();
    q->scaling = lathe_choice(SCALINGS, values[FIELD_SCALING].s);
    return LATHE_OK;
}

static lathe_status fp8_accepts(void *self, int64_t rows, int64_t cols)
{
    fp8 *q = self;
    LATHE_TRY(codec_check_dims(&q->head, "fp8", rows, cols));
    if (q->odd_rows == 0 && (rows % FP8_BLOCK_SIZE != 0 || cols % FP8_BLOCK_SIZE != 0)) {
        q->odd_rows = rows;
        q->odd_cols = cols;
    }
    return LATHE_OK;
}

static int64_t blocks_of(int64_t n)
{
    return (n + FP8_BLOCK_SIZE - 1) / FP8_BLOCK_SIZE;
}

static int32_t fp8_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const fp8 *q = self;
    const lathe_desc scales[] = {
        [FP8_TENSOR] = lathe_desc_1d(LATHE_F32, 1),
        [FP8_ROW] = lathe_desc_2d(LATHE_F32, rows, 1),
        [FP8_BLOCK] = lathe_desc_2d(LATHE_F32, blocks_of(rows), blocks_of(cols)),
    };
    out[FP8_WEIGHT] = (lathe_plane){"weight", "", lathe_desc_2d(LATHE_F8_E4M3, rows, cols)};
    out[FP8_SCALE] = (lathe_plane){"scale", q->scaling == FP8_BLOCK ? "_scale_inv" : "_scale",
                                   scales[q->scaling]};
    return FP8_N_PLANES;
}

/* ---- encoding ---- */

/* Stores the codes of n values; divides them by the scale, or multiplies them by its inverse. */
CODEC_BODY void encode_run(const float *w, int64_t n, float scale, int divides, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = divides ? w[i] / scale : w[i] * scale;
        codes[i] = lathe_f32_to_e4m3(x);
    }
}

/* Blocks: transformers multiplies by 448/largest, and stores the inverse of that. */
CODEC_BODY void encode_block(codec_job *job, int64_t row, int64_t col)
{
    const int64_t end_row = row + FP8_BLOCK_SIZE < job->rows ? row + FP8_BLOCK_SIZE : job->rows;
    const int64_t n = col + FP8_BLOCK_SIZE < job->cols ? FP8_BLOCK_SIZE : job->cols - col;
    float largest = 0;
    for (int64_t r = row; r < end_row; r++) {
        const float one = codec_largest(job->w + r * job->cols + col, n);
        if (one < 0)
            codec_set_bad(job);
        largest = one > largest ? one : largest;
    }
    /* A block of zeros has scale 1. So has one below 448/FLT_MAX, where the factor overflows. */
    float factor = LATHE_E4M3_MAX / largest;
    const int is_zero = largest == 0.0f || isinf(factor);
    factor = is_zero ? 1.0f : factor;
    ((float *)job->made[FP8_SCALE])[fp8_scale_index(FP8_BLOCK, row, col, job->cols)] =
        1.0f / factor;
    for (int64_t r = row; r < end_row; r++) {
        const int64_t at = r * job->cols + col;
        encode_run(job->w + at, n, factor, 0, (uint8_t *)job->made[FP8_WEIGHT] + at);
    }
}

CODEC_BODY void encode_blocks_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    for (int64_t block = begin; block < end; block++)
        for (int64_t col = 0; col < job->cols; col += FP8_BLOCK_SIZE)
            encode_block(job, block * FP8_BLOCK_SIZE, col);
}
CODEC_LOOP(encode_blocks, encode_blocks_body)

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

/* Rows and tensors: compressed-tensors divides by largest/448; a scale of 0 becomes 2^-23. */
static float scale_of(float largest)
{
    const float scale = largest / LATHE_E4M3_MAX;
    return scale == 0.0f ? 0x1p-23f : scale;
}

CODEC_BODY void encode_rows_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const fp8 *const q = (const fp8 *)(const void *)job->self;
    for (int64_t row = begin; row < end; row++) {
        const float scale =
            ((const float *)job->made[FP8_SCALE])[fp8_scale_index(q->scaling, row, 0, job->cols)];
        encode_run(job->w + row * job->cols, job->cols, scale, 1,
                   (uint8_t *)job->made[FP8_WEIGHT] + row * job->cols);
    }
}
CODEC_LOOP(encode_rows, encode_rows_body)

static lathe_status encode_scaled_rows(const fp8 *q, codec_job *job)
{
    float *const scales = job->made[FP8_SCALE];
    float largest = 0;
    job->scratch = malloc((size_t)job->rows * sizeof *job->scratch);
    if (job->scratch == NULL)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "fp8: no memory for %lld scales",
                          (long long)job->rows);
    codec_rows(job, find_largest, job->rows, job->cols);
    for (int64_t row = 0; row < job->rows; row++) {
        largest = job->scratch[row] > largest ? job->scratch[row] : largest;
        if (q->scaling == FP8_ROW)
            scales[row] = scale_of(job->scratch[row]);
    }
    if (q->scaling == FP8_TENSOR)
        scales[0] = scale_of(largest);
    free(job->scratch);
    if (!job->bad)
        codec_rows(job, encode_rows, job->rows, job->cols);
    return LATHE_OK;
}

static lathe_status fp8_encode(void *self, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    const fp8 *q = self;
    codec_job job = {.self = &q->head, .rows = rows, .cols = cols, .w = w, .made = planes};
    LATHE_TRY(fp8_accepts(self, rows, cols));
    if (q->scaling == FP8_BLOCK)
        codec_rows(&job, encode_blocks, blocks_of(rows), FP8_BLOCK_SIZE * cols);
    else
        LATHE_TRY(encode_scaled_rows(q, &job));
    return codec_encoded(&job, "fp8");
}

/* ---- decoding ---- */

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    const fp8 *const q = (const fp8 *)(const void *)job->self;
    const uint8_t *const codes = (const uint8_t *)job->planes[FP8_WEIGHT] + row * job->cols + col;
    const float *const scales = job->planes[FP8_SCALE];
    for (int64_t begin = 0; begin < n; begin += FP8_BLOCK_SIZE) {
        const int64_t end = begin + FP8_BLOCK_SIZE < n ? begin + FP8_BLOCK_SIZE : n;
        const float scale = scales[fp8_scale_index(q->scaling, row, col + begin, job->cols)];
        if (build == CODEC_AVX512)
            wide_e4m3(codes + begin, end - begin, scale, out + begin);
        else if (build == CODEC_AVX2)
            eight_e4m3(codes + begin, end - begin, scale, out + begin);
        for (int64_t i = begin; i < end && build == CODEC_PORTABLE; i++)
            out[i] = small_e4m3(codes[i]) * scale;
    }
}
CODEC_DECODER(decode_rows, decode_span)

static lathe_status fp8_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    return codec_decode(self, "fp8", rows, cols, planes, w, dtype, decode_rows);
}

static void fp8_decode_part(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, void *out, int32_t dtype)
{
    codec_part(self, rows, cols, planes, part, out, dtype, decode_rows, 1);
}

static int32_t fp8_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                         lathe_weight_codes *out)
{
    const fp8 *q = self;
    (void)rows, (void)planes;
    *out = (lathe_weight_codes){.order = LATHE_CODES_BYTES,
                                .bits = 8,
                                .values = LATHE_VALUES_E4M3,
                                .plane = FP8_WEIGHT,
                                .group = q->scaling == FP8_BLOCK ? FP8_BLOCK_SIZE : cols};
    return 1;
}

static void fp8_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, float *scales, float *offsets)
{
    const fp8 *q = self;
    const float *const from = planes[FP8_SCALE];
    const int64_t n = q->scaling == FP8_BLOCK ? blocks_of(part->cols) : 1;
    (void)rows, (void)offsets;
    for (int64_t i = 0; i < part->runs * part->rows; i++)
        for (int64_t k = 0; k < n; k++)
            scales[i * part->stride + k] = from[fp8_scale_index(
                q->scaling, codec_part_row(part, i), part->col + k * FP8_BLOCK_SIZE, cols)];
}

/* ---- the table ---- */

/* transformers takes the size of a block from the number of scales, which is 128 only where blocks
 * divide the weight. */
static void warn_of_odd_sizes(const fp8 *q)
{
    if (q->scaling == FP8_BLOCK && q->odd_rows > 0)
        lathe_warn(q->head.host,
                   "fp8: a weight of [%lld, %lld] is no whole number of blocks of 128 x 128: "
                   "transformers' from_pretrained on a CPU refuses such a folder or decodes it "
                   "wrongly; quant.scaling = \"row\" loads there (with compressed-tensors)",
                   (long long)q->odd_rows, (long long)q->odd_cols);
}

/* Called when a folder is written. */
static int64_t fp8_config_json(void *self, char *out, int64_t capacity)
{
    const fp8 *q = self;
    const size_t room = capacity > 0 ? (size_t)capacity : 0;
    warn_of_odd_sizes(q);
    if (q->scaling == FP8_BLOCK)
        return snprintf(out, room,
                        "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
                        "\"fmt\": \"e4m3\", \"weight_block_size\": [%d, %d], "
                        "\"modules_to_not_convert\": null}",
                        FP8_BLOCK_SIZE, FP8_BLOCK_SIZE);
    return snprintf(
        out, room,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"quantization_status\": \"compressed\", \"config_groups\": {\"group_0\": {\"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, "
        "\"strategy\": \"%s\", \"dynamic\": false}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"float-quantized\"}}, \"ignore\": "
        "[\"lm_head\"]}",
        q->scaling == FP8_ROW ? "channel" : "tensor");
}

static const char *const methods[] = {"fp8", "compressed-tensors", NULL};

/* transformers' FineGrained FP8: blocks alone, or (DeepSeek's files say no more) fmt. */
static lathe_status read_fine_grained(const lathe_host *host, const lathe_quant_config *config)
{
    if (config->get(config->ctx, "weight_block_size.0") == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "fp8 reads weights with weight_block_size = [128, 128], and here it is "
                          "absent");
    LATHE_TRY(source_expect(host, config, "fp8", "fmt", "e4m3"));
    LATHE_TRY(source_expect(host, config, "fp8", "scale_fmt", "float"));
    LATHE_TRY(source_expect(host, config, "fp8", "weight_block_size.0", "128"));
    return source_expect(host, config, "fp8", "weight_block_size.1", "128");
}

static lathe_status fp8_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    values[FIELD_SCALING].s = "block";
    if (strcmp(config->method, "fp8") == 0)
        return read_fine_grained(host, config);
    LATHE_TRY(source_compressed(host, config, "fp8", "float-quantized"));
    LATHE_TRY(source_expect(host, config, "fp8", "weights.num_bits", "8"));
    LATHE_TRY(source_expect(host, config, "fp8", "weights.type", "float"));
    const int is_tensor = source_is(config, "weights.strategy", "tensor");
    values[FIELD_SCALING].s = is_tensor ? "tensor" : "row";
    return is_tensor ? LATHE_OK : source_expect(host, config, "fp8", "weights.strategy", "channel");
}

static void fp8_image_settings(void *self, int64_t *out)
{
    const fp8 *q = self;
    out[0] = q->scaling;
}

static const lathe_quant_v1 fp8_table = {
    .size = sizeof fp8_table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = fp8_accepts,
    .planes = fp8_planes,
    .encode = fp8_encode,
    .decode = fp8_decode,
    .decode_part = fp8_decode_part,
    .codes = fp8_codes,
    .part_scales = fp8_part_scales,
    .config_json = fp8_config_json,
    .cuda_image = LATHE_CUDA_IMAGE,
    .image_settings = fp8_image_settings,
    .methods = methods,
    .read_config = fp8_read_config,
};

LATHE_INSTANCE(fp8, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(fp8),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.0.0",
    .summary = "8-bit E4M3 weights with a scale per tensor, row or block of 128 x 128",
    .source = "arXiv:2209.05433",
    .license = "Apache-2.0",
};
