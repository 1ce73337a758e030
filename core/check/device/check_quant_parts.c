/* Checks the decoding of parts: the bits of the whole weight, and nothing beside them. */
#include <string.h>

#include "base/error.h"
#include "check/device/quant_weight.h"

static const int32_t dtypes[] = {LATHE_F32, LATHE_BF16, LATHE_F16};

typedef struct whole {
    const lathe_quant_v1 *table;
    void *self;
    lathe__weight w;
    const void *planes[LATHE_MAX_PLANES];
    const char *decoded;
    int32_t dtype;
} whole;

static lathe_status whole_init(lathe__subject *s, void *self, int64_t rows, int64_t cols,
                               int32_t dtype, whole *out)
{
    void *decoded;
    *out = (whole){.table = s->table, .self = self, .dtype = dtype};
    LATHE_TRY(
        lathe__weight_init(s, self, rows, cols, lathe__random(s, rows * cols, 41, 0.05), &out->w));
    LATHE_TRY(lathe__decode_on_host(s, self, &out->w, dtype, &decoded));
    out->decoded = decoded;
    for (int32_t i = 0; i < out->w.n_planes; i++)
        out->planes[i] = out->w.data[i];
    return LATHE_OK;
}

/* Row i of a part. */
static int64_t row_of(const lathe_weight_part *p, int64_t i)
{
    return p->row + i / p->rows * p->distance + i % p->rows;
}

static lathe_status check_part(lathe__subject *s, const whole *x, lathe_weight_part p)
{
    const int64_t width = lathe_dtype_bytes(x->dtype), n = p.runs * p.rows;
    char *const out = lathe__memory(s, n * p.stride * width);
    memset(out, 0x5a, (size_t)(n * p.stride * width));
    x->table->decode_part(x->self, x->w.rows, x->w.cols, x->planes, &p, out, x->dtype);
    for (int64_t i = 0; i < n; i++) {
        const char *const row = out + i * p.stride * width;
        if (!lathe__same(row, x->decoded + (row_of(&p, i) * x->w.cols + p.col) * width,
                         p.cols * width))
            return lathe_error(LATHE_E_NUMERIC,
                               "decode_part: row %lld from column %lld on has other bits in %s "
                               "than decode gives",
                               (long long)row_of(&p, i), (long long)p.col,
                               lathe_dtype_name(x->dtype));
        for (int64_t k = p.cols * width; k < p.stride * width; k++)
            if (row[k] != 0x5a)
                return lathe_error(LATHE_E_PLUGIN, "decode_part writes beside row %lld of its part",
                                   (long long)i);
    }
    return LATHE_OK;
}

/* The rows that the format prefers: whole runs, or one. */
static lathe_status preferred(const whole *x, lathe_part_rows *by)
{
    *by = (lathe_part_rows){1, 1, 0};
    if (LATHE_HAS(x->table, part_rows))
        x->table->part_rows(x->self, x->w.rows, x->w.cols, by);
    if (by->rows < 1 || by->runs < 1 || (by->runs > 1 && by->runs * by->distance != x->w.rows))
        return lathe_error(LATHE_E_PLUGIN,
                           "part_rows: %lld rows, %lld runs %lld rows apart, of %lld rows",
                           (long long)by->rows, (long long)by->runs, (long long)by->distance,
                           (long long)x->w.rows);
    return LATHE_OK;
}

static lathe_status parts_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const int64_t cut = cols > LATHE_PART_COLS ? LATHE_PART_COLS : 0;
    for (int i = 0; i < 3; i++) {
        whole x;
        lathe_part_rows by;
        LATHE_TRY(whole_init(s, self, rows, cols, dtypes[i], &x));
        LATHE_TRY(preferred(&x, &by));
        LATHE_TRY(check_part(s, &x, (lathe_weight_part){0, rows, 1, 0, 0, cols, cols}));
        LATHE_TRY(check_part(
            s, &x,
            (lathe_weight_part){rows / 2, rows - rows / 2, 1, 0, cut, cols - cut, cols - cut + 3}));
        LATHE_TRY(check_part(
            s, &x,
            (lathe_weight_part){0, rows / by.runs, by.runs, by.distance, cut, cols - cut, cols}));
    }
    return LATHE_OK;
}

lathe_status lathe__codec_parts_have_the_bits_of_the_whole(lathe__subject *s)
{
    const lathe_quant_v1 *table = s->table;
    if (!LATHE_HAS(table, decode_part))
        return lathe__skip(s, "no decode_part");
    return lathe__each_shape(s, parts_of);
}

