/* Finds the characters that NFC never changes, from utf8proc's decompositions, once per process. */
#include "tokenizer/unicode/settled.h"

#include <pthread.h>
#include <utf8proc.h>

enum { N_CHARS = 0x40000 }; /* no character from here on decomposes or combines */

static uint8_t unsettled[N_CHARS / 8];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void mark(int32_t c)
{
    if (c >= 0 && c < N_CHARS)
        unsettled[c >> 3] |= (uint8_t)(1 << (c & 7));
}

/* A character that is not the first of some decomposition may combine with the one before it:
 * marks, and the vowels and finals of Hangul. */
static void look_at(int32_t c)
{
    utf8proc_int32_t parts[32];
    int last_class = 0;
    if (utf8proc_get_property(c)->combining_class != 0)
        mark(c);
    utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, UTF8PROC_DECOMPOSE, &last_class);
    if (n < 1 || n > 32) {
        mark(c);
        return;
    }
    if (n == 1 && parts[0] == c)
        return;
    for (utf8proc_ssize_t i = 1; i < n; i++)
        mark(parts[i]);
    n = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n != 1 || parts[0] != c)
        mark(c);
}

static void fill(void)
{
    for (int32_t c = 0xa0; c < N_CHARS; c++)
        if (c < 0xd800 || c > 0xdfff)
            look_at(c);
}

int lathe__is_settled(int32_t c)
{
    (void)pthread_once(&once, fill);
    return c < 0 || c >= N_CHARS || !(unsettled[c >> 3] >> (c & 7) & 1);
}
