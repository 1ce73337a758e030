/* mxfp4: E2M1 weights in groups of 32 with one power of two each, in the layouts of
 * compressed-tensors and of gpt-oss.
 *
 * Sources: OCP Microscaling Formats (MX) Specification 1.0; compressed-tensors
 * "mxfp4-pack-quantized" for layout and rounding; transformers' quantization method "mxfp4" for
 * gpt-oss: "..._blocks" u8 [E, O, I/32, 16] and "..._scales" u8 [E, O, I/32] of experts, whose
 * bytes have the order of the planes here.
 */
#include <math.h>

#include "lathe/kit/instance.h"
#include "mxfp4_kernel.h"
#include "shared/e2m1_codec.h"
#include "shared/quant_source.h"

enum { ROUND_NEAREST, ROUND_FLOOR };
#define ROUNDINGS "nearest|floor"
enum { LAYOUT_COMPRESSED, LAYOUT_GPT_OSS };
#define LAYOUTS "compressed-tensors|gpt-oss"

typedef struct mxfp4 {
    codec_head head;
    int32_t rounding, layout;
} mxfp4;

enum { FIELD_SCALE_ROUNDING, FIELD_LAYOUT };

static const lathe_field fields[] = {
    LATHE_FIELD_STRING("scale_rounding", "\"nearest\"", ROUNDINGS,
                       "power of two of a group's largest magnitude: the nearest, as in "
                       "compressed-tensors, or the one below, as in the MX specification"),
    LATHE_FIELD_STRING("layout", "\"compressed-tensors\"", LAYOUTS,
                       "names of the tensors in files; gpt-oss is set by the folder's "
                       "quantization_config, and is only read"),
};

static lathe_status read_values(const lathe_host *host, mxfp4 *q, const lathe_value *values)
{
    (void)host;
    q->head.build = codec_best_build();
    q->rounding = lathe_choice(ROUNDINGS, values[FIELD_SCALE_ROUNDING].s);
    q->layout = lathe_choice(LAYOUTS, values[FIELD_LAYOUT].s);
    return LATHE_OK;
}

static lathe_status mxfp4_accepts(void *self, int64_t rows, int64_t cols)
{
    return codec_check_groups(self, "mxfp4", rows, cols, MXFP4_GROUP);
}

static int32_t mxfp4_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const int is_oss = ((const mxfp4 *)self)->layout == LAYOUT_GPT_OSS;
    out[MXFP4_WEIGHT] = (lathe_plane){"weight_packed", is_oss ? "_blocks" : "_packed",
                                      lathe_desc_2d(LATHE_U8, rows, cols / 2)};
    out[MXFP4_SCALE] = (lathe_plane){"weight_scale", is_oss ? "_scales" : "_scale",
                                     lathe_desc_2d(LATHE_U8, rows, cols / MXFP4_GROUP)};
    return MXFP4_N_PLANES;
}

/* The exponent code of a group: that of its largest magnitude, less 2, the exponent of E2M1's
 * largest value. "nearest" rounds magnitudes of 1.75 times a power of two and more up. */
CODEC_BODY uint8_t exponent_of(float largest, int32_t rounding)
{
    uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    bits += rounding == ROUND_NEAREST ? 1u << 21 : 0u;
    const uint32_t exponent = bits >> 23;
    return (uint8_t)(exponent < 2 ? 0 : exponent - 2);
}

CODEC_BODY void encode_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    const mxfp4 *const q = (const mxfp4 *)(const void *)job->self;
    for (int64_t i = begin * job->cols; i < end * job->cols; i += MXFP4_GROUP) {
        const float largest = codec_largest(job->w + i, MXFP4_GROUP);
        if (largest < 0)
            codec_set_bad(job);
        const uint8_t exponent = exponent_of(largest < 0 ? 0 : largest, q->rounding);
        ((uint8_t *)job->made[MXFP4_SCALE])[i / MXFP4_GROUP] = exponent;
        e2m1_encode(job->w + i, MXFP4_GROUP, small_e8m0(exponent),
                    (uint8_t *)job->made[MXFP4_WEIGHT] + i / 2);
    }
}
CODEC_LOOP(encode_rows, encode_body)

static lathe_status mxfp4_encode(void *self, int64_t rows, int64_t cols, const float *w,
                                 void *const *planes)
{
    codec_job job = {.self = self, .rows = rows, .cols = cols, .w = w, .made = planes};
    LATHE_TRY(mxfp4_accepts(self, rows, cols));
    codec_rows(&job, encode_rows, rows, cols);
    return codec_encoded(&job, "mxfp4");
}

CODEC_BODY void decode_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                            int build)
{
    const int64_t at = row * job->cols + col;
    const uint8_t *const exponents = (const uint8_t *)job->planes[MXFP4_SCALE] + at / MXFP4_GROUP;
    float scales[CODEC_SPAN / MXFP4_GROUP] = {0}; /* n may be less than a span */
    for (int64_t i = 0; i < n / MXFP4_GROUP; i++)
        scales[i] = small_e8m0(exponents[i]);
    e2m1_decode((const uint8_t *)job->planes[MXFP4_WEIGHT] + at / 2, n, MXFP4_GROUP, scales, -0.0f,
                out, build);
}
CODEC_DECODER(decode_rows, decode_span)
CODEC_DECODE(mxfp4, decode_rows)

static int64_t mxfp4_code_group(void *self, int64_t rows, int64_t cols)
{
    (void)self;
    (void)rows;
    return cols % MXFP4_GROUP == 0 ? MXFP4_GROUP : 0;
}

