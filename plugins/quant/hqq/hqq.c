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
        return lathe_fail_at(host, LATHE_E_CONFIG, "bits", "bits = %d; expected 1, 2, 3, 4 or 8",
                             (int)q->bits);
    if (q->group % 8 != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "group_size",
                             "group_size = %d; expected a multiple of 8", (int)q->group);
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

/* Codes of one group: in bytes, or in words if there are any. */
typedef struct codes_at {
    const uint8_t *bytes;
    const uint32_t *words;
    int bits, shift;
    float zero, scale;
} codes_at;

/* Decodes n codes to f32. */
CODEC_BODY void decode_codes(const codes_at *c, int64_t n, float *out, int32_t dtype, int build)
{
    const uint32_t mask = (1u << c->bits) - 1u;
    if (build == CODEC_AVX2 && c->bits <= 4) { /* the values of all codes are computed once */
        float table[16];
        for (int i = 0; i < 16; i++)
            table[i] = (float)i - c->zero;
        round_to(table, 16, dtype, build);
        for (int i = 0; i < 16; i++)
            table[i] *= c->scale;
        round_to(table, 16, dtype, build);
        eight_look_up(table, c->bytes, c->words, n, c->bits, c->shift, out);
        return;
    }
    if (c->words != NULL)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(int32_t)(c->words[i] >> c->shift & mask) - c->zero;
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(int32_t)((uint32_t)c->bytes[i] >> c->shift & mask) - c->zero;
    round_to(out, n, dtype, build);
    for (int64_t i = 0; i < n; i++)
        out[i] *= c->scale;
    round_to(out, n, dtype, build);
}

/* Where the decoding of elements [at, ..) of the flat weight has got to. */
typedef struct place_at {
    int64_t size, word_rows; /* elements of a group; words for each place in a group */
    int64_t group, in, run;  /* the group, the place in it, and the group's run */
} place_at;

CODEC_BODY place_at begin_at(const codec_job *job, int64_t at, int bits)
{
    place_at p = {.size = ((const hqq *)(const void *)job->self)->group};
    const int64_t per_word = hqq_per_word(bits);
    p.word_rows = divided(divided(job->rows * job->cols, p.size) + per_word - 1, per_word);
    p.group = divided(at, p.size);
    p.in = at - p.group * p.size;
    p.run = divided(p.group, p.word_rows);
    return p;
}

/* The codes from there on, of one group; returns how many of n it has, at most a span. */
CODEC_BODY int64_t codes_of(const codec_job *job, const place_at *p, int64_t n, int bits,
                            codes_at *c)
{
    const int64_t left = p->size - p->in, max = left < n ? left : n;
    const int64_t word = (p->group - p->run * p->word_rows) * p->size + p->in;
    c->bits = bits;
    c->bytes = (const uint8_t *)job->planes[HQQ_CODES] + word;
    c->words = bits == 3 ? (const uint32_t *)job->planes[HQQ_CODES] + word : NULL;
    c->shift = bits * (int)(hqq_per_word(bits) - 1 - p->run);
    return max < CODEC_SPAN ? max : CODEC_SPAN;
}

CODEC_BODY void advance(place_at *p, int64_t n)
{
    p->in += n;
    if (p->in < p->size)
        return;
    p->in = 0;
    p->group++;
    p->run += p->group == (p->run + 1) * p->word_rows;
}

