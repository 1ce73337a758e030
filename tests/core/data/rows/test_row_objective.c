/* Rows of prefix and masked objectives: by hand, in their shares, and the same for any number of
 * ranks, after a seek, and in every evaluation. */
#include <math.h>
#include <stdio.h>

#include "data/rows/loader_rows.h"
#include "support/data_sets.h"

enum { T = 16, B = 4, MAX = 1 << 14 };

static uint8_t kept[MAX];
static int32_t others[MAX];

/* An objective over ids below MOST. Every seventh id is special, and the mask token is the last. */
static lathe_row_objective objective_of(int32_t kind)
{
    lathe_row_objective o = {.stage = {.size = sizeof o.stage,
                                       .kind = kind,
                                       .mask_probability = 0.15,
                                       .mask_share = 0.8,
                                       .random_share = 0.1},
                             .mask_token = MAX - 1,
                             .n_tokens = MAX,
                             .is_kept = kept,
                             .others = others};
    for (int32_t id = 0; id < MAX; id++) {
        kept[id] = id % 7 == 0 || id == MAX - 1;
        if (!kept[id])
            others[o.n_others++] = id;
    }
    return o;
}

/* ---- rows by hand ---- */

typedef struct hand_row {
    int32_t tokens[T], targets[T], positions[T], doc_start[T], key_end[T];
} hand_row;

/* Documents of 5, 1 and 7 tokens and three of padding; the ids are 100 and on. The document of 7
 * continues in the next row if `more`. */
static lathe_row hand(hand_row *r, int more)
{
    static const int ends[] = {5, 6, 13, 16};
    for (int i = 0, d = 0; i < T; i++) {
        d += i == ends[d];
        r->tokens[i] = 100 + i;
        r->doc_start[i] = d > 0 ? ends[d - 1] : 0;
        r->positions[i] = i - r->doc_start[i];
        r->targets[i] = d < 3 && (i + 1 < ends[d] || (d == 2 && more)) ? 101 + i : -1;
        r->key_end[i] = -7;
    }
    return (lathe_row){.tokens = r->tokens,
                       .targets = r->targets,
                       .positions = r->positions,
                       .doc_start = r->doc_start,
                       .key_end = r->key_end,
                       .n_tokens = T};
}

Test(row_objective, a_prefix_of_half_the_document)
{
    /* 5 tokens: a prefix of round(2.5) = 3; 7 and the next row's: of 8, 4 */
    static const int32_t targets[T] = {-1, -1,  103, 104, -1,  -1, -1, -1,
                                       -1, 110, 111, 112, 113, -1, -1, -1};
    static const int32_t key_end[T] = {3, 3, 3, 4, 5, 6, 10, 10, 10, 10, 11, 12, 13, 14, 15, 16};
    lathe_row_objective o = objective_of(LATHE_OBJECTIVE_PREFIX);
    o.stage.prefix_fraction = 0.5;
    hand_row r;
    lathe_row row = hand(&r, 1);
    cr_expect_eq(lathe__row_objective_apply(&o, 1, 0, &row), 6);
    cr_expect_arr_eq(r.targets, targets, sizeof targets);
    cr_expect_arr_eq(r.key_end, key_end, sizeof key_end);
    for (int i = 0; i < T; i++)
        cr_expect_eq(r.tokens[i], 100 + i);
}

Test(row_objective, a_prefix_leaves_a_target_and_is_not_empty)
{
    lathe_row_objective o = objective_of(LATHE_OBJECTIVE_PREFIX);
    const double shares[] = {1e-9, 0.999999, 0.0};
    for (int k = 0; k < 3; k++)
        for (int64_t place = 0; place < 200; place++)
            for (int more = 0; more < 2; more++) {
                hand_row r;
                lathe_row row = hand(&r, more);
                o.stage.prefix_fraction = shares[k];
                lathe__row_objective_apply(&o, 5, place, &row);
                cr_assert_geq(r.key_end[0], 1);
                cr_assert_leq(r.key_end[0], 4);
                cr_assert_eq(r.targets[3], 104); /* the last token is always learnt */
                cr_assert_geq(r.key_end[6], 7);
                cr_assert_leq(r.key_end[6], 12 + more);
                cr_assert_eq(r.targets[11 + more], 112 + more);
                cr_assert(k != 0 || (r.key_end[0] == 1 && r.targets[0] == 101));
                cr_assert(k != 1 || (r.key_end[0] == 4 && r.targets[2] == -1));
            }
}

