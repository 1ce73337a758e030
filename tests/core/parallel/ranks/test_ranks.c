/* Ranks: no sample is repeated or lost within an epoch with 1, 2, 3 and 8 of them, interrupted and
 * resumed in between, also with another number of ranks; with every packing, weights, split and
 * prefetching. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/data_sets.h"

enum { T = 16, B = 4, MAX_PLACES = 4096, EPOCHS = 4 };

typedef struct data_case {
    const char *name;
    int32_t rows, packing, no_shuffle;
    int64_t validation_count;
    double weight[3];
} data_case;

static const data_case cases[] = {
    {"sequential", LATHE_ROWS_PACKED, LATHE_PACK_SEQUENTIAL, 0, 0, {1.0, 1.0, 1.0}},
    {"sequential, in order", LATHE_ROWS_PACKED, LATHE_PACK_SEQUENTIAL, 1, 0, {1.0, 1.0, 1.0}},
    {"sequential, split", LATHE_ROWS_PACKED, LATHE_PACK_SEQUENTIAL, 0, 17, {1.0, 1.0, 1.0}},
    {"sequential, weighted", LATHE_ROWS_PACKED, LATHE_PACK_SEQUENTIAL, 0, 9, {2.0, 0.5, 1.75}},
    {"multipack", LATHE_ROWS_PACKED, LATHE_PACK_MULTIPACK, 0, 0, {1.0, 1.0, 1.0}},
    {"multipack, split", LATHE_ROWS_PACKED, LATHE_PACK_MULTIPACK, 0, 17, {1.0, 1.0, 1.0}},
    {"multipack, weighted", LATHE_ROWS_PACKED, LATHE_PACK_MULTIPACK, 1, 0, {0.25, 3.0, 1.0}},
    {"pairs", LATHE_ROWS_PAIRS, 0, 0, 0, {1.0, 1.0, 1.0}},
    {"pairs, split, weighted", LATHE_ROWS_PAIRS, 0, 0, 11, {1.0, 1.5, 0.5}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const int64_t sizes[3] = {40, 73, 21};

static lathe_loader_config config_of(const data_case *c, const lathe_shards *shards)
{
    return (lathe_loader_config){.shards = shards,
                                 .n_rows = B,
                                 .row_tokens = T,
                                 .seed = 11,
                                 .no_shuffle = c->no_shuffle,
                                 .validation_count = c->validation_count,
                                 .packing = c->packing,
                                 .n_epochs = EPOCHS};
}

/* Collects the sample of every place, as the first token of its row, in places[0 ..), as read by
 * n_ranks ranks from `cursor` on for at most `steps` batches each. Returns the place after the last
 * one. */
static int64_t run_ranks(lathe_loader_config config, int32_t n_ranks, const lathe_cursor *cursor,
                         int64_t steps, int32_t *places, lathe_cursor *out)
{
    const int pairs = lathe_shards_rows(config.shards) == LATHE_ROWS_PAIRS;
    const int64_t per_batch = pairs ? B / 2 : B;
    int64_t begin = 0, last = 0;
    for (int32_t rank = 0; rank < n_ranks; rank++) {
        lathe_cursor start, end;
        config.rank = rank;
        config.n_ranks = n_ranks;
        lathe_loader *loader = make_loader(&config);
        if (cursor)
            cr_assert_eq(lathe_loader_seek(loader, cursor), LATHE_OK, "%s", lathe_error_message());
        lathe_loader_cursor(loader, &start);
        begin = start.epoch * start.rows_per_epoch + start.index;
        for (int64_t k = 0; k < steps; k++) {
            lathe_batch b;
            cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
            for (int64_t i = 0; i < per_batch - b.n_filled; i++) {
                const int64_t place = begin + (k * n_ranks + rank) * per_batch + i;
                cr_assert_lt(place, MAX_PLACES);
                cr_assert_eq(places[place], -1, "place %lld was taken before", (long long)place);
                places[place] = b.tokens[i * T];
                last = place + 1 > last ? place + 1 : last;
            }
        }
        lathe_loader_cursor(loader, &end);
        cr_assert(rank == 0 || !memcmp(out, &end, sizeof end), "ranks stand at different places");
        *out = end;
        lathe_loader_destroy(loader);
    }
    return last;
}

static void clear(int32_t *places)
{
    for (int i = 0; i < MAX_PLACES; i++)
        places[i] = -1;
}

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Every epoch has `n` places. With weights of 1 they are n different samples, the same in each
 * epoch. */
