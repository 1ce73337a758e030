/* The row index: splits by document, weights in laps, multipack rows, and its facts. */
#include "data/rows/row_index.h"
#include "support/data_sets.h"

/* Documents of 2 to 17 tokens, of which one, in the middle, has `middle`. */
static lathe_shards *make_documents(int64_t middle, int32_t ids[200], int64_t *out_n)
{
    static const int64_t lengths[5] = {17, 2, 0, 9, 3};
    int64_t offsets[6] = {0};
    lathe_shards *shards;
    for (int k = 0; k < 5; k++)
        offsets[k + 1] = offsets[k] + (k == 2 ? middle : lengths[k]);
    for (int32_t i = 0; i < offsets[5]; i++)
        ids[i] = i + 1;
    *out_n = offsets[5];
    cr_assert_eq(lathe_shards_from_ids(LATHE_ROWS_PACKED, ids, offsets, 5, 0, 1000, &shards),
                 LATHE_OK);
    return shards;
}

/* Counts how often each token is a target in an epoch; every row must have one. */
static void count_targets(const lathe_loader_config *config, int counts[201])
{
    lathe_loader *loader = make_loader(config);
    lathe_loader_facts facts;
    lathe_batch b;
    int64_t n = 0;
    lathe_loader_facts_get(loader, &facts);
    while (lathe_loader_next(loader, &b) == LATHE_OK && !b.ended) {
        cr_expect(b.n_target > 0, "row %lld of %d tokens has no target", (long long)n,
                  config->row_tokens);
        for (int i = 0; i < config->row_tokens; i++)
            if (b.targets[i] >= 0)
                counts[b.targets[i]]++;
        n++;
    }
    cr_expect_eq(n, facts.n_rows);
    cr_expect(facts.fill > 0.0 && facts.fill <= 1.0, "fill %g", facts.fill);
    lathe_loader_destroy(loader);
}

static const double ones[3] = {1.0, 1.0, 1.0};

/* Marks the documents of the split, found from the tokens of all its rows. */
static void documents_of(const lathe_shards *shards, lathe_loader_config config, char *seen,
                         char mark)
{
    lathe_loader *loader = make_loader(&config);
    lathe_batch b;
    while (lathe_loader_next(loader, &b) == LATHE_OK && !b.ended)
        for (int64_t i = 0; i < (int64_t)config.n_rows * config.row_tokens; i++)
            if (b.tokens[i] > 0)
                seen[lathe_shards_find(shards, b.tokens[i] - 1)] |= mark;
    lathe_loader_destroy(loader);
}

Test(row_index, no_document_is_in_both_splits_whatever_order_each_is_read_in)
{
    enum { N = 134 };
    static const int64_t sizes[3] = {40, 73, 21};
    lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 3, sizes, ones, 40);
    for (int mode = 0; mode < 16; mode++) {
        char seen[N] = {0};
        lathe_loader_config config = {.shards = shards,
                                      .n_rows = 1,
                                      .row_tokens = 16,
                                      .seed = 5,
                                      .n_epochs = 1,
                                      .packing = mode & 1,
                                      .no_shuffle = mode >> 1 & 1};
        if (mode & 4)
            config.validation_count = 13;
        else
            config.validation_fraction = 0.1; /* of 134: 13 */
        documents_of(shards, config, seen, 1);
        config.split = LATHE_SPLIT_VALIDATION;
        config.no_shuffle = mode >> 3; /* evaluation reads in order while training shuffles */
        documents_of(shards, config, seen, 2);
        int n_validation = 0;
        for (int i = 0; i < N; i++) {
            cr_assert(seen[i] == 1 || seen[i] == 2, "document %d is in %d, mode %d", i, seen[i],
                      mode);
            n_validation += seen[i] == 2;
        }
        cr_expect_eq(n_validation, 13);
    }
    lathe_shards_destroy(shards);
}

