/* Merges the byte pairs of one piece: the lowest rank first, and of equal ranks the leftmost. A
 * cache keeps the ids of pieces seen; its lines are prefetched a few pieces ahead. Short pieces are
 * merged by scanning an array, long ones by bpe_long.c. */
#include "tokenizer/encode/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/encode/bpe_long.h"

enum { CACHE_BITS = 16, CACHE_TEXT = 30, CACHE_IDS = 8, SHORT_PIECE = 48, N_WAITING = 16 };

/* Up to 30 bytes of text, padded with zeros, and the length in the 31st byte. The struct that
 * contains the key uses the 32nd byte. */
typedef struct text_key {
    uint64_t word[4];
} text_key;

#define OWNERS_BYTE 0xff00000000000000u

/* One cache line. The cache is direct-mapped: a collision replaces. All zeros is empty. */
typedef struct cached_piece {
    text_key key; /* its 32nd byte is the number of ids */
    int32_t ids[CACHE_IDS];
} cached_piece;
_Static_assert(sizeof(cached_piece) == 64, "a cached piece fills a cache line");

/* A piece whose cache line is being prefetched. */
typedef struct waiting_piece {
    const uint8_t *piece;
    int64_t n;
    cached_piece *place; /* NULL: the piece is too long for the cache */
    text_key key;
} waiting_piece;

struct lathe_bpe {
    const lathe_tokenizer *tok;
    lathe_text_loss *loss;
    void *memory;
    cached_piece *cache; /* in `memory`, aligned to a cache line */
    lathe_bpe_long lengthy;
    waiting_piece waiting[N_WAITING];
    int32_t n_waiting;
};

/* Takes zeroed memory that the system provides page by page, so that a short text uses little of
 * it. */
lathe_status lathe__bpe_create(const lathe_tokenizer *tok, lathe_text_loss *loss, lathe_bpe **out)
{
    const uintptr_t line = sizeof(cached_piece);
    lathe_bpe *bpe = calloc(1, sizeof *bpe);
    if (bpe)
        bpe->memory = calloc(((size_t)1 << CACHE_BITS) + 1, sizeof(cached_piece));
    if (bpe == NULL || bpe->memory == NULL) {
        free(bpe);
        return lathe_error(LATHE_E_NOMEM, "encoder cache");
    }
    bpe->cache = (cached_piece *)(((uintptr_t)bpe->memory + line - 1) / line * line);
    bpe->tok = tok;
    bpe->loss = loss;
    bpe->lengthy.merges = &tok->merges;
    *out = bpe;
    return LATHE_OK;
}

void lathe__bpe_destroy(lathe_bpe *bpe)
{
    if (bpe == NULL)
        return;
    free(bpe->memory);
    lathe__bpe_long_fini(&bpe->lengthy);
    free(bpe);
}

/* Writes the tokens of the piece's bytes and returns their number. Bytes that the vocabulary lacks
 * are dropped, so that the tokens around them may merge, as in Hugging Face's library. */
static int64_t first_symbols(lathe_bpe *bpe, const uint8_t *piece, int64_t n, int32_t *ids)
{
    const int32_t *const byte_id = bpe->tok->byte_id;
    int64_t n_ids = 0;
    for (int64_t i = 0; i < n; i++) {
        ids[n_ids] = byte_id[piece[i]];
        n_ids += ids[n_ids] >= 0;
    }
    for (int64_t i = 0; i < n && n_ids < n; i++)
        if (byte_id[piece[i]] < 0)
            lathe_text_loss_count(bpe->loss, piece + i, 1, 0);
    return n_ids;
}

