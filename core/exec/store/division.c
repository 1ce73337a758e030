/* Divides the trained parameters among ranks. */
#include "exec/store/division.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/cut_unit.h"

/* Extents begin at multiples of this many elements where units allow it: 64 bytes of bf16. */
#define ALIGNED 32

/* State while a division is made. */
typedef struct making {
    lathe_division *d;
    const lathe_division_row *given;
    int32_t *at;  /* [n_rows] index in `given` of d->rows[k] */
    double *held; /* [n_ranks] bytes that each rank owns so far */
} making;

const char *lathe_shard_name(int32_t shard)
{
    static const char *const names[LATHE_N_SHARDS] = {"none", "optimizer", "gradients",
                                                      "parameters"};
    return shard >= 0 && shard < LATHE_N_SHARDS ? names[shard] : "auto";
}

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "no memory to divide the parameters among ranks");
}

void lathe_division_destroy(lathe_division *d)
{
    if (!d)
        return;
    free(d->rows);
    free(d->n);
    free(d->cuts);
    free(d->buckets);
    free(d);
}

static int64_t *cuts_of(const lathe_division *d, int32_t row)
{
    return d->cuts + (int64_t)row * (d->n_ranks + 1);
}

static const lathe_division_row *row_at(const making *m, int32_t k)
{
    return &m->given[m->at[k]];
}

/* ---- buckets ---- */

/* Puts the rows of each family, in their order, into buckets. */
static void fill_buckets(making *m, int64_t bucket_bytes, int32_t n_families)
{
    lathe_division *d = m->d;
    int32_t n = 0;
    for (int32_t f = 0; f < n_families; f++) {
        int64_t room = 0;
        for (int32_t i = 0; i < d->n_rows; i++) {
            if (m->given[i].family != f)
                continue;
            if (room <= 0) {
                d->buckets[d->n_buckets++] = (lathe_bucket){.first = n, .n = 0};
                room = bucket_bytes;
            }
            room -= m->given[i].bytes;
            d->buckets[d->n_buckets - 1].n++;
            m->at[n++] = i;
        }
    }
}

/* ---- rows that are cut ---- */

/* The place in a row where a rank's extent may end, nearest to `at` (elements, any number). */
static int64_t nearest_cut(const lathe_division_row *row, double at)
{
    int64_t step = row->unit / lathe__common_divisor(row->unit, ALIGNED) * ALIGNED;
    if (step > row->n)
        step = row->unit;
    const int64_t cut = (int64_t)floor(at / (double)step + 0.5) * step;
    return cut < 0 ? 0 : cut > row->n ? row->n : cut;
}

/* Ends of the extents of a bucket, as bytes from its begin: each rank gets what brings it to an
 * equal share of all that is divided so far. */
static void aim(const making *m, double total, double *ends)
{
    const int32_t n_ranks = m->d->n_ranks;
    double all = total, wanted = 0.0, end = 0.0;
    for (int32_t q = 0; q < n_ranks; q++)
        all += m->held[q];
    for (int32_t q = 0; q < n_ranks; q++)
        wanted += fmax(0.0, all / n_ranks - m->held[q]);
    for (int32_t q = 0; q < n_ranks; q++) {
        end += fmax(0.0, all / n_ranks - m->held[q]) * (wanted > 0.0 ? total / wanted : 0.0);
        ends[q] = end;
    }
}

static void cut_bucket(making *m, const lathe_bucket *b, double *ends)
{
    const lathe_division *d = m->d;
    double total = 0.0, begin = 0.0;
    for (int32_t k = b->first; k < b->first + b->n; k++)
        total += row_at(m, k)->cost * (double)row_at(m, k)->n;
    aim(m, total, ends);
    for (int32_t k = b->first; k < b->first + b->n; k++) {
        const lathe_division_row *row = row_at(m, k);
        int64_t *cuts = cuts_of(d, row->row);
        for (int32_t q = 0; q + 1 < d->n_ranks; q++)
            cuts[q + 1] = nearest_cut(row, (ends[q] - begin) / row->cost);
        cuts[d->n_ranks] = row->n;
        for (int32_t q = 0; q < d->n_ranks; q++)
            m->held[q] += row->cost * (double)(cuts[q + 1] - cuts[q]);
        begin += row->cost * (double)row->n;
    }
}

/* ---- rows that are not cut ---- */

static int32_t owner_of(const lathe_division *d, int32_t row)
{
    const int64_t *cuts = cuts_of(d, row);
    int32_t q = 0;
    while (q + 1 < d->n_ranks && cuts[q + 1] == 0)
        q++;
    return q;
}

static void give(making *m, const lathe_division_row *row)
{
    const lathe_division *d = m->d;
    int64_t *cuts = cuts_of(d, row->row);
    int32_t least = 0;
    for (int32_t q = 1; q < d->n_ranks; q++)
        if (m->held[q] < m->held[least])
            least = q;
    for (int32_t q = 0; q <= d->n_ranks; q++)
        cuts[q] = q <= least ? 0 : row->n;
    m->held[least] += row->cost * (double)row->n;
}

