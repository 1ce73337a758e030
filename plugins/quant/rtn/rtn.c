/* rtn: integers of 1 to 8 bits, each weight rounded to the nearest, in compressed-tensors' layouts.
 *
 *   W' = (q - zero) * scale, q in [-2^(bits-1), 2^(bits-1))
 *
 * Sources: compressed-tensors 0.20, "pack-quantized" (W4A16, W8A16), "int-quantized" (W8A8) and
 * "naive-quantized": layout, ranges and rounding. Codes that GPTQ or AWQ calibrated are stored so,
 * too, and are read the same way.
 */
#include <math.h>
#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "rtn_kernel.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"

typedef struct rtn {
    codec_head head;
    int32_t symmetric, act_order;
    int32_t shape;                          /* number of the plane with the shape; 0: none */
    int64_t settings[LATHE_QUANT_SETTINGS]; /* RTN_BITS, ... */
} rtn;

enum { FIELD_BITS, FIELD_GROUP_SIZE, FIELD_SYMMETRIC, FIELD_PACKED, FIELD_ACT_ORDER, FIELD_SHAPE };

static const lathe_field fields[] = {
    LATHE_FIELD_INT("bits", "4", 1, 8, NULL, "bits of a code"),
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale; -1: all inputs of an output; 0: the whole weight"),
    LATHE_FIELD_BOOL("symmetric", "true", "the zero point is in the middle of the range"),
    LATHE_FIELD_BOOL("packed", "true",
                     "codes lie in words of 32 bits (pack-quantized); false: in bytes of their own "
                     "(int-quantized), which needs bits = 8"),
    LATHE_FIELD_BOOL("act_order", "false",
                     "files name the group of each input; encoding makes groups of neighbours"),
    LATHE_FIELD_BOOL("weight_shape", "true",
                     "files with packed codes have the weight's shape, which compressed-tensors "
                     "needs"),
};

static lathe_status read_values(const lathe_host *host, rtn *q, const lathe_value *values)
{
    const int64_t group = values[FIELD_GROUP_SIZE].i;
    q->head.build = codec_best_build();
    q->symmetric = values[FIELD_SYMMETRIC].i != 0;
    q->act_order = values[FIELD_ACT_ORDER].i != 0;
    q->settings[RTN_BITS] = values[FIELD_BITS].i;
    q->settings[RTN_SIZE] = group < 0 ? INT64_MAX : group; /* all of a row */
    q->settings[RTN_PACKED] = values[FIELD_PACKED].i != 0;
    q->settings[RTN_ZEROS] = q->symmetric ? 0 : RTN_MORE;
    q->settings[RTN_GROUPS] = q->act_order ? RTN_MORE + !q->symmetric : 0;
    q->shape = q->settings[RTN_PACKED] && values[FIELD_SHAPE].i != 0
                   ? RTN_MORE + !q->symmetric + q->act_order
                   : 0;
    if (!q->settings[RTN_PACKED] && values[FIELD_BITS].i != 8)
        return lathe_fail_at(host, LATHE_E_CONFIG, "bits",
                             "bits = %lld with packed = false; expected 8, or packed = true",
                             (long long)values[FIELD_BITS].i);
    if (q->act_order && group < 1)
        return lathe_fail_at(host, LATHE_E_CONFIG, "act_order",
                             "act_order needs groups, and group_size is %lld", (long long)group);
    return LATHE_OK;
}

/* Columns of a group. */
static int64_t size_of(const rtn *q, int64_t cols)
{
    return q->settings[RTN_SIZE] > 0 && q->settings[RTN_SIZE] < cols ? q->settings[RTN_SIZE] : cols;
}

static lathe_status rtn_accepts(void *self, int64_t rows, int64_t cols)
{
    const rtn *q = self;
    return codec_check_groups(&q->head, "rtn", rows, cols, size_of(q, cols));
}

