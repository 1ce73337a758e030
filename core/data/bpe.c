/* Byte pair merging of one piece: the lowest rank first, the leftmost among equals; with a cache of
 * pieces seen. Short pieces scan an array, long ones keep a heap over a linked list: O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/tokenizer_model.h"

enum { CACHE_BITS = 15, CACHE_TEXT = 30, CACHE_IDS = 8, SHORT_PIECE = 48 };

/* One cache line. The table is direct-mapped: a collision replaces. */
typedef struct cached_piece {
    uint8_t text[CACHE_TEXT];
    uint8_t len, n_ids; /* len 0: empty */
    int32_t ids[CACHE_IDS];
} cached_piece;
_Static_assert(sizeof(cached_piece) == 64, "a cached piece fills a cache line");

typedef struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
} symbol;

struct lathe_bpe {
    const lathe_tokenizer *tok;
    cached_piece *cache;
    symbol *symbols;
    uint64_t *heap; /* rank << 32 | position */
    int64_t capacity;
};

lathe_status lathe__bpe_create(const lathe_tokenizer *tok, lathe_bpe **out)
{
    lathe_bpe *bpe = calloc(1, sizeof *bpe);
    if (bpe)
        bpe->cache = aligned_alloc(64, sizeof(cached_piece) << CACHE_BITS);
    if (!bpe || !bpe->cache) {
        free(bpe);
        return lathe_error(LATHE_E_NOMEM, "encoder cache");
    }
    memset(bpe->cache, 0, sizeof(cached_piece) << CACHE_BITS);
    bpe->tok = tok;
    *out = bpe;
    return LATHE_OK;
}

void lathe__bpe_destroy(lathe_bpe *bpe)
{
    if (!bpe)
        return;
    free(bpe->cache);
    free(bpe->symbols);
    free(bpe->heap);
    free(bpe);
}

