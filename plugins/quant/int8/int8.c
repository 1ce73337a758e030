/* int8: one scale per row, in the layout of bitsandbytes' LLM.int8 weights.
 *
 *   SCB[r] = max_c |W[r,c]|,  q = round(W * (127/SCB)) to even,  W' = q * SCB * (1/127), all in f32
 *
 * Source: arXiv:2208.07339 (vector-wise quantization of the weight), bitsandbytes for the rounding.
 * Activations are not quantized: the weight is decoded and multiplied in the compute dtype.
 */
#include <math.h>
#include <string.h>

#include "int8_kernel.h"
#include "lathe/kit/instance.h"

typedef struct int8 {
    const lathe_host *host;
    int avx512;
} int8;

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))
#else
#define AVX512
#endif
#define BODY static inline __attribute__((always_inline))

/* ---- rows ---- */

/* Returns the row's scale, or -1 if a value is not finite. A row of zeros has scale 0 and codes
 * 0. */
BODY float encode_row_body(const float *w, int64_t n, int8_t *q)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) { /* magnitudes have the same order as their bits */
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        bits &= 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    if (top >= 0x7f800000u)
        return -1.0f;
    float absmax;
    memcpy(&absmax, &top, sizeof absmax);
    const float inverse = 127.0f / absmax;
    if (absmax == 0.0f || isinf(inverse)) { /* below 4e-37 the factor overflows: treat as zeros */
        memset(q, 0, (size_t)n);
        return absmax;
    }
    for (int64_t i = 0; i < n; i++)
        q[i] = (int8_t)(int32_t)rintf(w[i] * inverse);
    return absmax;
}

BODY void decode_row_body(const int8_t *q, int64_t n, float scale, void *out, int32_t dtype)
{
    if (dtype == LATHE_F32) {
        float *y = out;
        for (int64_t i = 0; i < n; i++)
            y[i] = int8_value(q[i], scale);
        return;
    }
    uint16_t *y = out;
    if (dtype == LATHE_F16) {
        for (int64_t i = 0; i < n; i++)
            y[i] = lathe_f32_to_f16(int8_value(q[i], scale));
        return;
    }
    /* values are finite: lathe_f32_to_bf16 without its NaN branch */
    for (int64_t i = 0; i < n; i++) {
        const float value = int8_value(q[i], scale);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        y[i] = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
}

static float encode_row(const float *w, int64_t n, int8_t *q)
{
    return encode_row_body(w, n, q);
}

AVX512 static float encode_row_avx512(const float *w, int64_t n, int8_t *q)
{
    return encode_row_body(w, n, q);
}

static void decode_row(const int8_t *q, int64_t n, float scale, void *out, int32_t dtype)
{
    decode_row_body(q, n, scale, out, dtype);
}

AVX512 static void decode_row_avx512(const int8_t *q, int64_t n, float scale, void *out,
                                     int32_t dtype)
{
    decode_row_body(q, n, scale, out, dtype);
}

/* ---- the table ---- */

typedef struct job {
    const int8 *self;
    const float *w;
    int8_t *q_out;
    float *scb_out;
    const int8_t *q;
    const float *scb;
    char *out;
    int64_t cols;
    int32_t dtype, bad;
} job;

static void encode_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    job *j = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *w = j->w + r * j->cols;
        int8_t *q = j->q_out + r * j->cols;
        j->scb_out[r] = (j->self->avx512 ? encode_row_avx512 : encode_row)(w, j->cols, q);
        if (j->scb_out[r] < 0)
            __atomic_store_n(&j->bad, 1, __ATOMIC_RELAXED);
    }
}

static void decode_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = arg;
    const int64_t row_bytes = j->cols * lathe_dtype_bytes(j->dtype);
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        (j->self->avx512 ? decode_row_avx512 : decode_row)(j->q + r * j->cols, j->cols, j->scb[r],
                                                           j->out + r * row_bytes, j->dtype);
}

/* Rows per chunk of work, for about 64 Ki elements. */
static int64_t grain(int64_t cols)
{
    return cols >= 65536 ? 1 : 65536 / cols;
}