/* Merges ids[0, n) and returns the number that is left. */
static int32_t merge_short(const lathe_tokenizer *tok, int32_t n, int32_t *ids)
{
    uint32_t rank[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
#define LOOK_UP(i)                                                                                 \
    do {                                                                                           \
        const lathe_merge *m_ = lathe__merges_find(&tok->merges, ids[i], ids[(i) + 1]);            \
        rank[i] = m_ ? m_->rank : UINT32_MAX;                                                      \
        merged[i] = m_ ? (int32_t)m_->id : -1;                                                     \
    } while (0)
    for (int32_t i = 0; i + 1 < n; i++)
        lathe__merges_prefetch(&tok->merges, ids[i], ids[i + 1]);
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

static lathe_status merge_long(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids)
{
    LATHE_TRY(lathe_ids_reserve(ids, n));
    int32_t *out = ids->data + ids->n;
    int64_t n_ids = 0;
    LATHE_TRY(lathe__bpe_merge_long(&bpe->lengthy, out, first_symbols(bpe, piece, n, out), &n_ids));
    ids->n += n_ids;
    return LATHE_OK;
}

/* Reads n bytes, 1 to 8, as a number, without reading bytes after them. */
static inline uint64_t load_some(const uint8_t *p, int64_t n)
{
    uint32_t low, high;
    if (n == 8) {
        uint64_t all;
        memcpy(&all, p, 8);
        return all;
    }
    if (n >= 4) {
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        return low | (uint64_t)high << (n - 4) * 8;
    }
    return p[0] | (uint64_t)p[n >> 1] << (n >> 1) * 8 | (uint64_t)p[n - 1] << (n - 1) * 8;
}

static inline text_key key_of(const uint8_t *piece, int64_t n)
{
    text_key key = {{0, 0, 0, 0}};
    int32_t i = 0;
    for (int64_t left = n; left > 0; left -= 8, piece += 8)
        key.word[i++] = load_some(piece, left < 8 ? left : 8);
    key.word[3] |= (uint64_t)n << 48;
    return key;
}

static inline uint64_t hash_of(const text_key *key)
{
    const uint64_t low = lathe__mix(key->word[0] ^ lathe__mix(key->word[2] ^ key->word[3]));
    return lathe__mix(low ^ key->word[1]) * 0x9E3779B97F4A7C15u;
}

static inline int is_cached(const cached_piece *place, const text_key *key)
{
    const uint64_t *a = place->key.word, *b = key->word;
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | ((a[3] ^ b[3]) & ~OWNERS_BYTE)) == 0;
}

/* Computes the ids of a piece that is not in the cache. A piece that lost bytes is not cached, so
 * that they are counted each time. */
static lathe_status merge(lathe_bpe *bpe, const waiting_piece *w, lathe_ids *ids)
{
    const lathe_tokenizer *tok = bpe->tok;
    int32_t merged[SHORT_PIECE], n_ids = 1, n_first = (int32_t)w->n;
    merged[0] = tok->ignore_merges ? lathe__vocab_find(&tok->vocab, w->piece, w->n) : -1;
    if (merged[0] < 0) {
        if (w->n > SHORT_PIECE)
            return merge_long(bpe, w->piece, w->n, ids);
        n_first = (int32_t)first_symbols(bpe, w->piece, w->n, merged);
        n_ids = merge_short(tok, n_first, merged);
    }
    LATHE_TRY(lathe_ids_reserve(ids, n_ids));
    memcpy(ids->data + ids->n, merged, (size_t)n_ids * sizeof *merged);
    ids->n += n_ids;
    if (w->place && n_ids <= CACHE_IDS && n_first == w->n) {
        w->place->key = w->key;
        w->place->key.word[3] |= (uint64_t)n_ids << 56;
        memcpy(w->place->ids, merged, (size_t)n_ids * sizeof *merged);
    }
    return LATHE_OK;
}

lathe_status lathe__bpe_finish(lathe_bpe *bpe, lathe_ids *ids)
{
    const int32_t n = bpe->n_waiting;
    bpe->n_waiting = 0;
    LATHE_TRY(lathe_ids_reserve(ids, (int64_t)n * CACHE_IDS));
    for (int32_t i = 0; i < n; i++) {
        const waiting_piece *w = &bpe->waiting[i];
        if (w->place == NULL || !is_cached(w->place, &w->key)) {
            LATHE_TRY(merge(bpe, w, ids));
            LATHE_TRY(lathe_ids_reserve(ids, (int64_t)(n - i) * CACHE_IDS));
            continue;
        }
        memcpy(ids->data + ids->n, w->place->ids, sizeof w->place->ids);
        ids->n += (int64_t)(w->place->key.word[3] >> 56);
    }
    return LATHE_OK;
}

void lathe__bpe_forget(lathe_bpe *bpe)
{
    bpe->n_waiting = 0;
}

lathe_status lathe__bpe_encode(lathe_bpe *bpe, const uint8_t *piece, int64_t n, lathe_ids *ids)
{
    if (n <= 0)
        return LATHE_OK;
    waiting_piece *w = &bpe->waiting[bpe->n_waiting++];
    w->piece = piece;
    w->n = n;
    w->place = NULL;
    if (n <= CACHE_TEXT) {
        w->key = key_of(piece, n);
        w->place = &bpe->cache[hash_of(&w->key) >> (64 - CACHE_BITS)];
        __builtin_prefetch(w->place);
    }
    return bpe->n_waiting == N_WAITING ? lathe__bpe_finish(bpe, ids) : LATHE_OK;
}
