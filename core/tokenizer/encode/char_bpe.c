/* Byte pair merging over characters, for vocabularies of text such as SentencePiece's. Merges the
 * lowest rank first, and of equal ranks the leftmost, by a heap over a linked list: O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "base/byte_level.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/encode/pipeline.h"

typedef struct lathe_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
} symbol;

static lathe_status reserve(lathe_model_scratch *scratch, int64_t n)
{
    if (n >= INT32_MAX)
        return lathe_error(LATHE_E_UNSUPPORTED, "a piece of %lld bytes without a split",
                           (long long)n);
    if (n <= scratch->capacity)
        return LATHE_OK;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->capacity = 0;
    scratch->symbols = malloc((size_t)n * sizeof *scratch->symbols);
    /* n - 1 pairs at first; each of at most n - 1 merges removes one entry and adds two. */
    scratch->heap = malloc((size_t)n * 2 * sizeof *scratch->heap);
    if (scratch->symbols == NULL || scratch->heap == NULL)
        return lathe_error(LATHE_E_NOMEM, "a piece of %lld bytes", (long long)n);
    scratch->capacity = n;
    return LATHE_OK;
}

static void add(symbol *s, int64_t *n, int32_t id)
{
    s[*n] = (symbol){id, (int32_t)*n - 1, (int32_t)*n + 1};
    *n += 1;
}

/* Writes the byte tokens of a character; returns 0 if the vocabulary lacks one of them. */
static int add_bytes(const lathe_pipeline *pipeline, const uint8_t *text, int32_t len, symbol *s,
                     int64_t *n)
{
    for (int32_t k = 0; k < len; k++)
        if (pipeline->byte_token[text[k]] < 0)
            return 0;
    for (int32_t k = 0; k < len; k++)
        add(s, n, pipeline->byte_token[text[k]]);
    return 1;
}

void lathe__count_lost(const lathe_pipeline *pipeline, const uint8_t *text, int64_t n,
                       int is_unknown, lathe_text_loss *loss)
{
    for (int64_t i = 0; i < n;) {
        uint8_t byte;
        int32_t len;
        lathe_utf8_at(text + i, n - i, &len);
        if (pipeline->byte_level && lathe_bytes_of_chars((const char *)text + i, len, &byte) == 1)
            lathe_text_loss_count(loss, &byte, 1, is_unknown);
        else
            lathe_text_loss_count(loss, text + i, len, is_unknown);
        i += len;
    }
}

/* Splits the piece into its first symbols: characters, else their bytes, else unk (or nothing if
 * there is no unk). As in Hugging Face's library, byte tokens are put before an unk that is still
 * pending. */
static int64_t first_symbols(const lathe_tokenizer *tok, const uint8_t *text, int64_t n, symbol *s,
                             lathe_text_loss *loss)
{
    const lathe_pipeline *pipeline = tok->pipeline;
    int64_t n_symbols = 0;
    int pending = 0;
    int32_t len;
    for (int64_t i = 0; i < n; i += len) {
        lathe_utf8_at(text + i, n - i, &len);
        const int32_t id = lathe__vocab_find(&tok->vocab, text + i, len);
        if (id >= 0) {
            if (pending)
                add(s, &n_symbols, pipeline->unk);
            pending = 0;
            add(s, &n_symbols, id);
        } else if (pipeline->byte_fallback && add_bytes(pipeline, text + i, len, s, &n_symbols)) {
            continue;
        } else {
            const int has_unk = pipeline->unk >= 0;
            if (pending && !pipeline->fuse_unk)
                add(s, &n_symbols, pipeline->unk);
            pending = has_unk;
            lathe__count_lost(pipeline, text + i, len, has_unk, loss);
        }
    }
    if (pending)
        add(s, &n_symbols, pipeline->unk);
    if (n_symbols > 0)
        s[n_symbols - 1].next = -1;
    return n_symbols;
}

/* ---- the heap of merges: rank << 32 | position ---- */

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

static void push(uint64_t *heap, int64_t *n, uint64_t key)
{
    int64_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

/* In plain text, a merge that would make a special token does not count. */
static const lathe_merge *find_merge(const lathe_tokenizer *tok, int32_t left, int32_t right,
                                     int plain)
{
    const lathe_merge *m = lathe__merges_find(&tok->merges, left, right);
    return m && plain && tok->pipeline->is_control[m->id] ? NULL : m;
}

static void queue_pair(const lathe_tokenizer *tok, const symbol *s, int32_t left, int plain,
                       uint64_t *heap, int64_t *n_heap)
{
    if (left < 0 || s[left].next < 0)
        return;
    const lathe_merge *m = find_merge(tok, s[left].id, s[s[left].next].id, plain);
    if (m)
        push(heap, n_heap, (uint64_t)m->rank << 32 | (uint32_t)left);
}

static void merge_all(const lathe_tokenizer *tok, symbol *s, int64_t n, int plain, uint64_t *heap)
{
    int64_t n_heap = 0;
    for (int64_t i = 0; i < n; i++)
        queue_pair(tok, s, (int32_t)i, plain, heap, &n_heap);
    while (n_heap > 0) {
        const uint64_t top = heap[0];
        heap[0] = heap[--n_heap];
        if (n_heap)
            sift_down(heap, n_heap, 0);
        const int32_t at = (int32_t)(uint32_t)top;
        if (s[at].id < 0 || s[at].next < 0)
            continue;
        const int32_t right = s[at].next;
        const lathe_merge *m = find_merge(tok, s[at].id, s[right].id, plain);
        if (m == NULL ||
            m->rank != (uint32_t)(top >> 32)) /* the pair has changed since it was queued */
            continue;
        s[at].id = (int32_t)m->id;
        s[at].next = s[right].next;
        s[right].id = -1;
        if (s[at].next >= 0)
            s[s[at].next].prev = at;
        queue_pair(tok, s, s[at].prev, plain, heap, &n_heap);
        queue_pair(tok, s, at, plain, heap, &n_heap);
    }
}

lathe_status lathe__char_bpe_encode(const lathe_tokenizer *tok, lathe_model_scratch *scratch,
                                    const uint8_t *piece, int64_t n, int plain, lathe_ids *ids)
{
    if (tok->ignore_merges) {
        const int32_t id = lathe__vocab_find(&tok->vocab, piece, n);
        if (id >= 0 && !(plain && tok->pipeline->is_control[id])) {
            LATHE_TRY(lathe_ids_reserve(ids, 1));
            ids->data[ids->n++] = id;
            return LATHE_OK;
        }
    }
    LATHE_TRY(reserve(scratch, n));
    const int64_t n_symbols = first_symbols(tok, piece, n, scratch->symbols, scratch->loss);
    if (n_symbols == 0)
        return LATHE_OK;
    merge_all(tok, scratch->symbols, n_symbols, plain, scratch->heap);
    LATHE_TRY(lathe_ids_reserve(ids, n_symbols));
    for (int32_t i = 0; i >= 0; i = scratch->symbols[i].next)
        ids->data[ids->n++] = scratch->symbols[i].id;
    return LATHE_OK;
}