static lathe_status int8_accepts(void *self, int64_t rows, int64_t cols)
{
    const int8 *q = self;
    if (rows < 1 || cols < 1 || rows > INT64_MAX / 8 / cols)
        return lathe_fail(q->host, LATHE_E_SHAPE, "int8: a weight of [%lld, %lld]", (long long)rows,
                          (long long)cols);
    return LATHE_OK;
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
    const int8 *q = self;
    LATHE_TRY(int8_accepts(self, rows, cols));
    job j = {
        .self = q, .w = w, .q_out = planes[INT8_WEIGHT], .scb_out = planes[INT8_SCB], .cols = cols};
    q->host->parallel_for(rows, grain(cols), encode_rows, &j);
    if (j.bad)
        return lathe_fail(q->host, LATHE_E_NUMERIC,
                          "int8: the weight [%lld, %lld] holds values that are not finite",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

static lathe_status int8_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                void *w, int32_t dtype, void *scratch, void *stream)
{
    const int8 *q = self;
    (void)scratch;
    (void)stream;
    if (dtype != LATHE_F32 && dtype != LATHE_BF16 && dtype != LATHE_F16)
        return lathe_fail(q->host, LATHE_E_DTYPE, "int8: decodes to f32, bf16 or f16, not to %s",
                          lathe_dtype_name(dtype));
    job j = {.self = q,
             .q = planes[INT8_WEIGHT],
             .scb = planes[INT8_SCB],
             .out = w,
             .cols = cols,
             .dtype = dtype};
    q->host->parallel_for(rows, grain(cols), decode_rows, &j);
    return LATHE_OK;
}

static int64_t int8_config_json(void *self, char *out, int64_t capacity)
{
    (void)self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": false, \"load_in_8bit\": true, "
        "\"_load_in_4bit\": false, \"_load_in_8bit\": true, "
        "\"llm_int8_threshold\": 6.0, \"llm_int8_skip_modules\": null, "
        "\"llm_int8_enable_fp32_cpu_offload\": false, "
        "\"llm_int8_has_fp16_weight\": false}");
}

/* bitsandbytes' weight_format: 0 means that rows are stored as they are. */
static int64_t int8_weight_meta(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                char *out_suffix, int64_t suffix_capacity, char *out,
                                int64_t capacity)
{
    (void)self;
    (void)rows;
    (void)cols;
    (void)planes;
    if (suffix_capacity > 0)
        (void)snprintf(out_suffix, (size_t)suffix_capacity, "../weight_format");
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
        return lathe_fail(q->host, LATHE_E_UNSUPPORTED,
                          "int8: weight_format is %d (%lld bytes); only 0, plain rows, can be read",
                          bytes > 0 ? meta[0] : -1, (long long)bytes);
    return LATHE_OK;
}

static lathe_status int8_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    (void)values;
    if (n_values != 0)
        return lathe_fail(host, LATHE_E_ARG, "int8: got %d values, expected none", n_values);
    int8 *q = host->alloc((int64_t)sizeof *q);
    if (q == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "int8: no memory for the instance");
    q->host = host;
#if defined(__x86_64__)
    q->avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl");
#endif
    *out_self = q;
    return LATHE_OK;
}

LATHE_INSTANCE_FREED(int8)

static const lathe_quant_v1 int8_table = {
    .size = sizeof int8_table,
    .revision = LATHE_QUANT_REVISION,
    .accepts = int8_accepts,
    .planes = int8_planes,
    .encode = int8_encode,
    .decode = int8_decode,
    .config_json = int8_config_json,
    .weight_meta = int8_weight_meta,
    .read_meta = int8_read_meta,
    .cuda_image = LATHE_CUDA_IMAGE,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE_PLAIN(int8),
    .kind = LATHE_KIND_QUANT,
    .revision = LATHE_QUANT_REVISION,
    .version = "1.0.0",
    .summary = "8-bit weights with one scale per row, in bitsandbytes' layout",
    .source = "arXiv:2208.07339",
    .license = "Apache-2.0",
};