static void check_epochs(const data_case *c, const int32_t *places, int64_t n)
{
    static int32_t sorted[EPOCHS][MAX_PLACES];
    if (c->weight[0] != 1.0 || c->weight[1] != 1.0 || c->weight[2] != 1.0)
        return;
    for (int e = 0; e < EPOCHS; e++) {
        memcpy(sorted[e], places + e * n, (size_t)n * 4);
        qsort(sorted[e], (size_t)n, 4, by_value);
        for (int64_t i = 1; i < n; i++)
            cr_assert_lt(sorted[e][i - 1], sorted[e][i], "%s: a sample comes twice in an epoch",
                         c->name);
        cr_assert_arr_eq(sorted[e], sorted[0], (size_t)n * 4, "%s: epochs differ", c->name);
        cr_assert(c->no_shuffle || e == 0 || memcmp(places, places + e * n, (size_t)n * 4),
                  "%s: epochs have the same order", c->name);
    }
}

Test(ranks, no_sample_repeats_or_is_lost)
{
    static int32_t want[MAX_PLACES], got[MAX_PLACES];
    static const int32_t ranks[] = {1, 2, 3, 8};
    for (int k = 0; k < N_CASES; k++) {
        const data_case *c = &cases[k];
        lathe_cursor end;
        lathe_shards *shards = make_sets(c->rows, 3, sizes, c->weight, 23);
        lathe_loader_config config = config_of(c, shards);
        lathe_loader *loader = make_loader(&config);
        const int64_t n = lathe_loader_rows(loader);
        lathe_loader_destroy(loader);
        clear(want);
        const int64_t steps = (EPOCHS * n + 1) / (c->rows == LATHE_ROWS_PAIRS ? B / 2 : B) + 1;
        cr_assert_eq(run_ranks(config, 1, NULL, steps, want, &end), EPOCHS * n);
        cr_expect_eq(end.epoch, EPOCHS);
        check_epochs(c, want, n);
        for (size_t r = 0; r < 4; r++)
            for (int32_t ahead = 0; ahead < 4; ahead += 3) {
                config.n_prefetch = ahead;
                clear(got);
                cr_assert_eq(run_ranks(config, ranks[r], NULL, steps, got, &end), EPOCHS * n);
                cr_assert_arr_eq(got, want, sizeof got, "%s, %d ranks, %d ahead", c->name, ranks[r],
                                 ahead);
            }
        lathe_shards_destroy(shards);
    }
}

Test(ranks, resuming_with_any_number_of_ranks_goes_on_where_it_was)
{
    static int32_t want[MAX_PLACES], got[MAX_PLACES];
    static const int32_t ranks[] = {3, 1, 8, 2, 8, 3, 2, 1};
    for (int k = 0; k < N_CASES; k++) {
        const data_case *c = &cases[k];
        lathe_cursor at, end;
        lathe_shards *shards = make_sets(c->rows, 3, sizes, c->weight, 23);
        lathe_loader_config config = config_of(c, shards);
        clear(want);
        const int64_t total = run_ranks(config, 1, NULL, MAX_PLACES, want, &end);
        for (int32_t first = 0; first < 4; first++) {
            clear(got);
            int64_t done = 0;
            lathe_loader *loader = make_loader(&config);
            lathe_loader_cursor(loader, &at);
            lathe_loader_destroy(loader);
            for (int leg = first; done < total; leg++) { /* a few batches, then a new start */
                config.n_prefetch = leg % 3;
                const int64_t behind =
                    run_ranks(config, ranks[leg % 8], &at, 1 + leg % 5, got, &end);
                at = end;
                done = behind > done ? behind : done;
            }
            cr_assert_arr_eq(got, want, sizeof got, "%s, from leg %d", c->name, first);
        }
        lathe_shards_destroy(shards);
    }
}

/* Row r of rank `rank` among the rows of all ranks. */
static int64_t global_row(int64_t r, int32_t rank, int32_t n_ranks, int32_t n_parts)
{
    const int64_t part = B / n_parts;
    return r / part * part * n_ranks + rank * part + r % part;
}

/* The data have no end-of-text (id 0) of their own. */
static int64_t longest_of(const lathe_batch *b)
{
    int64_t longest = 0;
    for (int64_t r = 0; r < b->n_rows; r++)
        for (int64_t t = 0; t < T; t++)
            if (b->tokens[r * T + t] != 0 && t >= longest)
                longest = t + 1;
    return longest;
}

