/* Shards: text and JSON lines are tokenised once, reused while they are valid, refused when
 * damaged. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "data/rows/shards.h"
#include "tokenizer/encode/text_cut.h"
#include "tokenizer/json/tokenizer_file.h"

static char root[64];
static lathe_arena arena;
static lathe_tokenizer *raw;

static char *at(const char *name)
{
    return lathe_path_join(&arena, root, name);
}

static void setup(void)
{
    strcpy(root, "/tmp/lathe_shards_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_tokenizer_bytes(&raw), LATHE_OK);
}

static void teardown(void)
{
    cr_assert_eq(lathe_dir_remove(root), LATHE_OK);
    lathe_tokenizer_destroy(raw);
    lathe_arena_fini(&arena);
}

TestSuite(shards, .init = setup, .fini = teardown);

static void put(const char *name, const char *text)
{
    cr_assert_eq(lathe_file_write_atomic(at(name), text, (int64_t)strlen(text)), LATHE_OK);
}

static lathe_status prepare(const char *name, int32_t type, int32_t rows, lathe_shards **out)
{
    const lathe_dataset dataset = {.path = at(name), .type = type};
    return lathe_shards_prepare(&dataset, 1, rows, raw, at("cache"), NULL, NULL, out);
}

static void check_stream(const lathe_shards *shards, const char *want, int64_t n)
{
    cr_assert_eq(lathe_shards_tokens(shards), n);
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    for (int64_t i = 0; i < n; i++)
        cr_expect_eq(ids[i], want[i] == '|' ? 256 : want[i], "token %lld is %d", (long long)i,
                     ids[i]);
    free(ids);
}

Test(shards, folder_of_text_is_one_document_a_file)
{
    cr_assert_eq(lathe_dir_create(at("texts/deeper")), LATHE_OK);
    put("texts/b.txt", "second");
    put("texts/a.txt", "first");
    put("texts/deeper/c.md", "th\xc3\xafrd");
    put("texts/empty", "");
    put("texts/latin1.txt", "caf\xe9");
    cr_assert_eq(lathe_file_write_atomic(at("texts/binary"), "a\0b", 3), LATHE_OK);
    lathe_shards *shards;
    cr_assert_eq(prepare("texts", LATHE_DATASET_TEXT, LATHE_ROWS_PACKED, &shards), LATHE_OK, "%s",
                 lathe_error_message());
    cr_expect_eq(lathe_shards_segments(shards), 3);
    cr_expect_eq(lathe_shards_skipped(shards), 3);
    cr_expect_eq(lathe_shards_tokens(shards), 6 + 7 + 7);
    int32_t ids[20];
    cr_assert_eq(lathe_shards_read(shards, 0, 20, ids), LATHE_OK);
    cr_expect_eq(ids[0], 'f');
    cr_expect_eq(ids[5], 256);
    cr_expect_eq(ids[6], 's');
    cr_expect_eq(lathe_shards_offset(shards, 1), 6);
    cr_expect_eq(lathe_shards_offset(shards, 3), 20);
    cr_expect_eq(lathe_shards_find(shards, 5), 0);
    cr_expect_eq(lathe_shards_find(shards, 6), 1);
    cr_expect_eq(lathe_shards_find(shards, 19), 2);
    lathe_shards_destroy(shards);
}

Test(shards, json_lines_and_several_datasets_are_one_stream)
{
    put("a.jsonl",
        "{\"text\": \"ab\"}\n\n  {\"text\": \"c\", \"more\": [1]}  \r\n{\"text\": \"\"}");
    put("b.jsonl", "{\"content\": \"x\\u0041\"}\n");
    const lathe_dataset list[2] = {
        {.path = at("a.jsonl"), .type = LATHE_DATASET_JSONL},
        {.path = at("b.jsonl"), .type = LATHE_DATASET_JSONL, .columns = {"content"}}};
    lathe_shards *shards;
    cr_assert_eq(
        lathe_shards_prepare(list, 2, LATHE_ROWS_PACKED, raw, at("cache"), NULL, NULL, &shards),
        LATHE_OK, "%s", lathe_error_message());
    check_stream(shards, "ab|c|xA|", 8);
    cr_expect_eq(lathe_shards_segments(shards), 3);
    cr_expect_eq(lathe_shards_skipped(shards), 1);
    cr_expect_eq(lathe_shards_find(shards, 5), 2);
    cr_expect_eq(lathe_shards_built(shards), 2);
    cr_expect_eq(lathe_shards_text_bytes(shards, 0, 3), 5); /* "ab", "c", "xA" */
    cr_expect_eq(lathe_shards_text_bytes(shards, 1, 2), 1);
    cr_expect_eq(lathe_shards_text_bytes(shards, 2, 3), 2);
    lathe_shards_destroy(shards);
}

