/* Learns merges. Each merge updates the counts of the pairs in the words that it changes. A queue
 * holds the pairs by count; an entry whose count is old is corrected when it is taken.
 *
 * The order is that of Hugging Face's BpeTrainer: highest count first, then smaller ids. As in
 * BpeTrainer, an entry of the queue has the words that were known when it was made. If one token
 * comes from two different pairs, a pair may therefore be merged in several steps, and its rank is
 * that of the last one. */
#include "tokenizer/train/bpe_train.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

typedef struct places {
    int32_t *words; /* each once, in the order in which they were found */
    int64_t n, capacity;
} places;

typedef struct pair_slot {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty */
    int64_t count;
    int64_t fresh; /* 1 + index in trainer.fresh, the words found since the last merge; 0: none */
} pair_slot;

typedef struct queued {
    int64_t count;
    uint64_t pair;
    int64_t serial; /* orders entries that are equal otherwise: first in, first out */
    places at;
} queued;

typedef struct fresh_pair {
    uint64_t pair;
    places at;
} fresh_pair;

typedef struct trainer {
    int32_t *symbols; /* the symbols of all words */
    int64_t *start;   /* [n_words] */
    int32_t *length;  /* [n_words], decreases with merges */
    const int64_t *counts;
    int64_t n_words;
    int64_t max_symbols; /* pairs that a merge makes must have fewer first symbols */
    int32_t *sizes;      /* [sizes_capacity] number of first symbols of a token, by id */
    int64_t sizes_capacity;
    pair_slot *pairs;
    uint64_t mask;
    int64_t n_pairs;
    fresh_pair *fresh;
    int64_t n_fresh, fresh_capacity;
    queued *queue;
    int64_t n_queue, queue_capacity, serial;
    lathe_learned_merge *merges;
    int64_t n_merges, merges_capacity;
} trainer;

static lathe_status nomem(void)
{
    return lathe_error(LATHE_E_NOMEM, "training a tokenizer");
}

/* Returns the array with room for one more element of `size` bytes; NULL if memory runs out, and
 * the old array stays. */
static void *grow(void *data, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity)
        return data;
    const int64_t wanted = *capacity * 2 + 16;
    void *grown = realloc(data, (size_t)wanted * size);
    if (grown)
        *capacity = wanted;
    return grown;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static pair_slot *probe(pair_slot *pairs, uint64_t mask, uint64_t pair)
{
    uint64_t i = lathe__mix(pair) & mask;
    while (pairs[i].pair != pair && pairs[i].pair != UINT64_MAX)
        i = (i + 1) & mask;
    return &pairs[i];
}

static lathe_status enlarge(trainer *t, uint64_t n_slots)
{
    pair_slot *pairs = malloc(n_slots * sizeof *pairs);
    if (pairs == NULL)
        return nomem();
    memset(pairs, 0xff, n_slots * sizeof *pairs);
    for (uint64_t i = 0; t->pairs && i <= t->mask; i++)
        if (t->pairs[i].pair != UINT64_MAX)
            *probe(pairs, n_slots - 1, t->pairs[i].pair) = t->pairs[i];
    free(t->pairs);
    t->pairs = pairs;
    t->mask = n_slots - 1;
    return LATHE_OK;
}

