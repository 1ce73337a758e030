/* The orders, for the codes of
 *
 *   four bits in rows   in blocks of 128 columns, which are 64 bytes of codes: vector k has in lane
 *                       l the columns 8l + k and 8l + k + 4 (the first in the high bits: 8l + (k^1)
 *                       and so on), whose codes a shift by 4k brings to the low bits of 16
 *   rows in a byte      in blocks of 64 columns: vector k has columns 4l + k and 4l + k + 2
 *   words down          lane k of a word's columns has columns k and k + half of them
 *   words along         as they lie: two columns in a lane
 *   eight bits          f32, as they lie, or as LATHE_CODES_PAIRS mixes them
 */
#include "products/quantized_dot_inputs.h"

#include "products/dot_steps.h"

#define BLOCK 128 /* columns; a multiple of the blocks of all orders */

static int is_wide(const dot_layout *f)
{
    return f->bits == 8;
}

dot_layout dot_layout_of(const lathe_weight_codes *codes, int64_t cols)
{
    dot_layout f = {.order = codes->order, .bits = codes->bits, .cols = cols};
    if (codes->has_offsets) {
        f.group = codes->group;
        f.sums = cpu_round_up((cols + f.group - 1) / f.group, 16);
    }
    /* f32 is read in steps of 32 columns, of which a group may have 16 */
    f.row_bytes = is_wide(&f) ? 4 * cpu_round_up(cols + 16, BLOCK) : 2 * cpu_round_up(cols, BLOCK);
    return f;
}

int dot_layout_equal(const dot_layout *a, const dot_layout *b)
{
    return a->order == b->order && a->bits == b->bits && a->group == b->group && a->cols == b->cols;
}

int64_t dot_layout_bytes(const dot_layout *f, int64_t m)
{
    return m * (f->row_bytes + f->sums * (int64_t)sizeof(float));
}

#if MULTIPLIES_BF16
/* How 32 columns become one vector, and that is cut: element i is column from[i], and piece k of
 * `pieces` goes to vector k of the block. */
typedef struct column_order {
    uint16_t from[32];
    int32_t pieces;
} column_order;

/* Element 2l of piece k of a vector is column `width` * l + k, element 2l + 1 the one half a width
 * later; flip: of two neighbouring columns the other. */
static column_order interleaved(int32_t width, int32_t pieces, int32_t flip)
{
    column_order o = {.pieces = pieces};
    const int32_t half = width / 2, lanes = 32 / width;
    for (int32_t k = 0; k < half; k++)
        for (int32_t l = 0; l < lanes; l++) {
            const int32_t at = pieces > 1 ? k * lanes + l : l * half + k;
            o.from[2 * at] = (uint16_t)(width * l + (k ^ flip));
            o.from[2 * at + 1] = (uint16_t)(width * l + (k ^ flip) + half);
        }
    return o;
}

static column_order order_of(const dot_layout *f)
{
    switch (f->order) {
    case LATHE_CODES_LOW_FIRST:
        return interleaved(8, 4, 0);
    case LATHE_CODES_HIGH_FIRST:
        return interleaved(8, 4, 1);
    case LATHE_CODES_BYTES:
        return interleaved(4, 2, 0);
    case LATHE_CODES_DOWN:
        return interleaved(32 / f->bits, 1, 0);
    default:
        return interleaved(2, 1, 0);
    }
}

/* A row in bf16. */
static void fill_pairs(const dot_layout *f, const column_order *order, const uint16_t *a, char *to)
{
    const __m512i from = _mm512_loadu_si512(order->from);
    const int64_t piece = 64 / order->pieces;
    for (int64_t i = 0; i < f->row_bytes / 2; i += 32) {
        const int64_t left = f->cols - i;
        const __mmask32 lanes = left >= 32 ? ~0u : left > 0 ? (1u << left) - 1u : 0;
        char vector[64];
        _mm512_storeu_si512(vector,
                            _mm512_permutexvar_epi16(from, _mm512_maskz_loadu_epi16(lanes, a + i)));
        const int64_t place = i / 32 % order->pieces;
        char *const block = to + 2 * (i - 32 * place);
        for (int64_t k = 0; k < order->pieces; k++)
            memcpy(block + 64 * k + piece * place, vector + piece * k, (size_t)piece);
    }
}

/* n <= 16 columns as f32. */
static vf widened(const uint16_t *a, int64_t n)
{
    const __mmask16 lanes = n >= 16 ? 0xffff : n > 0 ? (__mmask16)((1u << n) - 1u) : 0;
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, a)), 16));
}

/* A row in f32. */
static void fill_wide(const dot_layout *f, const uint16_t *a, float *to)
{
    const __m512i mixed = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    for (int64_t i = 0; i < f->row_bytes / 4; i += 16) {
        const vf x = widened(a + i, f->cols - i);
        v_store(to + i, f->order == LATHE_CODES_PAIRS ? _mm512_permutexvar_ps(mixed, x) : x);
    }
}

static void fill_sums(const dot_layout *f, const uint16_t *a, float *to)
{
    for (int64_t g = 0; g < f->sums; g++) {
        const int64_t end = (g + 1) * f->group < f->cols ? (g + 1) * f->group : f->cols;
        vf sum = v_zero();
        for (int64_t i = g * f->group; i < end; i += 16)
            sum = v_add(sum, widened(a + i, end - i));
        to[g] = v_sum(sum);
    }
}

typedef struct fill_job {
    const dot_layout *layout;
    const uint16_t *a;
    int64_t m;
    char *to;
} fill_job;

static void fill_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const fill_job *job = arg;
    const dot_layout *f = job->layout;
    const column_order order = order_of(f);
    float *const sums = (float *)(void *)(job->to + job->m * f->row_bytes);
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        char *const row = job->to + r * f->row_bytes;
        if (is_wide(f))
            fill_wide(f, job->a + r * f->cols, (float *)(void *)row);
        else
            fill_pairs(f, &order, job->a + r * f->cols, row);
        fill_sums(f, job->a + r * f->cols, sums + r * f->sums);
    }
}

void dot_layout_fill(const lathe_host *host, const dot_layout *layout, const uint16_t *a, int64_t m,
                     char *to)
{
    fill_job job = {layout, a, m, to};
    if (m <= 8)
        fill_range(&job, 0, m, 0);
    else
        host->parallel_for(m, 8, fill_range, &job);
}
#else
void dot_layout_fill(const lathe_host *host, const dot_layout *layout, const uint16_t *a, int64_t m,
                     char *to)
{
    (void)host, (void)layout, (void)a, (void)m, (void)to;
}
#endif