/* Gives the rows of a bucket away, the largest first, and then orders them by rank. */
static void give_bucket(making *m, const lathe_bucket *b)
{
    int32_t *at = m->at + b->first;
    for (int32_t i = 1; i < b->n; i++)
        for (int32_t k = i; k > 0 && m->given[at[k]].cost * (double)m->given[at[k]].n >
                                         m->given[at[k - 1]].cost * (double)m->given[at[k - 1]].n;
             k--) {
            const int32_t swapped = at[k];
            at[k] = at[k - 1];
            at[k - 1] = swapped;
        }
    for (int32_t i = 0; i < b->n; i++)
        give(m, &m->given[at[i]]);
    for (int32_t i = 1; i < b->n; i++)
        for (int32_t k = i;
             k > 0 && owner_of(m->d, m->given[at[k]].row) < owner_of(m->d, m->given[at[k - 1]].row);
             k--) {
            const int32_t swapped = at[k];
            at[k] = at[k - 1];
            at[k - 1] = swapped;
        }
}

/* ---- making ---- */

static lathe_status allocate(making *m, const lathe_division_ask *ask, int32_t n, int32_t n_table)
{
    lathe_division *d = calloc(1, sizeof *d);
    m->d = d;
    if (!d)
        return no_memory();
    d->shard = ask->shard;
    d->rank = ask->rank;
    d->n_ranks = ask->n_ranks;
    d->n_rows = n;
    d->n_table = n_table;
    d->rows = calloc((size_t)n + 1, sizeof *d->rows);
    d->n = calloc((size_t)n_table + 1, sizeof *d->n);
    d->cuts = calloc(((size_t)n_table + 1) * ((size_t)ask->n_ranks + 1), sizeof *d->cuts);
    d->buckets = calloc((size_t)n + 1, sizeof *d->buckets);
    m->at = calloc((size_t)n + 1, sizeof *m->at);
    m->held = calloc((size_t)ask->n_ranks * 2, sizeof *m->held);
    return d->rows && d->n && d->cuts && d->buckets && m->at && m->held ? LATHE_OK : no_memory();
}

/* Rows that must not be cut first: the others level out what they leave uneven. */
static void divide(making *m)
{
    const lathe_division *d = m->d;
    for (int turn = 0; turn < 2; turn++)
        for (int32_t b = 0; b < d->n_buckets; b++) {
            const int is_cut = row_at(m, d->buckets[b].first)->unit > 0;
            if (turn == 0 && !is_cut)
                give_bucket(m, &d->buckets[b]);
            if (turn == 1 && is_cut)
                cut_bucket(m, &d->buckets[b], m->held + d->n_ranks);
        }
}

lathe_status lathe_division_make(const lathe_division_ask *ask, const lathe_division_row *rows,
                                 int32_t n, int32_t n_table, lathe_division **out)
{
    making m = {.given = rows};
    int32_t n_families = 0;
    lathe_status status = allocate(&m, ask, n, n_table);
    if (status == LATHE_OK) {
        for (int32_t i = 0; i < n; i++)
            n_families = rows[i].family >= n_families ? rows[i].family + 1 : n_families;
        fill_buckets(&m, ask->bucket_bytes > 0 ? ask->bucket_bytes : 1, n_families);
        divide(&m);
        for (int32_t k = 0; k < n; k++) {
            m.d->rows[k] = row_at(&m, k)->row;
            m.d->n[m.d->rows[k]] = row_at(&m, k)->n;
        }
        *out = m.d;
    } else {
        lathe_division_destroy(m.d);
    }
    free(m.at);
    free(m.held);
    return status;
}

/* ---- reading ---- */

lathe_extent lathe_division_of(const lathe_division *d, int32_t row, int32_t rank)
{
    const int64_t *cuts = cuts_of(d, row);
    return (lathe_extent){cuts[rank], cuts[rank + 1] - cuts[rank]};
}

int64_t lathe_padded(int64_t n, int64_t width)
{
    return (n * width + 63) / 64 * 64;
}

/* Elements of a bucket before the extent of a rank. */
static int64_t begin_of(const lathe_division *d, const lathe_bucket *b, int32_t rank, int64_t width)
{
    int64_t at = 0;
    for (int32_t k = b->first; k < b->first + b->n; k++) {
        const int64_t n = d->n[d->rows[k]], cut = cuts_of(d, d->rows[k])[rank];
        if (cut < n)
            return at + cut;
        at += lathe_padded(n, width) / width;
    }
    return at;
}

lathe_extent lathe_bucket_extent(const lathe_division *d, int32_t bucket, int64_t width,
                                 int32_t rank)
{
    const lathe_bucket *b = &d->buckets[bucket];
    const int64_t begin = rank > 0 ? begin_of(d, b, rank, width) : 0;
    const int64_t end = rank + 1 < d->n_ranks ? begin_of(d, b, rank + 1, width)
                                              : lathe_bucket_counts(d, bucket, width, NULL);
    return (lathe_extent){begin, end - begin};
}

int64_t lathe_bucket_counts(const lathe_division *d, int32_t bucket, int64_t width, int64_t *counts)
{
    const lathe_bucket *b = &d->buckets[bucket];
    int64_t total = 0;
    for (int32_t k = b->first; k < b->first + b->n; k++)
        total += lathe_padded(d->n[d->rows[k]], width) / width;
    for (int32_t q = 0; counts && q < d->n_ranks; q++)
        counts[q] = lathe_bucket_extent(d, bucket, width, q).n;
    return total;
}
