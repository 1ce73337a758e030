/* Six tokenizer files of all model types compared with Hugging Face's ids and decodings of 200,000
 * lines (tests/golden/tokenizer_equality.py, which generates the same lines). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "tokenizer/json/tokenizer_file.h"

#define GOLDEN LATHE_TEST_DATA "/golden/data/tokenizer_equality/"

/* Sanitizers are twenty times slower: tests one block in twenty. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 20 };
#else
enum { EVERY = 1 };
#endif

/* ---- the lines ---- */

static json_t *fragments, *ranges;

static json_t *read_json(const char *path)
{
    json_t *root = NULL;
    cr_assert_eq(lathe_json_load_file(path, &root), LATHE_OK, "%s", lathe_error_message());
    return root;
}

/* SplitMix64. */
static uint64_t below(uint64_t *state, uint64_t n)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
}

static const char *fragment(uint64_t *state)
{
    return json_string_value(json_array_get(fragments, below(state, json_array_size(fragments))));
}

static void put_range(uint64_t *state, lathe_buffer *out)
{
    const json_t *range = json_array_get(ranges, below(state, json_array_size(ranges)));
    const int64_t first = json_integer_value(json_array_get(range, 0));
    const int64_t last = json_integer_value(json_array_get(range, 1));
    uint8_t bytes[4];
    const int64_t c = first + (int64_t)below(state, (uint64_t)(last - first + 1));
    lathe_buffer_append(out, bytes, lathe_utf8_put(bytes, (int32_t)c));
}

static void put_part(uint64_t *state, lathe_buffer *out)
{
    const uint64_t kind = below(state, 16);
    if (kind < 7) {
        lathe_buffer_puts(out, fragment(state));
    } else if (kind < 11) {
        lathe_buffer_puts(out, " ");
        lathe_buffer_puts(out, fragment(state));
    } else if (kind < 13) {
        put_range(state, out);
    } else if (kind == 13) {
        uint64_t power = 10;
        for (uint64_t k = below(state, 9); k > 0; k--)
            power *= 10;
        lathe_buffer_printf(out, "%llu", (unsigned long long)below(state, power));
    } else if (kind == 14) {
        uint64_t n = below(state, 40) == 0 ? 150 : 2 + below(state, 7);
        for (const char *text = fragment(state); n > 0; n--)
            lathe_buffer_puts(out, text);
    } else {
        lathe_buffer_append(out, "        ", 1 + (int64_t)below(state, 8));
    }
}

static void make_line(uint64_t i, lathe_buffer *out)
{
    uint64_t state = 0xD1342543DE82EF95u + i; /* seed 1 */
    out->len = 0;
    lathe_buffer_append(out, "", 0);
    for (uint64_t n = 1 + below(&state, 8); n > 0; n--)
        put_part(&state, out);
    cr_assert_eq(out->status, LATHE_OK);
}

/* ---- one block of lines ---- */

static void same(lathe_sha256 *hash, const json_t *list, int64_t block, const char *what)
{
    char digits[65];
    lathe_sha256_finish(hash, digits);
    digits[12] = 0;
    cr_expect_str_eq(digits, json_string_value(json_array_get(list, (size_t)block)),
                     "%s of block %lld", what, (long long)block);
}

static void put_decoded(const lathe_tokenizer *tok, const lathe_ids *ids, int32_t flags,
                        lathe_sha256 *hash)
{
    char *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_tokenizer_decode(tok, ids->data, ids->n, flags, &text, &n), LATHE_OK, "%s",
                 lathe_error_message());
    text[n] = '\n';
    lathe_sha256_update(hash, text, n + 1);
    free(text);
}

static int comes_back(const lathe_tokenizer *tok, const lathe_buffer *line, const lathe_ids *ids)
{
    char *text = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe_tokenizer_decode(tok, ids->data, ids->n, 0, &text, &n), LATHE_OK);
    const int back = n == line->len && !memcmp(text, line->data, (size_t)n);
    free(text);
    return back;
}

