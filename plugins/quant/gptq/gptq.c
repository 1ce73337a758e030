/* gptq: weights of 2, 3, 4 or 8 bits in groups of inputs, in the layout of AutoGPTQ and GPTQModel.
 *
 *   W' = (q - zero) * scale, with f16 scales (or bf16)
 *
 * Sources: arXiv:2210.17323 (the method); GPTQModel 5 for the layout (checkpoint_format "gptq" and
 * "gptq_v2").
 */
#include "gptq.h"

#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "shared/codec_tables.h"
#include "shared/quant_source.h"

enum {
    FIELD_BITS,
    FIELD_GROUP_SIZE,
    FIELD_SYMMETRIC,
    FIELD_ACT_ORDER,
    FIELD_DAMPING,
    FIELD_VERSION,
    FIELD_SCALE_DTYPE
};
#define VERSIONS "auto|gptq|gptq_v2"
#define SCALE_DTYPES "f16|bf16"
enum { VERSION_AUTO, VERSION_1, VERSION_2 };

static const lathe_field fields[] = {
    LATHE_FIELD_INT("bits", "4", 2, 8, NULL, "bits of a code: 2, 3, 4 or 8"),
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale and a zero point; -1: all inputs of an output"),
    LATHE_FIELD_BOOL("symmetric", "true", "the zero point is in the middle of the range"),
    LATHE_FIELD_STRING(
        "act_order", "\"group\"", GPTQ_ORDERS,
        "which inputs are quantized first; none: as they lie; group: the groups with "
        "the largest inputs, and those inputs in them; full: the largest inputs, of "
        "which new groups are made (desc_act)"),
    LATHE_FIELD_FLOAT("damping", "0.05", 0.0, 1.0, "1",
                      "share of the mean of the products' diagonal that is added to it"),
    LATHE_FIELD_STRING("checkpoint_format", "\"auto\"", VERSIONS,
                       "layout in files; gptq stores zero points minus 1; auto: gptq if symmetric, "
                       "else gptq_v2, since GPTQModel takes no others"),
    LATHE_FIELD_STRING("scale_dtype", "\"f16\"", SCALE_DTYPES, "dtype of the scales in files"),
};

static lathe_status read_values(const lathe_host *host, gptq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->bits = values[FIELD_BITS].i;
    q->group = values[FIELD_GROUP_SIZE].i > 0 ? values[FIELD_GROUP_SIZE].i : 0;
    q->symmetric = values[FIELD_SYMMETRIC].i != 0;
    q->act_order = lathe_choice(GPTQ_ORDERS, values[FIELD_ACT_ORDER].s);
    q->damping = values[FIELD_DAMPING].f;
    q->dtype =
        lathe_choice(SCALE_DTYPES, values[FIELD_SCALE_DTYPE].s) == 1 ? LATHE_BF16 : LATHE_F16;
    const int version = lathe_choice(VERSIONS, values[FIELD_VERSION].s);
    q->zero_offset = version == VERSION_1 || (version == VERSION_AUTO && q->symmetric);
    q->checks_zeros = q->symmetric && values[FIELD_SYMMETRIC].is_explicit;
    if (q->bits != 2 && q->bits != 3 && q->bits != 4 && q->bits != 8)
        return lathe_fail_at(host, LATHE_E_CONFIG, "bits", "bits = %d; expected 2, 3, 4 or 8",
                             (int)q->bits);
    if (values[FIELD_GROUP_SIZE].i == 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "group_size",
                             "group_size = 0; expected -1 or a number of inputs");
    return LATHE_OK;
}

static lathe_status gptq_accepts(void *self, int64_t rows, int64_t cols)
{
    const gptq *q = self;
    LATHE_TRY(codec_check_dims(&q->head, "gptq", rows, cols));
    if (rows * q->bits % 32 == 0 && cols * q->bits % 32 == 0)
        return LATHE_OK;
    return lathe_fail(q->head.host, LATHE_E_SHAPE,
                      "gptq: a weight of [%lld, %lld]; with %d bits both must be multiples of %d",
                      (long long)rows, (long long)cols, (int)q->bits,
                      q->bits == 3 ? 32 : (int)(32 / q->bits));
}