Test(row_objective, every_token_can_be_masked_but_special_ones)
{
    lathe_row_objective o = objective_of(LATHE_OBJECTIVE_MASKED);
    o.stage.mask_probability = 1.0;
    o.stage.mask_share = 1.0;
    o.stage.random_share = 0.0;
    static const int32_t ends[T] = {5, 5, 5, 5, 5, 6, 13, 13, 13, 13, 13, 13, 13, 14, 15, 16};
    hand_row r;
    lathe_row row = hand(&r, 0);
    cr_expect_eq(lathe__row_objective_apply(&o, 1, 0, &row), 11);
    cr_expect_arr_eq(r.key_end, ends, sizeof ends);
    for (int i = 0; i < T; i++) {
        /* 105 and 112 are special; token 5 is alone in its document; 13 and on are padding */
        const int is_masked = i < 13 && i != 5 && (100 + i) % 7 != 0;
        cr_expect_eq(r.targets[i], is_masked ? 100 + i : -1, "target %d is %d", i, r.targets[i]);
        cr_expect_eq(r.tokens[i], is_masked ? MAX - 1 : 100 + i, "token %d is %d", i, r.tokens[i]);
    }
}

/* ---- shares ---- */

static void expect_share(const char *what, double n, double of, double share)
{
    const double sigma = sqrt(of * share * (1.0 - share));
    cr_expect(fabs(n - of * share) < 5.0 * sigma, "%s: %.0f of %.0f, expected %.4f", what, n, of,
              share);
}

Test(row_objective, shares_are_those_of_bert)
{
    const lathe_row_objective o = objective_of(LATHE_OBJECTIVE_MASKED);
    double n_all = 0, n_chosen = 0, n_mask = 0, n_random = 0, n_same = 0, sum = 0;
    for (int64_t place = 0; place < 20000; place++) {
        hand_row r, plain;
        lathe_row row = hand(&r, 0);
        (void)hand(&plain, 0);
        lathe__row_objective_apply(&o, 99, place, &row);
        for (int i = 0; i < 13; i++) {
            const int was = plain.tokens[i];
            if (i == 5 || was % 7 == 0) {
                cr_assert(r.tokens[i] == was && r.targets[i] == -1);
                continue;
            }
            n_all++;
            if (r.targets[i] < 0) {
                cr_assert_eq(r.tokens[i], was);
                continue;
            }
            cr_assert_eq(r.targets[i], was);
            n_chosen++;
            n_mask += r.tokens[i] == MAX - 1;
            n_same += r.tokens[i] == was;
            if (r.tokens[i] != MAX - 1 && r.tokens[i] != was) {
                cr_assert(r.tokens[i] >= 0 && r.tokens[i] < MAX && r.tokens[i] % 7 != 0);
                n_random++;
                sum += r.tokens[i];
            }
        }
    }
    expect_share("chosen", n_chosen, n_all, 0.15);
    expect_share("masked", n_mask, n_chosen, 0.8);
    expect_share("random", n_random, n_chosen, 0.1);
    expect_share("unchanged", n_same, n_chosen, 0.1);
    /* the mean of a uniform id: MOST/2, sigma MOST/sqrt(12 n) */
    cr_expect_float_eq(sum / n_random, MAX / 2.0, 5.0 * MAX / sqrt(12.0 * n_random));
}

Test(row_objective, prefix_lengths_are_uniform)
{
    const lathe_row_objective o = objective_of(LATHE_OBJECTIVE_PREFIX);
    double n[8] = {0};
    enum { PLACES = 30000 };
    for (int64_t place = 0; place < PLACES; place++) {
        hand_row r;
        lathe_row row = hand(&r, 0);
        lathe__row_objective_apply(&o, 3, place, &row);
        n[r.key_end[6] - 6]++; /* of the document of 7 */
    }
    cr_expect_eq(n[0] + n[7], 0);
    for (int length = 1; length <= 6; length++)
        expect_share("length", n[length], PLACES, 1.0 / 6.0);
}

/* ---- loaders ---- */

enum { ROWS = 24, VALUES = ROWS * T };

typedef struct read_rows {
    int32_t tokens[VALUES], targets[VALUES], key_end[VALUES];
    int64_t n_target;
} read_rows;

/* Reads ROWS rows from `place` on, by n_ranks ranks. */
static void read_all(lathe_loader_config config, int32_t n_ranks, int64_t place, read_rows *out)
{
    config.n_rows = 12 / n_ranks;
    config.n_ranks = n_ranks;
    out->n_target = 0;
    for (config.rank = 0; config.rank < n_ranks; config.rank++) {
        lathe_loader *loader = make_loader(&config);
        lathe_cursor at;
        lathe_loader_cursor(loader, &at);
        at.epoch = place / at.rows_per_epoch;
        at.index = place % at.rows_per_epoch;
        cr_assert_eq(lathe_loader_seek(loader, &at), LATHE_OK);
        for (int64_t k = 0; k * 12 < ROWS; k++) {
            lathe_batch b;
            cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
            const int64_t to = (k * 12 + config.rank * config.n_rows) * T;
            const size_t bytes = (size_t)config.n_rows * T * 4;
            memcpy(out->tokens + to, b.tokens, bytes);
            memcpy(out->targets + to, b.targets, bytes);
            cr_assert_eq(b.key_end != NULL, config.objective != NULL);
            if (b.key_end)
                memcpy(out->key_end + to, b.key_end, bytes);
            int64_t n = 0;
            for (int64_t i = 0; i < (int64_t)config.n_rows * T; i++)
                n += b.targets[i] >= 0;
            cr_assert_eq(b.n_target, n);
            out->n_target += n;
        }
        lathe_loader_destroy(loader);
    }
}

