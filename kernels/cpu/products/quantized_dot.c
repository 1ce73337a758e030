/* How a weight is cut, and the part of a worker. Codes that lie row by row are read in order, all
 * columns of a few rows; words that lie input by input in runs of up to TURNED_ROWS outputs, the
 * scales of a block of columns at a time.
 *
 *   own: | scales | offsets | sums [QUANTIZED_DOT_ROWS][columns] | with words: sums of a group |
 */
#include "products/quantized_dot.h"

#include "products/quantized_dot_bytes.h"
#include "products/quantized_dot_rows.h"
#include "products/quantized_dot_words.h"

#if MULTIPLIES_BF16

#define PART_ELEMENTS (128 * 1024) /* of the weight, in rows, about */
#define SCALES_BYTES (16 * 1024)   /* of the scales of a part, in rows, about */
#define WORD_ROWS 1024             /* outputs of a part in words, at most */
#define PARTS_OF_WORKER 4          /* at least, if there are enough rows */
#define WORD_COLUMNS 512           /* whose scales are taken at a time */
#define AHEAD_BYTES 8192           /* of the codes that are prefetched, at least */
#define TURN_ROWS 8                /* a multiple of the rows whose codes are read by turns */

static int lies_in_words(const lathe_weight_codes *c)
{
    return c->order == LATHE_CODES_DOWN || c->order == LATHE_CODES_ALONG;
}

static int is_power(int64_t group, int64_t least, int64_t most)
{
    return group >= least && group <= most && (group & (group - 1)) == 0;
}

/* Whether there are loops for these codes of a weight of k columns. */
static int has_loops(const lathe_weight_codes *c, int64_t n, int64_t k)
{
    const int is_whole = c->group > 0 && k % c->group == 0;
    switch (c->order) {
    case LATHE_CODES_LOW_FIRST:
    case LATHE_CODES_HIGH_FIRST:
        return c->bits == 4 && is_power(c->group, 16, 128) && is_whole;
    case LATHE_CODES_BYTES:
        if (c->bits == 8)
            return c->group == k || (c->group > 0 && c->group % 16 == 0);
        return (c->bits == 1 || c->bits == 2 || c->bits == 4) && n % (8 / c->bits) == 0 &&
               is_power(c->group, 32, LATHE_PART_COLS) && is_whole;
    case LATHE_CODES_PAIRS:
        return c->bits == 8 && c->values == LATHE_VALUES_U8 && k % 64 == 0 && n % 2 == 0 &&
               (c->group == k || (c->group > 0 && c->group % 64 == 0));
    case LATHE_CODES_DOWN:
        if (c->bits == 8 && c->values != LATHE_VALUES_U8)
            return 0;
        return (c->bits == 2 || c->bits == 4 || c->bits == 8) && is_whole &&
               is_power(c->group, 32, LATHE_PART_COLS);
    default:
        return c->order == LATHE_CODES_ALONG && c->bits == 4 && n % 8 == 0 && is_whole &&
               is_power(c->group, 32, LATHE_PART_COLS);
    }
}

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* Rows of a part in each run. */
static int64_t rows_of_part(const cpu_quantized_dot *p, int32_t n_workers)
{
    const int64_t run = p->n / p->runs, each = run / (PARTS_OF_WORKER * n_workers);
    const int64_t unit = p->codes.order == LATHE_CODES_ALONG  ? 128
                         : p->codes.order == LATHE_CODES_DOWN ? 64
                                                              : 4;
    const int64_t most =
        lies_in_words(&p->codes) ? WORD_ROWS : at_most(PART_ELEMENTS / (p->k * p->runs), 256);
    const int64_t scaled = SCALES_BYTES / (p->k / p->codes.group * p->runs + 1) / 4;
    const int64_t fit = lies_in_words(&p->codes) ? most : at_most(most, scaled);
    const int64_t rows = at_most(each, fit) / unit * unit;
    return at_most(rows > unit ? rows : unit, run);
}