static int32_t rtn_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const rtn *q = self;
    const int64_t bits = q->settings[RTN_BITS], groups = cols / size_of(q, cols);
    const int by_row = q->settings[RTN_SIZE] > 0, packed = q->settings[RTN_PACKED] != 0;
    int32_t n = RTN_MORE;
    out[RTN_WEIGHT] = packed ? (lathe_plane){"weight_packed", "_packed",
                                             lathe_desc_2d(LATHE_I32, rows, rtn_words(cols, bits))}
                             : (lathe_plane){"weight", "", lathe_desc_2d(LATHE_I8, rows, cols)};
    out[RTN_SCALE] = (lathe_plane){"weight_scale", "_scale",
                                   by_row ? lathe_desc_2d(LATHE_F32, rows, groups)
                                          : lathe_desc_1d(LATHE_F32, 1)};
    if (!q->symmetric)
        out[n++] = (lathe_plane){"weight_zero_point", "_zero_point",
                                 !by_row  ? lathe_desc_1d(LATHE_I8, 1)
                                 : packed ? lathe_desc_2d(LATHE_I32, rtn_words(rows, bits), groups)
                                          : lathe_desc_2d(LATHE_I8, rows, groups)};
    if (q->act_order)
        out[n++] = (lathe_plane){"weight_g_idx", "_g_idx", lathe_desc_1d(LATHE_I32, cols)};
    if (q->shape > 0)
        out[n++] = (lathe_plane){"weight_shape", "_shape", lathe_desc_1d(LATHE_I64, 2)};
    return n;
}

/* ---- encoding ---- */

/* The parameters of n weights as compressed-tensors' calculate_qparams computes them, with a scale
 * that bf16 holds, in which other programs keep it. */
static rtn_group range_of(const rtn *q, const float *w, int64_t n, float *io_low, float *io_high)
{
    const float top = (float)(1 << (q->settings[RTN_BITS] - 1));
    for (int64_t i = 0; i < n; i++) {
        *io_low = w[i] < *io_low ? w[i] : *io_low;
        *io_high = w[i] > *io_high ? w[i] : *io_high;
    }
    const float low = *io_low, high = *io_high, largest = -low > high ? -low : high;
    const float steps = 2.0f * top - 1.0f;
    const float exact = q->symmetric ? largest / (steps / 2.0f) : (high - low) / steps;
    const float scale = lathe_bf16_to_f32(lathe_f32_to_bf16(exact));
    rtn_group g = {scale > 0.0f ? scale : 0x1p-23f, 0};
    if (!q->symmetric) {
        const float zero = -top - rintf(low / g.scale);
        g.zero = (int32_t)(zero < -top ? -top : zero > top - 1.0f ? top - 1.0f : zero);
    }
    return g;
}

static void put_code(const rtn *q, void *words, int64_t at, int32_t code)
{
    const int64_t bits = q->settings[RTN_BITS], bit = at * bits;
    const uint64_t value = (uint64_t)(uint32_t)(code + (1 << (bits - 1))) << (bit % 32);
    uint32_t *const to = (uint32_t *)words + bit / 32;
    to[0] |= (uint32_t)value;
    if (bit % 32 + bits > 32)
        to[1] |= (uint32_t)(value >> 32);
}

static void encode_group(codec_job *job, int64_t row, int64_t col, int64_t n, rtn_group g)
{
    const rtn *q = (const rtn *)(const void *)job->self;
    const int64_t bits = q->settings[RTN_BITS];
    const float top = (float)(1 << (bits - 1));
    void *const words =
        (uint32_t *)job->made[RTN_WEIGHT] + row * rtn_words(job->cols, q->settings[RTN_BITS]);
    for (int64_t i = col; i < col + n; i++) {
        const float x = rintf(job->w[row * job->cols + i] / g.scale) + (float)g.zero;
        const int32_t code = (int32_t)(x < -top ? -top : x > top - 1.0f ? top - 1.0f : x);
        if (q->settings[RTN_PACKED])
            put_code(q, words, i, code);
        else
            ((int8_t *)job->made[RTN_WEIGHT])[row * job->cols + i] = (int8_t)code;
    }
}