static int32_t gptq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const gptq *q = self;
    const int64_t groups = gptq_groups(q, cols);
    const lathe_plane planes[GPTQ_N_PLANES] = {
        {"qweight", "../qweight", lathe_desc_2d(LATHE_I32, cols * q->bits / 32, rows)},
        {"qzeros", "../qzeros", lathe_desc_2d(LATHE_I32, groups, rows * q->bits / 32)},
        {"scales", "../scales", lathe_desc_2d(q->dtype, groups, rows)},
        {"g_idx", "../g_idx", lathe_desc_1d(LATHE_I32, cols)},
    };
    memcpy(out, planes, sizeof planes);
    return GPTQ_N_PLANES;
}

/* ---- decoding ---- */

/* WORDS: of CODEC_SPAN codes of 8 bits; PAD: words that wide_bits may read beyond. */
enum { WORDS = CODEC_SPAN / 4, PAD = 1 };

enum {
    PART_LINES = 4
}; /* of a part: lines that follow each other, which the hardware prefetches */

/* The codes of n inputs of an output. per: codes in a word; 0 where a code may lie in two words
 * (3 bits). */
CODEC_BODY void unpack(const uint32_t *words, int64_t n, int64_t bits, int64_t per, int32_t *out)
{
    const uint32_t mask = (1u << bits) - 1u;
    int64_t i = 0;
    for (; per > 0 && i + per <= n; i += per) {
        const uint32_t word = words[i / per];
        for (int64_t c = 0; c < per; c++)
            out[i + c] = (int32_t)(word >> (c * bits) & mask);
    }
    for (; i < n; i++)
        out[i] = (int32_t)packed_bits(words, 1, i * bits, bits);
}

CODEC_BODY void unpack_codes(const uint32_t *words, int64_t n, int64_t bits, int32_t *out)
{
    switch (bits) { /* so that the compiler knows the lengths of the loops */
    case 2:
        unpack(words, n, 2, 16, out);
        break;
    case 4:
        unpack(words, n, 4, 8, out);
        break;
    case 8:
        unpack(words, n, 8, 4, out);
        break;
    default:
        unpack(words, n, 3, 0, out);
    }
}

/* Scale and zero point of an output's group. */
CODEC_BODY float group_of(const codec_job *job, int64_t row, int32_t group, int32_t *out_zero)
{
    const gptq *const q = (const gptq *)(const void *)job->self;
    const int64_t bits = q->bits, n_out = job->rows;
    const uint32_t *const zeros =
        (const uint32_t *)job->planes[PACKED_ZEROS] + group * (n_out * bits / 32);
    *out_zero = (int32_t)packed_bits(zeros, 1, row * bits, bits) + q->zero_offset;
    return packed_scale(((const uint16_t *)job->planes[PACKED_SCALES])[group * n_out + row],
                        q->dtype);
}

/* Inputs of a span that follow each other and are of one group. */
typedef struct group_run {
    int32_t group;
    int32_t end; /* one past its last input, counted from the span's first */
} group_run;

/* The runs of n inputs; returns their number. */
CODEC_BODY int64_t find_runs(const int32_t *groups, int64_t n, group_run *out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || groups[i] != groups[i - 1])
            out[count++].group = groups[i];
        out[count - 1].end = (int32_t)(i + 1);
    }
    return count;
}

/* The values of the codes in the words of an output. */
CODEC_BODY void decode_values(const codec_job *job, const uint32_t *words, int64_t row,
                              const group_run *runs, int64_t n_runs, float *out, int build)
{
    const int64_t bits = ((const gptq *)(const void *)job->self)->bits;
    const int looks_up = build == CODEC_AVX2 && bits == 4;
    int32_t codes[CODEC_SPAN];
    if (!looks_up)
        unpack_codes(words, runs[n_runs - 1].end, bits, codes);
    for (int64_t k = 0, i = 0; k < n_runs; k++) {
        int32_t zero;
        const float scale = group_of(job, row, runs[k].group, &zero);
        if (looks_up && i % 8 == 0 && runs[k].end % 8 == 0) {
            float values[16];
            for (int32_t c = 0; c < 16; c++)
                values[c] = (float)(c - zero) * scale;
            eight_nibbles(values, 1.0f, (const uint8_t *)words + i / 2, runs[k].end - i, 0,
                          out + i);
            i = runs[k].end;
            continue;
        }
        for (; looks_up && i < runs[k].end; i++)
            out[i] = (float)((int32_t)packed_bits(words, 1, i * bits, bits) - zero) * scale;
        for (; i < runs[k].end; i++) /* unpack_codes() has filled all of the runs */
            out[i] = (float)(codes[i] - zero) * scale; /* NOLINT(clang-analyzer-core.*) */
    }
}