Test(shards, pairs_are_prompt_chosen_rejected)
{
    put("p.jsonl", "{\"prompt\": \"q\", \"chosen\": \"yes\", \"rejected\": \"no\"}\n"
                   "{\"chosen\": \"say a\", \"rejected\": \"say b\"}\n");
    lathe_shards *shards;
    cr_assert_eq(prepare("p.jsonl", LATHE_DATASET_JSONL, LATHE_ROWS_PAIRS, &shards), LATHE_OK, "%s",
                 lathe_error_message());
    /* Without a prompt column: the prompt is the common beginning without the space before the
     * difference. */
    check_stream(shards, "qyes|no|say a| b|", 17);
    cr_expect_eq(lathe_shards_segments(shards), 6);
    cr_expect_eq(lathe_shards_offset(shards, 4), 11);
    cr_expect_eq(lathe_shards_offset(shards, 5), 14);
    lathe_shards_destroy(shards);
}

/* A token across the boundary: the completion begins where prompt and prompt+completion diverge. */
Test(shards, prompt_ends_where_both_completions_agree)
{
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_load(LATHE_TEST_DATA "/golden/data/tokenizer/gpt2.json", &tok),
                 LATHE_OK);
    put("p.jsonl", "{\"prompt\": \"the to\", \"chosen\": \"ol\", \"rejected\": \"y\"}\n");
    const lathe_dataset dataset = {.path = at("p.jsonl"), .type = LATHE_DATASET_JSONL};
    lathe_shards *shards;
    cr_assert_eq(
        lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PAIRS, tok, at("cache"), NULL, NULL, &shards),
        LATHE_OK);
    int32_t ids[32];
    const int64_t n = lathe_shards_tokens(shards), cut = lathe_shards_offset(shards, 1);
    cr_assert_leq(n, 32);
    cr_assert_eq(lathe_shards_read(shards, 0, n, ids), LATHE_OK);
    lathe_ids whole = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, "the tool", 8, 0, &whole), LATHE_OK);
    cr_assert_eq(lathe_shards_offset(shards, 2), whole.n + 1);
    cr_expect_arr_eq(ids, whole.data, (size_t)whole.n * 4);
    cr_expect_eq(ids[whole.n], lathe_tokenizer_eos(tok));
    lathe_ids prompt = {NULL, 0, 0};
    cr_assert_eq(lathe_tokenizer_encode(tok, "the to", 6, 0, &prompt), LATHE_OK);
    cr_expect_lt(cut, prompt.n, "\" tool\" is one token in this vocabulary");
    lathe_ids_fini(&whole);
    lathe_ids_fini(&prompt);
    lathe_shards_destroy(shards);
    lathe_tokenizer_destroy(tok);
}

static void compare_pairs_with_golden(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, LATHE_TEST_DATA "/golden/data/tokenizer/%s.json", name);
    lathe_tokenizer *tok;
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK);
    const lathe_dataset dataset = {.path = LATHE_TEST_DATA "/golden/data/pairs/pairs.jsonl",
                                   .type = LATHE_DATASET_JSONL};
    lathe_shards *shards;
    cr_assert_eq(
        lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PAIRS, tok, at("cache"), NULL, NULL, &shards),
        LATHE_OK, "%s", lathe_error_message());
    json_t *golden;
    cr_assert_eq(lathe_json_load_file(LATHE_TEST_DATA "/golden/data/pairs/pairs.json", &golden),
                 LATHE_OK);
    const json_t *want = json_object_get(golden, name);
    cr_assert_eq(lathe_shards_segments(shards), 3 * (int64_t)json_array_size(want));
    for (int64_t i = 0; i < lathe_shards_segments(shards); i++) {
        const json_t *ids = json_array_get(json_array_get(want, (size_t)i / 3), (size_t)i % 3);
        const int64_t begin = lathe_shards_offset(shards, i);
        const int64_t n = lathe_shards_offset(shards, i + 1) - begin;
        int32_t got[256];
        cr_assert(n <= 256);
        cr_expect_eq(n, (int64_t)json_array_size(ids), "record %lld", (long long)i / 3);
        cr_assert_eq(lathe_shards_read(shards, begin, begin + n, got), LATHE_OK);
        for (int64_t k = 0; k < n; k++)
            cr_expect_eq(got[k], json_integer_value(json_array_get(ids, (size_t)k)), "record %lld",
                         (long long)i / 3);
    }
    json_decref(golden);
    lathe_shards_destroy(shards);
    lathe_tokenizer_destroy(tok);
}

Test(shards, pairs_tokenise_as_trl)
{
    compare_pairs_with_golden("gpt2");
    compare_pairs_with_golden("llama3");
}