static void check_parts(const char *name, const lathe_batch *whole, lathe_loader *const *loaders,
                        int32_t n_ranks, int32_t n_parts)
{
    int64_t n_target = 0, n_records = 0, n_filled = 0;
    const int32_t *const want[4] = {whole->tokens, whole->targets, whole->positions,
                                    whole->doc_start};
    for (int32_t rank = 0; rank < n_ranks; rank++) {
        lathe_batch b;
        cr_assert_eq(lathe_loader_next(loaders[rank], &b), LATHE_OK, "%s", lathe_error_message());
        const int32_t *const got[4] = {b.tokens, b.targets, b.positions, b.doc_start};
        for (int64_t r = 0; r < B; r++)
            for (int k = 0; k < 4; k++)
                cr_assert_arr_eq(got[k] + r * T,
                                 want[k] + global_row(r, rank, n_ranks, n_parts) * T, T * 4,
                                 "%s: array %d, row %lld of rank %d of %d", name, k, (long long)r,
                                 rank, n_ranks);
        n_target += b.n_target;
        n_records += b.n_records;
        n_filled += b.n_filled;
        cr_assert_eq(b.n_longest, whole->n_longest, "%s: rank %d of %d", name, rank, n_ranks);
        cr_assert_eq(b.ended, whole->ended);
    }
    cr_assert(n_target == whole->n_target && n_records == whole->n_records &&
                  n_filled == whole->n_filled,
              "%s, %d ranks: %lld targets, %lld records, %lld rows of padding", name, n_ranks,
              (long long)n_target, (long long)n_records, (long long)n_filled);
}

/* Ranks with B rows each have the batch of one rank with all their rows, up to the end of the last
 * epoch, where some have only padding. */
Test(ranks, together_have_the_batch_of_one_rank)
{
    static const data_case unpaired = {"unpaired", LATHE_ROWS_UNPAIRED, 0, 0, 0, {1.0, 1.5, 1.0}};
    static const data_case prompts = {"prompts", LATHE_ROWS_PROMPTS, 0, 0, 0, {1.0, 1.0, 1.0}};
    static const int32_t ranks[] = {1, 2, 3, 8};
    const data_case groups = {"groups", lathe_rows_of_group(B), 0, 0, 0, {1.0, 1.5, 1.0}};
    const data_case *const more[] = {&unpaired, &prompts, &groups};
    for (int k = 0; k < N_CASES + 3; k++) {
        const data_case *c = k < N_CASES ? &cases[k] : more[k - N_CASES];
        lathe_shards *shards = make_sets(c->rows, 3, sizes, c->weight, k < N_CASES ? 23 : 7);
        const lathe_row_shape *shape = lathe_row_shape_get(c->rows);
        for (size_t i = 0; i < 4; i++) {
            lathe_loader *loaders[8], *one;
            lathe_batch whole = {.ended = 0};
            lathe_loader_config config = config_of(c, shards);
            config.n_epochs = 1;
            config.n_ranks = ranks[i];
            for (config.rank = 0; config.rank < ranks[i]; config.rank++)
                loaders[config.rank] = make_loader(&config);
            config.rank = 0;
            config.n_ranks = 1;
            config.n_rows = B * ranks[i];
            one = make_loader(&config);
            while (!whole.ended) {
                cr_assert_eq(lathe_loader_next(one, &whole), LATHE_OK, "%s", lathe_error_message());
                check_parts(c->name, &whole, loaders, ranks[i], shape->n_rows);
                cr_expect_eq(whole.n_longest, shape->is_padded ? longest_of(&whole) : T);
            }
            for (int32_t rank = 0; rank < ranks[i]; rank++)
                lathe_loader_destroy(loaders[rank]);
            lathe_loader_destroy(one);
        }
        lathe_shards_destroy(shards);
    }
}

/* Counts every token of the datasets: as a target and in the row. The last token of a document may
 * be in no row, if a row would have it alone. */