/* Adds `change` occurrences of the pair in `word`, and notes the word if they are new. */
static lathe_status count_pair(trainer *t, int32_t left, int32_t right, int64_t change,
                               int32_t word)
{
    if ((uint64_t)t->n_pairs * 2 > t->mask)
        LATHE_TRY(enlarge(t, (t->mask + 1) * 2));
    const uint64_t pair = pair_of(left, right);
    pair_slot *slot = probe(t->pairs, t->mask, pair);
    if (slot->pair == UINT64_MAX) {
        *slot = (pair_slot){pair, 0, 0};
        t->n_pairs++;
    }
    slot->count += change;
    if (change < 0)
        return LATHE_OK;
    if (!slot->fresh) {
        fresh_pair *fresh = grow(t->fresh, t->n_fresh, &t->fresh_capacity, sizeof *fresh);
        if (fresh == NULL)
            return nomem();
        t->fresh = fresh;
        t->fresh[t->n_fresh++] = (fresh_pair){pair, {NULL, 0, 0}};
        slot->fresh = t->n_fresh;
    }
    places *at = &t->fresh[slot->fresh - 1].at;
    /* grow() gave memory or we left. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    if (at->n > 0 && at->words[at->n - 1] == word)
        return LATHE_OK;
    int32_t *words = grow(at->words, at->n, &at->capacity, sizeof *words);
    if (words == NULL)
        return nomem();
    at->words = words;
    at->words[at->n++] = word;
    return LATHE_OK;
}

/* ---- the queue: a binary heap ---- */

static int before(const queued *a, const queued *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->pair != b->pair ? a->pair < b->pair : a->serial < b->serial;
}

static void sift_up(queued *heap, int64_t i, queued entry)
{
    for (; i > 0 && before(&entry, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static void sift_down(queued *heap, int64_t n, queued entry)
{
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &entry))
            break;
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

static queued pop(trainer *t)
{
    const queued top = t->queue[0];
    if (--t->n_queue > 0)
        sift_down(t->queue, t->n_queue, t->queue[t->n_queue]);
    return top;
}

/* Queues the pairs found since the last merge. */
static lathe_status queue_fresh(trainer *t)
{
    while (t->n_fresh > 0) { /* in any order, because the order of the queue is total */
        const fresh_pair *fresh = &t->fresh[t->n_fresh - 1];
        pair_slot *slot = probe(t->pairs, t->mask, fresh->pair);
        if (slot->count > 0) {
            queued *queue = grow(t->queue, t->n_queue, &t->queue_capacity, sizeof *queue);
            if (queue == NULL)
                return nomem();
            t->queue = queue;
            const queued entry = {slot->count, fresh->pair, t->serial++, fresh->at};
            sift_up(t->queue, t->n_queue++, entry);
        } else {
            free(fresh->at.words);
        }
        slot->fresh = 0;
        t->n_fresh--;
    }
    return LATHE_OK;
}

/* ---- merging ---- */

static lathe_status merge_word(trainer *t, int32_t word, int32_t left, int32_t right,
                               int32_t result)
{
    int32_t *s = t->symbols + t->start[word];
    const int32_t n = t->length[word];
    const int64_t count = t->counts[word];
    int32_t out = 0;
    for (int32_t i = 0; i < n; i++) {
        if (s[i] != left || i + 1 == n || s[i + 1] != right) {
            s[out++] = s[i];
            continue;
        }
        if (out > 0) {
            LATHE_TRY(count_pair(t, s[out - 1], left, -count, word));
            if (t->sizes[s[out - 1]] + t->sizes[result] < t->max_symbols)
                LATHE_TRY(count_pair(t, s[out - 1], result, count, word));
        }
        if (i + 2 < n) {
            LATHE_TRY(count_pair(t, right, s[i + 2], -count, word));
            if (t->sizes[result] + t->sizes[s[i + 2]] < t->max_symbols)
                LATHE_TRY(count_pair(t, result, s[i + 2], count, word));
        }
        s[out++] = result;
        i++;
    }
    t->length[word] = out;
    return LATHE_OK;
}

/* Returns the id of left + right, a new one if there is none. */
static lathe_status join(lathe_vocab *vocab, int32_t left, int32_t right, int32_t *out)
{
    const int64_t n = vocab->len[left], m = vocab->len[right];
    uint8_t *bytes = malloc((size_t)(n + m));
    if (bytes == NULL)
        return nomem();
    memcpy(bytes, vocab->pool + vocab->at[left], (size_t)n);
    memcpy(bytes + n, vocab->pool + vocab->at[right], (size_t)m);
    lathe_status status = LATHE_OK;
    *out = lathe__vocab_find(vocab, bytes, n + m);
    if (*out < 0) {
        *out = (int32_t)vocab->n;
        status = lathe__vocab_put(vocab, *out, bytes, n + m, 1);
    }
    free(bytes);
    return status;
}

static lathe_status merge_top(trainer *t, const queued *top, lathe_vocab *vocab)
{
    const int32_t left = (int32_t)(top->pair >> 32), right = (int32_t)(uint32_t)top->pair;
    int32_t result = -1;
    LATHE_TRY(join(vocab, left, right, &result));
    lathe_learned_merge *merges = grow(t->merges, t->n_merges, &t->merges_capacity, sizeof *merges);
    if (merges == NULL)
        return nomem();
    t->merges = merges;
    t->merges[t->n_merges++] = (lathe_learned_merge){left, right};
    int32_t *sizes = grow(t->sizes, result, &t->sizes_capacity, sizeof *sizes);
    if (sizes == NULL)
        return nomem();
    t->sizes = sizes;
    t->sizes[result] = t->sizes[left] + t->sizes[right];
    for (int64_t i = 0; i < top->at.n; i++)
        LATHE_TRY(merge_word(t, top->at.words[i], left, right, result));
    return queue_fresh(t);
}

static lathe_status learn(trainer *t, int64_t vocab_size, int64_t min_frequency, lathe_vocab *vocab)
{
    while (vocab->n < vocab_size && t->n_queue > 0) {
        queued top = pop(t);
        const int64_t now = probe(t->pairs, t->mask, top.pair)->count;
        if (top.count != now && now > 0) {
            top.count = now;
            sift_up(t->queue, t->n_queue++, top);
            continue;
        }
        lathe_status status = LATHE_OK;
        const int done = now == top.count && now < min_frequency;
        if (now == top.count && !done)
            status = merge_top(t, &top, vocab);
        free(top.at.words);
        if (status != LATHE_OK || done)
            return status;
    }
    return LATHE_OK;
}

/* Writes the first symbols of a word to `out` and returns their number. */
static int32_t first_symbols(const uint8_t *word, int32_t n, const int32_t *byte_id,
                             const lathe_vocab *vocab, int32_t *out)
{
    int32_t n_symbols = 0, len = 1;
    for (int32_t i = 0; i < n; i += len) {
        if (byte_id) {
            out[n_symbols++] = byte_id[word[i]];
            continue;
        }
        (void)lathe_utf8_at(word + i, n - i, &len);
        out[n_symbols++] = lathe__vocab_find(vocab, word + i, len);
    }
    return n_symbols;
}

static lathe_status set_up(trainer *t, const lathe_words *words, const int32_t *byte_id,
                           const lathe_vocab *vocab)
{
    const lathe_vocab *pieces = &words->pieces;
    int64_t total = 0;
    t->n_words = pieces->n;
    t->counts = words->counts;
    for (int64_t w = 0; w < t->n_words; w++)
        total += pieces->len[w];
    t->sizes_capacity = vocab->n + 4096;
    t->sizes = calloc((size_t)t->sizes_capacity, sizeof *t->sizes);
    t->symbols = malloc((size_t)(total + 1) * sizeof *t->symbols);
    t->start = malloc((size_t)(t->n_words + 1) * sizeof *t->start);
    t->length = malloc((size_t)(t->n_words + 1) * sizeof *t->length);
    if (t->symbols == NULL || t->start == NULL || t->length == NULL || t->sizes == NULL)
        return nomem();
    LATHE_TRY(enlarge(t, 1 << 16));
    int64_t at = 0;
    for (int64_t w = 0; w < t->n_words; w++) {
        const uint8_t *bytes = pieces->pool + pieces->at[w];
        int32_t *const s = t->symbols + at;
        const int32_t n = first_symbols(bytes, pieces->len[w], byte_id, vocab, s);
        t->start[w] = at;
        t->length[w] = n;
        at += n;
        for (int32_t i = 0; i < n; i++)
            t->sizes[s[i]] = 1;
        for (int32_t i = 0; i + 1 < n; i++)
            LATHE_TRY(count_pair(t, s[i], s[i + 1], words->counts[w], (int32_t)w));
    }
    return queue_fresh(t);
}

/* A pair that was merged more than once keeps its last rank. */
static lathe_status drop_repeated(trainer *t, int64_t vocab_n)
{
    lathe_merges last = {NULL, 0};
    LATHE_TRY(lathe__merges_init(&last, t->n_merges));
    for (int64_t i = 0; i < t->n_merges; i++)
        lathe__merges_put(&last, t->merges[i].left, t->merges[i].right, (uint32_t)i,
                          (uint32_t)vocab_n);
    int64_t n = 0;
    for (int64_t i = 0; i < t->n_merges; i++)
        if (lathe__merges_find(&last, t->merges[i].left, t->merges[i].right)->rank == (uint32_t)i)
            t->merges[n++] = t->merges[i];
    t->n_merges = n;
    free(last.slots);
    return LATHE_OK;
}

static void fini(trainer *t)
{
    for (int64_t i = 0; i < t->n_fresh; i++)
        free(t->fresh[i].at.words);
    for (int64_t i = 0; i < t->n_queue; i++)
        free(t->queue[i].at.words);
    free(t->fresh);
    free(t->queue);
    free(t->pairs);
    free(t->symbols);
    free(t->start);
    free(t->length);
    free(t->sizes);
}

lathe_status lathe__bpe_learn(const lathe_words *words, const int32_t *byte_id,
                              const lathe_tokenizer_training *settings, lathe_vocab *vocab,
                              lathe_learned_merge **out_merges, int64_t *out_n)
{
    trainer t;
    memset(&t, 0, sizeof t);
    t.max_symbols = settings->max_token_length ? settings->max_token_length : INT64_MAX;
    lathe_status status = set_up(&t, words, byte_id, vocab);
    if (status == LATHE_OK)
        status = learn(&t, settings->vocab_size, settings->min_frequency, vocab);
    if (status == LATHE_OK)
        status = drop_repeated(&t, vocab->n);
    fini(&t);
    if (status != LATHE_OK) {
        free(t.merges);
        return status;
    }
    *out_merges = t.merges;
    *out_n = t.n_merges;
    return LATHE_OK;
}