int cpu_quantized_dot_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                           int32_t n_workers, cpu_quantized_dot *p)
{
    const lathe_quant_v1 *table = weight->table;
    *p = (cpu_quantized_dot){.weight = *weight, .n = spec->n, .k = spec->k, .runs = 1};
    if (spec->b_dtype != LATHE_BF16 || !LATHE_HAS(table, codes) || !LATHE_HAS(table, part_scales) ||
        !table->codes(weight->self, p->n, p->k, NULL, &p->codes) ||
        !has_loops(&p->codes, p->n, p->k))
        return 0;
    if (p->codes.order == LATHE_CODES_BYTES)
        p->runs = 8 / p->codes.bits;
    p->distance = p->runs > 1 ? p->n / p->runs : 0;
    p->layout = dot_layout_of(&p->codes, p->k);
    p->rows = rows_of_part(p, n_workers);
    p->n_parts = (p->n / p->runs + p->rows - 1) / p->rows;
    const int64_t groups = (p->k + p->codes.group - 1) / p->codes.group;
    const int64_t columns = cpu_round_up(p->rows * p->runs, 128);
    if (lies_in_words(&p->codes)) {
        p->block = at_most(p->k, WORD_COLUMNS);
        p->stride = columns;
        p->scales = p->block / p->codes.group * columns;
    } else {
        p->block = p->k;
        p->stride = cpu_round_up(groups, 16);
        p->scales = p->rows * p->runs * p->stride;
    }
    p->columns = columns;
    p->sums = at_most(spec->m, QUANTIZED_DOT_ROWS) * columns;
    const int64_t floats =
        p->scales * (1 + (p->codes.has_offsets != 0)) + p->sums * (1 + lies_in_words(&p->codes));
    p->worker_bytes = cpu_round_up(floats * (int64_t)sizeof(float), 64);
    return 1;
}

/* ---- a part ---- */

void cpu_quantized_dot_begin(quantized_dot_run *run, const float *table)
{
    for (int i = 0; run->product->codes.bits < 8 && i < 32; i++)
        run->table[i] = lathe_f32_to_bf16(table[i & ((1 << run->product->codes.bits) - 1)]);
}

/* Takes the scales and offsets of the columns that the part has now; beyond those of a line are
 * zeros. */
static void take_scales(const quantized_dot_run *run, const lathe_weight_part *part, float *scales,
                        float *offsets)
{
    const cpu_quantized_dot *p = run->product;
    const int64_t groups = (part->cols + p->codes.group - 1) / p->codes.group;
    const int is_turned = lies_in_words(&p->codes);
    const int64_t lines = is_turned ? groups : part->rows * part->runs;
    const int64_t used = is_turned ? part->rows : groups;
    p->weight.table->part_scales(p->weight.self, p->n, p->k, run->planes, part, scales, offsets);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = i * p->stride + used; k < (i + 1) * p->stride; k++) {
            scales[k] = 0.0f;
            if (offsets != NULL)
                offsets[k] = 0.0f;
        }
}

static void add_rows_of_codes(const dot_part *v, const lathe_weight_codes *c, int64_t rows)
{
    if (c->order == LATHE_CODES_PAIRS)
        add_bytes_U8_1(v, rows);
    else if (c->values == LATHE_VALUES_U8)
        add_bytes_U8_0(v, rows);
    else if (c->values == LATHE_VALUES_I8)
        add_bytes_I8_0(v, rows);
    else if (c->values == LATHE_VALUES_E4M3)
        add_bytes_E4M3_0(v, rows);
    else if (c->order == LATHE_CODES_BYTES && c->bits == 4)
        (c->group < 64 ? add_runs_4_1 : add_runs_4_0)(v, rows);
    else if (c->order == LATHE_CODES_BYTES && c->bits == 2)
        (c->group < 64 ? add_runs_2_1 : add_runs_2_0)(v, rows);
    else if (c->order == LATHE_CODES_BYTES)
        (c->group < 64 ? add_runs_1_1 : add_runs_1_0)(v, rows);
    else if (c->group == 16)
        add_nibbles_8(v, rows);
    else if (c->group == 32)
        add_nibbles_4(v, rows);
    else if (c->group == 64)
        add_nibbles_2(v, rows);
    else
        add_nibbles_1(v, rows);
}

