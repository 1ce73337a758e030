/* The vocabulary: finds byte strings by id, and ids by byte string. */
#include "tokenizer/encode/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

static lathe_status grow(lathe_vocab *vocab, int32_t id, int64_t n)
{
    if (id >= vocab->capacity) {
        int64_t capacity = vocab->capacity ? vocab->capacity * 2 : 1024;
        while (capacity <= id)
            capacity *= 2;
        int64_t *at = realloc(vocab->at, (size_t)capacity * sizeof *at);
        if (at == NULL)
            return lathe_error(LATHE_E_NOMEM, "vocabulary of %lld tokens", (long long)capacity);
        vocab->at = at;
        int32_t *len = realloc(vocab->len, (size_t)capacity * sizeof *len);
        if (len == NULL)
            return lathe_error(LATHE_E_NOMEM, "vocabulary of %lld tokens", (long long)capacity);
        vocab->len = len;
        for (int64_t i = vocab->capacity; i < capacity; i++)
            len[i] = -1;
        vocab->capacity = capacity;
    }
    if (vocab->pool_bytes + n + 1 > vocab->pool_capacity) {
        const int64_t capacity = (vocab->pool_bytes + n + 1) * 2 + 4096;
        uint8_t *pool = realloc(vocab->pool, (size_t)capacity);
        if (pool == NULL)
            return lathe_error(LATHE_E_NOMEM, "vocabulary text");
        vocab->pool = pool;
        vocab->pool_capacity = capacity;
    }
    return LATHE_OK;
}

static void insert(lathe_vocab *vocab, int32_t id)
{
    const uint8_t *text = vocab->pool + vocab->at[id];
    const int32_t n = vocab->len[id];
    const uint64_t mask = (uint64_t)vocab->n_slots - 1, hash = lathe_hash64(text, n);
    uint64_t i = hash & mask;
    for (; vocab->slots[i]; i = (i + 1) & mask) {
        const int32_t other = (int32_t)(uint32_t)vocab->slots[i] - 1;
        if ((vocab->slots[i] ^ hash) >> 32 == 0 && vocab->len[other] == n &&
            !memcmp(vocab->pool + vocab->at[other], text, (size_t)n))
            vocab->n_repeated++;
    }
    vocab->slots[i] = (hash & 0xffffffff00000000u) | ((uint32_t)id + 1);
    vocab->n_used++;
}

static lathe_status rehash(lathe_vocab *vocab, int64_t n)
{
    const int64_t old_n = vocab->n_slots;
    uint64_t *old = vocab->slots;
    uint64_t *slots = calloc((size_t)n, sizeof *slots);
    if (slots == NULL)
        return lathe_error(LATHE_E_NOMEM, "vocabulary table");
    vocab->slots = slots;
    vocab->n_slots = n;
    vocab->n_used = 0;
    vocab->n_repeated = 0; /* counted again */
    for (int64_t i = 0; i < old_n; i++)
        if (old[i])
            insert(vocab, (int32_t)(uint32_t)old[i] - 1);
    free(old);
    return LATHE_OK;
}

lathe_status lathe__vocab_reserve(lathe_vocab *vocab, int64_t n)
{
    if (n < 1)
        return LATHE_OK;
    LATHE_TRY(grow(vocab, (int32_t)(n - 1), 8 * n));
    int64_t n_slots = vocab->n_slots ? vocab->n_slots : 2048;
    while (n_slots <= n * 2)
        n_slots *= 2;
    return n_slots > vocab->n_slots ? rehash(vocab, n_slots) : LATHE_OK;
}

lathe_status lathe__vocab_put(lathe_vocab *vocab, int32_t id, const void *bytes, int64_t n,
                              int is_found)
{
    if (n > INT32_MAX)
        return lathe_error(LATHE_E_PARSE, "token %d has %lld bytes", id, (long long)n);
    LATHE_TRY(grow(vocab, id, n));
    if (vocab->len[id] >= 0)
        return lathe_error(LATHE_E_PARSE, "token id %d is given twice", id);
    vocab->at[id] = vocab->pool_bytes;
    vocab->len[id] = (int32_t)n;
    if (n > 0)
        memcpy(vocab->pool + vocab->pool_bytes, bytes, (size_t)n);
    vocab->pool[vocab->pool_bytes + n] = 0;
    vocab->pool_bytes += n + 1;
    if (id >= vocab->n)
        vocab->n = id + 1;
    return is_found ? lathe__vocab_show(vocab, id) : LATHE_OK;
}

lathe_status lathe__vocab_show(lathe_vocab *vocab, int32_t id)
{
    if (vocab->n_used * 2 >= vocab->n_slots)
        LATHE_TRY(rehash(vocab, vocab->n_slots ? vocab->n_slots * 2 : 2048));
    insert(vocab, id);
    return LATHE_OK;
}

int32_t lathe__vocab_find(const lathe_vocab *vocab, const void *bytes, int64_t n)
{
    if (!vocab->n_slots)
        return -1;
    const uint64_t mask = (uint64_t)vocab->n_slots - 1, hash = lathe_hash64(bytes, n);
    for (uint64_t i = hash & mask; vocab->slots[i]; i = (i + 1) & mask) {
        const int32_t id = (int32_t)(uint32_t)vocab->slots[i] - 1;
        if ((vocab->slots[i] ^ hash) >> 32 == 0 && vocab->len[id] == n &&
            (n == 0 || !memcmp(vocab->pool + vocab->at[id], bytes, (size_t)n)))
            return id;
    }
    return -1;
}

void lathe__vocab_fini(lathe_vocab *vocab)
{
    free(vocab->pool);
    free(vocab->at);
    free(vocab->len);
    free(vocab->slots);
    memset(vocab, 0, sizeof *vocab);
}
