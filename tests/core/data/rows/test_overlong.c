/* Pairs and examples that are longer than a row, or that say nothing: counted, cut or left out, and
 * named by file and line. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/rows/loader.h"
#include "tokenizer/json/tokenizer_file.h"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;
static lathe_loader_facts facts;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_overlong_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    lathe_shards_destroy(shards);
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(overlong, .init = setup, .fini = teardown);
TestSuite(equal_pairs, .init = setup, .fini = teardown);

static void put(const char *name, const char *text)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
}

static void prepare(const lathe_dataset *datasets, int64_t n, int32_t rows)
{
    lathe_shards_destroy(shards);
    shards = NULL;
    cr_assert_eq(lathe_shards_prepare(datasets, n, rows, raw, at("cache"), NULL, NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
}

/* The rows of 6 tokens. */
static void load(int32_t n_rows, int32_t overlong)
{
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = n_rows,
                                        .row_tokens = 6,
                                        .no_shuffle = 1,
                                        .n_epochs = 1,
                                        .packing = LATHE_PACK_AUTO,
                                        .overlong = overlong};
    lathe_loader *loader = NULL;
    cr_assert_eq(lathe_loader_create(&config, &loader), LATHE_OK, "%s", lathe_error_message());
    lathe_loader_facts_get(loader, &facts);
    lathe_loader_destroy(loader);
}

static void check_where(int64_t record, const char *name, int64_t want_line)
{
    const lathe_source *source = NULL;
    int64_t line = 0;
    cr_assert(lathe_shards_where(shards, record, &source, &line));
    cr_expect_str_eq(source->path, at(name));
    cr_expect_eq(line, want_line, "record %lld: line %lld", (long long)record, (long long)line);
}

/* Lines 1, 3 and 4 fit, cut after 6 tokens or not; of line 2 the prompt fills the row. */
static const char examples[] = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
                               "{\"prompt\": \"abcdef\", \"completion\": \"c\"}\n"
                               "{\"prompt\": \"ab\", \"completion\": \"cdef\"}\n"
                               "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n";

Test(overlong, examples_are_cut_or_left_out_and_named_by_line)
{
    put("a.jsonl", examples);
    put("b.jsonl", "\n{\"completion\": \"\"}\n{\"completion\": \"abcdefgh\"}\n");
    const lathe_dataset datasets[] = {{.path = at("a.jsonl"), .type = LATHE_DATASET_AUTO},
                                      {.path = at("b.jsonl"), .type = LATHE_DATASET_AUTO}};
    for (int i = 0; i < 2; i++) { /* made, and from the cache */
        prepare(datasets, 2, LATHE_ROWS_COMPLETIONS);
        load(1, LATHE_OVERLONG_CUT);
        cr_expect_eq(facts.n_left_out, 1);
        cr_expect_eq(facts.n_overlong, 2);
        cr_expect_eq(facts.n_cut, 2);
        cr_expect_eq(facts.n_documents, 4);
        check_where(facts.left_out[0], "a.jsonl", 2);
        check_where(facts.overlong[0], "a.jsonl", 3);
        check_where(facts.overlong[1], "b.jsonl", 3);
        load(1, LATHE_OVERLONG_LEAVE_OUT);
        cr_expect_eq(facts.n_left_out, 1);
        cr_expect_eq(facts.n_overlong, 2);
        cr_expect_eq(facts.n_cut, 0);
        cr_expect_eq(facts.n_documents, 2);
        cr_expect_eq(facts.n_tokens, 4 + 6);
    }
}

/* Chosen and rejected count apart: the second pair is too long for its rejected completion. */
Test(overlong, pairs_are_cut_or_left_out_and_named_by_line)
{
    put("p.csv", "prompt,chosen,rejected\n"
                 "ab,c,d\n"
                 "ab,c,defg\n"
                 "\"ab\ncdef\",g,h\n"
                 "ab,cdef,g\n");
    const lathe_dataset dataset = {.path = at("p.csv"), .type = LATHE_DATASET_AUTO};
    prepare(&dataset, 1, LATHE_ROWS_PAIRS);
    load(2, LATHE_OVERLONG_CUT);
    cr_expect_eq(facts.n_left_out, 1);
    cr_expect_eq(facts.n_overlong, 2);
    cr_expect_eq(facts.n_cut, 2);
    cr_expect_eq(facts.n_documents, 3);
    check_where(facts.left_out[0], "p.csv", 4);
    check_where(facts.overlong[0], "p.csv", 3);
    check_where(facts.overlong[1], "p.csv", 6);
    load(2, LATHE_OVERLONG_LEAVE_OUT);
    cr_expect_eq(facts.n_documents, 1);
    cr_expect_eq(facts.n_cut, 0);
}

Test(equal_pairs, are_counted_and_the_first_is_named)
{
    put("a.jsonl", "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                   "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"\\u0061\"}\n");
    put("b.jsonl", "{\"chosen\": \"xy\", \"rejected\": \"xyz\"}\n\n"
                   "{\"chosen\": \"xy\", \"rejected\": \"xy\"}\n"
                   "{\"chosen\": \"\", \"rejected\": \"\"}\n");
    const lathe_dataset datasets[] = {{.path = at("a.jsonl"), .type = LATHE_DATASET_AUTO},
                                      {.path = at("b.jsonl"), .type = LATHE_DATASET_AUTO}};
    for (int i = 0; i < 2; i++) {
        prepare(datasets, 2, LATHE_ROWS_PAIRS);
        const lathe_shards_set *a = lathe_shards_set_get(shards, 0);
        const lathe_shards_set *b = lathe_shards_set_get(shards, 1);
        cr_expect_eq(a->counts.n_equal, 1);
        cr_expect_eq(b->counts.n_equal, 2);
        check_where(a->counts.first_equal, "a.jsonl", 2);
        check_where(b->counts.first_equal, "b.jsonl", 3);
    }
}
