/* The free space of an arena: the offsets equal those of comparing each block with all earlier
 * ones, and a hundred thousand blocks are placed quickly. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "graph/passes/free_space.h"

typedef struct block {
    int32_t first, last;
    int64_t bytes, offset;
} block;

static uint64_t state = 1;

static int64_t draw(int64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state >> 33) % below;
}

static int overlaps(const block *a, const block *b)
{
    return a->first <= b->last && b->first <= a->last && a->bytes > 0 && b->bytes > 0;
}

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The lowest offset, 0 or after another block, at which blocks[i] overlaps no earlier block. */
static int64_t lowest(const block *blocks, int32_t i)
{
    int64_t best = INT64_MAX;
    for (int32_t c = -1; c < i; c++) {
        const int64_t at = c < 0 ? 0 : blocks[c].offset + blocks[c].bytes;
        int is_free = 1;
        for (int32_t j = 0; j < i && is_free; j++)
            is_free = !overlaps(&blocks[i], &blocks[j]) ||
                      at + blocks[i].bytes <= blocks[j].offset ||
                      blocks[j].offset + blocks[j].bytes <= at;
        if (is_free)
            best = min_of(best, at);
    }
    return best;
}

Test(free_space, gives_the_lowest_offset_that_nothing_else_holds)
{
    static const int32_t sizes[] = {1, 2, 3, 7, 64, 100};
    for (int round = 0; round < 60; round++) {
        block blocks[120];
        const int32_t n_nodes = sizes[round % 6];
        lathe_free_space *space;
        cr_assert_eq(lathe_free_space_create(n_nodes, &space), LATHE_OK);
        for (int32_t i = 0; i < 120; i++) {
            block *b = &blocks[i];
            b->first = (int32_t)draw(n_nodes);
            b->last = b->first + (int32_t)draw(n_nodes - b->first);
            b->bytes = 64 * draw(round % 2 ? 3 : 40);
            cr_assert_eq(lathe_free_space_take(space, b->first, b->last, b->bytes, &b->offset),
                         LATHE_OK);
            cr_assert_eq(b->offset, lowest(blocks, i), "round %d, block %d", round, i);
        }
        lathe_free_space_destroy(space);
    }
}

/* Blocks like those of a training: saved values of layer i live until its backward, other values
 * are short-lived. Comparing each with all others would take minutes. */
Test(free_space, a_hundred_thousand_blocks_are_placed_in_a_moment)
{
    enum { N = 50000 };
    lathe_free_space *space;
    int64_t offset = 0;
    cr_assert_eq(lathe_free_space_create(2 * N, &space), LATHE_OK);
    for (int32_t i = 0; i < N; i++) {
        cr_assert_eq(lathe_free_space_take(space, i, 2 * N - 1 - i, 128, &offset), LATHE_OK);
        cr_assert_eq(offset, (int64_t)i * 128);
    }
    for (int32_t i = 0; i < N; i++) {
        cr_assert_eq(lathe_free_space_take(space, i, i + 1, 64, &offset), LATHE_OK);
        const int64_t saved = i + 2 < N ? i + 2 : N;
        cr_assert_eq(offset, saved * 128 + (i == N - 1) * 64, "block %d: %lld", i,
                     (long long)offset);
    }
    lathe_free_space_destroy(space);
}

Test(free_space, a_block_without_bytes_takes_nothing)
{
    lathe_free_space *space;
    int64_t offset = -1;
    cr_assert_eq(lathe_free_space_create(4, &space), LATHE_OK);
    cr_assert_eq(lathe_free_space_take(space, 0, 3, 0, &offset), LATHE_OK);
    cr_expect_eq(offset, 0);
    cr_assert_eq(lathe_free_space_take(space, 0, 3, 64, &offset), LATHE_OK);
    cr_expect_eq(offset, 0);
    lathe_free_space_destroy(space);
    lathe_free_space_destroy(NULL);
}
