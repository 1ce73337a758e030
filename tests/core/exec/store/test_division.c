/* How ranks divide parameters: extents, their places, and how even they are. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "exec/store/division.h"

static lathe_division *make(int32_t n_ranks, int64_t bucket_bytes, const lathe_division_row *rows,
                            int32_t n, int32_t n_table)
{
    const lathe_division_ask ask = {
        .shard = LATHE_SHARD_OPTIMIZER, .n_ranks = n_ranks, .bucket_bytes = bucket_bytes};
    lathe_division *d = NULL;
    cr_assert_eq(lathe_division_make(&ask, rows, n, n_table, &d), LATHE_OK);
    return d;
}

static void expect_extent(const lathe_division *d, int32_t row, int32_t rank, int64_t begin,
                          int64_t n)
{
    const lathe_extent e = lathe_division_of(d, row, rank);
    cr_expect(e.n == n && (n == 0 || e.begin == begin), "row %d, rank %d: %lld from %lld", row,
              rank, (long long)e.n, (long long)e.begin);
}

/* By hand: 1024 + 512 + 512 elements of one cost on two ranks meet at element 0 of the second row.
 */
Test(division, halves_a_bucket_where_rows_meet)
{
    const lathe_division_row rows[3] = {{.row = 0, .n = 1024, .unit = 1, .cost = 8, .bytes = 4096},
                                        {.row = 2, .n = 512, .unit = 1, .cost = 8, .bytes = 2048},
                                        {.row = 1, .n = 512, .unit = 1, .cost = 8, .bytes = 2048}};
    int64_t counts[2];
    lathe_division *d = make(2, 1 << 20, rows, 3, 3);
    cr_expect_eq(d->n_buckets, 1);
    cr_expect(d->rows[0] == 0 && d->rows[1] == 2 && d->rows[2] == 1);
    expect_extent(d, 0, 0, 0, 1024);
    expect_extent(d, 0, 1, 0, 0);
    expect_extent(d, 2, 1, 0, 512);
    expect_extent(d, 1, 1, 0, 512);
    cr_expect_eq(lathe_bucket_counts(d, 0, 4, counts), 2048);
    cr_expect(counts[0] == 1024 && counts[1] == 1024);
    lathe_division_destroy(d);
}

/* A row of 10 blocks of 100 elements is cut between blocks only. */
Test(division, cuts_at_units)
{
    const lathe_division_row row = {.row = 0, .n = 970, .unit = 100, .cost = 1, .bytes = 3880};
    lathe_division *d = make(3, 1 << 20, &row, 1, 1);
    int64_t end = 0;
    for (int32_t q = 0; q < 3; q++) {
        const lathe_extent e = lathe_division_of(d, 0, q);
        cr_expect_eq(e.begin, end);
        cr_expect(e.begin % 100 == 0, "rank %d begins at %lld", q, (long long)e.begin);
        end += e.n;
    }
    cr_expect_eq(end, 970);
    lathe_division_destroy(d);
}

/* By hand: the largest whole row goes first to the rank that holds least, 20000 | 16000 + 12000
 * bytes. Half of all 56192 bytes is 28096, so rank 0 lacks 8096 bytes, 2024 elements of the row
 * that may be cut; the nearest multiple of 32 is 2016. */
Test(division, gives_whole_rows_away_and_levels_the_rest)
{
    const lathe_division_row rows[4] = {
        {.row = 0, .family = 1, .n = 3000, .cost = 4, .bytes = 12000},
        {.row = 1, .family = 1, .n = 5000, .cost = 4, .bytes = 20000},
        {.row = 2, .family = 1, .n = 4000, .cost = 4, .bytes = 16000},
        {.row = 3, .family = 0, .n = 2048, .unit = 1, .cost = 4, .bytes = 8192}};
    int64_t counts[2];
    lathe_division *d = make(2, 1 << 20, rows, 4, 5);
    expect_extent(d, 1, 0, 0, 5000);
    expect_extent(d, 2, 1, 0, 4000);
    expect_extent(d, 0, 1, 0, 3000);
    expect_extent(d, 3, 0, 0, 2016);
    expect_extent(d, 3, 1, 2016, 32);
    cr_expect_eq(d->n_buckets, 2);
    cr_expect_eq(d->rows[0], 3, "families are in their order");
    cr_expect_eq(d->rows[1], 1, "rows of rank 0 come first");
    cr_expect_eq(d->n[4], 0, "a row that does not train is not divided");
    cr_expect_eq(lathe_bucket_counts(d, 1, 4, counts), 5008 + 4000 + 3008);
    cr_expect_eq(counts[0], 5008, "with the padding to 64 bytes");
    lathe_division_destroy(d);
}

/* Random tables: extents cover each row once, in the order of ranks, and ranks hold equal shares.
 */
Test(division, covers_every_element_once_and_is_even)
{
    enum { N = 60 };
    unsigned x = 7;
    for (int32_t n_ranks = 2; n_ranks <= 9; n_ranks++) {
        lathe_division_row rows[N];
        double held[9] = {0.0}, all = 0.0;
        for (int32_t i = 0; i < N; i++) {
            x = x * 1103515245u + 12345u;
            const int64_t n = 1 + (x >> 8) % 200000;
            rows[i] = (lathe_division_row){.row = i,
                                           .family = i % 3,
                                           .n = n,
                                           .unit = i % 3 == 2   ? 256
                                                   : i % 3 == 1 ? 0
                                                                : 1,
                                           .cost = 4.0 + i % 3,
                                           .bytes = 4 * n};
        }
        lathe_division *d = make(n_ranks, 1 << 20, rows, N, N);
        for (int32_t i = 0; i < N; i++) {
            int64_t end = 0;
            for (int32_t q = 0; q < n_ranks; q++) {
                const lathe_extent e = lathe_division_of(d, i, q);
                cr_assert(e.n >= 0 && (e.n == 0 || e.begin == end));
                end += e.n;
                held[q] += rows[i].cost * (double)e.n;
            }
            cr_assert_eq(end, rows[i].n);
            all += rows[i].cost * (double)rows[i].n;
        }
        for (int32_t k = 0; k < d->n_buckets; k++) {
            int64_t counts[9], sum = 0;
            const int64_t n = lathe_bucket_counts(d, k, 4, counts);
            for (int32_t q = 0; q < n_ranks; q++) {
                cr_assert_geq(counts[q], 0);
                sum += counts[q];
            }
            cr_assert_eq(sum, n);
        }
        for (int32_t q = 0; q < n_ranks; q++)
            cr_expect_leq(held[q], (1.0 / n_ranks + 0.01) * all, "rank %d of %d holds %g of %g", q,
                          n_ranks, held[q], all);
        lathe_division_destroy(d);
    }
}