CODEC_BODY void encode_rows_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const rtn *const q = (const rtn *)(const void *)job->self;
    const int64_t size = size_of(q, job->cols), groups = job->cols / size;
    for (int64_t row = begin; row < end; row++) {
        if (codec_largest(job->w + row * job->cols, job->cols) < 0) {
            codec_set_bad(job);
            continue;
        }
        for (int64_t k = 0; k < groups; k++) {
            float low = 0.0f, high = 0.0f;
            rtn_group g = {job->scratch[0], (int32_t)job->scratch[1]};
            if (q->settings[RTN_SIZE] > 0) {
                g = range_of(q, job->w + row * job->cols + k * size, size, &low, &high);
                job->scratch[2 * (row * groups + k)] = g.scale;
                job->scratch[2 * (row * groups + k) + 1] = (float)g.zero;
            }
            encode_group(job, row, k * size, size, g);
        }
    }
}
CODEC_LOOP(encode_rows, encode_rows_body)

/* Stores the groups of the weight: [n][2] scales and zero points. */
static void put_groups(codec_job *job, int64_t n, int64_t groups)
{
    const rtn *q = (const rtn *)(const void *)job->self;
    const int by_row = q->settings[RTN_SIZE] > 0, packed = q->settings[RTN_PACKED] != 0;
    void *const zeros = q->symmetric ? NULL : job->made[RTN_MORE];
    for (int64_t i = 0; i < n; i++) {
        const int32_t zero = (int32_t)job->scratch[2 * i + 1];
        ((float *)job->made[RTN_SCALE])[i] = job->scratch[2 * i];
        if (zeros != NULL && !(by_row && packed))
            ((int8_t *)zeros)[i] = (int8_t)zero;
        else if (zeros != NULL) { /* words along the rows */
            const int64_t bits = q->settings[RTN_BITS], bit = i / groups * bits;
            const uint64_t value = (uint64_t)(uint32_t)(zero + (1 << (bits - 1))) << (bit % 32);
            uint32_t *const to = (uint32_t *)zeros + bit / 32 * groups + i % groups;
            to[0] |= (uint32_t)value;
            if (bit % 32 + bits > 32)
                to[groups] |= (uint32_t)(value >> 32);
        }
    }
    for (int64_t i = 0; q->act_order && i < job->cols; i++)
        ((int32_t *)job->made[q->settings[RTN_GROUPS]])[i] = (int32_t)(i / size_of(q, job->cols));
}

static lathe_status rtn_encode(void *self, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    const rtn *q = self;
    const int64_t groups = cols / size_of(q, cols);
    const int64_t n = q->settings[RTN_SIZE] > 0 ? rows * groups : 1;
    codec_job job = {.self = &q->head, .rows = rows, .cols = cols, .w = w, .made = planes};
    lathe_plane list[LATHE_MAX_PLANES];
    LATHE_TRY(rtn_accepts(self, rows, cols));
    const int32_t n_planes = rtn_planes(self, rows, cols, list);
    for (int32_t k = 0; k < n_planes; k++)
        memset(planes[k], 0, (size_t)lathe_desc_bytes(&list[k].desc));
    job.scratch = malloc((size_t)(2 * n) * sizeof *job.scratch);
    if (job.scratch == NULL)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "rtn: no memory for %lld scales",
                          (long long)n);
    if (q->settings[RTN_SIZE] == 0) {
        float low = 0.0f, high = 0.0f;
        const rtn_group g = range_of(q, w, rows * cols, &low, &high);
        job.scratch[0] = g.scale;
        job.scratch[1] = (float)g.zero;
    }
    codec_rows(&job, encode_rows, rows, cols);
    put_groups(&job, n, groups);
    if (q->shape > 0)
        memcpy(planes[q->shape], (const int64_t[]){rows, cols}, 2 * sizeof(int64_t));
    free(job.scratch);
    return codec_encoded(&job, "rtn");
}

/* ---- decoding ---- */