/* ---- codes ---- */

/* The index of column c's value. */
static uint32_t code_at(const lathe_part_codes *codes, int64_t run, int64_t row, int64_t c)
{
    const uint8_t *const from = codes->codes + run * codes->run_bytes + row * codes->row_bytes;
    if (codes->layout == LATHE_CODES_BYTES)
        return (uint32_t)from[c] >> (codes->shift + (int32_t)run * codes->run_shift) & 15u;
    return (c % 2 == (codes->layout == LATHE_CODES_HIGH_FIRST) ? from[c / 2] : from[c / 2] >> 4) &
           15u;
}

static lathe_status compare_codes(const whole *x, const lathe_weight_part *p, int64_t group,
                                  const float *values, const lathe_part_codes *codes)
{
    for (int64_t i = 0; i < p->runs * p->rows; i++)
        for (int64_t c = 0; c < p->cols; c++) {
            const int64_t at = row_of(p, i) * x->w.cols + p->col + c;
            const float want =
                x->dtype == LATHE_F32 ? ((const float *)(const void *)x->decoded)[at]
                : x->dtype == LATHE_BF16
                    ? lathe_bf16_to_f32(((const uint16_t *)(const void *)x->decoded)[at])
                    : lathe_f16_to_f32(((const uint16_t *)(const void *)x->decoded)[at]);
            const float got = values[(i * (p->cols / group) + c / group) * LATHE_CODE_VALUES +
                                     code_at(codes, i / p->rows, i % p->rows, c)];
            uint32_t want_bits, got_bits;
            memcpy(&want_bits, &want, sizeof want_bits);
            memcpy(&got_bits, &got, sizeof got_bits);
            if (want_bits != got_bits)
                return lathe_error(
                    LATHE_E_NUMERIC, "part_codes: element %lld is %g in %s, decode gives %g",
                    (long long)at, (double)got, lathe_dtype_name(x->dtype), (double)want);
        }
    return LATHE_OK;
}

static lathe_status check_codes(lathe__subject *s, const whole *x, int64_t group,
                                lathe_weight_part p)
{
    const int64_t n = p.runs * p.rows;
    float *const values =
        lathe__memory(s, n * (p.cols / group) * LATHE_CODE_VALUES * (int64_t)sizeof *values);
    void *const room = lathe__memory(s, n * p.cols / 2);
    lathe_part_codes codes;
    if (!x->table->part_codes(x->self, x->w.rows, x->w.cols, x->planes, &p, x->dtype, values, room,
                              &codes))
        return LATHE_OK; /* then a device decodes */
    if (codes.layout < 0 || codes.layout > LATHE_CODES_BYTES)
        return lathe_error(LATHE_E_PLUGIN, "part_codes: layout %d is unknown", codes.layout);
    return compare_codes(x, &p, group, values, &codes);
}

static lathe_status codes_of(lathe__subject *s, void *self, int64_t rows, int64_t cols)
{
    const lathe_quant_v1 *table = s->table;
    const int64_t group = table->code_group(self, rows, cols);
    const int64_t cut = cols > LATHE_PART_COLS ? LATHE_PART_COLS : 0;
    if (group == 0)
        return LATHE_OK;
    if (group < 32 || LATHE_PART_COLS % group != 0 || cols % group != 0)
        return lathe_error(LATHE_E_PLUGIN, "code_group: %lld columns, for a row of %lld",
                           (long long)group, (long long)cols);
    for (int i = 0; i < 3; i++) {
        whole x;
        lathe_part_rows by;
        LATHE_TRY(whole_init(s, self, rows, cols, dtypes[i], &x));
        LATHE_TRY(preferred(&x, &by));
        LATHE_TRY(check_codes(s, &x, group, (lathe_weight_part){0, rows, 1, 0, 0, cols, cols}));
        LATHE_TRY(check_codes(
            s, &x, group,
            (lathe_weight_part){0, rows / by.runs, by.runs, by.distance, cut, cols - cut, cols}));
    }
    return LATHE_OK;
}

lathe_status lathe__codec_codes_have_the_bits_of_the_whole(lathe__subject *s)
{
    const lathe_quant_v1 *table = s->table;
    if (!LATHE_HAS(table, part_codes) || !LATHE_HAS(table, code_group))
        return lathe__skip(s, "no part_codes");
    return lathe__each_shape(s, codes_of);
}