#if defined(__x86_64__)
/* Values of 2 to 4 bits are looked up: those of a group are computed once. */
CODEC_WIDE_BODY void wide_output_as(const codec_job *job, const uint32_t *words, int64_t row,
                                    const group_run *runs, int64_t n_runs, char *out, int bits,
                                    int32_t dtype)
{
    const int64_t width = dtype == LATHE_F32 ? 4 : 2;
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i code = _mm512_and_si512(lane, _mm512_set1_epi32((1 << bits) - 1));
    for (int64_t k = 0, i = 0; k < n_runs; i = runs[k++].end) {
        int32_t zero;
        const int64_t n = runs[k].end - i;
        const float scale = group_of(job, row, runs[k].group, &zero);
        if (i % 8 != 0 || n < 8) { /* groups of single inputs, as act_order makes them */
            for (int64_t e = i; e < runs[k].end; e++) {
                const int32_t one = (int32_t)packed_bits(words, 1, e * bits, bits);
                lathe_quant_store(out, dtype, e, (float)(one - zero) * scale);
            }
            continue;
        }
        const __m512 moved = _mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(zero)));
        const wide_table t = wide_table_of(_mm512_mul_ps(moved, _mm512_set1_ps(scale)), dtype);
        wide_bits(&t, (const uint8_t *)words + i * bits / 8, n, bits, 0, out + i * width, dtype);
    }
}

CODEC_WIDE_BODY void wide_bytes(const codec_job *job, const uint32_t *words, int64_t row,
                                const group_run *runs, int64_t n_runs, char *out, int32_t dtype)
{
    for (int64_t k = 0, i = 0; k < n_runs; i = runs[k++].end) {
        int32_t zero;
        const float scale = group_of(job, row, runs[k].group, &zero);
        wide_moved((const uint8_t *)words + i, runs[k].end - i, zero, scale,
                   out + i * (dtype == LATHE_F32 ? 4 : 2), dtype);
    }
}

CODEC_WIDE static void wide_output(const codec_job *job, const uint32_t *words, int64_t row,
                                   const group_run *runs, int64_t n_runs, void *out)
{
    const int64_t bits = ((const gptq *)(const void *)job->self)->bits;
    if (bits == 4 && job->dtype == LATHE_F32)
        wide_output_as(job, words, row, runs, n_runs, out, 4, LATHE_F32);
    else if (bits == 4)
        wide_output_as(job, words, row, runs, n_runs, out, 4, job->dtype);
    else if (bits == 3)
        wide_output_as(job, words, row, runs, n_runs, out, 3, job->dtype);
    else if (bits == 2)
        wide_output_as(job, words, row, runs, n_runs, out, 2, job->dtype);
    else if (job->dtype == LATHE_BF16)
        wide_bytes(job, words, row, runs, n_runs, out, LATHE_BF16);
    else
        wide_bytes(job, words, row, runs, n_runs, out, job->dtype);
}

#else /* the build for AVX-512 is never chosen */
static inline void wide_transpose16(const uint32_t *words, int64_t stride, uint32_t *out,
                                    int64_t out_stride)
{
    for (int64_t i = 0; i < 16; i++)
        for (int64_t k = 0; k < 16; k++)
            out[k * out_stride + i] = words[i * stride + k];
}

static inline void wide_output(const codec_job *job, const uint32_t *words, int64_t row,
                               const group_run *runs, int64_t n_runs, void *out)
{
    float values[CODEC_SPAN];
    decode_values(job, words, row, runs, n_runs, values, CODEC_PORTABLE);
    for (int64_t i = 0; i < runs[n_runs - 1].end; i++)
        lathe_quant_store(out, job->dtype, i, values[i]);
}
#endif

