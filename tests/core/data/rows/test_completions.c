/* Examples of a prompt and its completion: which tokens are targets, in shards and in rows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/log.h"
#include "data/rows/loader.h"
#include "tokenizer/json/tokenizer_file.h"

enum { EOS = 256 }; /* of the bytes tokenizer */

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;
static lathe_shards *shards;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_completions_XXXXXX");
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

TestSuite(completions, .init = setup, .fini = teardown);

static lathe_status prepare(const char *name, const char *text, const lathe_tokenizer *tok)
{
    const lathe_dataset dataset = {.path = at(name), .type = LATHE_DATASET_AUTO};
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
    return lathe_shards_prepare(&dataset, 1, LATHE_ROWS_COMPLETIONS, tok, at("cache"), NULL, NULL,
                                &shards);
}

/* One character per token of the stream: the token's own if it is a target, else `_`; | is the end
 * of text. */
static void check_targets(const char *want)
{
    const int64_t n = lathe_shards_tokens(shards);
    int32_t ids[64];
    cr_assert_eq(n, (int64_t)strlen(want));
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    lathe_shards_mask(shards, 0, n, ids);
    for (int64_t i = 0; i < n; i++)
        cr_expect_eq(ids[i] < 0      ? '_'
                     : ids[i] == EOS ? '|'
                                     : ids[i],
                     want[i], "token %lld", (long long)i);
}

static lathe_loader *open_loader(int32_t n_rows, int32_t row_tokens)
{
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = n_rows,
                                        .row_tokens = row_tokens,
                                        .no_shuffle = 1,
                                        .n_epochs = 1,
                                        .packing = LATHE_PACK_AUTO};
    lathe_loader *loader = NULL;
    cr_assert_eq(lathe_loader_create(&config, &loader), LATHE_OK, "%s", lathe_error_message());
    return loader;
}

Test(completions, only_tokens_of_the_completion_are_targets)
{
    cr_assert_eq(prepare("a.jsonl",
                         "{\"prompt\": \"ask\", \"completion\": \"yes\"}\n"
                         "{\"completion\": \"alone\"}\n"
                         "{\"prompt\": \"none\", \"completion\": \"\"}\n",
                         raw),
                 LATHE_OK, "%s", lathe_error_message());
    check_targets("___yes|alone|");
    cr_expect_eq(lathe_shards_segments(shards), 2);
    cr_expect_eq(lathe_shards_skipped(shards), 1, "an empty completion teaches nothing");
    cr_expect_eq(lathe_shards_first_target(shards, 0, 7), 3);
    cr_expect_eq(lathe_shards_first_target(shards, 0, 3), 3, "there is none");
    lathe_shards_destroy(shards);
    shards = NULL;
    cr_assert_eq(prepare("a.csv", "completion,prompt\nb,a\n\"d\",\n", raw), LATHE_OK, "%s",
                 lathe_error_message());
    check_targets("_b|d|");
}

Test(completions, a_row_holds_whole_examples_that_do_not_see_each_other)
{
    static const int32_t tokens[] = {'a', 'b', 'c', EOS, 'x', 'y', EOS, EOS};
    static const int32_t targets[] = {-1, 'c', EOS, -1, 'y', EOS, -1, -1};
    static const int32_t positions[] = {0, 1, 2, 3, 0, 1, 2, 0};
    lathe_batch b;
    cr_assert_eq(prepare("a.jsonl",
                         "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
                         "{\"prompt\": \"x\", \"completion\": \"y\"}\n",
                         raw),
                 LATHE_OK);
    lathe_loader *loader = open_loader(1, 8);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    cr_expect_arr_eq(b.tokens, tokens, sizeof tokens);
    cr_expect_arr_eq(b.targets, targets, sizeof targets);
    cr_expect_arr_eq(b.positions, positions, sizeof positions);
    cr_expect_eq(b.n_target, 4);
    lathe_loader_destroy(loader);
}

/* The first example is cut after 4 tokens; the second has its first target after them. */
Test(completions, a_long_example_is_cut_and_one_without_a_target_is_left_out)
{
    static const int32_t tokens[] = {'a', 'b', 'c', 'd'}, targets[] = {-1, 'c', 'd', -1};
    lathe_loader_facts facts;
    lathe_batch b;
    cr_assert_eq(prepare("a.jsonl",
                         "{\"prompt\": \"ab\", \"completion\": \"cdefg\"}\n"
                         "{\"prompt\": \"long\", \"completion\": \"x\"}\n"
                         "{\"prompt\": \"l\", \"completion\": \"x\"}\n",
                         raw),
                 LATHE_OK);
    lathe_loader *loader = open_loader(2, 4);
    lathe_loader_facts_get(loader, &facts);
    cr_expect_eq(facts.n_documents, 2);
    cr_expect_eq(facts.n_left_out, 1);
    cr_expect_eq(facts.n_cut, 1);
    cr_expect_eq(facts.n_tokens, 4 + 3);
    cr_expect_eq(facts.n_rows, 2);
    cr_assert_eq(lathe_loader_next(loader, &b), LATHE_OK);
    cr_expect_arr_eq(b.tokens, tokens, sizeof tokens);
    cr_expect_arr_eq(b.targets, targets, sizeof targets);
    cr_expect_eq(b.n_target, 2 + 2);
    lathe_loader_destroy(loader);
}

