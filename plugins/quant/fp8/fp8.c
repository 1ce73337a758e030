/* fp8: E4M3 weights with one scale for the tensor, for each row, or for each block.
 *
 * Sources: transformers' FineGrained FP8 (blocks, tensor; scales in f32 or as exponents of two),
 * compressed-tensors "float-quantized" (tensor, rows, blocks), NVIDIA's ModelOpt "FP8" (tensor).
 * All arithmetic is f32 in their order, so codes, scales and decoded values have their bits.
 */
#include <math.h>
#include <stdlib.h>

#include "fp8_kernel.h"
#include "lathe/kit/instance.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"

typedef struct fp8 {
    codec_head head;
    int32_t layout;
    int64_t settings[LATHE_QUANT_SETTINGS]; /* FP8_SCALING, ... */
    int64_t odd_rows, odd_cols; /* of the first weight with sizes that blocks do not divide; 0 */
    int32_t odd_told;
} fp8;

enum { FIELD_SCALING, FIELD_BLOCK_ROWS, FIELD_BLOCK_COLS, FIELD_SCALES, FIELD_LAYOUT };
enum { LAYOUT_AUTO, LAYOUT_FP8, LAYOUT_COMPRESSED, LAYOUT_MODELOPT };
#define SCALINGS "tensor|row|block"
#define SCALES "f32|e8m0"
#define LAYOUTS "auto|fp8|compressed-tensors|modelopt"

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("scaling", "\"block\"", SCALINGS,
                       "what one scale is for: the tensor, a row, or a block"),
    LATHE_FIELD_INT("block_rows", "128", 1, 65536, NULL, "rows of a block"),
    LATHE_FIELD_INT("block_cols", "128", 1, 65536, NULL, "columns of a block"),
    LATHE_FIELD_STRING("scales", "\"f32\"", SCALES,
                       "how scales of blocks are stored: as numbers, or as exponents of two"),
    LATHE_FIELD_STRING("layout", "\"auto\"", LAYOUTS,
                       "names of the tensors in files; auto: fp8 (transformers) for blocks, "
                       "compressed-tensors for rows and tensors"),
};

static lathe_status read_values(const lathe_host *host, fp8 *q, const lathe_value *values)
{
    const int scaling = lathe_choice(SCALINGS, values[FIELD_SCALING].s);
    const int layout = lathe_choice(LAYOUTS, values[FIELD_LAYOUT].s);
    const int exponents = lathe_choice(SCALES, values[FIELD_SCALES].s);
    q->head.build = codec_best_build();
    q->settings[FP8_SCALING] = scaling;
    q->settings[FP8_BLOCK_ROWS] = values[FIELD_BLOCK_ROWS].i;
    q->settings[FP8_BLOCK_COLS] = values[FIELD_BLOCK_COLS].i;
    q->settings[FP8_EXPONENTS] = exponents;
    q->layout = layout != LAYOUT_AUTO  ? layout
                : scaling == FP8_BLOCK ? LAYOUT_FP8
                                       : LAYOUT_COMPRESSED;
    if (q->layout == LAYOUT_FP8 && scaling == FP8_ROW)
        return lathe_fail_at(host, LATHE_E_CONFIG, "layout",
                             "layout = \"fp8\" has scales of blocks or one of the tensor; "
                             "expected scaling = \"block\" or \"tensor\"");
    if (q->layout == LAYOUT_MODELOPT && scaling != FP8_TENSOR)
        return lathe_fail_at(host, LATHE_E_CONFIG, "layout",
                             "layout = \"modelopt\" has one scale of the tensor; expected "
                             "scaling = \"tensor\"");
    if (exponents && (q->layout != LAYOUT_FP8 || scaling != FP8_BLOCK))
        return lathe_fail_at(host, LATHE_E_CONFIG, "scales",
                             "scales = \"e8m0\" are those of blocks in layout = \"fp8\"");
    return LATHE_OK;
}

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static lathe_status fp8_accepts(void *self, int64_t rows, int64_t cols)
{
    fp8 *q = self;
    LATHE_TRY(codec_check_dims(&q->head, "fp8", rows, cols));
    if (q->odd_rows == 0 &&
        (rows % q->settings[FP8_BLOCK_ROWS] != 0 || cols % q->settings[FP8_BLOCK_COLS] != 0)) {
        q->odd_rows = rows;
        q->odd_cols = cols;
    }
    return LATHE_OK;
}