/* Copies n <= WORDS rows of words of up to PACKED_LINE outputs, and turns them: to
 * out[output][row]. */
CODEC_BODY void turn_words(const uint32_t *words, int64_t stride, int64_t n, int64_t outputs,
                           uint32_t (*out)[WORDS + PAD], int build)
{
    int64_t i = 0;
    for (; build == CODEC_AVX512 && outputs == PACKED_LINE && i + PACKED_LINE <= n;
         i += PACKED_LINE)
        wide_transpose16(words + i * stride, stride, &out[0][i], WORDS + PAD);
    for (; i < n; i++)
        for (int64_t k = 0; k < outputs; k++)
            out[k][i] = words[i * stride + k];
}

/* A row of the loop is PACKED_LINE outputs of those that are decoded. */
CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    const int64_t bits = ((const gptq *)(const void *)job->self)->bits;
    uint32_t words[PACKED_LINE][WORDS + PAD] = {{0}};
    group_run runs[CODEC_SPAN];
    float room[CODEC_SPAN];
    const int64_t stop = job->first + end * PACKED_LINE;
    for (int64_t col = job->col; col < job->end; col += CODEC_SPAN) {
        const int64_t n = job->end - col < CODEC_SPAN ? job->end - col : CODEC_SPAN;
        const int64_t n_runs =
            find_runs((const int32_t *)job->planes[PACKED_GROUPS] + col, n, runs);
        for (int64_t first = job->first + begin * PACKED_LINE; first < stop; first += PACKED_LINE) {
            const int64_t left = job->last - first, rows = left < PACKED_LINE ? left : PACKED_LINE;
            turn_words((const uint32_t *)job->planes[PACKED_CODES] + col * bits / 32 * job->rows +
                           first,
                       job->rows, n * bits / 32, rows, words, build);
            for (int64_t k = 0; k < rows; k++) {
                void *const out = codec_place(job, first + k, col);
                if (build == CODEC_AVX512) {
                    wide_output(job, words[k], first + k, runs, n_runs, out);
                    continue;
                }
                decode_values(job, words[k], first + k, runs, n_runs,
                              job->dtype == LATHE_F32 ? out : room, build);
                if (job->dtype != LATHE_F32)
                    codec_round(room, n, out, job->dtype, build);
            }
        }
    }
}
CODEC_BUILDS(decode_lines, decode_body)

static lathe_status gptq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                                void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    const gptq *q = self;
    LATHE_TRY(codec_check_dtype(&q->head, "gptq", dtype));
    codec_job job = codec_whole(&q->head, rows, cols, planes, w, dtype);
    codec_rows(&job, decode_lines, (rows + PACKED_LINE - 1) / PACKED_LINE, cols * PACKED_LINE);
    return LATHE_OK;
}

CODEC_DECODE_PART(gptq, decode_lines, PACKED_LINE)

static void gptq_part_rows(void *self, int64_t rows, int64_t cols, lathe_part_rows *out)
{
    (void)self;
    (void)rows;
    (void)cols;
    *out = (lathe_part_rows){PART_LINES * PACKED_LINE, 1, 0};
}

/* Symmetric weights have the zero point 2^(bits-1). Some files call themselves symmetric and have
 * zero points of the other version of the layout; kernels that believe `sym` never read them. */
static lathe_status check_zeros(const gptq *q, int64_t rows, int64_t groups, const uint32_t *zeros)
{
    const uint32_t expected = (1u << (q->bits - 1)) - (uint32_t)q->zero_offset;
    for (int64_t i = 0; i < groups * rows; i++) {
        const uint32_t seen =
            packed_bits(zeros + i / rows * (rows * q->bits / 32), 1, i % rows * q->bits, q->bits);
        if (seen != expected)
            return lathe_fail(
                q->head.host, LATHE_E_CORRUPT,
                "gptq: qzeros[%lld] of output %lld is %u, and quantization_config says sym = true "
                "with checkpoint_format %s, where every stored zero point is %u: if the file is of "
                "the other version, set checkpoint_format to %s, and if its zero points are meant, "
                "set sym to false",
                (long long)(i / rows), (long long)(i % rows), seen,
                q->zero_offset ? "gptq" : "gptq_v2", expected, q->zero_offset ? "gptq_v2" : "gptq");
    }
    return LATHE_OK;
}

