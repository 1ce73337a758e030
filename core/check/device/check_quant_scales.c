/* Checks the description of codes, and scales and offsets: what they give is the decoded weight. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "check/device/quant_weight.h"
#include "lathe/fp8.h"

typedef struct described {
    const lathe_quant_v1 *table;
    void *self;
    lathe__weight w;
    const void *planes[LATHE_MAX_PLANES];
    const float *decoded;
    lathe_weight_codes codes;
} described;

static int lies_in_words(const lathe_weight_codes *c)
{
    return c->order == LATHE_CODES_DOWN || c->order == LATHE_CODES_ALONG;
}

static int64_t runs_of(const lathe_weight_codes *c)
{
    return c->order == LATHE_CODES_BYTES ? 8 / c->bits : 1;
}

/* ---- the description ---- */

static int has_known_bits(const lathe_weight_codes *c)
{
    switch (c->order) {
    case LATHE_CODES_LOW_FIRST:
    case LATHE_CODES_HIGH_FIRST:
    case LATHE_CODES_ALONG:
        return c->bits == 4;
    case LATHE_CODES_PAIRS:
        return c->bits == 8;
    case LATHE_CODES_BYTES:
        return c->bits == 1 || c->bits == 2 || c->bits == 4 || c->bits == 8;
    default:
        return c->order == LATHE_CODES_DOWN && (c->bits == 2 || c->bits == 4 || c->bits == 8);
    }
}

static lathe_status check_description(const described *x)
{
    const lathe_weight_codes *c = &x->codes;
    if (!has_known_bits(c))
        return lathe_error(LATHE_E_PLUGIN, "codes: %d bits in order %d", c->bits, c->order);
    if ((c->bits == 8) != (c->values != LATHE_VALUES_TABLE) || c->values < 0 ||
        c->values > LATHE_VALUES_E4M3)
        return lathe_error(LATHE_E_PLUGIN, "codes: values %d of %d bits", c->values, c->bits);
    if (c->plane < 0 || c->plane >= x->w.n_planes)
        return lathe_error(LATHE_E_PLUGIN, "codes: plane %d of %d", c->plane, x->w.n_planes);
    if (c->group < 1 || (c->bits < 8 && x->w.cols % c->group != 0))
        return lathe_error(LATHE_E_PLUGIN, "codes: groups of %lld, for a row of %lld",
                           (long long)c->group, (long long)x->w.cols);
    const int64_t bytes = lathe_desc_bytes(&x->w.planes[c->plane].desc);
    if (bytes < x->w.rows * x->w.cols * c->bits / 8)
        return lathe_error(LATHE_E_PLUGIN, "codes: plane %d has %lld bytes", c->plane,
                           (long long)bytes);
    return LATHE_OK;
}

/* ---- values ---- */

static uint32_t code_at(const described *x, int64_t row, int64_t col)
{
    const lathe_weight_codes *c = &x->codes;
    const uint8_t *const bytes = x->planes[c->plane];
    const int64_t cols = x->w.cols, per_run = x->w.rows / runs_of(c), mix = col % 16;
    const uint32_t mask = (1u << c->bits) - 1u;
    uint32_t word;
    switch (c->order) {
    case LATHE_CODES_LOW_FIRST:
    case LATHE_CODES_HIGH_FIRST:
        return bytes[(row * cols + col) / 2] >>
                   (col % 2 == (c->order == LATHE_CODES_HIGH_FIRST) ? 0 : 4) &
               15u;
    case LATHE_CODES_BYTES:
        return bytes[row % per_run * cols + col] >> (8 - c->bits * (1 + row / per_run)) & mask;
    case LATHE_CODES_PAIRS:
        return bytes[row / 2 * 2 * cols + col / 64 * 128 + row % 2 * 64 + col % 64 / 16 * 16 +
                     (mix < 8 ? 2 * mix : 2 * mix - 15)];
    case LATHE_CODES_DOWN:
        memcpy(&word, bytes + 4 * (col * c->bits / 32 * x->w.rows + row), 4);
        return word >> col * c->bits % 32 & mask;
    default:
        memcpy(&word, bytes + 4 * ((col * x->w.rows + row) / 8), 4);
        return word >> 4 * ((row & 1) << 2 | row % 8 / 2) & 15u;
    }
}

static double value_of(const lathe_weight_codes *c, uint32_t code)
{
    if (c->values == LATHE_VALUES_TABLE)
        return (double)c->table[code];
    if (c->values == LATHE_VALUES_E4M3)
        return (double)lathe_e4m3_to_f32((uint8_t)code);
    return c->values == LATHE_VALUES_I8 ? (double)(int8_t)code : (double)code;
}

/* ---- parts ---- */

/* Whether a number has other bytes than those that were set before. */
static int is_touched(const float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits != 0x5a5a5a5a;
}