/* The columns of a part in words, a block at a time; s.all: the sums. */
static void add_words_of_codes(const quantized_dot_run *run, dot_part *v, lathe_weight_part *part,
                               word_sums s, int64_t rows, float *scales, float *offsets)
{
    const lathe_weight_codes *c = &run->product->codes;
    for (part->col = 0; part->col < v->cols; part->col += part->cols) {
        const int64_t g = part->col / c->group;
        part->cols = at_most(v->cols - part->col, run->product->block);
        take_scales(run, part, scales, offsets);
        v->groups = part->cols / c->group;
        if (c->order == LATHE_CODES_ALONG)
            add_words(v, &s, rows, g, 4, 1);
        else if (c->bits == 2)
            add_words(v, &s, rows, g, 2, 0);
        else if (c->bits == 4)
            add_words(v, &s, rows, g, 4, 0);
        else
            add_words(v, &s, rows, g, 8, 0);
    }
}

/* Where the codes of a part begin, and how far apart their rows are. */
static void set_codes(dot_part *v, const quantized_dot_run *run, int64_t row)
{
    const cpu_quantized_dot *p = run->product;
    const uint8_t *const codes = run->planes[p->codes.plane];
    v->row_bytes = p->codes.order == LATHE_CODES_DOWN    ? 4 * p->n
                   : p->codes.order == LATHE_CODES_ALONG ? p->n / 2
                   : p->codes.order < LATHE_CODES_BYTES  ? p->k / 2
                                                         : p->k;
    v->codes = p->codes.order == LATHE_CODES_DOWN    ? codes + 4 * row
               : p->codes.order == LATHE_CODES_ALONG ? codes + row / 2
                                                     : codes + row * v->row_bytes;
    /* the next rows are read after all of the part's words of these, or all columns of these */
    const int64_t read = p->codes.order == LATHE_CODES_DOWN    ? 4 * v->n
                         : p->codes.order == LATHE_CODES_ALONG ? v->n / 2
                                                               : v->row_bytes;
    const int64_t rows = (AHEAD_BYTES / read + TURN_ROWS) / TURN_ROWS * TURN_ROWS;
    v->ahead = rows * v->row_bytes;
}

const float *cpu_quantized_dot_part(const quantized_dot_run *run, int64_t i, int64_t row,
                                    int64_t rows, char *own, lathe_weight_part *part)
{
    const cpu_quantized_dot *p = run->product;
    const dot_layout *f = &p->layout;
    const int64_t left = p->n / p->runs - i * p->rows;
    float *const scales = (float *)(void *)own;
    float *const offsets = p->codes.has_offsets ? scales + p->scales : NULL;
    float *const sums = scales + p->scales * (1 + (offsets != NULL));
    *part = (lathe_weight_part){.row = i * p->rows,
                                .rows = at_most(left, p->rows),
                                .runs = p->runs,
                                .distance = p->distance,
                                .cols = p->k,
                                .stride = p->stride};
    dot_part v = {.n = part->rows,
                  .cols = p->k,
                  .group = p->codes.group,
                  .groups = (p->k + p->codes.group - 1) / p->codes.group,
                  .scales = scales,
                  .offsets = offsets,
                  .stride = p->stride,
                  .x = run->x + row * f->row_bytes,
                  .x_bytes = f->row_bytes,
                  .x_sums =
                      (const float *)(const void *)(run->x + run->m * f->row_bytes) + row * f->sums,
                  .x_stride = f->sums,
                  .sums = sums,
                  .columns = p->columns,
                  .table = _mm512_loadu_si512(run->table)};
    while (64 << v.steps_of_group < v.group)
        v.steps_of_group++;
    set_codes(&v, run, part->row);
    if (lies_in_words(&p->codes)) {
        add_words_of_codes(run, &v, part, (word_sums){sums + p->sums, sums, p->columns}, rows,
                           scales, offsets);
        return sums;
    }
    take_scales(run, part, scales, offsets);
    add_rows_of_codes(&v, &p->codes, rows);
    return sums;
}
#else
int cpu_quantized_dot_init(const matmul_spec *spec, const lathe_packed_weight *weight,
                           int32_t n_workers, cpu_quantized_dot *out)
{
    (void)spec, (void)weight, (void)n_workers, (void)out;
    return 0;
}

void cpu_quantized_dot_begin(quantized_dot_run *run, const float *table)
{
    (void)run, (void)table;
}

const float *cpu_quantized_dot_part(const quantized_dot_run *run, int64_t i, int64_t row,
                                    int64_t rows, char *own, lathe_weight_part *out)
{
    (void)run, (void)i, (void)row, (void)rows, (void)own, (void)out;
    return NULL;
}
#endif
