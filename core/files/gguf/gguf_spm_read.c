/* Makes the merges of a SentencePiece tokenizer from the scores of its tokens.
 *
 * SentencePiece joins, again and again, the two neighbours whose token has the highest score, the
 * leftmost of equal ones. As ranks of merges: every way to put a token together from two others, by
 * falling score of the token; the ways to one token by the scores of their parts, as transformers
 * orders them (integrations/ggml.py).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/gguf/gguf_tokenizer.h"

typedef struct merge {
    float score, left_score, right_score; /* of the token and its parts */
    int32_t token;
    int32_t n_left; /* bytes */
    int64_t order;  /* in which they were found: sorting is stable */
} merge;

typedef struct piece_index {
    int32_t *slots; /* [mask + 1] ids; -1: free */
    uint64_t mask;
} piece_index;

static uint64_t hash_of(const char *text, int64_t n)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (int64_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)text[i]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The id of the token with that text, or -1. */
static int32_t find(const lathe_gguf_vocab *v, const piece_index *x, const char *text, int64_t n)
{
    for (uint64_t at = hash_of(text, n);; at++) {
        const int32_t id = x->slots[at & x->mask];
        if (id < 0 ||
            (v->tokens[id].bytes == n && memcmp(v->tokens[id].text, text, (size_t)n) == 0))
            return id;
    }
}

/* Only such tokens are made of others; the rest of the vocabulary stands for no text. */
static int is_piece(const lathe_gguf_vocab *v, int64_t id)
{
    const int32_t type = lathe_gguf_token_type(v, id);
    return (type == LATHE_GGUF_NORMAL || type == LATHE_GGUF_USER_DEFINED) &&
           v->tokens[id].bytes > 0;
}

/* Indexes the tokens by text. If several tokens have one text, the first counts. */
static lathe_status make_index(const lathe_gguf_vocab *v, piece_index *out)
{
    uint64_t size = 16;
    while (size < (uint64_t)v->n * 2)
        size *= 2;
    out->mask = size - 1;
    out->slots = malloc(size * sizeof *out->slots);
    if (out->slots == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a vocabulary");
    memset(out->slots, 0xff, size * sizeof *out->slots);
    for (int64_t id = 0; id < v->n; id++) {
        if (!is_piece(v, id) || find(v, out, v->tokens[id].text, v->tokens[id].bytes) >= 0)
            continue;
        uint64_t at = hash_of(v->tokens[id].text, v->tokens[id].bytes);
        while (out->slots[at & out->mask] >= 0)
            at++;
        out->slots[at & out->mask] = (int32_t)id;
    }
    return LATHE_OK;
}

static int falling(float a, float b)
{
    return a > b ? -1 : a < b;
}

static int merge_order(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    int order = falling(x->score, y->score);
    if (order == 0)
        order = x->token < y->token ? -1 : x->token > y->token;
    if (order == 0)
        order = falling(x->left_score, y->left_score);
    if (order == 0)
        order = falling(x->right_score, y->right_score);
    return order != 0 ? order : x->order < y->order ? -1 : 1;
}

/* Appends the ways to put token `id` together; `list` has room for one per byte. */
static int64_t split(const lathe_gguf_vocab *v, const piece_index *x, int32_t id, int64_t n,
                     merge *list)
{
    const lathe_gguf_token *t = &v->tokens[id];
    for (int64_t k = 1; k < t->bytes; k++) {
        if (((uint8_t)t->text[k] & 0xc0) == 0x80) /* inside a character */
            continue;
        const int32_t left = find(v, x, t->text, k);
        const int32_t right = left >= 0 ? find(v, x, t->text + k, t->bytes - k) : -1;
        if (right < 0)
            continue;
        list[n] = (merge){.score = lathe_gguf_float_at(v->scores, id),
                          .left_score = lathe_gguf_float_at(v->scores, left),
                          .right_score = lathe_gguf_float_at(v->scores, right),
                          .token = id,
                          .n_left = (int32_t)k,
                          .order = n};
        n++;
    }
    return n;
}

/* All merges, unsorted; malloc'ed. */
static lathe_status collect(const lathe_gguf_vocab *v, const piece_index *x, merge **out,
                            int64_t *out_n)
{
    merge *list = NULL;
    int64_t n = 0, capacity = 0;
    for (int64_t id = 0; id < v->n; id++) {
        const int64_t bytes = v->tokens[id].bytes;
        if (!is_piece(v, id) || find(v, x, v->tokens[id].text, bytes) != id)
            continue;
        if (n + bytes > capacity) {
            capacity = 2 * capacity + bytes + 1024;
            merge *grown = realloc(list, (size_t)capacity * sizeof *grown);
            if (grown == NULL) {
                free(list);
                return lathe_error(LATHE_E_NOMEM, "no memory for the merges of a tokenizer");
            }
            list = grown;
        }
        n = split(v, x, (int32_t)id, n, list);
    }
    *out = list;
    *out_n = n;
    return LATHE_OK;
}

lathe_status lathe__gguf_spm_merges(const lathe_gguf_vocab *v, lathe_buffer *out)
{
    piece_index x = {NULL, 0};
    merge *list = NULL;
    int64_t n = 0;
    lathe_status status = make_index(v, &x);
    if (status == LATHE_OK)
        status = collect(v, &x, &list, &n);
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, merge_order);
    lathe_buffer_puts(out, "    \"merges\": [");
    for (int64_t i = 0; i < n; i++) {
        const lathe_gguf_token *t = &v->tokens[list[i].token];
        lathe_buffer_puts(out, i > 0 ? ",\n      [" : "\n      [");
        lathe_buffer_json_bytes(out, t->text, list[i].n_left);
        lathe_buffer_puts(out, ", ");
        lathe_buffer_json_bytes(out, t->text + list[i].n_left, t->bytes - list[i].n_left);
        lathe_buffer_puts(out, "]");
    }
    free(list);
    free(x.slots);
    return status == LATHE_OK ? out->status : status;
}
