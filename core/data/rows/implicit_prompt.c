/* The common beginning of two completions. */
#include "data/rows/implicit_prompt.h"

int64_t lathe__implicit_prompt(const char *a, int64_t n_a, const char *b, int64_t n_b)
{
    const uint8_t *p = (const uint8_t *)a, *q = (const uint8_t *)b;
    int64_t n = 0;
    while (n < n_a && n < n_b && p[n] == q[n])
        n++;
    /* one text is the beginning of the other: its last character belongs to the completion */
    const int whole = n == n_a || n == n_b;
    if (whole && n > 0)
        n--;
    while (n > 0 && n < n_a && (p[n] & 0xc0) == 0x80)
        n--;
    return !whole && n > 0 && p[n - 1] == ' ' ? n - 1 : n;
}
