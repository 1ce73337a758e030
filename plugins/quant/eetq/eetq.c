/* eetq: int8 weights with one f16 scale per output row, in the layout of EETQ's GPU kernel.
 *
 *   q = round(W / (largest/128)) away from zero at halves, -128 .. 127;  W' = q * f16(largest/128)
 *
 * Source: NetEase-FuXi/EETQ, csrc/cutlass_kernels/cutlass_preprocessors.cc (symmetric_quantize and
 * preprocess_weights_for_mixed_gemm), which it has from FasterTransformer.
 */
#include <math.h>

#include "eetq_kernel.h"
#include "lathe/kit/instance.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"

typedef struct eetq {
    codec_head head;
} eetq;

static lathe_status eetq_accepts(void *self, int64_t rows, int64_t cols)
{
    const eetq *q = self;
    LATHE_TRY(codec_check_groups(self, "eetq", rows, cols, EETQ_TILE));
    if (rows % 2 != 0)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "eetq: a weight of [%lld, %lld]; the rows must be even", (long long)rows,
                          (long long)cols);
    return LATHE_OK;
}

static int32_t eetq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    (void)self;
    out[EETQ_WEIGHT] = (lathe_plane){"weight", "", lathe_desc_2d(LATHE_I8, cols, rows)};
    out[EETQ_SCALE] = (lathe_plane){"weight_scales", "_scales", lathe_desc_1d(LATHE_F16, rows)};
    return EETQ_N_PLANES;
}

/* ---- encoding ---- */

/* round() of C and clamping. A row of zeros gives 127, as in EETQ, where 0/0 passes std::min. */
CODEC_BODY uint8_t code_of(float x)
{
    const float whole = truncf(x), rounded = whole + truncf(2.0f * (x - whole));
    float q = rounded < 127.0f ? rounded : 127.0f;
    q = q > -128.0f ? q : -128.0f;
    return (uint8_t)((int32_t)q + 128);
}

CODEC_BODY void encode_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    uint8_t *const bytes = job->made[EETQ_WEIGHT];
    for (int64_t row = begin; row < end; row++) {
        const float *const w = job->w + row * job->cols;
        const float largest = codec_largest(w, job->cols), scale = largest * 0x1p-7f;
        const uint16_t half = lathe_f32_to_f16(scale);
        if (largest < 0 || half == 0x7c00u) /* not finite, or too large for an f16 scale */
            codec_set_bad(job);
        ((uint16_t *)job->made[EETQ_SCALE])[row] = half;
        for (int64_t col = 0; col < job->cols; col += EETQ_MIX) {
            uint8_t *const out =
                bytes + eetq_tile_at(row, col / EETQ_TILE * EETQ_TILE, job->cols) + col % EETQ_TILE;
            for (int i = 0; i < EETQ_MIX / 2; i++) {
                out[2 * i] = code_of(w[col + i] / scale);
                out[2 * i + 1] = code_of(w[col + i + EETQ_MIX / 2] / scale);
            }
        }
    }
}
CODEC_LOOP(encode_rows, encode_body)

static lathe_status eetq_encode(void *self, int64_t rows, int64_t cols, const float *w,
                                void *const *planes)
{
    const eetq *q = self;
    codec_job job = {.self = self, .rows = rows, .cols = cols, .w = w, .made = planes};
    LATHE_TRY(eetq_accepts(self, rows, cols));
    codec_rows(&job, encode_rows, rows, cols);
    if (job.bad)
        return lathe_fail(q->head.host, LATHE_E_NUMERIC,
                          "eetq: the weight [%lld, %lld] holds values that are not finite, or "
                          "above 8.3e6, for which a scale in f16 is too small",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

/* ---- decoding ---- */

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    (void)build; /* the compiler's code is as good */
    const uint8_t *const bytes = job->planes[EETQ_WEIGHT];
    const float scale = lathe_f16_to_f32(((const uint16_t *)job->planes[EETQ_SCALE])[row]);
    for (int64_t tile = 0; tile < n; tile += EETQ_TILE) {
        const uint8_t *const in = bytes + eetq_tile_at(row, col + tile, job->cols);
        uint8_t codes[EETQ_TILE];
        for (int mix = 0; mix < EETQ_TILE; mix += EETQ_MIX)
            for (int i = 0; i < EETQ_MIX / 2; i++) {
                codes[mix + i] = in[mix + 2 * i];
                codes[mix + EETQ_MIX / 2 + i] = in[mix + 2 * i + 1];
            }
        for (int i = 0; i < EETQ_TILE; i++)
            out[tile + i] = eetq_value(codes[i], scale);
    }
}
CODEC_DECODER(decode_rows, decode_span)
CODEC_DECODE(eetq, decode_rows)

/* 128 is in every code. */
static int32_t eetq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                          lathe_weight_codes *out)
{
    (void)self, (void)rows, (void)planes;
    *out = (lathe_weight_codes){.order = LATHE_CODES_PAIRS,
                                .bits = 8,
                                .values = LATHE_VALUES_U8,
                                .plane = EETQ_WEIGHT,
                                .has_offsets = 1,
                                .group = cols};
    return 1;
}

static void eetq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                             const lathe_weight_part *part, float *scales, float *offsets)
{
    const uint16_t *const halves = planes[EETQ_SCALE];
    (void)self, (void)rows, (void)cols;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const float scale = lathe_f16_to_f32(halves[codec_part_row(part, i)]);
        scales[i * part->stride] = scale;
        offsets[i * part->stride] = -128.0f * scale;
    }
}

/* ---- the table ---- */

static int64_t eetq_config_json(void *self, char *out, int64_t capacity)
{
    (void)self;
    return snprintf(out, capacity > 0 ? (size_t)capacity : 0,
                    "{\"quant_method\": \"eetq\", \"weights\": \"int8\", "
                    "\"modules_to_not_convert\": null}");
}

static const char *const methods[] = {"eetq", NULL};

static lathe_status eetq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                     lathe_value *values)
{
    (void)values;
    return source_expect(host, config, "eetq", "weights", "int8");
}

static lathe_status eetq_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    (void)values;
    (void)n_values;
    eetq *q = host->alloc((int64_t)sizeof *q);
    if (q == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "eetq: no memory for the instance");
    q->head.host = host;
    q->head.build = codec_best_build();
    *out_self = q;
    return LATHE_OK;
}

LATHE_INSTANCE_FREED(eetq)

static const lathe_quant_v1 eetq_table = {
    CODEC_TABLE(eetq),
    .methods = methods,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(eetq),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "8-bit weights with one f16 scale per output row, in EETQ's layout",
    .source = "https://github.com/NetEase-FuXi/EETQ",
    .license = "Apache-2.0",
};
