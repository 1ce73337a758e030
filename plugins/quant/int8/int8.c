/* int8: one scale per row, in the layout of bitsandbytes' LLM.int8 weights.
 *
 *   SCB[r] = max_c |W[r,c]|,  q = round(W * (127/SCB)) to even,  W' = q * SCB * (1/127), all in f32
 *
 * Source: arXiv:2208.07339 (vector-wise quantization of the weight), bitsandbytes for the rounding.
 * By default activations are not quantized: the weight is decoded and multiplied in the compute
 * dtype. With activations = "int8" products quantize them too, as lathe_activations (packed.h) has
 * it: the outliers of LLM.int8 are those of a row, where the paper splits off whole columns.
 */
#include <math.h>

#include "int8_kernel.h"
#include "lathe/kit/instance.h"
#include "shared/quant_codec.h"
#include "shared/quant_source.h"

enum { ACTIVATIONS, OUTLIER_THRESHOLD, N_FIELDS };
#define MAX_THRESHOLD 1e30
#define USUAL_THRESHOLD 6.0 /* of outlier_threshold, as in bitsandbytes */

static const lathe_field fields[N_FIELDS] = {
    LATHE_FIELD_STRING("activations", "\"none\"", "none|int8",
                       "whether products quantize their inputs, too, on devices that can; "
                       "derivatives do not"),
    LATHE_FIELD_FLOAT("outlier_threshold", "6.0", 0.0, MAX_THRESHOLD, "1",
                      "with activations: inputs of at least this magnitude are multiplied as they "
                      "are; 0: none"),
};

typedef struct int8 {
    codec_head head;
    int32_t has_activations;
    double threshold;
} int8;

/* ---- rows ---- */

/* Returns the row's scale, or -1 if a value is not finite. A row of zeros has scale 0 and codes
 * 0. */
CODEC_BODY float encode_row(const float *w, int64_t n, int8_t *q)
{
    const float largest = codec_largest(w, n), inverse = 127.0f / largest;
    if (largest <= 0.0f || isinf(inverse)) { /* below 4e-37 the factor overflows: as zeros */
        memset(q, 0, (size_t)n);
        return largest;
    }
    for (int64_t i = 0; i < n; i++)
        q[i] = (int8_t)(int32_t)rintf(w[i] * inverse);
    return largest;
}

CODEC_BODY void encode_body(void *arg, int64_t begin, int64_t end)
{
    codec_job *const job = arg;
    float *const scales = job->made[INT8_SCB];
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * job->cols;
        scales[row] = encode_row(job->w + at, job->cols, (int8_t *)job->made[INT8_WEIGHT] + at);
        if (scales[row] < 0)
            codec_set_bad(job);
    }
}
CODEC_LOOP(encode_rows, encode_body)

#if defined(__x86_64__)
CODEC_WIDE static inline __attribute__((always_inline)) __m512 wide_values(__m128i codes,
                                                                           float scale)
{
    const __m512 q = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    return _mm512_mul_ps(_mm512_mul_ps(q, _mm512_set1_ps(scale)), _mm512_set1_ps(INT8_STEP));
}

/* decode_row of the first n / 32 * 32 codes; returns their number. */
CODEC_WIDE static int64_t wide_row(const int8_t *q, int64_t n, float scale, void *out,
                                   int32_t dtype)
{
    const __m512i upper = wide_upper_lanes();
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        const __m128i *const at = (const __m128i *)(const void *)(q + i);
        const __m512 x = wide_values(_mm_loadu_si128(at), scale);
        const __m512 y = wide_values(_mm_loadu_si128(at + 1), scale);
        if (dtype == LATHE_F32) {
            _mm512_storeu_ps((float *)out + i, x);
            _mm512_storeu_ps((float *)out + i + 16, y);
        } else {
            _mm512_storeu_si512(
                (uint16_t *)out + i,
                _mm512_permutex2var_epi16(wide_bf16_sum(x), upper, wide_bf16_sum(y)));
        }
    }
    return n / 32 * 32;
}
#else /* the build for AVX-512 is never chosen */
static inline int64_t wide_row(const int8_t *q, int64_t n, float scale, void *out, int32_t dtype)
{
    (void)q, (void)n, (void)scale, (void)out, (void)dtype;
    return 0;
}
#endif

