/* Finds the word that is nearest to a misspelt one. */
#include "plug/suggest.h"

#include <string.h>

#include "plug/synonyms.h"

enum { MAX_WORD = 63, FAR = 1000 };

static int32_t min2(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Three rows of the edit distance table: this one and the two before it (for swaps). */
int32_t lathe_edit_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    int32_t rows[3][MAX_WORD + 1];
    if (n > MAX_WORD || m > MAX_WORD)
        return FAR;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int32_t)j;
    for (size_t i = 1; i <= n; i++) {
        int32_t *row = rows[i % 3];
        const int32_t *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (int32_t)i;
        for (size_t j = 1; j <= m; j++) {
            const int32_t replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min2(replace, 1 + min2(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min2(row[j], above2[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

static int is_prefix(const char *a, const char *b)
{
    const size_t n = strlen(a);
    return n >= 2 && strncmp(a, b, n) == 0;
}

/* Finds a word that differs only in its spelling ("AdamW", "int-8"), or that other programs call
 * so. */
static const char *known_word(const char *word, const char *const *words, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (words[i] != NULL && lathe_same_word(word, words[i]))
            return words[i];
    const char *section, *name;
    for (int32_t k = 0; (name = lathe_synonym(word, k, &section)) != NULL; k++)
        for (int64_t i = 0; i < n; i++)
            if (words[i] != NULL && strcmp(words[i], name) == 0)
                return words[i];
    return NULL;
}

const char *lathe_suggest(const char *word, const char *const *words, int64_t n)
{
    const char *known = known_word(word, words, n);
    if (known != NULL)
        return known;
    const char *best = NULL;
    int32_t best_distance = FAR;
    const int32_t length = (int32_t)strlen(word);
    for (int64_t i = 0; i < n; i++) {
        if (words[i] == NULL)
            continue;
        const int32_t distance = lathe_edit_distance(word, words[i]);
        const int near = distance <= (length < 3 ? 1 : length / 3) && distance < length;
        if ((near || is_prefix(word, words[i]) || is_prefix(words[i], word)) &&
            distance < best_distance) {
            best = words[i];
            best_distance = distance;
        }
    }
    return best;
}
