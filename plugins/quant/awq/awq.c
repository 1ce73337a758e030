/* awq: 4-bit weights in groups of inputs, in the layout of AutoAWQ (version gemm), with scales of
 * inputs and ranges searched on calibration data.
 *
 *   W' = (q - zero) * scale, with f16 scales (or bf16)
 *
 * Sources: arXiv:2306.00978 (the method); AutoAWQ 0.2 for the layout. The scales of inputs are
 * folded into the ops before, so that reading needs nothing more.
 */
#include "awq.h"

#include <stdlib.h>

#include "lathe/kit/instance.h"
#include "shared/packed_codes.h"
#include "shared/quant_source.h"

enum { FIELD_GROUP_SIZE, FIELD_SCALE_INPUTS, FIELD_ZERO_POINT, FIELD_SCALE_DTYPE };
#define SCALE_DTYPES "f16|bf16"

static const lathe_field fields[] = {
    LATHE_FIELD_INT("group_size", "128", -1, 65536, NULL,
                    "inputs that share a scale and a zero point; -1: all inputs of an output"),
    LATHE_FIELD_BOOL("scale_inputs", "true",
                     "search scales of the inputs and fold them into the norm or the layer before"),
    LATHE_FIELD_BOOL("zero_point", "true",
                     "groups have zero points of their own; false: the middle of the range"),
    LATHE_FIELD_STRING("scale_dtype", "\"f16\"", SCALE_DTYPES, "dtype of the scales in files"),
};

static lathe_status read_values(const lathe_host *host, awq *q, const lathe_value *values)
{
    q->head.build = codec_best_build();
    q->group = values[FIELD_GROUP_SIZE].i > 0 ? values[FIELD_GROUP_SIZE].i : 0;
    q->scales_inputs = values[FIELD_SCALE_INPUTS].i != 0;
    q->symmetric = values[FIELD_ZERO_POINT].i == 0;
    q->dtype =
        lathe_choice(SCALE_DTYPES, values[FIELD_SCALE_DTYPE].s) == 1 ? LATHE_BF16 : LATHE_F16;
    if (values[FIELD_GROUP_SIZE].i == 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "group_size",
                             "group_size = 0; expected -1 or a number of inputs");
    return LATHE_OK;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

lathe_status awq_accepts(void *self, int64_t rows, int64_t cols)
{
    const awq *q = self;
    const int64_t group = awq_group(q, cols);
    LATHE_TRY(codec_check_dims(&q->head, "awq", rows, cols));
    if (cols % group != 0)
        return lathe_fail(
            q->head.host, LATHE_E_SHAPE,
            "awq: a weight of [%lld, %lld]; the columns must be a multiple of "
            "quant.group_size, which is %lld (%lld divides both: set it to that; -1 makes one "
            "group of all columns)",
            (long long)rows, (long long)cols, (long long)group,
            (long long)common_divisor(cols, group));
    if (rows % AWQ_WORD != 0)
        return lathe_fail(q->head.host, LATHE_E_SHAPE,
                          "awq: a weight of [%lld, %lld]; the rows must be a multiple of 8",
                          (long long)rows, (long long)cols);
    return LATHE_OK;
}

static int32_t awq_planes(void *self, int64_t rows, int64_t cols, lathe_plane *out)
{
    const awq *q = self;
    const int64_t groups = cols / awq_group(q, cols);
    out[PACKED_CODES] =
        (lathe_plane){"qweight", "../qweight", lathe_desc_2d(LATHE_I32, cols, rows / AWQ_WORD)};
    out[PACKED_ZEROS] =
        (lathe_plane){"qzeros", "../qzeros", lathe_desc_2d(LATHE_I32, groups, rows / AWQ_WORD)};
    out[PACKED_SCALES] =
        (lathe_plane){"scales", "../scales", lathe_desc_2d(q->dtype, groups, rows)};
    return AWQ_N_PLANES;
}

/* ---- decoding ---- */

enum { SPAN = CODEC_SPAN / 2 };    /* inputs that are decoded at a time */
enum { TURNED = 4 * PACKED_LINE }; /* inputs whose codes are turned at a time */

#if defined(__x86_64__)
/* The values of a group are computed once, and then looked up. */
CODEC_WIDE static void wide_codes4(const uint32_t *words, int64_t n, int shift, int32_t zero,
                                   float scale, void *out, int32_t dtype)
{
    const __m512i code = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 moved = _mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(zero)));
    const wide_table t = wide_table_of(_mm512_mul_ps(moved, _mm512_set1_ps(scale)), dtype);
    if (dtype == LATHE_F32)
        wide_picks(&t, NULL, words, n, shift, out, LATHE_F32);
    else
        wide_picks(&t, NULL, words, n, shift, out, dtype);
}