/* To f32 or bf16, without the detour of CODEC_DECODER: finite values need no check for NaN. */
CODEC_BODY void decode_row(const int8_t *q, int64_t n, float scale, void *out, int32_t dtype,
                           int build)
{
    uint16_t *const y = out;
    const int64_t done = build == CODEC_AVX512 ? wide_row(q, n, scale, out, dtype) : 0;
    if (dtype == LATHE_F32)
        for (int64_t i = done; i < n; i++)
            ((float *)out)[i] = int8_value(q[i], scale);
    else
        for (int64_t i = done; i < n; i++) { /* lathe_f32_to_bf16 without its NaN branch */
            const float value = int8_value(q[i], scale);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            y[i] = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
        }
}

CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    for (int64_t row = job->first + begin; row < job->first + end; row++)
        decode_row((const int8_t *)job->planes[INT8_WEIGHT] + row * job->cols + job->col,
                   job->end - job->col, ((const float *)job->planes[INT8_SCB])[row],
                   codec_place(job, row, job->col), job->dtype, build);
}
CODEC_BUILDS(decode_rows, decode_body)

/* f16 goes through f32, because compilers find no good code for its rounding. */
CODEC_BODY void half_span(const codec_job *job, int64_t row, int64_t col, int64_t n, float *out,
                          int build)
{
    const int8_t *const q = (const int8_t *)job->planes[INT8_WEIGHT] + row * job->cols + col;
    const float scale = ((const float *)job->planes[INT8_SCB])[row];
    (void)build;
    for (int64_t i = 0; i < n; i++)
        out[i] = int8_value(q[i], scale);
}
CODEC_DECODER(decode_halves, half_span)

/* ---- the table ---- */

static lathe_status int8_accepts(void *self, int64_t rows, int64_t cols)
{
    const int8 *q = self;
    if (q->has_activations && cols > LATHE_ACTIVATION_COLS)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "int8: a weight of [%lld, %lld]; with activations = \"int8\" at most %d "
                          "columns, because sums have 32 bits",
                          (long long)rows, (long long)cols, LATHE_ACTIVATION_COLS);
    return codec_check_dims(self, "int8", rows, cols);
}

static int32_t int8_activations(void *self, int64_t rows, int64_t cols, lathe_activations *out)
{
    const int8 *q = self;
    (void)rows, (void)cols;
    *out = (lathe_activations){LATHE_I8, (float)q->threshold};
    return q->has_activations;
}

static int32_t int8_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    (void)self;
    out[INT8_WEIGHT] = (lathe_plane){"weight", "", lathe_desc_2d(LATHE_I8, rows, cols)};
    out[INT8_SCB] = (lathe_plane){"SCB", "../SCB", lathe_desc_1d(LATHE_F32, rows)};
    return INT8_N_PLANES;
}

static lathe_status int8_encode(void *self, int64_t rows, int64_t cols, const float *w,
                                void *const *planes)
{
    codec_job job = {.self = self, .rows = rows, .cols = cols, .w = w, .made = planes};
    LATHE_TRY(int8_accepts(self, rows, cols));
    codec_rows(&job, encode_rows, rows, cols);
    return codec_encoded(&job, "int8");
}

static lathe_status int8_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    return codec_decode(self, "int8", rows, cols, planes, w, dtype,
                        dtype == LATHE_F16 ? decode_halves : decode_rows);
}

static void int8_decode_part(void *self, int64_t rows, int64_t cols, const void *const *planes,
                             const lathe_weight_part *part, void *out, int32_t dtype)
{
    codec_part(self, rows, cols, planes, part, out, dtype,
               dtype == LATHE_F16 ? decode_halves : decode_rows, 1);
}

static int32_t int8_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                          lathe_weight_codes *out)
{
    (void)self, (void)rows, (void)planes;
    *out = (lathe_weight_codes){.order = LATHE_CODES_BYTES,
                                .bits = 8,
                                .values = LATHE_VALUES_I8,
                                .plane = INT8_WEIGHT,
                                .group = cols};
    return 1;
}

