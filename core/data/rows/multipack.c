/* First-fit decreasing bin packing over windows of pieces. */
#include "data/rows/multipack.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { RADIX = 1 << 16 };

/* Scratch for a window of `size` (a power of two) pieces. */
typedef struct packer {
    int64_t size, row_tokens;
    /* [2 * size] tree: room[1] is the root, room[size + i] the free tokens of row i */
    int32_t *room;
    int32_t *row;            /* [size] row of each piece */
    uint32_t *order, *other; /* [size] */
    lathe_row_piece *sorted; /* [size] */
    int64_t *count;          /* [max(RADIX, size) + 1] */
} packer;

static void fini(packer *p)
{
    free(p->room);
    free(p->row);
    free(p->order);
    free(p->other);
    free(p->sorted);
    free(p->count);
}

static lathe_status init(packer *p, int64_t window, int64_t n, int64_t row_tokens)
{
    memset(p, 0, sizeof *p);
    p->row_tokens = row_tokens;
    for (p->size = 1; p->size < window && p->size < n;)
        p->size *= 2;
    const size_t size = (size_t)p->size;
    p->room = malloc(2 * size * sizeof *p->room);
    p->row = malloc(size * sizeof *p->row);
    p->order = malloc(size * sizeof *p->order);
    p->other = malloc(size * sizeof *p->other);
    p->sorted = malloc(size * sizeof *p->sorted);
    p->count = malloc(((size > RADIX ? size : RADIX) + 1) * sizeof *p->count);
    if (p->room && p->row && p->order && p->other && p->sorted && p->count)
        return LATHE_OK;
    fini(p);
    return lathe_error(LATHE_E_NOMEM, "packing %lld pieces at once", (long long)p->size);
}

/* One stable pass of a radix sort by 16 bits of row_tokens - n: longest first. */
static void sort_pass(packer *p, const lathe_row_piece *pieces, int64_t n, int shift,
                      const uint32_t *from, uint32_t *to)
{
    memset(p->count, 0, (RADIX + 1) * sizeof *p->count);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t key = (uint32_t)(p->row_tokens - pieces[i].n) >> shift & (RADIX - 1);
        p->count[key + 1]++;
    }
    for (int k = 0; k < RADIX; k++)
        p->count[k + 1] += p->count[k];
    for (int64_t i = 0; i < n; i++) {
        const uint32_t at = from ? from[i] : (uint32_t)i;
        const uint32_t key = (uint32_t)(p->row_tokens - pieces[at].n) >> shift & (RADIX - 1);
        to[p->count[key]++] = at;
    }
}

/* Finds the first row with room for n tokens and takes it. Unused rows have all their room. */
static int32_t place(packer *p, int32_t n)
{
    int64_t i = 1;
    while (i < p->size)
        i = 2 * i + (p->room[2 * i] < n);
    p->room[i] -= n;
    const int32_t row = (int32_t)(i - p->size);
    for (i /= 2; i >= 1; i /= 2)
        p->room[i] = p->room[2 * i] > p->room[2 * i + 1] ? p->room[2 * i] : p->room[2 * i + 1];
    return row;
}

/* Packs pieces[0, n), n <= size; returns the number of rows. */
static int64_t pack_window(packer *p, lathe_row_piece *pieces, int64_t n, int64_t base,
                           int64_t *first)
{
    int64_t n_rows = 0;
    for (int64_t i = 0; i < 2 * p->size; i++)
        p->room[i] = (int32_t)p->row_tokens;
    sort_pass(p, pieces, n, 0, NULL, p->other);
    sort_pass(p, pieces, n, 16, p->other, p->order);
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = place(p, pieces[p->order[i]].n);
        p->row[p->order[i]] = row;
        n_rows = row >= n_rows ? row + 1 : n_rows;
    }
    /* Counting sort by row; pieces of one row keep their order. */
    memset(p->count, 0, (size_t)(n_rows + 1) * sizeof *p->count);
    for (int64_t i = 0; i < n; i++)
        p->count[p->row[i] + 1]++;
    for (int64_t r = 0; r < n_rows; r++) {
        first[r] = base + p->count[r];
        p->count[r + 1] += p->count[r];
    }
    for (int64_t i = 0; i < n; i++)
        p->sorted[p->count[p->row[i]]++] = pieces[i];
    memcpy(pieces, p->sorted, (size_t)n * sizeof *pieces);
    return n_rows;
}

lathe_status lathe__multipack(lathe_row_piece *pieces, int64_t n, int64_t row_tokens,
                              int64_t window, int64_t *first, int64_t *out_rows)
{
    packer p;
    *out_rows = 0;
    if (n == 0)
        return LATHE_OK;
    LATHE_TRY(init(&p, window, n, row_tokens));
    for (int64_t at = 0; at < n; at += p.size) {
        const int64_t k = n - at < p.size ? n - at : p.size;
        *out_rows += pack_window(&p, pieces + at, k, at, first + *out_rows);
    }
    fini(&p);
    return LATHE_OK;
}
