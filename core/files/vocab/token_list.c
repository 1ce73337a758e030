/* Finds tokens by their text, and the merges of a list of tokens. */
#include "files/vocab/token_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/hash.h"

lathe_status lathe_token_list_create(int64_t n, lathe_token_list *out)
{
    *out = (lathe_token_list){.n = n};
    out->tokens = calloc((size_t)n + 1, sizeof *out->tokens);
    return out->tokens ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a vocabulary");
}

/* The slot of a text, or the free one where it would be. */
static uint64_t slot_of(const lathe_token_list *list, const char *text, int64_t n)
{
    for (uint64_t at = lathe_hash64(text, n);; at++) {
        const int32_t id = list->slots[at & list->mask];
        if (id < 0 ||
            (list->tokens[id].n == n && memcmp(list->tokens[id].text, text, (size_t)n) == 0))
            return at & list->mask;
    }
}

lathe_status lathe_token_list_index(lathe_token_list *list, int only_merged)
{
    uint64_t size = 16;
    while (size < (uint64_t)list->n * 2)
        size *= 2;
    list->mask = size - 1;
    list->slots = malloc(size * sizeof *list->slots);
    if (list->slots == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a vocabulary");
    memset(list->slots, 0xff, size * sizeof *list->slots);
    for (int64_t id = 0; id < list->n; id++)
        if (list->tokens[id].is_merged || !only_merged)
            list->slots[slot_of(list, list->tokens[id].text, list->tokens[id].n)] = (int32_t)id;
    return LATHE_OK;
}

int32_t lathe_token_list_find(const lathe_token_list *list, const char *text, int64_t n)
{
    return list->slots[slot_of(list, text, n)];
}

void lathe_token_list_fini(lathe_token_list *list)
{
    free(list->tokens);
    free(list->slots);
    *list = (lathe_token_list){.tokens = NULL};
}

void lathe_token_list_put(lathe_buffer *out, const char *text, int64_t n, int of_bytes)
{
    uint8_t chars[2048];
    if (!of_bytes) {
        lathe_buffer_json_bytes(out, text, n);
        return;
    }
    lathe_buffer_puts(out, "\"");
    for (int64_t i = 0; i < n; i += 1024) {
        const int64_t part = n - i < 1024 ? n - i : 1024;
        const uint8_t *end = lathe_chars_of_bytes((const uint8_t *)text + i, part, chars);
        for (const uint8_t *p = chars; p < end; p++) { /* the alphabet has no control characters */
            if (*p == '"' || *p == '\\')
                lathe_buffer_append(out, "\\", 1);
            lathe_buffer_append(out, p, 1);
        }
    }
    lathe_buffer_puts(out, "\"");
}

/* ---- merges ---- */

typedef struct way {
    int32_t left, right, n_left;
} way;

static int way_order(const void *a, const void *b)
{
    const way *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* Finds the ways to put a token together; ways has room for one per byte. */
static int64_t find_ways(const lathe_token_list *list, const lathe_list_token *t, int32_t order,
                         way *ways)
{
    int64_t n = 0;
    for (int32_t k = 1; k < t->n; k++) {
        if (order != LATHE_MERGES_OF_BYTES && ((uint8_t)t->text[k] & 0xc0) == 0x80)
            continue; /* inside a character */
        const int32_t left = lathe_token_list_find(list, t->text, k);
        const int32_t right = left >= 0 ? lathe_token_list_find(list, t->text + k, t->n - k) : -1;
        if (right >= 0)
            ways[n++] = (way){left, right, k};
    }
    if (order == LATHE_MERGES_OF_BYTES && n > 1)
        qsort(ways, (size_t)n, sizeof *ways, way_order);
    return n;
}

typedef struct ranked {
    float score;
    int32_t id;
} ranked;

static int rank_order(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

lathe_status lathe_token_list_merges(const lathe_token_list *list, int32_t order, lathe_buffer *out)
{
    const int of_bytes = order == LATHE_MERGES_OF_BYTES;
    const char *gap = "\n      [";
    int32_t longest = 1;
    for (int64_t id = 0; id < list->n; id++)
        longest = list->tokens[id].n > longest ? list->tokens[id].n : longest;
    ranked *ids = malloc(((size_t)list->n + 1) * sizeof *ids);
    way *ways = malloc((size_t)longest * sizeof *ways);
    lathe_status status =
        ids && ways ? LATHE_OK
                    : lathe_error(LATHE_E_NOMEM, "no memory for the merges of a vocabulary");
    if (status != LATHE_OK)
        goto out;
    for (int64_t id = 0; id < list->n; id++)
        ids[id] =
            (ranked){order == LATHE_MERGES_BY_SCORE ? list->tokens[id].score : 0.0f, (int32_t)id};
    qsort(ids, (size_t)list->n, sizeof *ids, rank_order);
    for (int64_t i = 0; i < list->n && out->status == LATHE_OK; i++) {
        const lathe_list_token *t = &list->tokens[ids[i].id];
        if (lathe_token_list_find(list, t->text, t->n) != ids[i].id)
            continue;
        const int64_t n = find_ways(list, t, order, ways);
        for (int64_t k = 0; k < n; k++) {
            lathe_buffer_puts(out, gap);
            lathe_token_list_put(out, t->text, ways[k].n_left, of_bytes);
            lathe_buffer_puts(out, ", ");
            lathe_token_list_put(out, t->text + ways[k].n_left, t->n - ways[k].n_left, of_bytes);
            lathe_buffer_puts(out, "]");
            gap = ",\n      [";
        }
    }
    status = out->status;
out:
    free(ids);
    free(ways);
    return status;
}