static int32_t merge_short(const lathe_tokenizer *tok, const uint8_t *piece, int32_t n,
                           int32_t *ids)
{
    uint32_t rank[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
    for (int32_t i = 0; i < n; i++)
        ids[i] = tok->byte_id[piece[i]];
#define LOOK_UP(i)                                                                                 \
    do {                                                                                           \
        const lathe_merge *m_ = lathe__merges_find(&tok->merges, ids[i], ids[(i) + 1]);            \
        rank[i] = m_ ? m_->rank : UINT32_MAX;                                                      \
        merged[i] = m_ ? (int32_t)m_->id : -1;                                                     \
    } while (0)
    for (int32_t i = 0; i + 1 < n; i++)
        LOOK_UP(i);
    for (;;) {
        uint32_t best = UINT32_MAX;
        int32_t at = -1;
        for (int32_t i = 0; i + 1 < n; i++)
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        if (at < 0)
            return n;
        ids[at] = merged[at];
        const size_t tail = (size_t)(n - at - 2);
        memmove(ids + at + 1, ids + at + 2, tail * sizeof *ids);
        if (tail) {
            memmove(rank + at + 1, rank + at + 2, (tail - 1) * sizeof *rank);
            memmove(merged + at + 1, merged + at + 2, (tail - 1) * sizeof *merged);
        }
        n--;
        if (at + 1 < n)
            LOOK_UP(at);
        if (at > 0)
            LOOK_UP(at - 1);
    }
#undef LOOK_UP
}

static void sift_down(uint64_t *heap, int64_t n, int64_t i)
{
    const uint64_t key = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void heap_push(uint64_t *heap, int64_t *n, uint64_t key)
{
    int64_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

/* Queues the merge of position `left` with the symbol after it, if there is one. */
static void queue_pair(const lathe_bpe *bpe, int32_t left, int64_t *n_heap)
{
    const symbol *s = bpe->symbols;
    if (left < 0 || s[left].next < 0)
        return;
    const lathe_merge *m = lathe__merges_find(&bpe->tok->merges, s[left].id, s[s[left].next].id);
    if (m)
        heap_push(bpe->heap, n_heap, (uint64_t)m->rank << 32 | (uint32_t)left);
}

static lathe_status reserve(lathe_bpe *bpe, int64_t n)
{
    if (n >= INT32_MAX)
        return lathe_error(LATHE_E_UNSUPPORTED, "a piece of %lld bytes without a split",
                           (long long)n);
    if (n <= bpe->capacity)
        return LATHE_OK;
    free(bpe->symbols);
    free(bpe->heap);
    bpe->capacity = 0;
    bpe->symbols = malloc((size_t)n * sizeof *bpe->symbols);
    /* n - 1 pairs at first; each of at most n - 1 merges takes one entry and puts two. */
    bpe->heap = malloc((size_t)n * 2 * sizeof *bpe->heap);
    if (!bpe->symbols || !bpe->heap)
        return lathe_error(LATHE_E_NOMEM, "a piece of %lld bytes", (long long)n);
    bpe->capacity = n;
    return LATHE_OK;
}

static lathe_status merge_long(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids)
{
    LATHE_TRY(reserve(bpe, n));
    symbol *s = bpe->symbols;
    for (int64_t i = 0; i < n; i++) {
        s[i].id = bpe->tok->byte_id[piece[i]];
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    int64_t n_heap = 0;
    for (int64_t i = 0; i + 1 < n; i++)
        queue_pair(bpe, (int32_t)i, &n_heap);
    while (n_heap > 0) {
        const uint64_t top = bpe->heap[0];
        bpe->heap[0] = bpe->heap[--n_heap];
        if (n_heap)
            sift_down(bpe->heap, n_heap, 0);
        const int32_t at = (int32_t)(uint32_t)top;
        if (s[at].id < 0 || s[at].next < 0)
            continue;
        const int32_t right = s[at].next;
        const lathe_merge *m = lathe__merges_find(&bpe->tok->merges, s[at].id, s[right].id);
        if (!m || m->rank != (uint32_t)(top >> 32)) /* the pair has changed since it was queued */
            continue;
        s[at].id = (int32_t)m->id;
        s[at].next = s[right].next;
        s[right].id = -1;
        if (s[at].next >= 0)
            s[s[at].next].prev = at;
        queue_pair(bpe, s[at].prev, &n_heap);
        queue_pair(bpe, at, &n_heap);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next) {
        LATHE_TRY(lathe_ids_reserve(ids, 1));
        ids->data[ids->n++] = s[i].id;
    }
    return LATHE_OK;
}

static uint64_t hash_short(const uint8_t *p, int64_t n)
{
    uint64_t h = (uint64_t)n * 0x9E3779B97F4A7C15u, word = 0;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = lathe__mix(h ^ word);
    }
    word = 0;
    memcpy(&word, p, (size_t)n);
    return lathe__mix(h ^ word) * 0x9E3779B97F4A7C15u;
}

lathe_status lathe__bpe_encode(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids)
{
    const lathe_tokenizer *tok = bpe->tok;
    if (n <= 0)
        return LATHE_OK;
    cached_piece *hit = NULL;
    if (n <= CACHE_TEXT) {
        hit = &bpe->cache[hash_short(piece, n) >> (64 - CACHE_BITS)];
        if (hit->len == n && !memcmp(hit->text, piece, (size_t)n)) {
            LATHE_TRY(lathe_ids_reserve(ids, CACHE_IDS));
            memcpy(ids->data + ids->n, hit->ids, sizeof hit->ids);
            ids->n += hit->n_ids;
            return LATHE_OK;
        }
    }
    if (tok->ignore_merges) {
        const int32_t id = lathe__vocab_find(&tok->vocab, piece, n);
        if (id >= 0) {
            LATHE_TRY(lathe_ids_reserve(ids, 1));
            ids->data[ids->n++] = id;
            return LATHE_OK;
        }
    }
    if (n > SHORT_PIECE)
        return merge_long(bpe, piece, n, ids);
    int32_t merged[SHORT_PIECE];
    const int32_t n_ids = merge_short(tok, piece, (int32_t)n, merged);
    LATHE_TRY(lathe_ids_reserve(ids, n_ids));
    memcpy(ids->data + ids->n, merged, (size_t)n_ids * sizeof *merged);
    ids->n += n_ids;
    if (hit && n_ids <= CACHE_IDS) {
        memcpy(hit->text, piece, (size_t)n);
        hit->len = (uint8_t)n;
        hit->n_ids = (uint8_t)n_ids;
        memcpy(hit->ids, merged, (size_t)n_ids * sizeof *merged);
    }
    return LATHE_OK;
}