static int32_t fp8_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const fp8 *q = self;
    const int32_t dtype = q->settings[FP8_EXPONENTS] ? LATHE_U8 : LATHE_F32;
    const lathe_desc scales[] = {
        [FP8_TENSOR] = lathe_desc_1d(LATHE_F32, 1),
        [FP8_ROW] = lathe_desc_2d(LATHE_F32, rows, 1),
        [FP8_BLOCK] = lathe_desc_2d(dtype, parts_of(rows, q->settings[FP8_BLOCK_ROWS]),
                                    parts_of(cols, q->settings[FP8_BLOCK_COLS])),
    };
    out[FP8_WEIGHT] = (lathe_plane){"weight", "", lathe_desc_2d(LATHE_F8_E4M3, rows, cols)};
    out[FP8_SCALE] = (lathe_plane){"scale", q->layout == LAYOUT_FP8 ? "_scale_inv" : "_scale",
                                   scales[q->settings[FP8_SCALING]]};
    if (q->layout != LAYOUT_COMPRESSED && q->settings[FP8_SCALING] == FP8_TENSOR)
        out[FP8_SCALE].desc.rank = 0; /* a scalar in these */
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

/* Rows, tensors and compressed-tensors' blocks: divided by largest/448; a scale of 0 becomes 2^-23.
 */
static inline float scale_of(float largest)
{
    const float scale = largest / LATHE_E4M3_MAX;
    return scale == 0.0f ? 0x1p-23f : scale;
}

/* The exponent of the smallest power of two that is not below x > 0, as E8M0 stores it. */
static inline uint8_t exponent_of(float x)
{
    uint32_t bits;
    x = x < 0x1p-126f ? 0x1p-126f : x;
    memcpy(&bits, &x, sizeof bits);
    return (uint8_t)((bits >> 23) + ((bits & 0x7fffffu) != 0));
}

/* transformers multiplies blocks by 448/largest, and stores the inverse of that. */
CODEC_BODY float block_scale(const fp8 *q, float largest, void *scales, int64_t index,
                             int *out_divides)
{
    *out_divides = q->layout == LAYOUT_COMPRESSED;
    if (*out_divides)
        return ((float *)scales)[index] = scale_of(largest);
    /* A block of zeros has scale 1. So has one below 448/FLT_MAX, where the factor overflows. */
    float factor = LATHE_E4M3_MAX / largest;
    const int is_zero = largest == 0.0f || isinf(factor);
    factor = is_zero ? 1.0f : factor;
    if (!q->settings[FP8_EXPONENTS]) {
        ((float *)scales)[index] = 1.0f / factor;
        return factor;
    }
    const uint8_t code = exponent_of(1.0f / factor);
    ((uint8_t *)scales)[index] = code;
    return 1.0f / small_e8m0(code);
}

CODEC_BODY void encode_block(codec_job *job, int64_t row, int64_t col)
{
    const fp8 *const q = (const fp8 *)(const void *)job->self;
    const int64_t rows = q->settings[FP8_BLOCK_ROWS], cols = q->settings[FP8_BLOCK_COLS];
    const int64_t end_row = row + rows < job->rows ? row + rows : job->rows;
    const int64_t n = col + cols < job->cols ? cols : job->cols - col;
    float largest = 0;
    int divides;
    for (int64_t r = row; r < end_row; r++) {
        const float one = codec_largest(job->w + r * job->cols + col, n);
        if (one < 0)
            codec_set_bad(job);
        largest = one > largest ? one : largest;
    }
    const float scale = block_scale(q, largest, job->made[FP8_SCALE],
                                    fp8_scale_index(q->settings, row, col, job->cols), &divides);
    for (int64_t r = row; r < end_row; r++) {
        const int64_t at = r * job->cols + col;
        encode_run(job->w + at, n, scale, divides, (uint8_t *)job->made[FP8_WEIGHT] + at);
    }
}

