/* Multipack: first-fit decreasing by hand and against a plain search, in windows, and its speed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/rows/multipack.h"
#include "lathe/rng.h"

static lathe_row_piece *pieces_of(const int32_t *n, int64_t count)
{
    lathe_row_piece *pieces = calloc((size_t)count + 1, sizeof *pieces);
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++, begin += n[i - 1])
        pieces[i] = (lathe_row_piece){begin, n[i], 0};
    return pieces;
}

/* Lengths 3 7 5 2 5 4 in rows of 10: 7+3 | 5+5 | 4+2. */
Test(multipack, by_hand)
{
    static const int32_t n[6] = {3, 7, 5, 2, 5, 4};
    static const int64_t want_first[3] = {0, 2, 4};
    static const int64_t want_begin[6] = {0, 3, 10, 17, 15, 22};
    lathe_row_piece *pieces = pieces_of(n, 6);
    int64_t first[6], n_rows;
    cr_assert_eq(lathe__multipack(pieces, 6, 10, LATHE_PACK_WINDOW, first, &n_rows), LATHE_OK);
    cr_assert_eq(n_rows, 3);
    cr_expect_arr_eq(first, want_first, sizeof want_first);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(pieces[i].begin, want_begin[i], "piece %d is at %lld", i,
                     (long long)pieces[i].begin);
    free(pieces);
    cr_assert_eq(lathe__multipack(NULL, 0, 10, LATHE_PACK_WINDOW, NULL, &n_rows), LATHE_OK);
    cr_expect_eq(n_rows, 0);
}

static int longest_first(const void *a, const void *b)
{
    const lathe_row_piece *p = a, *q = b;
    return p->n != q->n ? (p->n < q->n ? 1 : -1) : (p->begin > q->begin) - (p->begin < q->begin);
}

/* Packs by searching all rows for each piece. */
static int64_t plain_search(lathe_row_piece *pieces, int64_t n, int64_t T)
{
    int64_t *used = calloc((size_t)n + 1, 8), n_rows = 0;
    qsort(pieces, (size_t)n, sizeof *pieces, longest_first);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = 0;
        while (used[r] + pieces[i].n > T)
            r++;
        used[r] += pieces[i].n;
        n_rows = r >= n_rows ? r + 1 : n_rows;
    }
    free(used);
    return n_rows;
}

Test(multipack, as_many_rows_as_a_plain_search_and_each_piece_once)
{
    enum { N = 3000 };
    static const int64_t lengths[] = {2, 17, 1000, 70000};
    for (size_t k = 0; k < 4; k++)
        for (int64_t window = 64; window <= LATHE_PACK_WINDOW; window *= 16384) {
            const int64_t T = lengths[k];
            static int32_t n[N];
            static int64_t first[N];
            static char seen[N];
            int64_t n_rows, want = 0;
            for (int i = 0; i < N; i++) {
                const lathe_u32x4 w = lathe_rng_block(1, k, 0, (uint64_t)i);
                n[i] = (int32_t)(1 + (w.v[0] % (w.v[1] % 4 ? (T + 3) / 4 : T)));
            }
            lathe_row_piece *pieces = pieces_of(n, N), *copy = pieces_of(n, N);
            for (int64_t at = 0; at < N; at += window)
                want += plain_search(copy + at, N - at < window ? N - at : window, T);
            cr_assert_eq(lathe__multipack(pieces, N, T, window, first, &n_rows), LATHE_OK);
            cr_expect_eq(n_rows, want, "T = %lld: %lld rows, a plain search finds %lld",
                         (long long)T, (long long)n_rows, (long long)want);
            memset(seen, 0, sizeof seen);
            for (int64_t r = 0; r < n_rows; r++) {
                int64_t used = 0, before = -1;
                for (int64_t i = first[r]; i < (r + 1 < n_rows ? first[r + 1] : N); i++) {
                    used += pieces[i].n;
                    cr_assert_gt(pieces[i].begin, before);
                    before = pieces[i].begin;
                    int64_t id = 0; /* identified by its begin */
                    for (int64_t b = 0; b < pieces[i].begin; id++)
                        b += n[id];
                    cr_assert_eq(seen[id]++, 0);
                }
                cr_assert(used > 0 && used <= T);
            }
            free(pieces);
            free(copy);
        }
}

/* O(n log n): a million documents take about a second. A quadratic search would take hours. */
Test(multipack, a_million_pieces_take_seconds)
{
    enum { N = 1000000, LENGTH = 2048 };
    int32_t *n = malloc(N * sizeof *n);
    int64_t *first = malloc(N * sizeof *first), n_rows, total = 0;
    for (int i = 0; i < N; i++) {
        const lathe_u32x4 w = lathe_rng_block(2, 0, 0, (uint64_t)i);
        n[i] = (int32_t)(1 + w.v[0] % (w.v[1] % 3 ? 400 : LENGTH));
        total += n[i];
    }
    lathe_row_piece *pieces = pieces_of(n, N);
    struct timespec a, b;
    (void)clock_gettime(CLOCK_MONOTONIC, &a);
    cr_assert_eq(lathe__multipack(pieces, N, LENGTH, LATHE_PACK_WINDOW, first, &n_rows), LATHE_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    const double fill = (double)total / ((double)n_rows * LENGTH);
    printf("%d pieces in %.3f s, %.4f filled\n", N, seconds, fill);
    cr_expect_gt(fill, 0.99);
    cr_expect_lt(seconds, 20.0, "%.1f s", seconds); /* usually about one; sanitizers need more */
    free(pieces);
    free(first);
    free(n);
}
