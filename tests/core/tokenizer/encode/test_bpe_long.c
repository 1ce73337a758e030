/* Merges long pieces and compares with the definition, for all kinds of merge tables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/encode/bpe_long.h"

enum { ALPHABET = 4, MAX_IDS = 300, MAX_SYMBOLS = 700 };

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

/* By definition: merges the pair with the lowest rank, the leftmost of equal ones, until no pair
 * merges. */
static int64_t merge_plainly(const lathe_merges *merges, int32_t *ids, int64_t n)
{
    for (;;) {
        const lathe_merge *best = NULL;
        int64_t at = -1;
        for (int64_t i = 0; i + 1 < n; i++) {
            const lathe_merge *m = lathe__merges_find(merges, ids[i], ids[i + 1]);
            if (m && (!best || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = (int32_t)best->id;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

enum { AS_TRAINED, ANY_RANKS, ANY_RESULTS };

/* Tokens are strings over the alphabet, as in a file. ANY_RANKS: a merge may create a pair with a
 * lower rank than its own, which no trainer does but a file can. ANY_RESULTS: also, a merge may
 * create any token. */
static void make_merges(lathe_merges *merges, int32_t n_merges, int kind)
{
    static char tokens[MAX_IDS][16];
    uint32_t ranks[MAX_IDS];
    int32_t n_tokens = ALPHABET;
    for (int32_t i = 0; i < ALPHABET; i++) {
        tokens[i][0] = (char)('a' + i);
        tokens[i][1] = 0;
    }
    for (int32_t i = 0; i < n_merges; i++)
        ranks[i] = (uint32_t)i;
    for (int32_t i = n_merges - 1; kind != AS_TRAINED && i > 0; i--) {
        const uint32_t j = below((uint32_t)i + 1), swap = ranks[i];
        ranks[i] = ranks[j];
        ranks[j] = swap;
    }
    cr_assert_eq(lathe__merges_init(merges, n_merges), LATHE_OK);
    for (int32_t i = 0; i < n_merges; i++) {
        const int32_t left = (int32_t)below((uint32_t)n_tokens);
        const int32_t right = (int32_t)below((uint32_t)n_tokens);
        char joined[32];
        snprintf(joined, sizeof joined, "%s%s", tokens[left], tokens[right]);
        if (strlen(joined) > 8 || lathe__merges_find(merges, left, right))
            continue;
        int32_t id = 0;
        while (id < n_tokens && strcmp(tokens[id], joined) != 0)
            id++;
        if (id == n_tokens)
            strcpy(tokens[n_tokens++], joined);
        if (kind == ANY_RESULTS)
            id = (int32_t)below((uint32_t)n_tokens);
        lathe__merges_put(merges, left, right, ranks[i], (uint32_t)id);
    }
}

static void compare(int kind)
{
    int32_t ids[MAX_SYMBOLS], want[MAX_SYMBOLS];
    for (int round = 0; round < 600; round++) {
        state = (uint64_t)round * 2 + 1;
        lathe_merges merges;
        make_merges(&merges, 1 + (int32_t)below(MAX_IDS - ALPHABET - 1), kind);
        lathe_bpe_long work = {.merges = &merges};
        for (int piece = 0; piece < 4; piece++) { /* the scratch is used again */
            const int64_t n = below(round % 3 ? 80 : MAX_SYMBOLS);
            const uint32_t letters = 1 + below(ALPHABET);
            for (int64_t i = 0; i < n; i++)
                ids[i] = want[i] = (int32_t)below(letters);
            int64_t n_got = -1;
            cr_assert_eq(lathe__bpe_merge_long(&work, ids, n, &n_got), LATHE_OK);
            const int64_t n_want = merge_plainly(&merges, want, n);
            cr_assert_eq(n_got, n_want, "round %d: %lld of %lld symbols, expected %lld", round,
                         (long long)n_got, (long long)n, (long long)n_want);
            cr_assert_arr_eq(ids, want, (size_t)n_want * sizeof *ids);
        }
        lathe__bpe_long_fini(&work);
        free(merges.slots);
    }
}

Test(bpe_long, merges_as_by_definition)
{
    compare(AS_TRAINED);
}

Test(bpe_long, merges_as_by_definition_with_ranks_in_any_order)
{
    compare(ANY_RANKS);
}

Test(bpe_long, merges_as_by_definition_whatever_a_merge_makes)
{
    compare(ANY_RESULTS);
}

/* aaaaaaa with (a a) first, (aa aa) second: aa aa aa a, then aaaa aa a. */
Test(bpe_long, seven_letters_by_hand)
{
    lathe_merges merges;
    cr_assert_eq(lathe__merges_init(&merges, 2), LATHE_OK);
    lathe__merges_put(&merges, 0, 0, 0, 1);
    lathe__merges_put(&merges, 1, 1, 1, 2);
    lathe_bpe_long work = {.merges = &merges};
    int32_t ids[7] = {0};
    int64_t n;
    cr_assert_eq(lathe__bpe_merge_long(&work, ids, 7, &n), LATHE_OK);
    const int32_t want[3] = {2, 1, 0};
    cr_assert_eq(n, 3);
    cr_expect_arr_eq(ids, want, sizeof want);
    cr_assert_eq(lathe__bpe_merge_long(&work, ids, 0, &n), LATHE_OK);
    cr_expect_eq(n, 0);
    cr_expect_eq(lathe__bpe_merge_long(&work, ids, (int64_t)INT32_MAX, &n), LATHE_E_UNSUPPORTED);
    lathe__bpe_long_fini(&work);
    free(merges.slots);
}