Test(ranks, every_token_of_the_split_comes_once_an_epoch)
{
    for (int k = 0; k < N_CASES; k++) {
        const data_case *c = &cases[k];
        if (c->rows == LATHE_ROWS_PAIRS) /* these are cut after T */
            continue;
        static const double ones[3] = {1.0, 1.0, 1.0};
        lathe_shards *shards = make_sets(c->rows, 3, sizes, ones, 23);
        const int64_t n = lathe_shards_tokens(shards);
        int64_t n_spare = 0, n_spare_facts = 0;
        int32_t *seen = calloc((size_t)n + 1, 4), *targets = calloc((size_t)n + 1, 4);
        for (int32_t split = 0; split < 1 + (c->validation_count > 0); split++) {
            lathe_loader_config config = config_of(c, shards);
            config.split = split;
            config.n_epochs = 1;
            lathe_loader *loader = make_loader(&config);
            lathe_loader_facts facts;
            lathe_batch b;
            lathe_loader_facts_get(loader, &facts);
            n_spare_facts += facts.n_spare;
            while (lathe_loader_next(loader, &b) == LATHE_OK && !b.ended)
                for (int64_t i = 0; i < B * T; i++) {
                    seen[b.tokens[i]] += b.tokens[i] > 0;
                    if (b.targets[i] >= 0)
                        targets[b.targets[i]]++;
                }
            lathe_loader_destroy(loader);
        }
        for (int64_t s = 0; s < lathe_shards_segments(shards); s++)
            for (int64_t i = lathe_shards_offset(shards, s); i < lathe_shards_offset(shards, s + 1);
                 i++) { /* the first token of a document is no target */
                const int is_last = i + 1 == lathe_shards_offset(shards, s + 1);
                n_spare += seen[i + 1] == 0;
                cr_assert(seen[i + 1] == 1 || (seen[i + 1] == 0 && is_last),
                          "%s: token %lld, %d times", c->name, (long long)i, seen[i + 1]);
                cr_assert_eq(targets[i + 1], i > lathe_shards_offset(shards, s), "%s: target %lld",
                             c->name, (long long)i);
            }
        cr_expect_eq(n_spare, n_spare_facts, "%s: %lld tokens are in no row", c->name,
                     (long long)n_spare);
        free(seen);
        free(targets);
        lathe_shards_destroy(shards);
    }
}

/* ---- a prefetch thread that is sometimes slow ---- */

static pthread_t main_thread;
static atomic_int n_delays;

/* Replaces the library's function, which it calls: the thread sleeps at random before it reads. */
lathe_status lathe_shards_read(const lathe_shards *shards, int64_t begin, int64_t end, int32_t *out)
{
    static lathe_status (*original)(const lathe_shards *, int64_t, int64_t, int32_t *);
    if (!original) {
        void *symbol = dlsym(RTLD_NEXT, "lathe_shards_read");
        memcpy(&original, &symbol, sizeof symbol);
    }
    if (main_thread && !pthread_equal(pthread_self(), main_thread)) {
        const int i = atomic_fetch_add(&n_delays, 1);
        const lathe_u32x4 word = lathe_rng_block(3, 0, 0, (uint64_t)i);
        if (word.v[0] % 8 == 0)
            (void)usleep(word.v[1] % 1500);
    }
    return original(shards, begin, end, out);
}

Test(ranks, a_slow_prefetch_thread_cannot_change_the_order)
{
    enum { STEPS = 60 };
    static const double ones[3] = {1.0, 1.0, 1.0};
    static int32_t want[STEPS][4 * B * T];
    lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 3, sizes, ones, 23);
    main_thread = pthread_self();
    for (int32_t ahead = 0; ahead <= 8; ahead += 4) {
        lathe_loader_config config = config_of(&cases[0], shards);
        config.n_epochs = 0;
        config.n_prefetch = ahead;
        lathe_loader *loader = make_loader(&config);
        for (int k = 0; k < STEPS; k++) {
            const int32_t *const *part;
            lathe_batch b;
            cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
            const int32_t *const parts[4] = {b.tokens, b.targets, b.positions, b.doc_start};
            part = parts;
            for (int p = 0; p < 4; p++)
                if (ahead == 0)
                    memcpy(want[k] + p * B * T, part[p], B * T * 4);
                else
                    cr_assert_arr_eq(want[k] + p * B * T, part[p], B * T * 4, "batch %d, %d ahead",
                                     k, ahead);
            if (k % 7 == 0)
                (void)usleep(700); /* sometimes this thread is the slow one */
        }
        lathe_loader_destroy(loader);
    }
    cr_expect_gt(n_delays, 100, "the thread was not delayed: %d reads", n_delays);
    lathe_shards_destroy(shards);
}
