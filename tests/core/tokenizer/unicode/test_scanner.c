/* The scanners compared with the regular expressions that they replace, run by PCRE2. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/splitter.h"
#include "tokenizer/encode/tokenizer.h"
#include "tokenizer/unicode/char_class.h"
#include "tokenizer/unicode/scanner.h"

enum { TEXT = 1 << 16 };

typedef struct pieces {
    const uint8_t *text;
    int64_t ends[TEXT + 1];
    int64_t n;
} pieces;

static lathe_status take(void *arg, const uint8_t *piece, int64_t n)
{
    pieces *p = arg;
    const int64_t begin = p->n ? p->ends[p->n - 1] : 0;
    cr_assert_eq(piece - p->text, begin, "pieces leave a gap at %lld", (long long)begin);
    p->ends[p->n++] = begin + n;
    return LATHE_OK;
}

/* A tokenizer that only splits: with the scanner, or with the same expression inside a group, for
 * which there is no scanner. */
static lathe_tokenizer *splits(const char *pattern, int grouped)
{
    char text[512];
    snprintf(text, sizeof text, grouped ? "(?:%s)" : "%s", pattern);
    lathe_tokenizer *tok = calloc(1, sizeof *tok);
    cr_assert_eq(lathe__split_compile(tok, "test", text), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(tok->scans[0] == LATHE_SCAN_NONE, grouped);
    return tok;
}

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

/* Text that the expressions distinguish, and its boundary cases. */
static const char *const parts[] = {
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\xc2\x85",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "a",
    "Zz",
    "the",
    "1",
    "23",
    "4567",
    "\xc2\xbd",
    "\xd9\xa3",
    "!",
    "...",
    "'s",
    "'T",
    "'re",
    "'V",
    "'ve",
    "'m",
    "'LL",
    "'lL",
    "'d",
    "'",
    "''",
    "'l",
    "'r",
    "_",
    "\xc5\xbf",
    "'\xc5\xbf",
    "\xe2\x84\xaa",
    "\xe1\xa0\x8e",
    "\xcc\x81",
    "\xe2\x80\x8d",
    "\xe2\x80\xa8",
    "\xc3\xa9",
    "\xe8\xbb\x8a",
    "\xf0\x9f\x98\x80",
    "\xf0\xb1\x8d\x90",
    "\xf4\x8f\xbf\xbf",
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

static int64_t make_text(uint8_t *out, int32_t kind)
{
    int64_t n = 0;
    while (n < TEXT - 8) {
        const uint32_t how = kind ? 1 : below(8);
        if (how) {
            const char *part = parts[below(N_PARTS)];
            memcpy(out + n, part, strlen(part));
            n += (int64_t)strlen(part);
            continue;
        }
        const int32_t c = (int32_t)below(below(3) ? 0x3200 : 0x110000);
        if (c < 0xd800 || c > 0xdfff)
            n += lathe_utf8_put(out + n, c);
    }
    return n;
}

static int64_t compare(const lathe_tokenizer *const toks[2], const uint8_t *text, int64_t n)
{
    static pieces got, want;
    pieces *const both[2] = {&got, &want};
    for (int i = 0; i < 2; i++) {
        lathe_splitter splitter;
        both[i]->text = text;
        both[i]->n = 0;
        lathe__splitter_init(&splitter, toks[i], take, both[i]);
        cr_assert_eq(lathe__splitter_run(&splitter, text, n), LATHE_OK, "%s",
                     lathe_error_message());
        lathe__splitter_fini(&splitter);
    }
    for (int64_t i = 0; i < want.n; i++) {
        const int64_t at = i ? want.ends[i - 1] : 0;
        cr_assert_eq(got.ends[i], want.ends[i], "at %lld: %lld bytes, expected \"%.*s\" (%lld)",
                     (long long)at, (long long)(got.ends[i] - at), (int)(want.ends[i] - at),
                     (const char *)text + at, (long long)(want.ends[i] - at));
    }
    cr_assert_eq(got.n, want.n);
    return want.n;
}

static void agrees(int32_t scan)
{
    const char *pattern = lathe__scan_pattern(scan);
    cr_assert_eq(lathe__scan_of(pattern), scan);
    lathe_tokenizer *const toks[2] = {splits(pattern, 0), splits(pattern, 1)};
    const lathe_tokenizer *const both[2] = {toks[0], toks[1]};
    uint8_t *text = malloc(TEXT + 16);
    int64_t n_pieces = 0;
    for (int32_t round = 0; n_pieces < 1000000; round++)
        n_pieces += compare(both, text, make_text(text, round & 1));
    for (int64_t cut = 0; cut < 200; cut++) { /* every possible end of a text */
        int64_t n = make_text(text, 1) % 300 + cut;
        n = lathe_utf8_prefix(text, n);
        (void)compare(both, text, n);
    }
    free(text);
    lathe_tokenizer_destroy(toks[0]);
    lathe_tokenizer_destroy(toks[1]);
}

Test(scanner, gpt2_agrees_with_its_expression)
{
    agrees(LATHE_SCAN_GPT2);
}
Test(scanner, llama3_agrees_with_its_expression)
{
    agrees(LATHE_SCAN_LLAMA3);
}
Test(scanner, qwen2_agrees_with_its_expression)
{
    agrees(LATHE_SCAN_QWEN2);
}

/* Each character between two letters: all classes of all of Unicode. */
Test(scanner, every_character_is_of_its_class)
{
    const char *pattern = lathe__scan_pattern(LATHE_SCAN_GPT2);
    lathe_tokenizer *const toks[2] = {splits(pattern, 0), splits(pattern, 1)};
    const lathe_tokenizer *const both[2] = {toks[0], toks[1]};
    uint8_t *text = malloc(TEXT + 16);
    for (int32_t c = 0; c < 0x110000;) {
        int64_t n = 0;
        for (; c < 0x110000 && n < TEXT - 8; c++) {
            if (c >= 0xd800 && c <= 0xdfff)
                continue;
            text[n++] = 'a';
            n += lathe_utf8_put(text + n, c);
            text[n++] = '1';
        }
        (void)compare(both, text, n);
    }
    free(text);
    lathe_tokenizer_destroy(toks[0]);
    lathe_tokenizer_destroy(toks[1]);
}

/* Unicode 16's additions, as Hugging Face's engine has them (tokenizers 0.23.3). */
Test(scanner, newer_characters_are_known)
{
    const uint8_t *classes = lathe__char_classes();
    cr_expect_eq(classes[0x1c89], LATHE_CHAR_LETTER);
    cr_expect_eq(classes[0x105c0], LATHE_CHAR_LETTER);
    cr_expect_eq(classes[0x31350], LATHE_CHAR_LETTER);
    cr_expect_eq(classes[0x10d40], LATHE_CHAR_NUMBER);
    cr_expect_eq(classes[0x1c8b], LATHE_CHAR_OTHER);
    cr_expect_eq(classes['\r'], LATHE_CHAR_NEWLINE);
    cr_expect_eq(classes[0x180e], LATHE_CHAR_OTHER); /* not white space since Unicode 6.3 */
    cr_expect_eq(classes[0x3000], LATHE_CHAR_SPACE);
    int64_t count[9] = {0};
    for (int32_t c = 0; c < LATHE_CHAR_CLASSED; c++)
        count[classes[c]]++;
    cr_expect_eq(count[LATHE_CHAR_LETTER], 141028); /* as Oniguruma 6.9.10 counts \p{L} */
    cr_expect_eq(count[LATHE_CHAR_NUMBER], 1911);
    cr_expect_eq(count[LATHE_CHAR_SPACE] + count[LATHE_CHAR_NEWLINE], 25);
}