static int64_t built(void)
{
    lathe_shards *shards = NULL;
    cr_assert_eq(prepare("t", LATHE_DATASET_TEXT, LATHE_ROWS_PACKED, &shards), LATHE_OK, "%s",
                 lathe_error_message());
    const int64_t n = lathe_shards_built(shards);
    lathe_shards_destroy(shards);
    return n;
}

Test(shards, are_reused_until_the_source_changes)
{
    put("t", "some text");
    cr_expect_eq(built(), 1);
    cr_expect_eq(built(), 0);
    put("t", "some text"); /* another modification time, the same content */
    cr_expect_eq(built(), 0);
    put("t", "same size");
    cr_expect_eq(built(), 1);
    put("t", "another size");
    cr_expect_eq(built(), 1);
    cr_expect_eq(built(), 0);
}

static char *shard_path(void)
{
    char **names;
    int64_t n;
    cr_assert_eq(lathe_dir_list(at("cache"), &arena, &names, &n), LATHE_OK);
    cr_assert_eq(n, 1);
    return lathe_path_join(&arena, at("cache"), names[0]);
}

Test(shards, every_flipped_byte_and_every_cut_is_refused_by_name)
{
    put("t", "a text to damage");
    cr_expect_eq(built(), 1);
    const char *path = shard_path();
    char *data;
    int64_t n;
    cr_assert_eq(lathe_file_read(path, 0, &data, &n), LATHE_OK);
    lathe_shards *shards;
    for (int64_t i = 0; i < n; i++) {
        if (i >= 8 && i < 12) /* a file of another version is made again, not refused */
            continue;
        data[i] ^= 0x10;
        cr_assert_eq(lathe_file_write_atomic(path, data, n), LATHE_OK);
        data[i] ^= 0x10;
        cr_assert_eq(prepare("t", LATHE_DATASET_TEXT, LATHE_ROWS_PACKED, &shards), LATHE_E_CORRUPT,
                     "byte %lld", (long long)i);
        cr_assert(strstr(lathe_error_message(), path), "%s", lathe_error_message());
    }
    for (int64_t k = 0; k < n; k += 13) {
        cr_assert_eq(lathe_file_write_atomic(path, data, k), LATHE_OK);
        cr_assert_eq(prepare("t", LATHE_DATASET_TEXT, LATHE_ROWS_PACKED, &shards), LATHE_E_CORRUPT,
                     "cut to %lld", (long long)k);
    }
    cr_assert_eq(lathe_file_write_atomic(path, data, n), LATHE_OK);
    cr_expect_eq(built(), 0);
    free(data);
}

/* A text of `bytes` with all characters that can be near line ends in real texts, and with the
 * added tokens. */
static char *long_text(int64_t bytes)
{
    static const char *const parts[] = {"The lathe",
                                        " turns",
                                        ".\n",
                                        "\n\n",
                                        "\nA",
                                        " \nB",
                                        "\t\nC",
                                        "it's\nD",
                                        "'\nsaid",
                                        "\r\nE",
                                        "\xc3\xa9\nF",
                                        "\xc2\xa0\nG",
                                        "e\xcc\x81",
                                        "\nH\xcc\x81",
                                        "12345\n678\nI",
                                        "<|endoftext|>",
                                        "<|im_start|>\nuser",
                                        "  \n  J",
                                        "\n \nK",
                                        "!?\n\nL",
                                        "\xe4\xbd\xa0\xe5\xa5\xbd\n",
                                        "M\nn"};
    char *text = malloc((size_t)bytes + 64);
    uint64_t seed = 3;
    int64_t n = 0;
    while (n < bytes) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        n += sprintf(text + n, "%s", parts[(seed >> 33) % (sizeof parts / sizeof parts[0])]);
    }
    return text;
}

/* Compares segment i of a dataset with the ids of the whole text. */
static void check_long(const lathe_tokenizer *tok, const char *name, int64_t i,
                       const lathe_ids *want)
{
    lathe_shards *shards;
    const lathe_dataset dataset = {.path = at(name), .type = LATHE_DATASET_AUTO};
    cr_assert_eq(
        lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, tok, at("cache"), NULL, NULL, &shards),
        LATHE_OK, "%s", lathe_error_message());
    const int64_t begin = lathe_shards_offset(shards, i);
    cr_assert_eq(lathe_shards_offset(shards, i + 1) - begin, want->n, "%s", name);
    int32_t *ids = malloc((size_t)want->n * sizeof *ids);
    cr_assert_eq(lathe_shards_read(shards, begin, begin + want->n, ids), LATHE_OK);
    cr_expect_arr_eq(ids, want->data, (size_t)want->n * sizeof *ids, "%s", name);
    free(ids);
    lathe_shards_destroy(shards);
}