#if defined(__x86_64__)
CODEC_WIDE_BODY __m512 wide_e8m0_16(__m128i codes)
{
    const __m512i code = _mm512_cvtepu8_epi32(codes);
    __m512i bits = _mm512_slli_epi32(code, 23);
    bits = _mm512_mask_set1_epi32(bits, _mm512_testn_epi32_mask(code, code), 0x00400000);
    bits = _mm512_mask_set1_epi32(bits, _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255)),
                                  0x7fc00000);
    return _mm512_castsi512_ps(bits);
}

/* small_e8m0 of n codes. */
CODEC_WIDE static void wide_e8m0(const uint8_t *codes, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, wide_e8m0_16(_mm_loadu_si128((const void *)(codes + i))));
    if (i < n)
        _mm512_mask_storeu_ps(out + i, wide_lanes(n - i),
                              wide_e8m0_16(_mm_maskz_loadu_epi8(wide_lanes(n - i), codes + i)));
}
#else /* the build for AVX-512 is never chosen */
static inline void wide_e8m0(const uint8_t *codes, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = small_e8m0(codes[i]);
}
#endif

/* The values of n groups. They have three significant bits and the exponents of f32, so bf16 holds
 * them. */
static void group_values(const codec_head *head, const uint8_t *exponents, int64_t n, float *values,
                         int32_t dtype)
{
    float scales[64] = {0};
    for (int64_t i = 0, each; i < n; i += each) {
        each = n - i < 64 ? n - i : 64;
        if (head->build == CODEC_AVX512)
            wide_e8m0(exponents + i, each, scales);
        for (int64_t k = 0; head->build != CODEC_AVX512 && k < each; k++)
            scales[k] = small_e8m0(exponents[i + k]);
        e2m1_values(scales, each, dtype != LATHE_F16, values + i * LATHE_CODE_VALUES, dtype,
                    head->build);
    }
}

static int32_t mxfp4_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                const lathe_weight_part *part, int32_t dtype, float *values,
                                void *room, lathe_part_codes *out)
{
    const int64_t n = part->cols / MXFP4_GROUP;
    (void)rows;
    (void)room;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t at = codec_part_row(part, i) * cols + part->col;
        const uint8_t *const exponents = (const uint8_t *)planes[MXFP4_SCALE] + at / MXFP4_GROUP;
        group_values(self, exponents, n, values, dtype);
        values += n * LATHE_CODE_VALUES;
    }
    *out = (lathe_part_codes){.codes = (const uint8_t *)planes[MXFP4_WEIGHT] +
                                       (part->row * cols + part->col) / 2,
                              .row_bytes = cols / 2,
                              .run_bytes = part->distance * cols / 2,
                              .layout = LATHE_CODES_LOW_FIRST};
    return 1;
}

static int32_t mxfp4_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                           lathe_weight_codes *out)
{
    (void)self, (void)rows, (void)cols, (void)planes;
    *out = e2m1_codes(MXFP4_WEIGHT, MXFP4_GROUP);
    return 1;
}

static void mxfp4_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                              const lathe_weight_part *part, float *scales, float *offsets)
{
    const codec_head *head = self;
    const int64_t n = part->cols / MXFP4_GROUP;
    (void)rows, (void)offsets;
    for (int64_t i = 0; i < part->runs * part->rows; i++) {
        const int64_t at = codec_part_row(part, i) * cols + part->col;
        const uint8_t *const exponents = (const uint8_t *)planes[MXFP4_SCALE] + at / MXFP4_GROUP;
        float *const to = scales + i * part->stride;
        codec_prefetch(exponents, n);
        if (head->build == CODEC_AVX512)
            wide_e8m0(exponents, n, to);
        for (int64_t k = 0; head->build != CODEC_AVX512 && k < n; k++)
            to[k] = small_e8m0(exponents[k]);
    }
}

/* 0 for the layout of gpt-oss: nothing writes fused experts in blocks. */
static int64_t mxfp4_config_json(void *self, char *out, int64_t capacity)
{
    if (((const mxfp4 *)self)->layout == LAYOUT_GPT_OSS)
        return 0;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", "
        "\"quantization_status\": \"compressed\", \"config_groups\": {\"group_0\": {\"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"symmetric\": true, "
        "\"group_size\": %d, \"strategy\": \"group\", \"dynamic\": false, \"scale_dtype\": "
        "\"torch.uint8\", \"zp_dtype\": \"torch.uint8\"}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"mxfp4-pack-quantized\"}}, \"ignore\": "
        "[\"lm_head\"]}",
        MXFP4_GROUP);
}

static const char *const methods[] = {"compressed-tensors", "mxfp4", NULL};

static lathe_status mxfp4_read_config(const lathe_host *host, const lathe_quant_config *config,
                                      lathe_value *values)
{
    /* how scales were rounded does not matter for reading */
    if (strcmp(config->method, "mxfp4") == 0) {
        values[FIELD_LAYOUT].s = "gpt-oss";
        return LATHE_OK;
    }
    LATHE_TRY(source_compressed(host, config, "mxfp4", "mxfp4-pack-quantized", "float"));
    LATHE_TRY(source_expect(host, config, "mxfp4", "weights.symmetric", "true"));
    LATHE_TRY(source_expect(host, config, "mxfp4", "weights.num_bits", "4"));
    return source_expect(host, config, "mxfp4", "weights.group_size", "32");
}

static const lathe_quant_v1 mxfp4_table = {
    CODEC_TABLE(mxfp4),
    .code_group = mxfp4_code_group,
    .part_codes = mxfp4_part_codes,
    .methods = methods,
};

LATHE_INSTANCE(mxfp4, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(mxfp4),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "4-bit E2M1 weights in groups of 32 with a power of two each (OCP MX)",
    .source = "OCP Microscaling Formats (MX) Specification 1.0",
    .license = "Apache-2.0",
};
