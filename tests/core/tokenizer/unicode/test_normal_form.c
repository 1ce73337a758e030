/* NFC computed in parts, compared with utf8proc on the whole text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode/normal_form.h"
#include "tokenizer/unicode/settled.h"

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

static void compare(const uint8_t *text, int64_t n)
{
    uint8_t *got = NULL;
    int64_t n_got = 0;
    utf8proc_uint8_t *want = NULL;
    const utf8proc_ssize_t n_want =
        utf8proc_map(text, n, &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    cr_assert_geq(n_want, 0);
    cr_assert_eq(lathe__nfc(text, n, &got, &n_got), LATHE_OK, "%s", lathe_error_message());
    const uint8_t *result = got ? got : text;
    const int64_t n_result = got ? n_got : n;
    cr_assert(n_result == n_want && !memcmp(result, want, (size_t)n_want),
              "NFC of \"%.*s\" is \"%.*s\", expected \"%s\"", (int)n, (const char *)text,
              (int)n_result, (const char *)result, (const char *)want);
    free(got);
    free(want);
}

static int64_t put(uint8_t *out, const int32_t *chars, int n)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++)
        at += lathe_utf8_put(out + at, chars[i]);
    return at;
}

/* Each character alone, after a letter, and before marks of three classes and a Hangul vowel and
 * final. */
Test(normal_form, every_character_in_company)
{
    static const int32_t after[] = {0x301, 0x323, 0x345, 0x1161, 0x11a8, 0x9be, 'x'};
    uint8_t text[64];
    for (int32_t c = 1; c < 0x110000; c++) {
        if ((c >= 0xd800 && c <= 0xdfff) || (c >= 0x40000 && c % 997))
            continue;
        const int32_t chars[5] = {'a', c, after[c % 7], after[c / 7 % 7], 'b'};
        compare(text, put(text, chars, 5));
        compare(text, put(text, chars + 1, 1));
        const int32_t twice[4] = {c, c, 0x323, c};
        compare(text, put(text, twice, 4));
    }
}

Test(normal_form, random_texts)
{
    static const int32_t pool[] = {'a',     'e',     ' ',     0xe9,   0x301,  0x323,
                                   0x315,   0x5ae,   0x1100,  0x1161, 0x11a8, 0xac00,
                                   0x212b,  0x958,   0xf73,   0x93c,  0x9c7,  0x9be,
                                   0x1d15f, 0x1d157, 0x1d165, 0xfb1d, 0x8eca, 0x1f600};
    uint8_t text[512];
    for (int k = 0; k < 60000; k++) {
        int32_t chars[100];
        const int n = (int)below(100);
        for (int i = 0; i < n; i++) {
            chars[i] = below(9) ? pool[below(24)] : (int32_t)below(0x30000);
            if (chars[i] == 0 || (chars[i] >= 0xd800 && chars[i] <= 0xdfff))
                chars[i] = 'z';
        }
        compare(text, put(text, chars, n));
    }
}

Test(normal_form, settled_text_is_left_and_bad_bytes_stay)
{
    static const char plain[] =
        "caf\xc3\xa9 \xe8\xbb\x8a \xf0\x9f\x98\x80 \xea\xb0\x80 \xe2\x80\x99";
    static const char bad[] = "e\xcc\x81\xff"
                              "e\xcc\x81\xe2\x82";
    uint8_t *got = NULL;
    int64_t n = 0;
    cr_assert_eq(lathe__nfc((const uint8_t *)plain, sizeof plain - 1, &got, &n), LATHE_OK);
    cr_expect_null(got);
    cr_assert_eq(lathe__nfc((const uint8_t *)bad, sizeof bad - 1, &got, &n), LATHE_OK);
    cr_assert_not_null(got);
    cr_assert_eq(n, 7);
    cr_expect_arr_eq(got, "\xc3\xa9\xff\xc3\xa9\xe2\x82", 7);
    free(got);
    cr_expect(lathe__is_settled('a') && lathe__is_settled(0xe9) && lathe__is_settled(0xac00));
    cr_expect_not(lathe__is_settled(0x301) || lathe__is_settled(0x1161) ||
                  lathe__is_settled(0x212b) || lathe__is_settled(0x9be) ||
                  lathe__is_settled(0x958));
}