static void int8_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                             const lathe_weight_part *part, float *scales, float *offsets)
{
    const float *const scb = planes[INT8_SCB];
    (void)self, (void)rows, (void)cols, (void)offsets;
    for (int64_t i = 0; i < part->runs * part->rows; i++)
        scales[i * part->stride] = scb[codec_part_row(part, i)] * INT8_STEP;
}

static int64_t int8_config_json(void *self, char *out, int64_t capacity)
{
    const int8 *q = self;
    char threshold[32];
    (void)snprintf(threshold, sizeof threshold, "%.15g", q->threshold);
    const int is_whole = strcspn(threshold, ".e") == strlen(threshold);
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": false, \"load_in_8bit\": true, "
        "\"_load_in_4bit\": false, \"_load_in_8bit\": true, "
        "\"llm_int8_threshold\": %s%s, \"llm_int8_skip_modules\": null, "
        "\"llm_int8_enable_fp32_cpu_offload\": false, "
        "\"llm_int8_has_fp16_weight\": false}",
        threshold, is_whole ? ".0" : "");
}

/* bitsandbytes' weight_format: 0 means that rows are stored as they are. */
static int64_t int8_weight_meta(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                char *out, int64_t capacity)
{
    (void)self;
    (void)rows;
    (void)cols;
    (void)planes;
    if (capacity > 0)
        out[0] = 0;
    return 1;
}

static lathe_status int8_read_meta(void *self, int64_t rows, int64_t cols, const char *meta,
                                   int64_t bytes, void *const *planes)
{
    const int8 *q = self;
    (void)rows;
    (void)cols;
    (void)planes;
    if (bytes != 1 || meta[0] != 0)
        return lathe_fail(q->head.host, LATHE_E_UNSUPPORTED,
                          "int8: weight_format is %d (%lld bytes); only 0, plain rows, can be read",
                          bytes > 0 ? meta[0] : -1, (long long)bytes);
    return LATHE_OK;
}

static const char *const methods[] = {"bitsandbytes", NULL};

static lathe_status int8_read_config(const lathe_host *host, const lathe_quant_config *config,
                                     lathe_value *values)
{
    if (!source_is(config, "load_in_8bit", "true"))
        return lathe_fail(host, LATHE_E_NOT_FOUND, "int8 reads weights with load_in_8bit = true");
    const char *text = config->get(config->ctx, "llm_int8_threshold");
    char *end = NULL;
    if (text == NULL) /* BitsAndBytesConfig has the same default */
        return LATHE_OK;
    const double threshold = strtod(text, &end);
    if (end == text || *end != '\0' || !(threshold <= MAX_THRESHOLD))
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "int8 reads a number as llm_int8_threshold, and here it is %s", text);
    values[OUTLIER_THRESHOLD].f = threshold > 0.0 ? threshold : 0.0; /* as bitsandbytes */
    return LATHE_OK;
}

/* Fields that say how products are computed; of a folder they hold if the run sets them. */
static const char *const product_fields[] = {"activations", "outlier_threshold", NULL};

static lathe_status int8_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    const int has_activations = strcmp(values[ACTIVATIONS].s, "int8") == 0;
    /* a run's folder has every setting, so the usual threshold says nothing */
    if (values[OUTLIER_THRESHOLD].is_explicit && !has_activations &&
        fabs(values[OUTLIER_THRESHOLD].f - USUAL_THRESHOLD) > 0.0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "outlier_threshold",
                             "outlier_threshold has no effect without activations = \"int8\"");
    int8 *q = host->alloc((int64_t)sizeof *q);
    if (q == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    q->head.host = host;
    q->head.build = codec_best_build();
    q->has_activations = has_activations;
    q->threshold = values[OUTLIER_THRESHOLD].f;
    *out_self = q;
    return LATHE_OK;
}

LATHE_INSTANCE_FREED(int8)

static const lathe_quant_v1 int8_table = {
    CODEC_TABLE(int8),
    .weight_meta = int8_weight_meta,
    .read_meta = int8_read_meta,
    .meta_suffix = "../weight_format",
    .methods = methods,
    .stores_conv1d = 1,
    .activations = int8_activations,
    .product_fields = product_fields,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(int8),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "8-bit weights with one scale per row, in bitsandbytes' layout",
    .source = "arXiv:2208.07339",
    .license = "Apache-2.0",
};