/* The words of 16 inputs as eight rows of 16 codes: quarter b of the result has the codes of bits
 * 8b to 8b+3 of the words, the first in the low bits, and then those of bits 8b+4 to 8b+7. */
CODEC_WIDE_BODY __m512i wide_code_rows(__m512i words)
{
    const __m512i by_byte =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i by_quarter =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m512i low = _mm512_set1_epi16(15), byte = _mm512_set1_epi16(255);
    /* quarter b: byte b of each word; the codes of two inputs in 16 bits */
    const __m512i two = _mm512_permutexvar_epi32(by_quarter, _mm512_shuffle_epi8(words, by_byte));
    const __m512i four = _mm512_srli_epi16(two, 4);
    /* 0xca: bits of the second where the first has ones, else of the third */
    const __m512i first = _mm512_ternarylogic_epi32(low, two, four, 0xca);
    const __m512i second = _mm512_ternarylogic_epi32(low, four, _mm512_srli_epi16(two, 8), 0xca);
    const __m512i both = _mm512_ternarylogic_epi32(byte, first, _mm512_slli_epi16(second, 8), 0xca);
    return _mm512_shuffle_epi8(both, apart);
}

/* The code rows of 64 inputs, a quarter in each of q, to the 32 bytes of each of the eight outputs
 * of a word: those of output o to out[o * stride]. */
CODEC_WIDE_BODY void wide_store_rows(const __m512i q[4], int64_t stride, uint8_t *out)
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (int odd = 0; odd < 2; odd++) { /* lane k of 128 bits: row 2k + odd */
        const __m512i a =
            odd ? _mm512_unpackhi_epi64(q[0], q[1]) : _mm512_unpacklo_epi64(q[0], q[1]);
        const __m512i b =
            odd ? _mm512_unpackhi_epi64(q[2], q[3]) : _mm512_unpacklo_epi64(q[2], q[3]);
        const __m512i low = _mm512_permutex2var_epi64(a, first, b);
        const __m512i high = _mm512_permutex2var_epi64(a, second, b);
        /* row r has the codes from bit 4r on, which are those of output 2r, or 2r - 7 from 4 on */
        uint8_t *const to = out + 2 * odd * stride;
        _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(low));
        _mm256_storeu_si256((__m256i *)(void *)(to + 4 * stride),
                            _mm512_extracti64x4_epi64(low, 1));
        _mm256_storeu_si256((__m256i *)(void *)(to + stride), _mm512_castsi512_si256(high));
        _mm256_storeu_si256((__m256i *)(void *)(to + 5 * stride),
                            _mm512_extracti64x4_epi64(high, 1));
    }
}

/* The codes of n inputs, a multiple of TURNED, of `n_lines` lines of words: to out[output][n / 2].
 */
CODEC_WIDE static void wide_turn_codes(const uint32_t *words, int64_t stride, int64_t n,
                                       int64_t n_lines, uint8_t *out)
{
    uint32_t turned[PACKED_LINE * TURNED]; /* [word][input] */
    for (int64_t i = 0; i < n; i += TURNED)
        for (int64_t line = 0; line < n_lines; line++) {
            const uint32_t *const from = words + i * stride + line * PACKED_LINE;
            uint8_t *const to = out + line * PACKED_LINE * AWQ_WORD * (n / 2) + i / 2;
            for (int64_t k = 0; k < TURNED; k += PACKED_LINE)
                wide_turn16(from + k * stride, stride, turned + k, TURNED);
            for (int64_t k = 0; k < PACKED_LINE; k++) {
                __m512i q[4];
                for (int64_t m = 0; m < 4; m++)
                    q[m] =
                        wide_code_rows(_mm512_loadu_si512(turned + k * TURNED + m * PACKED_LINE));
                wide_store_rows(q, n / 2, to + k * AWQ_WORD * (n / 2));
            }
        }
}