/* Returns how many lines decode to themselves. */
static int64_t compare_block(const lathe_tokenizer *tok, lathe_encoder *enc, const json_t *want,
                             int64_t first, int64_t n)
{
    lathe_buffer line = LATHE_BUFFER_INIT;
    lathe_ids ids = {NULL, 0, 0};
    lathe_sha256 *hash[3];
    int64_t n_back = 0;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(lathe_sha256_create(&hash[i]), LATHE_OK);
    for (int64_t i = 0; i < n; i++) {
        make_line((uint64_t)(first + i), &line);
        ids.n = 0;
        cr_assert_eq(lathe_encoder_run(enc, line.data, line.len, LATHE_ENCODE_ADD_SPECIAL, &ids),
                     LATHE_OK, "%s", lathe_error_message());
        put_decoded(tok, &ids, 0, hash[1]);
        put_decoded(tok, &ids, LATHE_DECODE_SKIP_SPECIAL, hash[2]);
        cr_assert_eq(lathe_ids_reserve(&ids, 1), LATHE_OK);
        ids.data[ids.n] = -1;
        lathe_sha256_update(hash[0], ids.data, (ids.n + 1) * (int64_t)sizeof *ids.data);
        ids.n = 0;
        cr_assert_eq(lathe_encoder_run(enc, line.data, line.len, 0, &ids), LATHE_OK);
        n_back += comes_back(tok, &line, &ids);
    }
    same(hash[0], json_object_get(want, "ids"), first / n, "ids");
    same(hash[1], json_object_get(want, "kept"), first / n, "text with special tokens");
    same(hash[2], json_object_get(want, "skipped"), first / n, "text without special tokens");
    lathe_ids_fini(&ids);
    lathe_buffer_fini(&line);
    return n_back;
}

static void compare(const char *name)
{
    char path[512];
    json_t *source = read_json(GOLDEN "source.json"), *hashes = read_json(GOLDEN "hashes.json");
    fragments = json_object_get(source, "fragments");
    ranges = json_object_get(source, "ranges");
    const int64_t lines = json_integer_value(json_object_get(hashes, "lines"));
    const int64_t block = json_integer_value(json_object_get(hashes, "block"));
    const json_t *want = json_object_get(hashes, name);
    cr_assert_eq(lines, 200000);
    cr_assert_eq(json_array_size(json_object_get(want, "ids")), (size_t)(lines / block));
    lathe_tokenizer *tok = NULL;
    lathe_encoder *enc = NULL;
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    cr_assert_eq(lathe_tokenizer_load(path, &tok), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_encoder_create(tok, &enc), LATHE_OK);
    int64_t n_back = 0;
    for (int64_t at = 0; at < lines; at += block * EVERY)
        n_back += compare_block(tok, enc, want, at, block);
    if (EVERY == 1)
        cr_expect_eq(n_back, json_integer_value(json_object_get(want, "round")));
    lathe_encoder_destroy(enc);
    lathe_tokenizer_destroy(tok);
    json_decref(source);
    json_decref(hashes);
}

Test(tokenizer_equality, lines_are_those_of_the_golden)
{
    json_t *source = read_json(GOLDEN "source.json"), *hashes = read_json(GOLDEN "hashes.json");
    fragments = json_object_get(source, "fragments");
    ranges = json_object_get(source, "ranges");
    lathe_buffer line = LATHE_BUFFER_INIT;
    lathe_sha256 *hash;
    char digits[65];
    cr_assert_eq(lathe_sha256_create(&hash), LATHE_OK);
    for (uint64_t i = 0; i < 200000; i++) {
        make_line(i, &line);
        lathe_sha256_update(hash, line.data, line.len);
        lathe_sha256_update(hash, "\n", 1);
    }
    lathe_sha256_finish(hash, digits);
    digits[12] = 0;
    cr_expect_str_eq(digits, json_string_value(json_object_get(hashes, "text")));
    lathe_buffer_fini(&line);
    json_decref(source);
    json_decref(hashes);
}

Test(tokenizer_equality, byte_level_bpe_of_gpt2, .timeout = 120)
{
    compare("gpt2");
}
Test(tokenizer_equality, byte_level_bpe_of_llama3, .timeout = 120)
{
    compare("llama3");
}
Test(tokenizer_equality, byte_level_bpe_of_qwen2, .timeout = 120)
{
    compare("qwen2");
}
Test(tokenizer_equality, sentencepiece_bpe_of_llama2, .timeout = 120)
{
    compare("llama2");
}
Test(tokenizer_equality, unigram_after_metaspace, .timeout = 120)
{
    compare("unigram");
}
Test(tokenizer_equality, metaspace_bpe_with_every_added_token, .timeout = 120)
{
    compare("odd");
}