Test(row_index, a_single_document_is_divided_at_its_end)
{
    static const int64_t offsets[2] = {0, 100};
    int32_t ids[100];
    lathe_shards *shards;
    for (int i = 0; i < 100; i++)
        ids[i] = i + 1;
    cr_assert_eq(lathe_shards_from_ids(LATHE_ROWS_PACKED, ids, offsets, 1, 0, 1000, &shards),
                 LATHE_OK);
    for (int32_t packing = 0; packing < 2; packing++) {
        int seen[101] = {0}, target[101] = {0};
        for (int32_t split = 0; split < 2; split++) {
            const lathe_loader_config config = {.shards = shards,
                                                .n_rows = 1,
                                                .row_tokens = 16,
                                                .split = split,
                                                .n_epochs = 1,
                                                .packing = packing,
                                                .validation_fraction = 0.25};
            lathe_loader_facts facts;
            lathe_loader *loader = make_loader(&config);
            lathe_loader_facts_get(loader, &facts);
            cr_expect_eq(facts.n_tokens, split ? 25 : 75);
            cr_expect_eq(facts.n_rows, split ? 2 : 5);
            cr_expect_eq(facts.is_cut, 1);
            lathe_batch b;
            while (lathe_loader_next(loader, &b) == LATHE_OK && !b.ended)
                for (int i = 0; i < 16; i++) {
                    cr_assert(b.tokens[i] == 0 || (b.tokens[i] > 75) == split);
                    seen[b.tokens[i]]++;
                    if (b.targets[i] >= 0)
                        target[b.targets[i]]++;
                }
            lathe_loader_destroy(loader);
        }
        for (int i = 1; i <= 100; i++) { /* no target crosses the cut */
            cr_expect_eq(seen[i], 1);
            cr_expect_eq(target[i], i != 1 && i != 76, "target %d", i);
        }
    }
    lathe_loader *loader = NULL;
    const lathe_loader_config count = {
        .shards = shards, .n_rows = 1, .row_tokens = 16, .validation_count = 1};
    cr_expect_eq(lathe_loader_create(&count, &loader), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "whole documents, 1 of 1"), "%s",
              lathe_error_message());
    lathe_shards_destroy(shards);
}

/* 33 to 72 tokens: some fill whole rows and one token more, all together or one document alone. */
Test(row_index, every_row_has_a_target_and_none_is_lost)
{
    for (int mode = 0; mode < 4; mode++)
        for (int64_t middle = 2; middle <= 41; middle++) {
            int32_t ids[200];
            int64_t n;
            int counts[201] = {0}, n_none = 0;
            lathe_shards *shards = make_documents(middle, ids, &n);
            lathe_loader_config config = {.shards = shards,
                                          .n_rows = 1,
                                          .row_tokens = 8,
                                          .n_epochs = 1,
                                          .seed = 3,
                                          .packing = mode & 1,
                                          .validation_count = mode >> 1};
            count_targets(&config, counts);
            config.split = LATHE_SPLIT_VALIDATION;
            if (mode >> 1)
                count_targets(&config, counts);
            for (int i = 1; i <= n; i++) {
                n_none += counts[i] == 0;
                cr_expect(counts[i] <= 1);
            }
            cr_expect_eq(n_none, 5,
                         "mode %d, middle %lld: %d tokens are no target, expected the "
                         "first of each document",
                         mode, (long long)middle, n_none);
            lathe_shards_destroy(shards);
        }
}

/* Documents 1 2 3 | 4 .. 14 (11 tokens) | 15 16 | 17 18 19 20 in rows of 8: the long one is cut
 * into 8 + 3; packed 8 | 4+3 | 3+2, with the pieces of a row in the order of the data. */
Test(row_index, multipack_rows_by_hand)
{
    int32_t ids[20];
    static const int64_t offsets[5] = {0, 3, 14, 16, 20};
    for (int i = 0; i < 20; i++)
        ids[i] = i + 1;
    lathe_shards *shards;
    cr_assert_eq(lathe_shards_from_ids(LATHE_ROWS_PACKED, ids, offsets, 4, 0, 1000, &shards),
                 LATHE_OK);
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = 3,
                                        .row_tokens = 8,
                                        .no_shuffle = 1,
                                        .n_epochs = 1,
                                        .packing = LATHE_PACK_MULTIPACK};
    static const int32_t tokens[24] = {4,  5,  6,  7, 8,  9,  10, 11, 1,  2, 3, 17,
                                       18, 19, 20, 0, 12, 13, 14, 15, 16, 0, 0, 0};
    static const int32_t targets[24] = {5,  6,  7,  8,  9,  10, 11, 12, 2,  3,  -1, 18,
                                        19, 20, -1, -1, 13, 14, -1, 16, -1, -1, -1, -1};
    static const int32_t positions[24] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 0,
                                          1, 2, 3, 0, 0, 1, 2, 0, 1, 0, 1, 2};
    static const int32_t starts[24] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3,
                                       3, 3, 3, 7, 0, 0, 0, 3, 3, 5, 5, 5};
    lathe_loader *loader = make_loader(&config);
    lathe_loader_facts facts;
    lathe_batch b;
    lathe_loader_facts_get(loader, &facts);
    cr_expect_eq(facts.n_rows, 3);
    cr_expect_eq(facts.n_tokens, 20);
    cr_expect_eq(facts.fill, 20.0 / 24.0);
    cr_expect_eq(facts.index_bytes, 48 + 5 * 16 + 4 * 8, "%lld", (long long)facts.index_bytes);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    cr_expect_arr_eq(b.tokens, tokens, sizeof tokens);
    cr_expect_arr_eq(b.targets, targets, sizeof targets);
    cr_expect_arr_eq(b.positions, positions, sizeof positions);
    cr_expect_arr_eq(b.doc_start, starts, sizeof starts);
    cr_expect_eq(b.n_target, 16);
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
}