CODEC_BODY void encode_blocks_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const fp8 *const q = (const fp8 *)(const void *)job->self;
    for (int64_t block = begin; block < end; block++)
        for (int64_t col = 0; col < job->cols; col += q->settings[FP8_BLOCK_COLS])
            encode_block(job, block * q->settings[FP8_BLOCK_ROWS], col);
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

CODEC_BODY void encode_rows_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const fp8 *const q = (const fp8 *)(const void *)job->self;
    for (int64_t row = begin; row < end; row++) {
        const float scale =
            ((const float *)job->made[FP8_SCALE])[fp8_scale_index(q->settings, row, 0, job->cols)];
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
        if (q->settings[FP8_SCALING] == FP8_ROW)
            scales[row] = scale_of(job->scratch[row]);
    }
    if (q->settings[FP8_SCALING] == FP8_TENSOR)
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
    if (q->settings[FP8_SCALING] == FP8_BLOCK)
        codec_rows(&job, encode_blocks, parts_of(rows, q->settings[FP8_BLOCK_ROWS]),
                   q->settings[FP8_BLOCK_ROWS] * cols);
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
    const int64_t along = q->settings[FP8_SCALING] == FP8_BLOCK ? q->settings[FP8_BLOCK_COLS] : n;
    for (int64_t begin = 0, end; begin < n; begin = end) {
        const int64_t left = along - (col + begin) % along;
        end = along == n || left > n - begin ? n : begin + left;
        const float scale = fp8_scale(q->settings, job->planes[FP8_SCALE],
                                      fp8_scale_index(q->settings, row, col + begin, job->cols));
        if (build == CODEC_AVX512)
            wide_e4m3(codes + begin, end - begin, scale, out + begin);
        else if (build == CODEC_AVX2)
            eight_e4m3(codes + begin, end - begin, scale, out + begin);
        for (int64_t i = begin; i < end && build == CODEC_PORTABLE; i++)
            out[i] = small_e4m3(codes[i]) * scale;
    }
}
CODEC_DECODER(decode_rows, decode_span)
CODEC_DECODE(fp8, decode_rows)

static int32_t fp8_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                         lathe_weight_codes *out)
{
    const fp8 *q = self;
    const int64_t along = q->settings[FP8_BLOCK_COLS];
    (void)rows, (void)planes;
    if (q->settings[FP8_SCALING] == FP8_BLOCK && (along % 16 != 0 || LATHE_PART_COLS % along != 0))
        return 0;
    *out = (lathe_weight_codes){.order = LATHE_CODES_BYTES,
                                .bits = 8,
                                .values = LATHE_VALUES_E4M3,
                                .plane = FP8_WEIGHT,
                                .group = q->settings[FP8_SCALING] == FP8_BLOCK ? along : cols};
    return 1;
}

static void fp8_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, float *scales, float *offsets)
{
    const fp8 *q = self;
    const int64_t along = q->settings[FP8_BLOCK_COLS];
    const int64_t n = q->settings[FP8_SCALING] == FP8_BLOCK ? parts_of(part->cols, along) : 1;
    (void)rows, (void)offsets;
    for (int64_t i = 0; i < part->runs * part->rows; i++)
        for (int64_t k = 0; k < n; k++)
            scales[i * part->stride + k] = fp8_scale(
                q->settings, planes[FP8_SCALE],
                fp8_scale_index(q->settings, codec_part_row(part, i), part->col + k * along, cols));
}

/* ---- the table ---- */

/* transformers takes the size of a block from the number of scales, which is that size only where
 * blocks divide the weight. Told once, though the configuration may be asked for again. */