/* The values of the codes of a part, 16 outputs at a time. */
CODEC_WIDE static void wide_part_values(const codec_job *job, const lathe_weight_part *part,
                                        int64_t size, float *values)
{
    const int64_t group = awq_group((const awq *)(const void *)job->self, job->cols);
    const int64_t n = part->cols / size, stride = n * LATHE_CODE_VALUES;
    for (int64_t row = part->row; row < part->row + part->rows; row += PACKED_LINE)
        for (int64_t k = 0; k < n; k++) {
            const int64_t of = (part->col + k * size) / group;
            const wide_line line = {
                (const uint32_t *)job->planes[PACKED_ZEROS] + (of * job->rows + row) / AWQ_WORD,
                (const uint16_t *)job->planes[PACKED_SCALES] + of * job->rows + row,
                ((const awq *)(const void *)job->self)->dtype, 0, 1};
            wide_line_values(&line, values + (row - part->row) * stride + k * LATHE_CODE_VALUES,
                             stride, job->dtype);
        }
}
#else /* the build for AVX-512 is never chosen */
static inline void wide_transpose16(const uint32_t *words, int64_t stride, uint32_t *out,
                                    int64_t out_stride)
{
    for (int64_t i = 0; i < 16; i++)
        for (int64_t k = 0; k < 16; k++)
            out[k * out_stride + i] = words[i * stride + k];
}

static inline void wide_turn_codes(const uint32_t *words, int64_t stride, int64_t n,
                                   int64_t n_lines, uint8_t *out)
{
    (void)words, (void)stride, (void)n, (void)n_lines, (void)out;
}

static inline void wide_part_values(const codec_job *job, const lathe_weight_part *part,
                                    int64_t size, float *values)
{
    (void)job, (void)part, (void)size, (void)values;
}

static inline void wide_codes4(const uint32_t *words, int64_t n, int shift, int32_t zero,
                               float scale, void *out, int32_t dtype)
{
    for (int64_t i = 0; i < n; i++)
        lathe_quant_store(out, dtype, i,
                          (float)((int32_t)(words[i] >> shift & 15u) - zero) * scale);
}
#endif

/* Decodes n inputs of output `row` from the words packed[n], from input `col` on. */
CODEC_BODY void decode_output(const codec_job *job, const uint32_t *packed, int64_t row,
                              int64_t col, int64_t n, int build)
{
    const awq *const q = (const awq *)(const void *)job->self;
    const int64_t words = job->rows / AWQ_WORD, size = awq_group(q, job->cols);
    const uint32_t *const zeros = (const uint32_t *)job->planes[PACKED_ZEROS] + row / AWQ_WORD;
    const uint16_t *const scales = (const uint16_t *)job->planes[PACKED_SCALES] + row;
    const int shift = (int)awq_shift(row);
    char *const out = codec_place(job, row, col);
    float room[SPAN], *const values = job->dtype == LATHE_F32 ? (float *)(void *)out : room;
    for (int64_t i = 0, end = 0; i < n; i = end) {
        const int64_t group = (col + i) / size, left = (group + 1) * size - col;
        const int32_t zero = (int32_t)(zeros[group * words] >> shift & 15u);
        const float scale = packed_scale(scales[group * job->rows], q->dtype);
        end = left < n ? left : n;
        if (build == CODEC_AVX512)
            wide_codes4(packed + i, end - i, shift, zero, scale,
                        out + i * (job->dtype == LATHE_F32 ? 4 : 2), job->dtype);
        for (int64_t k = i; k < end && build != CODEC_AVX512; k++)
            values[k] = (float)((int32_t)(packed[k] >> shift & 15u) - zero) * scale;
    }
    if (job->dtype != LATHE_F32 && build != CODEC_AVX512)
        codec_round(values, n, out, job->dtype, build);
}

/* Copies n inputs of up to PACKED_LINE words, and turns them: to out[word][input]. */
CODEC_BODY void turn_words(const uint32_t *words, int64_t stride, int64_t n, int64_t n_words,
                           uint32_t (*out)[SPAN], int build)
{
    int64_t i = 0;
    for (; build == CODEC_AVX512 && n_words == PACKED_LINE && i + PACKED_LINE <= n;
         i += PACKED_LINE)
        wide_transpose16(words + i * stride, stride, &out[0][i], SPAN);
    for (; i < n; i++)
        for (int64_t k = 0; k < n_words; k++)
            out[k][i] = words[i * stride + k];
}