/* Columns from `col` on that are of the same group, at most n. */
CODEC_BODY int64_t run_of(const codec_job *job, int64_t col, int64_t n, int64_t size,
                          int64_t *out_group)
{
    const rtn *const q = (const rtn *)(const void *)job->self;
    int64_t run = 1;
    if (!q->act_order) {
        const int64_t left = size - col % size;
        *out_group = col / size;
        return left < n ? left : n;
    }
    const int32_t *const groups = (const int32_t *)job->planes[q->settings[RTN_GROUPS]] + col;
    *out_group = groups[0];
    while (run < n && groups[run] == groups[0])
        run++;
    return run;
}

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    const rtn *const q = (const rtn *)(const void *)job->self;
    const int64_t size = size_of(q, job->cols), bits = q->settings[RTN_BITS];
    const uint8_t *const bytes =
        (const uint8_t *)job->planes[RTN_WEIGHT] + row * rtn_words(job->cols, bits) * 4;
    for (int64_t i = 0, run, group; i < n; i += run) {
        run = run_of(job, col + i, n - i, size, &group);
        const rtn_group g = rtn_group_of(q->settings, job->planes, row, group, job->cols / size);
        if (build == CODEC_AVX2 && bits == 4 && (col + i) % 8 == 0 && run % 8 == 0) {
            float values[16];
            for (int32_t c = 0; c < 16; c++)
                values[c] = (float)(c - 8 - g.zero) * g.scale;
            eight_nibbles(values, 1.0f, bytes + (col + i) / 2, run, 0, out + i);
            continue;
        }
        for (int64_t k = i; k < i + run; k++)
            out[k] =
                (float)(rtn_code(q->settings, job->planes[RTN_WEIGHT], row, col + k, job->cols) -
                        g.zero) *
                g.scale;
    }
}
CODEC_DECODER(decode_rows, decode_span)
CODEC_DECODE(rtn, decode_rows)

/* The columns of a group of codes; 0: devices decode. */
static int64_t code_size(const rtn *q, int64_t cols)
{
    const int64_t bits = q->settings[RTN_BITS], size = size_of(q, cols);
    if (q->act_order || (bits != 4 && bits != 8) || cols % 8 != 0)
        return 0;
    if (bits == 8)
        return size == cols || (size % 16 == 0 && LATHE_PART_COLS % size == 0) ? size : 0;
    const int64_t group = codec_code_group(size, cols);
    return group <= 128 ? group : 128;
}

static int32_t rtn_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                         lathe_weight_codes *out)
{
    const rtn *q = self;
    const int64_t size = code_size(q, cols);
    const int is_wide = q->settings[RTN_BITS] == 8;
    (void)rows, (void)planes;
    if (size == 0)
        return 0;
    *out =
        (lathe_weight_codes){.order = is_wide ? LATHE_CODES_BYTES : LATHE_CODES_LOW_FIRST,
                             .bits = (int32_t)q->settings[RTN_BITS],
                             .values = !is_wide                  ? LATHE_VALUES_TABLE
                                       : q->settings[RTN_PACKED] ? LATHE_VALUES_U8
                                                                 : LATHE_VALUES_I8,
                             .plane = RTN_WEIGHT,
                             .has_offsets = !q->symmetric || (is_wide && q->settings[RTN_PACKED]),
                             .group = size};
    for (int i = 0; !is_wide && i < 16; i++)
        out->table[i] = (float)(i - 8);
    return 1;
}

static void rtn_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, float *scales, float *offsets)
{
    const rtn *q = self;
    const int64_t size = code_size(q, cols), real = size_of(q, cols);
    if (size < 1 || real < 1) /* such a weight has no codes */
        return;
    const int64_t n = size == cols ? 1 : (part->cols + size - 1) / size;
    const int32_t moved = q->settings[RTN_BITS] == 8 && q->settings[RTN_PACKED] ? 128 : 0;
    (void)rows;
    for (int64_t i = 0; i < part->runs * part->rows; i++)
        for (int64_t k = 0; k < n; k++) {
            const rtn_group g = rtn_group_of(q->settings, planes, codec_part_row(part, i),
                                             (part->col + k * size) / real, cols / real);
            scales[i * part->stride + k] = g.scale;
            if (offsets != NULL)
                offsets[i * part->stride + k] = -(float)(g.zero + moved) * g.scale;
        }
}

/* ---- files ---- */