static void warn_of_odd_sizes(fp8 *q)
{
    if (q->settings[FP8_SCALING] == FP8_BLOCK && q->layout == LAYOUT_FP8 && q->odd_rows > 0 &&
        !q->odd_told++)
        lathe_warn(q->head.host,
                   "fp8: a weight of [%lld, %lld] is no whole number of blocks of %lld x %lld: "
                   "transformers' from_pretrained on a CPU refuses such a folder or decodes it "
                   "wrongly; quant.scaling = \"row\" loads there (with compressed-tensors)",
                   (long long)q->odd_rows, (long long)q->odd_cols,
                   (long long)q->settings[FP8_BLOCK_ROWS], (long long)q->settings[FP8_BLOCK_COLS]);
}

static int64_t compressed_json(const fp8 *q, char *out, size_t room)
{
    static const char *const strategies[] = {"tensor", "channel", "block"};
    char block[80] = "";
    if (q->settings[FP8_SCALING] == FP8_BLOCK)
        (void)snprintf(block, sizeof block, "\"block_structure\": [%lld, %lld], ",
                       (long long)q->settings[FP8_BLOCK_ROWS],
                       (long long)q->settings[FP8_BLOCK_COLS]);
    return snprintf(
        out, room,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"quantization_status\": \"compressed\", \"config_groups\": {\"group_0\": {\"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, "
        "\"strategy\": \"%s\", %s\"dynamic\": false}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"float-quantized\"}}, \"ignore\": "
        "[\"lm_head\"]}",
        strategies[q->settings[FP8_SCALING]], block);
}

/* Called when a folder is written. */
static int64_t fp8_config_json(void *self, char *out, int64_t capacity)
{
    fp8 *q = self;
    const size_t room = capacity > 0 ? (size_t)capacity : 0;
    char block[64] = "null";
    warn_of_odd_sizes(q);
    if (q->layout == LAYOUT_COMPRESSED)
        return compressed_json(q, out, room);
    if (q->layout == LAYOUT_MODELOPT)
        return snprintf(out, room,
                        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\", "
                        "\"producer\": {\"name\": \"modelopt\"}, \"config_groups\": {\"group_0\": "
                        "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": "
                        "\"float\", \"dynamic\": false}}}, \"ignore\": [\"lm_head\"]}");
    if (q->settings[FP8_SCALING] == FP8_BLOCK)
        (void)snprintf(block, sizeof block, "[%lld, %lld]", (long long)q->settings[FP8_BLOCK_ROWS],
                       (long long)q->settings[FP8_BLOCK_COLS]);
    return snprintf(out, room,
                    "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
                    "\"fmt\": \"e4m3\", %s\"weight_block_size\": %s, "
                    "\"modules_to_not_convert\": null}",
                    q->settings[FP8_EXPONENTS] ? "\"scale_fmt\": \"ue8m0\", " : "", block);
}

static const char *const methods[] = {"fp8", "compressed-tensors", "modelopt", NULL};

static lathe_status read_block(const lathe_host *host, const lathe_quant_config *config,
                               const char *down, const char *along, lathe_value *values)
{
    values[FIELD_SCALING].s = "block";
    values[FIELD_BLOCK_ROWS].i = source_int(config, down, 0);
    values[FIELD_BLOCK_COLS].i = source_int(config, along, 0);
    if (values[FIELD_BLOCK_ROWS].i < 1 || values[FIELD_BLOCK_COLS].i < 1)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "fp8 reads blocks of rows and columns, and here %s or %s is no number of "
                          "them",
                          down, along);
    return LATHE_OK;
}

/* transformers' FineGrained FP8, of which DeepSeek's files say no more than fmt and the blocks. The
 * tensor says whether scales are exponents, as in transformers: with scale_fmt "ue8m0" some files
 * have powers of two in f32. */