static lathe_status gptq_check_planes(void *self, int64_t rows, int64_t cols,
                                      const void *const *planes)
{
    const gptq *q = self;
    const int64_t groups = gptq_groups(q, cols);
    const int32_t *const of = planes[PACKED_GROUPS];
    for (int64_t i = 0; i < cols; i++)
        if (of[i] < 0 || of[i] >= groups)
            return lathe_fail(q->head.host, LATHE_E_CORRUPT,
                              "gptq: g_idx[%lld] is %d; expected 0 to %lld, for %lld inputs in "
                              "groups of %lld",
                              (long long)i, of[i], (long long)groups - 1, (long long)cols,
                              (long long)gptq_group(q, cols));
    return q->checks_zeros ? check_zeros(q, rows, groups, planes[PACKED_ZEROS]) : LATHE_OK;
}

/* ---- files ---- */

static int64_t gptq_config_json(void *self, char *out, int64_t capacity)
{
    const gptq *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"gptq\", \"bits\": %d, \"group_size\": %lld, \"desc_act\": "
        "%s, \"sym\": %s, \"checkpoint_format\": \"%s\", \"lm_head\": false, "
        "\"damp_percent\": %.6g, \"true_sequential\": false, "
        "\"pack_dtype\": \"int32\"}",
        (int)q->bits, q->group > 0 ? (long long)q->group : -1LL,
        q->act_order == GPTQ_ORDER_FULL ? "true" : "false", q->symmetric ? "true" : "false",
        q->zero_offset ? "gptq" : "gptq_v2", q->damping);
}

static const char *const methods[] = {"gptq", NULL};

static lathe_status gptq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                     lathe_value *values)
{
    const char *bits = config->get(config->ctx, "bits");
    const char *group = config->get(config->ctx, "group_size");
    /* GPTQModel writes both keys and reads `format`; others write checkpoint_format */
    const char *version = config->get(config->ctx, "checkpoint_format");
    const char *format = config->get(config->ctx, "format");
    if (bits == NULL || group == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "gptq reads weights with bits and group_size, and here one is absent");
    LATHE_TRY(source_expect(host, config, "gptq", "pack_dtype", "int32"));
    values[FIELD_BITS].i = strtol(bits, NULL, 10);
    values[FIELD_GROUP_SIZE].i = strtol(group, NULL, 10);
    if (source_is(config, "desc_act", "true"))
        values[FIELD_ACT_ORDER].s = "full";
    values[FIELD_SYMMETRIC].i = !source_is(config, "sym", "false");
    values[FIELD_SYMMETRIC].is_explicit = source_is(config, "sym", "true");
    if (version != NULL && format != NULL && strcmp(version, format) != 0)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "checkpoint_format is %s and format is %s: one of the two is wrong; zero "
                          "points are stored minus 1 in gptq, and as they are in gptq_v2",
                          version, format);
    values[FIELD_VERSION].s = version != NULL ? version : format != NULL ? format : "gptq";
    values[FIELD_SCALE_DTYPE].s = source_dtype(config, "../scales") == LATHE_BF16 ? "bf16" : "f16";
    return LATHE_OK;
}

static void gptq_image_settings(void *self, int64_t *out)
{
    const gptq *q = self;
    out[PACKED_BITS] = q->bits;
    out[PACKED_ZERO_OFFSET] = q->zero_offset;
    out[PACKED_DTYPE] = q->dtype;
}

static const lathe_quant_v1 gptq_table = {
    CODEC_TABLE(gptq),
    .part_rows = gptq_part_rows,
    .code_group = gptq_code_group,
    .part_codes = gptq_part_codes,
    .image_settings = gptq_image_settings,
    .methods = methods,
    .check_planes = gptq_check_planes,
    .encode_calibrated = gptq_encode_calibrated,
    .stores_conv1d = 1,
};

LATHE_INSTANCE(gptq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(gptq),
    CODEC_KIND,
    .version = "1.0.0",
    .summary = "2, 3, 4 or 8-bit weights in GPTQ's layout, calibrated on data",
    .source = "arXiv:2210.17323",
    .license = "Apache-2.0",
};