Test(completions, missing_columns_and_plain_text_are_refused)
{
    cr_expect_eq(prepare("a.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n", raw),
                 LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "a.jsonl:1: no column \"completion\"; the "
                                                     "columns are prompt, answer"),
                       "%s", lathe_error_message());
    cr_expect_eq(prepare("a.txt", "text", raw), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(), "examples come from a dataset of type jsonl"),
                       "%s", lathe_error_message());
}

/* A prepared file whose mask is incomplete, or whose header states another kind of rows. */
Test(completions, a_damaged_mask_is_found)
{
    char *data = NULL, **names = NULL;
    int64_t bytes = 0, n = 0;
    cr_assert_eq(prepare("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n", raw),
                 LATHE_OK);
    cr_assert_eq(lathe_dir_list(at("cache"), &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, 1);
    const char *path = lathe_path_join(&arena, at("cache"), names[0]);
    cr_assert_eq(lathe_file_read(path, 0, &data, &bytes), LATHE_OK);
    lathe_shards_destroy(shards);
    shards = NULL;
    data[bytes - 8] ^= 1; /* the first word of the mask */
    cr_assert_eq(lathe_file_write_atomic(path, data, bytes), LATHE_OK);
    cr_expect_eq(prepare("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n", raw),
                 LATHE_E_CORRUPT);
    cr_assert_eq(lathe_file_write_atomic(path, data, bytes - 8), LATHE_OK);
    cr_expect_eq(prepare("a.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n", raw),
                 LATHE_E_CORRUPT);
    free(data);
}

static char warning[512];

static void keep_warning(void *arg, int32_t level, const char *text)
{
    (void)arg, (void)level;
    (void)snprintf(warning, sizeof warning, "%s", text);
}

/* GPT-2 has a token for a space and the word after it. */
Test(completions, a_prompt_that_ends_with_a_space_gives_a_warning)
{
    lathe_tokenizer *tok = NULL;
    cr_assert_eq(lathe_tokenizer_load(LATHE_TEST_DATA "/golden/data/tokenizer/gpt2.json", &tok),
                 LATHE_OK);
    lathe_log_set_sink(keep_warning, NULL);
    cr_assert_eq(prepare("a.jsonl", "{\"prompt\": \"a \", \"completion\": \"the\"}\n", tok),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_not_null(strstr(warning, "in 1 records the end of the prompt merges with the "
                                       "completion; those tokens count as completion: these "
                                       "prompts end with a space; begin the completions with it"),
                       "%s", warning);
    lathe_shards_destroy(shards);
    shards = NULL;
    warning[0] = '\0';
    cr_assert_eq(prepare("b.jsonl", "{\"prompt\": \"a\", \"completion\": \" the\"}\n", tok),
                 LATHE_OK);
    cr_expect_str_empty(warning);
    lathe_log_set_sink(NULL, NULL);
    lathe_tokenizer_destroy(tok);
}

static void compare_with_golden(const char *name)
{
    char path[512];
    json_t *golden;
    lathe_tokenizer *tok;
    snprintf(path, sizeof path, LATHE_TEST_DATA "/golden/data/tokenizer/%s.json", name);
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK);
    const lathe_dataset dataset = {.path =
                                       LATHE_TEST_DATA "/golden/data/completions/completions.jsonl",
                                   .type = LATHE_DATASET_AUTO};
    cr_assert_eq(lathe_shards_prepare(&dataset, 1, LATHE_ROWS_COMPLETIONS, tok, at("cache"), NULL,
                                      NULL, &shards),
                 LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(
        lathe_json_load_file(LATHE_TEST_DATA "/golden/data/completions/completions.json", &golden),
        LATHE_OK);
    const json_t *want = json_object_get(golden, name);
    cr_assert_eq(lathe_shards_segments(shards), (int64_t)json_array_size(want));
    for (int64_t i = 0; i < lathe_shards_segments(shards); i++) {
        const json_t *example = json_array_get(want, (size_t)i), *ids = json_array_get(example, 0);
        const int64_t n_context = json_integer_value(json_array_get(example, 1));
        const int64_t begin = lathe_shards_offset(shards, i);
        const int64_t n = lathe_shards_offset(shards, i + 1) - begin;
        int32_t got[256], masked[256];
        cr_assert(n <= 256);
        cr_expect_eq(n, (int64_t)json_array_size(ids), "record %lld", (long long)i);
        cr_assert_eq(lathe_shards_read(shards, begin, begin + n, got), LATHE_OK);
        memcpy(masked, got, sizeof masked);
        lathe_shards_mask(shards, begin, begin + n, masked);
        for (int64_t k = 0; k < n; k++) {
            cr_expect_eq(got[k], json_integer_value(json_array_get(ids, (size_t)k)), "record %lld",
                         (long long)i);
            cr_expect_eq(masked[k], k < n_context ? -1 : got[k], "record %lld", (long long)i);
        }
    }
    json_decref(golden);
    lathe_shards_destroy(shards);
    shards = NULL;
    lathe_tokenizer_destroy(tok);
}

Test(completions, tokens_and_masks_are_those_of_trl)
{
    compare_with_golden("gpt2");
    compare_with_golden("llama3");
}