/* Row i of a part. */
static int64_t row_of(const lathe_weight_part *p, int64_t i)
{
    return p->row + i / p->rows * p->distance + i % p->rows;
}

/* The element is the decoded one, as near as rounding it twice to bf16 leaves it. */
static lathe_status check_element(const described *x, int64_t row, int64_t col, double scale,
                                  double offset)
{
    const double product = value_of(&x->codes, code_at(x, row, col)) * scale;
    const double want = (double)x->decoded[row * x->w.cols + col], got = product + offset;
    const double max = 0x1.04p-8 * fabs(want) + 0x1p-20 * (fabs(product) + fabs(offset));
    if (fabs(got - want) <= max + 0x1p-24)
        return LATHE_OK;
    return lathe_error(LATHE_E_NUMERIC,
                       "codes and part_scales: element [%lld, %lld] is %g, decode gives %g",
                       (long long)row, (long long)col, got, want);
}

static lathe_status check_part(lathe__subject *s, const described *x, lathe_weight_part p)
{
    const lathe_weight_codes *c = &x->codes;
    const int64_t n = p.runs * p.rows, groups = (p.cols + c->group - 1) / c->group;
    const int is_turned = lies_in_words(c);
    const int64_t lines = is_turned ? groups : n, used = is_turned ? n : groups;
    p.stride = used + 3;
    float *const scales = lathe__memory(s, lines * p.stride * (int64_t)sizeof(float));
    float *const offsets = lathe__memory(s, lines * p.stride * (int64_t)sizeof(float));
    memset(scales, 0x5a, (size_t)(lines * p.stride) * sizeof(float));
    memset(offsets, 0x5a, (size_t)(lines * p.stride) * sizeof(float));
    x->table->part_scales(x->self, x->w.rows, x->w.cols, x->planes, &p, scales,
                          c->has_offsets ? offsets : NULL);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = used; k < p.stride; k++)
            if (is_touched(&scales[i * p.stride + k]) || is_touched(&offsets[i * p.stride + k]))
                return lathe_error(LATHE_E_PLUGIN, "part_scales writes beside line %lld",
                                   (long long)i);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < p.cols; k++) {
            const int64_t g = k / c->group;
            const int64_t at = is_turned ? g * p.stride + i : i * p.stride + g;
            LATHE_TRY(check_element(x, row_of(&p, i), p.col + k, (double)scales[at],
                                    c->has_offsets ? (double)offsets[at] : 0.0));
        }
    return LATHE_OK;
}

/* The whole weight, and a part of its rows and columns. */
static lathe_status check_parts(lathe__subject *s, const described *x)
{
    const lathe_weight_codes *c = &x->codes;
    const int64_t runs = runs_of(c), run = x->w.rows / runs, cols = x->w.cols;
    const int64_t distance = runs > 1 ? run : 0, unit = lies_in_words(c) ? 128 : 2;
    const int64_t first = run > unit ? unit : 0;
    const int64_t cut =
        cols > LATHE_PART_COLS && LATHE_PART_COLS % c->group == 0 ? LATHE_PART_COLS : 0;
    LATHE_TRY(check_part(s, x, (lathe_weight_part){0, run, runs, distance, 0, cols, 0}));
    return check_part(s, x,
                      (lathe_weight_part){first, run - first, runs, distance, cut, cols - cut, 0});
}

static lathe_status described_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    described x = {.table = s->table, .self = self};
    lathe_weight_codes before = {0};
    void *decoded;
    const int32_t has_any = x.table->codes(self, rows, cols, NULL, &before);
    LATHE_TRY(
        lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 43, 0.05), &x.w));
    LATHE_TRY(lathe__decode_on_host(s, self, &x.w, LATHE_F32, &decoded));
    x.decoded = decoded;
    for (int32_t i = 0; i < x.w.n_planes; i++)
        x.planes[i] = x.w.data[i];
    if (!x.table->codes(self, rows, cols, x.planes, &x.codes))
        return LATHE_OK; /* then a device decodes */
    if (!has_any || before.order != x.codes.order || before.bits != x.codes.bits ||
        before.group != x.codes.group || before.has_offsets != x.codes.has_offsets)
        return lathe_error(LATHE_E_PLUGIN, "codes describes others without planes than with them");
    LATHE_TRY(check_description(&x));
    return check_parts(s, &x);
}

lathe_status lathe__codec_scaled_codes_are_the_weight(lathe__subject *s)
{
    const lathe_quant_v1 *table = s->table;
    if (!LATHE_HAS(table, codes))
        return lathe__skip(s, "no codes");
    if (!LATHE_HAS(table, part_scales))
        return lathe_error(LATHE_E_PLUGIN, "codes without part_scales");
    return lathe__each_shape(s, described_of);
}
