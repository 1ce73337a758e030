/* The loader: rows by hand, order, ranks, and cursor. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/rows/loader.h"
#include "data/rows/shuffle.h"

enum { EOS = 99 };

static lathe_shards *shards_of(int32_t rows, const int32_t *ids, const int64_t *offsets, int64_t n)
{
    lathe_shards *shards = NULL;
    cr_assert_eq(lathe_shards_from_ids(rows, ids, offsets, n, EOS, 1 << 20, &shards), LATHE_OK,
                 "%s", lathe_error_message());
    return shards;
}

static lathe_loader *create(const lathe_loader_config *config)
{
    lathe_loader *loader = NULL;
    cr_assert_eq(lathe_loader_create(config, &loader), LATHE_OK, "%s", lathe_error_message());
    return loader;
}

static void check(const int32_t *got, const int32_t *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        cr_expect_eq(got[i], want[i], "%s[%d]: %d, by hand %d", what, i, got[i], want[i]);
}

/* Documents 1 2 3 E | 4 E | 5 6 7 8 9 E in rows of 5: the second row begins inside the third... */
Test(loader, packed_rows_by_hand)
{
    const int32_t ids[12] = {1, 2, 3, EOS, 4, EOS, 5, 6, 7, 8, 9, EOS};
    const int64_t offsets[4] = {0, 4, 6, 12};
    lathe_shards *shards = shards_of(LATHE_ROWS_PACKED, ids, offsets, 3);
    const lathe_loader_config config = {
        .shards = shards, .n_rows = 3, .row_tokens = 5, .no_shuffle = 1, .n_epochs = 1};
    lathe_loader *loader = create(&config);
    lathe_batch b;
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    const int32_t tokens[15] = {1, 2, 3, EOS, 4, EOS, 5, 6, 7, 8, 9, EOS, EOS, EOS, EOS};
    const int32_t targets[15] = {2, 3, EOS, -1, EOS, -1, 6, 7, 8, 9, EOS, -1, -1, -1, -1};
    const int32_t positions[15] = {0, 1, 2, 3, 0, 0, 0, 1, 2, 3, 0, 1, 0, 1, 2};
    const int32_t starts[15] = {0, 0, 0, 0, 4, 0, 1, 1, 1, 1, 0, 0, 2, 2, 2};
    check(b.tokens, tokens, 15, "tokens");
    check(b.targets, targets, 15, "targets");
    check(b.positions, positions, 15, "positions");
    check(b.doc_start, starts, 15, "doc_start");
    cr_expect_eq(b.n_target, 9);
    cr_expect_eq(b.n_filled, 0);
    cr_expect_eq(b.n_records, 0);
    cr_expect_eq(b.ended, 0);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    cr_expect_eq(b.ended, 1);
    cr_expect_eq(b.n_target, 0);
    cr_expect_eq(b.n_filled, 3);
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
}

/* prompt 1 2 3, chosen 4 5 E, rejected 6 E; prompt 7, chosen 8 9 10 11 12 E (cut), rejected E; a
 * prompt of 6 tokens fills the row and is skipped. */
Test(loader, pair_rows_by_hand)
{
    const int32_t ids[24] = {1,  2,  3,   4,   5,  EOS, 6,  EOS, 7,  8,  9,  10,
                             11, 12, EOS, EOS, 20, 21,  22, 23,  24, 25, 26, EOS};
    const int64_t offsets[10] = {0, 3, 6, 8, 9, 15, 16, 22, 23, 24};
    lathe_shards *shards = shards_of(LATHE_ROWS_PAIRS, ids, offsets, 9);
    const lathe_loader_config config = {
        .shards = shards, .n_rows = 4, .row_tokens = 6, .no_shuffle = 1, .n_epochs = 1};
    lathe_loader *loader = create(&config);
    cr_expect_eq(lathe_loader_rows(loader), 2);
    lathe_batch b;
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    const int32_t tokens[24] = {1, 2, 3, 4, 5,   EOS, 7, 8,   9,   10,  11,  12,
                                1, 2, 3, 6, EOS, EOS, 7, EOS, EOS, EOS, EOS, EOS};
    const int32_t targets[24] = {-1, -1, 4, 5,   EOS, -1, 8,   9,  10, 11, 12, -1,
                                 -1, -1, 6, EOS, -1,  -1, EOS, -1, -1, -1, -1, -1};
    const int32_t positions[24] = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5,
                                   0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 2, 3};
    const int32_t starts[24] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                0, 0, 0, 0, 0, 5, 0, 0, 2, 2, 2, 2};
    check(b.tokens, tokens, 24, "tokens");
    check(b.targets, targets, 24, "targets");
    check(b.positions, positions, 24, "positions");
    check(b.doc_start, starts, 24, "doc_start");
    cr_expect_eq(b.n_target, 3 + 5 + 2 + 1);
    cr_expect_eq(b.n_records, 2);
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
}