/* Decoding finds scales by the groups that a file names. */
static lathe_status rtn_check_planes(void *self, int64_t rows, int64_t cols,
                                     const void *const *planes)
{
    const rtn *q = self;
    const int64_t groups = cols / size_of(q, cols);
    const int32_t *const of = q->act_order ? planes[q->settings[RTN_GROUPS]] : NULL;
    const int64_t *const shape = q->shape > 0 ? planes[q->shape] : NULL;
    if (shape != NULL && (shape[0] != rows || shape[1] != cols))
        return lathe_fail(q->head.host, LATHE_E_CORRUPT,
                          "rtn: weight_shape is [%lld, %lld]; expected [%lld, %lld]",
                          (long long)shape[0], (long long)shape[1], (long long)rows,
                          (long long)cols);
    for (int64_t i = 0; of != NULL && i < cols; i++)
        if (of[i] < 0 || of[i] >= groups)
            return lathe_fail(q->head.host, LATHE_E_CORRUPT,
                              "rtn: weight_g_idx[%lld] is %d; expected 0 to %lld", (long long)i,
                              of[i], (long long)groups - 1);
    return LATHE_OK;
}

static int64_t rtn_config_json(void *self, char *out, int64_t capacity)
{
    const rtn *q = self;
    const int64_t size = q->settings[RTN_SIZE];
    const char *layout = q->settings[RTN_PACKED] ? "pack-quantized" : "int-quantized";
    char group[32] = "null";
    if (size > 0 && size < INT64_MAX)
        (void)snprintf(group, sizeof group, "%lld", (long long)size);
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"%s\", \"quantization_status\": "
        "\"compressed\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "
        "{\"num_bits\": %d, \"type\": \"int\", \"symmetric\": %s, \"group_size\": %s, "
        "\"strategy\": \"%s\", \"dynamic\": false%s}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"%s\"}}, \"ignore\": [\"lm_head\"]}",
        layout, (int)q->settings[RTN_BITS], q->symmetric ? "true" : "false", group,
        size == 0          ? "tensor"
        : size < INT64_MAX ? "group"
                           : "channel",
        q->act_order ? ", \"actorder\": \"group\"" : "", layout);
}

static const char *const methods[] = {"compressed-tensors", NULL};

static lathe_status rtn_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    lathe_desc desc;
    LATHE_TRY(source_compressed(host, config, "rtn", "pack-quantized|int-quantized|naive-quantized",
                                "int"));
    const char *strategy = source_strategy(config);
    values[FIELD_PACKED].i = source_is(config, "format", "pack-quantized");
    values[FIELD_BITS].i = source_int(config, "weights.num_bits", 8);
    values[FIELD_SYMMETRIC].i = !source_is(config, "weights.symmetric", "false");
    values[FIELD_ACT_ORDER].i = config->tensor(config->ctx, "_g_idx", &desc) != NULL;
    values[FIELD_SHAPE].i = source_dtype(config, "_shape") == LATHE_I64;
    values[FIELD_GROUP_SIZE].i = source_int(config, "weights.group_size", 0);
    if (strcmp(strategy, "channel") == 0)
        values[FIELD_GROUP_SIZE].i = -1;
    else if (strcmp(strategy, "tensor") == 0)
        values[FIELD_GROUP_SIZE].i = 0;
    else if (strcmp(strategy, "group") != 0)
        return source_refuse(host, "rtn", "weights.strategy", "tensor, channel or group", strategy);
    return LATHE_OK;
}

/* GPUs get the size of a group as a number of columns, which INT64_MAX is for every weight. */
static void rtn_image_settings(void *self, int64_t *out)
{
    const rtn *q = self;
    memcpy(out, q->settings, sizeof q->settings);
}

static const lathe_quant_v1 rtn_table = {
    CODEC_TABLE(rtn),
    .image_settings = rtn_image_settings,
    .methods = methods,
    .check_planes = rtn_check_planes,
};

LATHE_INSTANCE(rtn, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(rtn),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "integers of 1 to 8 bits, rounded to nearest, in compressed-tensors' layouts",
    .source = "compressed-tensors pack-quantized and int-quantized",
    .license = "Apache-2.0",
};