#if defined(__x86_64__)
/* hqq_parameter of f16, whose NaN may become quiet. */
CODEC_WIDE_BODY float wide_f16(const void *plane, int64_t group)
{
    const int half = ((const uint16_t *)plane)[group];
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

CODEC_WIDE_BODY void wide_run_as(const codec_job *job, int64_t at, int64_t n, char *out, int bits,
                                 int32_t compute_dtype, int32_t dtype)
{
    place_at p = begin_at(job, at, bits);
    codes_at c;
    for (int64_t each; n > 0; n -= each, out += each * (dtype == LATHE_F32 ? 4 : 2)) {
        each = codes_of(job, &p, n, bits, &c);
        if (compute_dtype == LATHE_F16) {
            c.zero = wide_f16(job->planes[HQQ_ZERO], p.group);
            c.scale = wide_f16(job->planes[HQQ_SCALE], p.group);
        } else {
            c.zero = hqq_parameter(job->planes[HQQ_ZERO], p.group, compute_dtype);
            c.scale = hqq_parameter(job->planes[HQQ_SCALE], p.group, compute_dtype);
        }
        if (bits == 8)
            wide_group_bytes(c.bytes, each, c.zero, c.scale, compute_dtype, out, dtype);
        else
            wide_group_table(c.bytes, c.words, each, bits, c.shift, c.zero, c.scale, compute_dtype,
                             out, dtype);
        advance(&p, each);
    }
}

/* Decodes elements [at, at + n) of the weight. */
CODEC_WIDE static void wide_run(const codec_job *job, int64_t at, int64_t n, void *out)
{
    const hqq *const q = (const hqq *)(const void *)job->self;
    if (q->bits == 4 && q->dtype == LATHE_F16 && job->dtype == LATHE_BF16)
        wide_run_as(job, at, n, out, 4, LATHE_F16, LATHE_BF16);
    else if (q->bits == 4 && q->dtype == LATHE_F16 && job->dtype == LATHE_F32)
        wide_run_as(job, at, n, out, 4, LATHE_F16, LATHE_F32);
    else if (q->bits == 4 && q->dtype == LATHE_BF16 && job->dtype == LATHE_BF16)
        wide_run_as(job, at, n, out, 4, LATHE_BF16, LATHE_BF16);
    else if (q->bits == 8 && q->dtype == LATHE_F16 && job->dtype == LATHE_F16)
        wide_run_as(job, at, n, out, 8, LATHE_F16, LATHE_F16);
    else if (q->bits == 8 && q->dtype == LATHE_F16 && job->dtype == LATHE_BF16)
        wide_run_as(job, at, n, out, 8, LATHE_F16, LATHE_BF16);
    else if (q->bits == 8)
        wide_run_as(job, at, n, out, 8, q->dtype, job->dtype);
    else if (q->bits == 3)
        wide_run_as(job, at, n, out, 3, q->dtype, job->dtype);
    else
        wide_run_as(job, at, n, out, (int)q->bits, q->dtype, job->dtype);
}

#else /* the build for AVX-512 is never chosen */
static inline void wide_run(const codec_job *job, int64_t at, int64_t n, void *out)
{
    (void)job;
    (void)at;
    (void)n;
    (void)out;
}
#endif

/* Decodes elements [at, at + n) of the weight, like wide_run, without AVX-512. */
CODEC_BODY void decode_run(const codec_job *job, int64_t at, int64_t n, char *out, int build)
{
    const hqq *const q = (const hqq *)(const void *)job->self;
    place_at p = begin_at(job, at, (int)q->bits);
    float room[CODEC_SPAN];
    codes_at c;
    for (int64_t each; n > 0; n -= each, out += each * (job->dtype == LATHE_F32 ? 4 : 2)) {
        each = codes_of(job, &p, n, (int)q->bits, &c);
        c.zero = hqq_parameter(job->planes[HQQ_ZERO], p.group, q->dtype);
        c.scale = hqq_parameter(job->planes[HQQ_SCALE], p.group, q->dtype);
        decode_codes(&c, each, job->dtype == LATHE_F32 ? (float *)(void *)out : room, q->dtype,
                     build);
        if (job->dtype != LATHE_F32)
            codec_round(room, each, out, job->dtype, build);
        advance(&p, each);
    }
}

CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    for (int64_t row = job->first + begin; row < job->first + end; row++) {
        const int64_t at = row * job->cols + job->col, n = job->end - job->col;
        if (build == CODEC_AVX512)
            wide_run(job, at, n, codec_place(job, row, job->col));
        else
            decode_run(job, at, n, codec_place(job, row, job->col), build);
    }
}
CODEC_BUILDS(decode_rows, decode_body)

/* The weight is flat, so its rows may be cut anew: a row of the loop is one group, or several that
 * fit in a span. */
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
                        decode_rows);
}

CODEC_DECODE_PART(hqq, decode_rows, 1)

/* If the runs begin with rows, the same rows of all runs share their bytes. */
void hqq_part_rows(void *self, int64_t rows, int64_t cols, lathe_part_rows *out)
{
    const hqq *q = self;
    const int64_t runs = hqq_per_word(q->bits), groups = rows * cols / q->group;
    *out = (lathe_part_rows){1, 1, 0};
    if (runs > 1 && rows % runs == 0 && groups % runs == 0 && cols % q->group == 0)
        *out = (lathe_part_rows){1, runs, rows / runs};
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
    CODEC_TABLE(hqq),
    .part_rows = hqq_part_rows,
    .code_group = hqq_code_group,
    .part_codes = hqq_part_codes,
    .image_settings = hqq_image_settings,
    .methods = methods,
};

LATHE_INSTANCE(hqq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(hqq),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "weights of 1 to 8 bits with zero points from half-quadratic optimization",
    .source = "https://mobiusml.github.io/hqq_blog/",
    .license = "Apache-2.0",
};