/* Counts how often each row occurs in `epochs` epochs: counts[dataset][row]. */
static void count_rows_of(const lathe_row_index *x, int64_t epochs, int32_t shuffled,
                          int32_t *counts)
{
    memset(counts, 0, (size_t)x->n_rows * sizeof *counts);
    for (int64_t e = 0; e < epochs; e++)
        for (int64_t p = 0; p < x->n_places; p++)
            counts[lathe__row_index_at(x, e, p, shuffled)]++;
}

Test(row_index, weights_count_rows_in_laps)
{
    static const int64_t sizes[3] = {8, 10, 7};
    static const double weight[3] = {2.0, 0.5, 1.5};
    int32_t counts[25];
    lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 3, sizes, weight, 1); /* one token each */
    const lathe_row_index_config config = {.shards = shards, .row_tokens = 1, .seed = 3};
    lathe_row_index x;
    cr_assert_eq(lathe__row_index_init(&x, &config), LATHE_OK);
    cr_expect_eq(x.n_places, 16 + 5 + 11); /* 10.5 rounds up */
    for (int32_t shuffled = 0; shuffled < 2; shuffled++) {
        count_rows_of(&x, 1, shuffled, counts);
        for (int i = 0; i < 8; i++)
            cr_expect_eq(counts[i], 2, "row %d: %d", i, counts[i]);
        for (int i = 8; i < 18; i++)
            cr_expect(counts[i] <= 1, "row %d: %d in one epoch", i, counts[i]);
        for (int i = 18; i < 25; i++)
            cr_expect(counts[i] == 1 || counts[i] == 2, "row %d: %d", i, counts[i]);
        count_rows_of(&x, 2, shuffled, counts);
        for (int i = 8; i < 18; i++)
            cr_expect_eq(counts[i], 1, "row %d: %d in two epochs", i, counts[i]);
        count_rows_of(&x, 7, shuffled, counts); /* 7 x 11 places = 11 laps of 7 rows */
        for (int i = 18; i < 25; i++)
            cr_expect_eq(counts[i], 11, "row %d: %d in seven epochs", i, counts[i]);
    }
    lathe__row_index_fini(&x);
    lathe_row_index_config validation = config; /* which uses each row once */
    validation.validates = 1;
    validation.fraction = 0.4;
    cr_assert_eq(lathe__row_index_init(&x, &validation), LATHE_OK);
    cr_expect_eq(x.n_places, 10);
    lathe__row_index_fini(&x);
    lathe_shards_destroy(shards);
}

Test(row_index, another_weight_or_packing_refuses_the_cursor)
{
    static const int64_t sizes[2] = {30, 30};
    static const double other[2] = {0.5, 1.5}; /* the same number of places */
    lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 2, sizes, ones, 1);
    lathe_shards *weighted = make_sets(LATHE_ROWS_PACKED, 2, sizes, other, 1);
    lathe_loader_config config = {.shards = shards, .n_rows = 2, .row_tokens = 2, .seed = 1};
    lathe_loader *loader = make_loader(&config);
    lathe_cursor cursor;
    lathe_loader_cursor(loader, &cursor);
    lathe_loader_destroy(loader);
    for (int k = 0; k < 3; k++) {
        lathe_loader_config changed = config;
        changed.shards = k == 0 ? weighted : shards;
        changed.packing = k == 1;
        changed.validation_count = k == 2;
        loader = make_loader(&changed);
        cr_expect_eq(lathe_loader_seek(loader, &cursor), LATHE_E_STATE, "change %d", k);
        lathe_loader_destroy(loader);
    }
    lathe_shards_destroy(shards);
    lathe_shards_destroy(weighted);
}