static int is_same(const read_rows *a, const read_rows *b)
{
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           memcmp(a->targets, b->targets, sizeof a->targets) == 0 &&
           memcmp(a->key_end, b->key_end, sizeof a->key_end) == 0;
}

Test(row_objective, rows_are_those_of_one_rank_and_of_any_start)
{
    static const int64_t sizes[3] = {40, 73, 21};
    static const double weights[3] = {1.0, 1.0, 1.0};
    static read_rows one, other, late;
    for (int32_t kind = LATHE_OBJECTIVE_PREFIX; kind < LATHE_N_OBJECTIVES; kind++)
        for (int32_t packing = LATHE_PACK_SEQUENTIAL; packing <= LATHE_PACK_MULTIPACK; packing++) {
            const lathe_row_objective o = objective_of(kind);
            lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 3, sizes, weights, 23);
            lathe_loader_config config = {
                .shards = shards, .row_tokens = T, .seed = 11, .packing = packing, .objective = &o};
            read_all(config, 1, 0, &one);
            cr_assert_gt(one.n_target, 0);
            for (int32_t n = 2; n <= 6; n += 2)
                for (config.n_prefetch = 0; config.n_prefetch < 4; config.n_prefetch += 3) {
                    read_all(config, n, 0, &other);
                    cr_expect(is_same(&one, &other), "kind %d, %d ranks", kind, n);
                }
            config.n_prefetch = 0;
            read_all(config, 2, 12, &late);
            cr_expect_arr_eq(late.tokens, one.tokens + VALUES / 2, VALUES / 2 * 4);
            cr_expect_arr_eq(late.key_end, one.key_end + VALUES / 2, VALUES / 2 * 4);
            config.seed = 12;
            read_all(config, 1, 0, &other);
            cr_expect_not(is_same(&one, &other));
            lathe_shards_destroy(shards);
        }
}

/* Without shuffling, row r of every epoch is the same: an evaluation begins at place 0, so it has
 * the same masks each time, and the second epoch of a training has others. */
Test(row_objective, epochs_differ_and_evaluations_do_not)
{
    static const int64_t sizes[1] = {60};
    static const double weights[1] = {1.0};
    static read_rows first, again, second, plain, plain_second;
    for (int32_t kind = LATHE_OBJECTIVE_PREFIX; kind < LATHE_N_OBJECTIVES; kind++) {
        const lathe_row_objective o = objective_of(kind);
        lathe_shards *shards = make_sets(LATHE_ROWS_PACKED, 1, sizes, weights, 23);
        lathe_loader_config config = {
            .shards = shards, .row_tokens = T, .seed = 11, .no_shuffle = 1, .n_rows = 1};
        lathe_loader *loader = make_loader(&config);
        const int64_t n = lathe_loader_rows(loader);
        lathe_loader_destroy(loader);
        read_all(config, 1, 0, &plain);
        read_all(config, 1, n, &plain_second);
        cr_expect_arr_eq(plain.tokens, plain_second.tokens, sizeof plain.tokens);
        config.objective = &o;
        read_all(config, 1, 0, &first);
        read_all(config, 3, 0, &again);
        read_all(config, 1, n, &second);
        cr_expect(is_same(&first, &again));
        cr_expect_not(is_same(&first, &second));
        lathe_shards_destroy(shards);
    }
}

/* ---- tokens ---- */

static lathe_status init(const char *mask_token, lathe_row_objective *out)
{
    static lathe_arena arena;
    lathe_tokenizer *tok = NULL;
    const lathe_objective stage = {.size = sizeof stage,
                                   .kind = LATHE_OBJECTIVE_MASKED,
                                   .mask_probability = 0.15,
                                   .mask_token = mask_token};
    cr_assert_eq(lathe_tokenizer_bytes(&tok), LATHE_OK);
    const lathe_status status = lathe_row_objective_init(&stage, tok, &arena, out);
    lathe_tokenizer_destroy(tok);
    return status;
}

Test(row_objective, the_mask_token_is_found_or_refused)
{
    lathe_row_objective o;
    cr_assert_eq(init("~", &o), LATHE_OK);
    cr_expect_eq(o.mask_token, '~');
    cr_expect(o.is_kept['~'] && o.is_kept[256] && !o.is_kept['a']);
    cr_expect_eq(o.n_others, 255);
    cr_expect_eq(init(NULL, &o), LATHE_E_CONFIG);
    cr_expect_str_eq(lathe_error_message(),
                     "mask_token is unset, and raw bytes have none: set stage.mask_token to the "
                     "text of a token that the data do not use, such as a reserved one");
    cr_expect_eq(init("<mask>", &o), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "mask_token \"<mask>\" is not a token"));
}
