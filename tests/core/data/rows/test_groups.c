/* Groups of answers: the rows of a batch, padding, and the parts of several ranks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/rows/loader.h"
#include "tokenizer/json/tokenizer_file.h"

enum { EOS = 256, T = 8 };

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_loader *loader;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_groups_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    lathe_loader_destroy(loader);
    lathe_shards_destroy(shards);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(groups, .init = setup, .fini = teardown);

/* Records with three answers each. */
static void prepare(const char *text)
{
    const lathe_dataset dataset = {.path = at("g.jsonl"), .type = LATHE_DATASET_AUTO};
    cr_assert_eq(lathe_file_write_atomic(at("g.jsonl"), text, (int64_t)strlen(text)), LATHE_OK);
    cr_assert_eq(lathe_shards_prepare(&dataset, 1, lathe_rows_of_group(3), raw, at("cache"), NULL,
                                      NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
}

static lathe_status open_loader(int32_t n_rows, int32_t rank, int32_t n_ranks)
{
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = n_rows,
                                        .row_tokens = T,
                                        .rank = rank,
                                        .n_ranks = n_ranks,
                                        .no_shuffle = 1,
                                        .n_epochs = 1,
                                        .packing = LATHE_PACK_AUTO};
    return lathe_loader_create(&config, &loader);
}

/* A row as text: | is the end of text. Then its targets: _ is none. */
static void check_row(const lathe_batch *b, int32_t r, const char *tokens, const char *targets)
{
    for (int32_t t = 0; t < T; t++) {
        const int32_t token = b->tokens[r * T + t], target = b->targets[r * T + t];
        cr_expect_eq(token == EOS ? '|' : token, tokens[t], "token %d of row %d", t, r);
        cr_expect_eq(target == EOS ? '|'
                     : target < 0  ? '_'
                                   : target,
                     targets[t], "target %d of row %d is %d", t, r, target);
    }
}

#define THREE                                                                                      \
    "{\"prompt\": \"a\", \"completions\": [\"B\", \"CC\", \"D\"]}\n"                               \
    "{\"prompt\": \"ef\", \"completions\": [\"G\", \"H\", \"III\"]}\n"                             \
    "{\"prompt\": \"j\", \"completions\": [\"K\", \"L\", \"M\"]}\n"

/* Row k * P + i is answer k of record i, of P records. */
Test(groups, rows_are_ordered_by_answer)
{
    lathe_batch b;
    prepare(THREE);
    cr_assert_eq(open_loader(6, 0, 1), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(b.n_records, 2);
    cr_expect_eq(b.n_longest, 6); /* e f I I I and the end */
    check_row(&b, 0, "aB||||||", "B|______");
    check_row(&b, 1, "efG|||||", "_G|_____");
    check_row(&b, 2, "aCC|||||", "CC|_____");
    check_row(&b, 3, "efH|||||", "_H|_____");
    check_row(&b, 4, "aD||||||", "D|______");
    check_row(&b, 5, "efIII|||", "_III|___");
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK); /* one record, then padding */
    cr_expect(b.n_records == 1 && b.n_filled == 1);
    check_row(&b, 0, "jK||||||", "K|______");
    check_row(&b, 1, "||||||||", "________");
    check_row(&b, 4, "jM||||||", "M|______");
    check_row(&b, 5, "||||||||", "________");
}

Test(groups, of_two_ranks_are_those_of_one)
{
    lathe_batch b;
    prepare(THREE);
    cr_assert_eq(open_loader(3, 1, 2), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(b.n_records, 1);
    check_row(&b, 0, "efG|||||", "_G|_____");
    check_row(&b, 2, "efIII|||", "_III|___");
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    cr_expect(b.n_records == 0 && b.n_filled == 1);
}

Test(groups, need_whole_records_in_a_batch)
{
    prepare(THREE);
    cr_assert_eq(open_loader(4, 0, 1), LATHE_E_ARG);
    cr_expect_str_eq(lathe_error_message(),
                     "4 rows in a batch; expected a multiple of 3, the rows of a record");
}

/* Rows of stages, as numbers that shards keep. */
Test(groups, have_a_number_for_each_count_of_answers)
{
    const lathe_stage_v1 four = {.rows = LATHE_ROWS_GROUPS, .n_answers = 4};
    cr_expect_eq(lathe_rows_of(NULL), LATHE_ROWS_PACKED);
    cr_expect_eq(lathe_rows_of(&four), lathe_rows_of_group(4));
    cr_expect_eq(lathe_rows_kind(lathe_rows_of_group(4)), LATHE_ROWS_GROUPS);
    for (int32_t n = -1; n < 20; n++) {
        const int is_valid = n >= 2 && n <= LATHE_MAX_ANSWERS;
        cr_expect_eq(lathe_rows_valid(lathe_rows_of_group(n)), is_valid, "%d answers", n);
        if (is_valid)
            cr_expect(lathe_row_shape_get(lathe_rows_of_group(n))->n_rows == n &&
                      lathe_row_kind_get(lathe_rows_of_group(n))->n_segments == 1 + n);
    }
    for (int32_t rows = -2; rows < 300; rows++)
        cr_expect_eq(lathe_rows_valid(rows), rows >= 0 && rows < LATHE_ROWS_GROUPS, "%d", rows);
}
