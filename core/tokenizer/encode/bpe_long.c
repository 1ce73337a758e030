/* Merges a long piece. The pairs that can merge are in one bucket per rank, in the order of the
 * text, and a heap holds the ranks whose bucket is not empty. A merge removes two pairs from their
 * buckets and adds at most two. A text of few different pairs, such as one character ten million
 * times, takes no more time per byte than a short text. */
#include "tokenizer/encode/bpe_long.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { NONE = -1 };
#define NO_RANK UINT32_MAX

typedef struct lathe_bpe_cell {
    int32_t id, prev, next; /* next is NONE for the last symbol */
    uint32_t rank;          /* bucket of the pair of this symbol and the next, or NO_RANK */
    int32_t before, after;  /* neighbours in the bucket */
} cell;

typedef struct lathe_bpe_bucket {
    int32_t first, last, result;
    int8_t queued, unsorted;
} bucket;

static void heap_push(lathe_bpe_long *s, uint32_t rank)
{
    int64_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > rank; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = rank;
}

static void heap_pop(lathe_bpe_long *s)
{
    uint32_t *const heap = s->heap;
    const int64_t n = --s->n_heap;
    const uint32_t rank = heap[n];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= rank)
            break;
        heap[i] = heap[child];
    }
    heap[i] = rank;
}

/* Adds the pair of symbol `at` and the next one to its bucket. */
static void hang(lathe_bpe_long *s, int32_t at)
{
    cell *const c = &s->cells[at];
    c->rank = NO_RANK;
    if (c->next == NONE)
        return;
    const lathe_merge *m = lathe__merges_find(s->merges, c->id, s->cells[c->next].id);
    if (m == NULL)
        return;
    bucket *const b = &s->buckets[m->rank];
    c->rank = m->rank;
    if (b->first == NONE) {
        c->before = c->after = NONE;
        b->first = b->last = at;
        b->unsorted = 0;
        if (!b->queued)
            heap_push(s, m->rank);
        b->queued = 1;
    } else if (at < b->first) {
        c->before = NONE;
        c->after = b->first;
        s->cells[b->first].before = at;
        b->first = at;
    } else {
        c->before = b->last;
        c->after = NONE;
        s->cells[b->last].after = at;
        b->unsorted |= at < b->last;
        b->last = at;
    }
}

static void unhang(lathe_bpe_long *s, int32_t at)
{
    const cell *const c = &s->cells[at];
    if (c->rank == NO_RANK)
        return;
    bucket *const b = &s->buckets[c->rank];
    if (c->before == NONE)
        b->first = c->after;
    else
        s->cells[c->before].after = c->after;
    if (c->after == NONE)
        b->last = c->before;
    else
        s->cells[c->after].before = c->before;
}

static int by_place(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void sort(lathe_bpe_long *s, bucket *b)
{
    int64_t n = 0;
    for (int32_t at = b->first; at != NONE; at = s->cells[at].after)
        s->sorting[n++] = at;
    if (n == 0)
        return;
    qsort(s->sorting, (size_t)n, sizeof *s->sorting, by_place);
    for (int64_t i = 0; i < n; i++) {
        s->cells[s->sorting[i]].before = i ? s->sorting[i - 1] : NONE;
        s->cells[s->sorting[i]].after = i + 1 < n ? s->sorting[i + 1] : NONE;
    }
    b->first = s->sorting[0];
    b->last = s->sorting[n - 1];
    b->unsorted = 0;
}

static void merge_at(lathe_bpe_long *s, int32_t at, int32_t result)
{
    cell *const cells = s->cells;
    const int32_t right = cells[at].next, prev = cells[at].prev;
    unhang(s, at);
    unhang(s, right);
    cells[at].id = result;
    cells[at].next = cells[right].next;
    if (cells[at].next != NONE)
        cells[cells[at].next].prev = at;
    if (prev != NONE) {
        unhang(s, prev);
        hang(s, prev);
    }
    hang(s, at);
}

static lathe_status reserve(lathe_bpe_long *s, int64_t n)
{
    if (n <= s->capacity)
        return LATHE_OK;
    free(s->cells);
    free(s->sorting);
    s->capacity = 0;
    s->cells = calloc((size_t)n, sizeof *s->cells);
    s->sorting = calloc((size_t)n, sizeof *s->sorting);
    if (s->cells == NULL || s->sorting == NULL)
        return lathe_error(LATHE_E_NOMEM, "a piece of %lld symbols", (long long)n);
    s->capacity = n;
    return LATHE_OK;
}

static lathe_status make_buckets(lathe_bpe_long *s)
{
    uint32_t max = 0;
    for (uint64_t i = 0; i <= s->merges->mask; i++)
        if (s->merges->slots[i].pair != UINT64_MAX && s->merges->slots[i].rank > max)
            max = s->merges->slots[i].rank;
    const int64_t n = (int64_t)max + 1;
    s->buckets = calloc((size_t)n, sizeof *s->buckets);
    s->heap = calloc((size_t)n, sizeof *s->heap);
    if (s->buckets == NULL || s->heap == NULL) {
        lathe__bpe_long_fini(s);
        return lathe_error(LATHE_E_NOMEM, "%lld merges", (long long)n);
    }
    s->n_ranks = n;
    for (int64_t i = 0; i < n; i++)
        s->buckets[i] = (bucket){NONE, NONE, NONE, 0, 0};
    for (uint64_t i = 0; i <= s->merges->mask; i++)
        if (s->merges->slots[i].pair != UINT64_MAX)
            s->buckets[s->merges->slots[i].rank].result = (int32_t)s->merges->slots[i].id;
    return LATHE_OK;
}

lathe_status lathe__bpe_merge_long(lathe_bpe_long *s, int32_t *ids, int64_t n, int64_t *out_n)
{
    if (n >= INT32_MAX)
        return lathe_error(LATHE_E_UNSUPPORTED, "a piece of %lld symbols without a split",
                           (long long)n);
    if (s->buckets == NULL)
        LATHE_TRY(make_buckets(s));
    LATHE_TRY(reserve(s, n));
    cell *const cells = s->cells;
    for (int32_t i = 0; i < n; i++) {
        cells[i].id = ids[i];
        cells[i].prev = i - 1;
        cells[i].next = i + 1 < n ? i + 1 : NONE;
    }
    for (int32_t i = 0; i < n; i++)
        hang(s, i);
    while (s->n_heap > 0) {
        bucket *const b = &s->buckets[s->heap[0]];
        if (b->first == NONE) {
            b->queued = 0;
            heap_pop(s);
            continue;
        }
        if (b->unsorted)
            sort(s, b);
        merge_at(s, b->first, b->result);
    }
    *out_n = 0;
    for (int32_t i = 0; n > 0 && i != NONE; i = cells[i].next)
        ids[(*out_n)++] = cells[i].id;
    return LATHE_OK;
}

void lathe__bpe_long_fini(lathe_bpe_long *s)
{
    free(s->cells);
    free(s->sorting);
    free(s->buckets);
    free(s->heap);
    *s = (lathe_bpe_long){.merges = s->merges};
}