static lathe_status read_fine_grained(const lathe_host *host, const lathe_quant_config *config,
                                      lathe_value *values)
{
    lathe_desc scale;
    const void *found = config->tensor(config->ctx, "_scale_inv", &scale);
    values[FIELD_LAYOUT].s = "fp8";
    LATHE_TRY(source_expect(host, config, "fp8", "fmt", "e4m3"));
    if (!source_is(config, "scale_fmt", "ue8m0"))
        LATHE_TRY(source_expect(host, config, "fp8", "scale_fmt", "float"));
    if (found != NULL && lathe_desc_count(&scale) == 1 &&
        config->get(config->ctx, "weight_block_size.0") == NULL) {
        values[FIELD_SCALING].s = "tensor";
        return LATHE_OK;
    }
    values[FIELD_SCALES].s = found != NULL && scale.dtype == LATHE_U8 ? "e8m0" : "f32";
    if (config->get(config->ctx, "weight_block_size.0") == NULL)
        return LATHE_OK; /* blocks of 128 x 128 */
    return read_block(host, config, "weight_block_size.0", "weight_block_size.1", values);
}

/* NVIDIA's ModelOpt: "FP8" for all layers, or for those that a group has so. */
static lathe_status read_modelopt(const lathe_host *host, const lathe_quant_config *config,
                                  lathe_value *values)
{
    const char *algorithm = config->get(config->ctx, "quant_algo");
    const int by_group = algorithm == NULL || strcmp(algorithm, "MIXED_PRECISION") == 0;
    if (by_group ? !source_is(config, "weights.num_bits", "8") ||
                       !source_is(config, "weights.type", "float") ||
                       config->get(config->ctx, "weights.group_size") != NULL
                 : strcmp(algorithm, "FP8") != 0)
        return lathe_fail(host, LATHE_E_NOT_FOUND, "fp8 reads weights with quant_algo = FP8");
    values[FIELD_LAYOUT].s = "modelopt";
    values[FIELD_SCALING].s = "tensor";
    return LATHE_OK;
}

static lathe_status fp8_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    if (strcmp(config->method, "fp8") == 0)
        return read_fine_grained(host, config, values);
    if (strcmp(config->method, "modelopt") == 0)
        return read_modelopt(host, config, values);
    LATHE_TRY(source_compressed(host, config, "fp8", "float-quantized|naive-quantized", "float"));
    LATHE_TRY(source_expect(host, config, "fp8", "weights.symmetric", "true"));
    LATHE_TRY(source_expect(host, config, "fp8", "weights.num_bits", "8"));
    const char *strategy = source_strategy(config);
    values[FIELD_LAYOUT].s = "compressed-tensors";
    values[FIELD_SCALING].s = strcmp(strategy, "tensor") == 0 ? "tensor" : "row";
    if (strcmp(strategy, "block") == 0)
        return read_block(host, config, "weights.block_structure.0", "weights.block_structure.1",
                          values);
    if (strcmp(strategy, "group") == 0) { /* a block of one row */
        values[FIELD_SCALING].s = "block";
        values[FIELD_BLOCK_ROWS].i = 1;
        values[FIELD_BLOCK_COLS].i = source_int(config, "weights.group_size", 0);
        return LATHE_OK;
    }
    return strcmp(strategy, "tensor") == 0 || strcmp(strategy, "channel") == 0
               ? LATHE_OK
               : source_refuse(host, "fp8", "weights.strategy", "tensor, channel, group or block",
                               strategy);
}

static void fp8_image_settings(void *self, int64_t *out)
{
    const fp8 *q = self;
    memcpy(out, q->settings, sizeof q->settings);
}

static const lathe_quant_v1 fp8_table = {
    CODEC_TABLE(fp8),
    .image_settings = fp8_image_settings,
    .methods = methods,
};

LATHE_INSTANCE(fp8, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(fp8),
    CODEC_KIND,
    .version = "1.1.0",
    .summary = "8-bit E4M3 weights with a scale per tensor, row or block",
    .source = "arXiv:2209.05433",
    .license = "Apache-2.0",
};