/* A row of the loop is the outputs of one line of words. */
CODEC_BODY void decode_body(void *arg, int64_t begin, int64_t end, int build)
{
    const codec_job *const job = arg;
    const int64_t words = job->rows / AWQ_WORD;
    uint32_t turned[PACKED_LINE][SPAN];
    const int64_t from = job->first / AWQ_WORD, to = (job->last + AWQ_WORD - 1) / AWQ_WORD;
    const int64_t stop = from + end * PACKED_LINE < to ? from + end * PACKED_LINE : to;
    for (int64_t first = from + begin * PACKED_LINE; first < stop; first += PACKED_LINE)
        for (int64_t col = job->col; col < job->end; col += SPAN) {
            const int64_t n = job->end - col < SPAN ? job->end - col : SPAN;
            const int64_t n_words = to - first < PACKED_LINE ? to - first : PACKED_LINE;
            turn_words((const uint32_t *)job->planes[PACKED_CODES] + col * words + first, words, n,
                       n_words, turned, build);
            for (int64_t row = first * AWQ_WORD; row < (first + n_words) * AWQ_WORD; row++)
                if (row >= job->first && row < job->last)
                    decode_output(job, turned[row / AWQ_WORD - first], row, col, n, build);
        }
}
CODEC_BUILDS(decode_lines, decode_body)

static lathe_status awq_decode(void *self, int64_t rows, int64_t cols, const void *const *planes,
                               void *w, int32_t dtype, void *scratch, void *stream)
{
    (void)scratch;
    (void)stream;
    const awq *q = self;
    LATHE_TRY(codec_check_dtype(&q->head, "awq", dtype));
    codec_job job = codec_whole(&q->head, rows, cols, planes, w, dtype);
    const int64_t line = PACKED_LINE * AWQ_WORD;
    codec_rows(&job, decode_lines, (rows + line - 1) / line, cols * line);
    return LATHE_OK;
}

static void awq_decode_part(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, void *out, int32_t dtype)
{
    /* rows may begin anywhere in a word: the loop ends with the last word, not after their number
     */
    codec_part(self, rows, cols, planes, part, out, dtype, decode_lines, 1);
}

static int64_t awq_code_group(void *self, int64_t rows, int64_t cols)
{
    const awq *q = self;
    (void)rows;
    return q->head.build == CODEC_AVX512 && cols % TURNED == 0
               ? codec_code_group(awq_group(q, cols), cols)
               : 0;
}

/* The codes of whole lines of words are turned, so that those of an output lie one after another.
 */
static int32_t awq_part_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                              const lathe_weight_part *part, int32_t dtype, float *values,
                              void *room, lathe_part_codes *out)
{
    const awq *q = self;
    const int64_t line = PACKED_LINE * AWQ_WORD, words = rows / AWQ_WORD;
    const codec_job job = codec_whole(&q->head, rows, cols, planes, NULL, dtype);
    const int64_t size = awq_code_group(self, rows, cols);
    if (size == 0 || part->runs != 1 || part->row % AWQ_WORD != 0 || part->rows % line != 0)
        return 0;
    wide_turn_codes((const uint32_t *)planes[PACKED_CODES] + part->col * words +
                        part->row / AWQ_WORD,
                    words, part->cols, part->rows / line, room);
    wide_part_values(&job, part, size, values);
    *out = (lathe_part_codes){
        .codes = room, .row_bytes = part->cols / 2, .layout = LATHE_CODES_LOW_FIRST};
    return 1;
}

static int32_t awq_codes(void *self, int64_t rows, int64_t cols, const void *const *planes,
                         lathe_weight_codes *out)
{
    const int64_t size = codec_code_group(awq_group(self, cols), cols);
    (void)rows, (void)planes;
    if (size == 0)
        return 0;
    *out = packed_weight_codes(LATHE_CODES_ALONG, AWQ_BITS, size);
    return 1;
}

static void awq_part_scales(void *self, int64_t rows, int64_t cols, const void *const *planes,
                            const lathe_weight_part *part, float *scales, float *offsets)
{
    const awq *q = self;
    const int64_t size = codec_code_group(awq_group(q, cols), cols);
    for (int64_t k = 0; k < part->cols / size; k++) {
        const int64_t of = (part->col + k * size) / awq_group(q, cols) * rows + part->row;
        const packed_group g = {(const uint32_t *)planes[PACKED_ZEROS] + of / AWQ_WORD,
                                (const uint16_t *)planes[PACKED_SCALES] + of,
                                q->dtype,
                                AWQ_BITS,
                                0,
                                1};
        packed_scales(&g, part->rows, scales + k * part->stride, offsets + k * part->stride,
                      q->head.build);
    }
}