Test(shuffle, is_a_permutation_that_the_epoch_changes)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1023, 4097, 20000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        char *seen = calloc((size_t)n, 1);
        int64_t same = 0, fixed = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t j = lathe_shuffle(n, 42, 0, 7, i);
            cr_assert(j >= 0 && j < n);
            cr_assert_not(seen[j], "%lld twice in %lld", (long long)j, (long long)n);
            seen[j] = 1;
            same += j == lathe_shuffle(n, 42, 1, 7, i);
            fixed += j == i;
        }
        if (n >= 100) { /* Poisson with mean 1: 12 or more has probability 8e-10 */
            cr_expect_lt(same, 12);
            cr_expect_lt(fixed, 12);
        }
        free(seen);
    }
}

/* For small n, every order occurs about equally often over many seeds. */
Test(shuffle, orders_of_three_are_even)
{
    int64_t counts[27] = {0};
    for (uint64_t seed = 0; seed < 6000; seed++)
        counts[lathe_shuffle(3, seed, 0, 1, 0) * 9 + lathe_shuffle(3, seed, 0, 1, 1) * 3 +
               lathe_shuffle(3, seed, 0, 1, 2)]++;
    static const int orders[6] = {5, 7, 11, 15, 19, 21}; /* 012 021 102 120 201 210 in base 3 */
    for (int i = 0; i < 6; i++)                          /* expected 1000, sigma 29; 6 sigma */
        cr_expect(llabs(counts[orders[i]] - 1000) < 174, "order %d: %lld of 6000", i,
                  (long long)counts[orders[i]]);
}

/* Rows numbered by their first token: document r is r, r, ... with the length of a row. */
static lathe_shards *numbered(int64_t n, int64_t T)
{
    int32_t *ids = malloc((size_t)(n * T) * sizeof *ids);
    int64_t *offsets = malloc((size_t)(n + 1) * sizeof *offsets);
    for (int64_t i = 0; i < n * T; i++)
        ids[i] = (int32_t)(i / T) + 100;
    for (int64_t i = 0; i <= n; i++)
        offsets[i] = i * T;
    lathe_shards *shards = shards_of(LATHE_ROWS_PACKED, ids, offsets, n);
    free(ids);
    free(offsets);
    return shards;
}

Test(loader, an_epoch_has_every_row_once_over_all_ranks)
{
    enum { N = 103, T = 4, B = 4, RANKS = 3 };
    lathe_shards *shards = numbered(N, T);
    int seen[N] = {0};
    lathe_loader_config config = {
        .shards = shards, .n_rows = B, .row_tokens = T, .n_ranks = RANKS, .seed = 5, .n_epochs = 2};
    for (int32_t rank = 0; rank < RANKS; rank++) {
        config.rank = rank;
        config.n_prefetch = rank; /* with and without a thread */
        lathe_loader *loader = create(&config);
        cr_expect_eq(lathe_loader_batches(loader, 2), (2 * N + B * RANKS - 1) / (B * RANKS));
        lathe_batch b;
        int64_t n_batches = 0;
        for (;; n_batches++) {
            cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
            if (b.ended)
                break;
            for (int64_t r = 0; r < B - b.n_filled; r++)
                seen[b.tokens[r * T] - 100]++;
        }
        cr_expect_eq(n_batches, lathe_loader_batches(loader, 2));
        lathe_cursor cursor;
        lathe_loader_cursor(loader, &cursor);
        cr_expect_eq(cursor.epoch, 2);
        cr_expect_eq(cursor.index, 0);
        lathe_loader_destroy(loader);
    }
    for (int i = 0; i < N; i++)
        cr_expect_eq(seen[i], 2, "row %d came %d times in two epochs", i, seen[i]);
    lathe_shards_destroy(shards);
}

Test(loader, validation_and_training_share_no_row)
{
    enum { N = 50, T = 3 };
    lathe_shards *shards = numbered(N, T);
    for (int32_t plain = 0; plain < 2; plain++) {
        int seen[N] = {0};
        for (int32_t split = 0; split < 2; split++) {
            const lathe_loader_config config = {.shards = shards,
                                                .n_rows = 1,
                                                .row_tokens = T,
                                                .seed = 9,
                                                .split = split,
                                                .no_shuffle = plain,
                                                .validation_fraction = 0.1,
                                                .n_epochs = 1};
            lathe_loader *loader = create(&config);
            cr_expect_eq(lathe_loader_rows(loader), split ? 5 : 45);
            lathe_batch b;
            while (lathe_loader_next(loader, &b) == LATHE_OK && !b.ended)
                seen[b.tokens[0] - 100] += split ? 100 : 1;
            lathe_loader_destroy(loader);
        }
        int n_validation = 0;
        for (int i = 0; i < N; i++) {
            cr_expect(seen[i] == 1 || seen[i] == 100, "row %d: %d", i, seen[i]);
            n_validation += seen[i] == 100;
        }
        cr_expect_eq(n_validation, 5);
    }
    lathe_shards_destroy(shards);
}

