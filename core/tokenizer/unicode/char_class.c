/* Finds the class of a character: utf8proc's categories, with the letters and numbers that
 * Unicode 15 and 16 added. Hugging Face's engine knows these, but the libraries of Debian 12 do
 * not. */
#include "tokenizer/unicode/char_class.h"

#include <pthread.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* Ranges as first and last character, in hexadecimal. Source: the difference of
 * DerivedGeneralCategory between Unicode 16 and 14. */
/* clang-format off */
#define NEWER_LETTERS(X)                                                                          \
    X(1c89, 1c8a) X(a7cb, a7cd) X(a7da, a7dc) X(105c0, 105f3) X(10d4a, 10d65)                     \
    X(10d6f, 10d85) X(10ec2, 10ec4) X(1123f, 11240) X(11380, 11389) X(1138b, 1138b)               \
    X(1138e, 1138e) X(11390, 113b5) X(113b7, 113b7) X(113d1, 113d1) X(113d3, 113d3)               \
    X(11bc0, 11be0) X(11f02, 11f02) X(11f04, 11f10) X(11f12, 11f33) X(1342f, 1342f)               \
    X(13441, 13446) X(13460, 143fa) X(16100, 1611d) X(16d40, 16d6c) X(18cff, 18cff)               \
    X(1b132, 1b132) X(1b155, 1b155) X(1df25, 1df2a) X(1e030, 1e06d) X(1e4d0, 1e4eb)               \
    X(1e5d0, 1e5ed) X(1e5f0, 1e5f0) X(2b739, 2b739) X(2ebf0, 2ee5d) X(31350, 323af)
#define NEWER_NUMBERS(X)                                                                          \
    X(10d40, 10d49) X(116d0, 116e3) X(11bf0, 11bf9) X(11f50, 11f59) X(16130, 16139)               \
    X(16d70, 16d79) X(1ccf0, 1ccf9) X(1d2c0, 1d2d3) X(1e4f0, 1e4f9) X(1e5f1, 1e5fa)
/* clang-format on */

typedef struct range {
    int32_t first, last;
} range;

#define AS_RANGE(a, b) {0x##a, 0x##b},
#define AS_TEXT(a, b) "\\x{" #a "}-\\x{" #b "}"

static const range letters[] = {NEWER_LETTERS(AS_RANGE)};
static const range numbers[] = {NEWER_NUMBERS(AS_RANGE)};
static uint8_t classes[LATHE_CHAR_CLASSED];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint8_t class_of(int32_t c)
{
    if (c == '\r' || c == '\n')
        return LATHE_CHAR_NEWLINE;
    if (lathe_is_space(c))
        return LATHE_CHAR_SPACE;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LATHE_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return LATHE_CHAR_NUMBER;
    default:
        return LATHE_CHAR_OTHER;
    }
}

static void put(const range *ranges, size_t n, uint8_t class)
{
    for (size_t i = 0; i < n; i++)
        for (int32_t c = ranges[i].first; c <= ranges[i].last; c++)
            classes[c] = class;
}

static void fill(void)
{
    for (int32_t c = 0; c < LATHE_CHAR_CLASSED; c++)
        classes[c] = class_of(c);
    put(letters, sizeof letters / sizeof letters[0], LATHE_CHAR_LETTER);
    put(numbers, sizeof numbers / sizeof numbers[0], LATHE_CHAR_NUMBER);
}

const uint8_t *lathe__char_classes(void)
{
    (void)pthread_once(&once, fill);
    return classes;
}

const char *lathe__newer_letters(void)
{
    return NEWER_LETTERS(AS_TEXT);
}

const char *lathe__newer_numbers(void)
{
    return NEWER_NUMBERS(AS_TEXT);
}