static void awq_part_rows(void *self, int64_t rows, int64_t cols, lathe_part_rows *out)
{
    (void)self;
    (void)rows;
    (void)cols;
    *out = (lathe_part_rows){PACKED_LINE * AWQ_WORD, 1, 0}; /* of a line of words */
}

/* Without zero points the stored ones, all 8, are those that GPTQModel's kernels read. */
static lathe_status awq_check_planes(void *self, int64_t rows, int64_t cols,
                                     const void *const *planes)
{
    const awq *q = self;
    const uint32_t *const zeros = planes[PACKED_ZEROS];
    const int64_t n = cols / awq_group(q, cols) * (rows / AWQ_WORD);
    for (int64_t i = 0; q->symmetric && i < n; i++)
        if (zeros[i] != 0x88888888u)
            return lathe_fail(q->head.host, LATHE_E_CORRUPT,
                              "awq: a word of qzeros is %08x, and quantization_config says "
                              "zero_point = false, where it is 88888888: if the zero points are "
                              "meant, set zero_point to true",
                              zeros[i]);
    return LATHE_OK;
}

/* ---- files ---- */

static int64_t awq_config_json(void *self, char *out, int64_t capacity)
{
    const awq *q = self;
    return snprintf(
        out, capacity > 0 ? (size_t)capacity : 0,
        "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": %lld, \"zero_point\": "
        "%s, \"version\": \"gemm\", \"modules_to_not_convert\": null}",
        q->group > 0 ? (long long)q->group : -1LL, q->symmetric ? "false" : "true");
}

static const char *const methods[] = {"awq", NULL};

static lathe_status awq_read_config(const lathe_host *host, const lathe_quant_config *config,
                                    lathe_value *values)
{
    /* AutoAWQ's quant_config.json has other names than its config.json; GPTQModel has `format` for
     * `version`, and `sym` for the opposite of zero_point */
    const char *group = config->get(config->ctx, "group_size");
    if (group == NULL)
        group = config->get(config->ctx, "q_group_size");
    if (group == NULL)
        return lathe_fail(host, LATHE_E_UNSUPPORTED,
                          "awq reads weights with group_size, and here it is absent");
    static const char *const layouts[] = {"version", "format", "checkpoint_format"};
    for (int i = 0; i < 3; i++)
        LATHE_TRY(source_expect(host, config, "awq", layouts[i], "gemm"));
    LATHE_TRY(source_expect(host, config, "awq", "bits", "4"));
    LATHE_TRY(source_expect(host, config, "awq", "w_bit", "4"));
    values[FIELD_GROUP_SIZE].i = strtol(group, NULL, 10);
    values[FIELD_ZERO_POINT].i = config->get(config->ctx, "zero_point") != NULL
                                     ? !source_is(config, "zero_point", "false")
                                     : !source_is(config, "sym", "true");
    values[FIELD_SCALE_DTYPE].s = source_dtype(config, "../scales") == LATHE_BF16 ? "bf16" : "f16";
    return LATHE_OK;
}

static void awq_image_settings(void *self, int64_t *out)
{
    const awq *q = self;
    out[PACKED_BITS] = AWQ_BITS;
    out[PACKED_GROUP_SIZE] = q->group;
    out[PACKED_DTYPE] = q->dtype;
}

static const lathe_quant_v1 awq_table = {
    CODEC_TABLE(awq),
    .part_rows = awq_part_rows,
    .code_group = awq_code_group,
    .part_codes = awq_part_codes,
    .image_settings = awq_image_settings,
    .methods = methods,
    .check_planes = awq_check_planes,
    .encode_calibrated = awq_encode_calibrated,
    .scale_inputs = awq_scale_inputs,
};

LATHE_INSTANCE(awq, read_values)

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(awq),
    CODEC_KIND,
    .version = "1.2.0",
    .summary = "4-bit weights in AutoAWQ's layout, scaled and clipped by calibration data",
    .source = "arXiv:2306.00978",
    .license = "Apache-2.0",
};