static void batch_copy(const lathe_batch *b, int32_t *out)
{
    const size_t n = (size_t)b->n_rows * (size_t)b->row_tokens;
    memcpy(out, b->tokens, n * 4);
    memcpy(out + n, b->targets, n * 4);
    memcpy(out + 2 * n, b->positions, n * 4);
    memcpy(out + 3 * n, b->doc_start, n * 4);
}

Test(loader, cursor_resumes_the_same_batches_and_prefetch_changes_nothing)
{
    enum { T = 16, B = 3, STEPS = 40, WORDS = 4 * B * T };
    lathe_shards *shards;
    cr_assert_eq(lathe_shards_synthetic(37, 23, 1000, 1, &shards), LATHE_OK);
    lathe_loader_config config = {.shards = shards, .n_rows = B, .row_tokens = T, .seed = 77};
    static int32_t want[STEPS][WORDS], got[WORDS];
    lathe_cursor cursors[STEPS];
    lathe_loader *loader = create(&config);
    lathe_batch b;
    for (int i = 0; i < STEPS; i++) {
        lathe_loader_cursor(loader, &cursors[i]);
        cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
        batch_copy(&b, want[i]);
    }
    lathe_loader_destroy(loader);
    cr_expect_gt(cursors[STEPS - 1].epoch, 0);
    for (int32_t ahead = 0; ahead < 5; ahead += 2) {
        config.n_prefetch = ahead;
        loader = create(&config);
        for (int start = STEPS - 1; start >= 0; start -= 7) {
            cr_assert_eq(lathe_loader_seek(loader, &cursors[start]), LATHE_OK);
            for (int i = start; i < STEPS && i < start + 9; i++) {
                lathe_cursor now;
                lathe_loader_cursor(loader, &now);
                cr_assert_arr_eq(&now, &cursors[i], sizeof now);
                cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
                batch_copy(&b, got);
                cr_assert_arr_eq(got, want[i], sizeof got, "batch %d, %d ahead", i, ahead);
            }
        }
        lathe_loader_destroy(loader);
    }
    lathe_shards_destroy(shards);
}

Test(loader, foreign_cursors_and_bad_settings_are_refused)
{
    lathe_shards *shards, *others;
    cr_assert_eq(lathe_shards_synthetic(10, 8, 50, 1, &shards), LATHE_OK);
    cr_assert_eq(lathe_shards_synthetic(10, 8, 50, 2, &others), LATHE_OK);
    lathe_loader_config config = {.shards = shards, .n_rows = 2, .row_tokens = 8, .seed = 1};
    lathe_loader *loader = create(&config), *other;
    lathe_cursor cursor;
    lathe_loader_cursor(loader, &cursor);
    config.shards = others;
    other = create(&config);
    cr_expect_eq(lathe_loader_seek(other, &cursor), LATHE_E_STATE);
    lathe_loader_destroy(other);
    config.shards = shards;
    config.seed = 2;
    other = create(&config);
    cr_expect_eq(lathe_loader_seek(other, &cursor), LATHE_E_STATE);
    lathe_loader_destroy(other);
    cursor.index = cursor.rows_per_epoch;
    cr_expect_eq(lathe_loader_seek(loader, &cursor), LATHE_E_STATE);
    lathe_loader_destroy(loader);

    lathe_loader_config bad = config;
    bad.n_rows = 0;
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_ARG);
    bad = config;
    bad.row_tokens = 1;
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_ARG);
    bad = config;
    bad.rank = 1;
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_ARG);
    bad = config;
    bad.validation_fraction = 1.0;
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_ARG);
    bad = config;
    bad.split = LATHE_SPLIT_VALIDATION; /* of a fraction of 0 */
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_CONFIG);
    const int64_t none[1] = {0};
    lathe_shards *empty = shards_of(LATHE_ROWS_PACKED, NULL, none, 0);
    bad = config;
    bad.shards = empty;
    cr_expect_eq(lathe_loader_create(&bad, &loader), LATHE_E_CONFIG);
    lathe_shards_destroy(empty);
    lathe_shards_destroy(shards);
    lathe_shards_destroy(others);
}

Test(loader, an_id_outside_the_vocabulary_is_refused_by_the_thread_too)
{
    const int32_t ids[4] = {1, 2, 50, 3};
    const int64_t offsets[2] = {0, 4};
    lathe_shards *shards;
    cr_assert_eq(lathe_shards_from_ids(LATHE_ROWS_PACKED, ids, offsets, 1, 9, 50, &shards),
                 LATHE_OK);
    for (int32_t ahead = 0; ahead < 3; ahead++) {
        const lathe_loader_config config = {
            .shards = shards, .n_rows = 1, .row_tokens = 4, .n_prefetch = ahead};
        lathe_loader *loader = create(&config);
        lathe_batch b;
        for (int i = 0; i < 5; i++) {
            lathe_error_clear();
            cr_expect_eq(lathe_loader_next(loader, &b), LATHE_E_CORRUPT);
            cr_expect(strstr(lathe_error_message(), "id 50"), "%s", lathe_error_message());
        }
        lathe_loader_destroy(loader);
    }
    lathe_shards_destroy(shards);
}