/* A long document is tokenised in stretches on all threads; its ids are those of the whole text. */
Test(shards, a_long_document_has_the_ids_of_the_whole, .timeout = 120)
{
    static const struct {
        const char *name;
        int32_t cuts;
    } toks[] = {{"gpt2", LATHE_CUT_LINES},
                {"llama3", LATHE_CUT_LINES},
                {"qwen2", LATHE_CUT_LINES},
                {"prefix", LATHE_CUT_NONE},
                {NULL, LATHE_CUT_ANYWHERE}};
    char *text = long_text(3 << 20), path[512];
    lathe_buffer json = LATHE_BUFFER_INIT;
    lathe_buffer_puts(&json, "{\"text\": \"a\"}\n{\"text\": ");
    lathe_buffer_json_string(&json, text);
    lathe_buffer_puts(&json, "}\n{\"text\": \"b\"}\n");
    cr_assert_eq(json.status, LATHE_OK);
    put("long.txt", text);
    put("long.jsonl", json.data);
    for (size_t i = 0; i < sizeof toks / sizeof toks[0]; i++) {
        lathe_tokenizer *tok = raw;
        lathe_ids want = {NULL, 0, 0};
        (void)snprintf(path, sizeof path, LATHE_TEST_DATA "/golden/data/tokenizer/%s.json",
                       toks[i].name ? toks[i].name : "");
        if (toks[i].name)
            cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(lathe__cuts_of(tok), toks[i].cuts, "%s", path);
        cr_assert_eq(lathe_tokenizer_encode(tok, text, (int64_t)strlen(text),
                                            LATHE_ENCODE_ADD_SPECIAL, &want),
                     LATHE_OK);
        const int32_t eos = lathe_tokenizer_eos(tok);
        if (want.data[want.n - 1] != eos)
            cr_assert_eq(lathe_ids_append(&want, &eos, 1), LATHE_OK);
        check_long(tok, "long.txt", 0, &want);
        check_long(tok, "long.jsonl", 1, &want);
        lathe_ids_fini(&want);
        if (toks[i].name)
            lathe_tokenizer_destroy(tok);
    }
    lathe_buffer_fini(&json);
    free(text);
}

Test(shards, a_text_is_cut_between_a_line_end_and_a_letter)
{
    static const char text[] = "a\nb.\n\nc \nd\n1\xc2\xa0\ne\nf";
    cr_expect_eq(lathe__cut_after(LATHE_CUT_LINES, text, sizeof text - 1, 0), 2);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_LINES, text, sizeof text - 1, 2), 2);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_LINES, text, sizeof text - 1, 3), sizeof text - 2);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_LINES, "a\n", 2, 0), 2);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_LINES, "a\nb", 3, 7), 3);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_NONE, text, sizeof text - 1, 1), sizeof text - 1);
    cr_expect_eq(lathe__cut_after(LATHE_CUT_ANYWHERE, text, sizeof text - 1, 5), 5);
}

static void refuse(const char *text, int32_t rows, lathe_status code, const char *says)
{
    put("bad.jsonl", text);
    lathe_shards *shards = NULL;
    cr_expect_eq(prepare("bad.jsonl", LATHE_DATASET_JSONL, rows, &shards), code, "%s", text);
    cr_expect(strstr(lathe_error_message(), says), "\"%s\" lacks \"%s\"", lathe_error_message(),
              says);
}

Test(shards, malformed_records_are_refused_with_their_line)
{
    refuse("{\"text\": \"a\"}\n{\"text\": \n", LATHE_ROWS_PACKED, LATHE_E_PARSE, "bad.jsonl:2:");
    refuse("{\"text\": \"a\"}\n\n[1]\n", LATHE_ROWS_PACKED, LATHE_E_PARSE, "bad.jsonl:3");
    refuse("{\"txt\": \"a\"}", LATHE_ROWS_PACKED, LATHE_E_CONFIG,
           "bad.jsonl:1: no column \"text\"");
    refuse("{\"text\": 1}", LATHE_ROWS_PACKED, LATHE_E_UNSUPPORTED, "bad.jsonl:1");
    refuse("{\"text\": \"\xff\"}", LATHE_ROWS_PACKED, LATHE_E_PARSE, "bad.jsonl:1");
    refuse("{\"prompt\": \"a\", \"chosen\": \"b\"}", LATHE_ROWS_PAIRS, LATHE_E_CONFIG, "rejected");
    lathe_shards *shards;
    cr_expect_eq(prepare("missing", LATHE_DATASET_TEXT, LATHE_ROWS_PACKED, &shards),
                 LATHE_E_NOT_FOUND);
    put("t", "x");
    cr_expect_eq(prepare("t", LATHE_DATASET_TEXT, LATHE_ROWS_PAIRS, &shards), LATHE_E_CONFIG);
    char **names; /* a failure leaves nothing behind */
    int64_t n;
    cr_assert_eq(lathe_dir_list(at("cache"), &arena, &names, &n), LATHE_OK);
    cr_expect_eq(n, 0);
}
