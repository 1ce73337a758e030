/* Finds free space in an arena, with a tree over the nodes of a graph that holds the intervals
 * of used offsets. */
#include "graph/passes/free_space.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Offsets begin..end-1. */
typedef struct interval {
    int64_t begin, end;
} interval;

/* Disjoint intervals that do not touch, sorted by offset. */
typedef struct intervals {
    interval *list;
    int32_t n, capacity;
} intervals;

/* The lists of one range of nodes. */
typedef struct range {
    intervals whole; /* of blocks that cover this range, but not its parent range */
    intervals any;   /* of blocks stored in this range or below it */
} range;

struct lathe_free_space {
    /* [2 * n_leaves]: 1 is the root; 2i and 2i + 1 are the halves of i; leaves from n_leaves on */
    range *ranges;
    int32_t n_leaves; /* a power of two */
};

/* Index of the first interval that ends after `offset`. */
static int32_t find(const intervals *s, int64_t offset)
{
    int32_t low = 0, high = s->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (s->list[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds begin..end-1 and merges it with the intervals that it overlaps or touches. */
static lathe_status add(intervals *s, interval one)
{
    const int32_t at = find(s, one.begin - 1);
    int32_t next = at;
    while (next < s->n && s->list[next].begin <= one.end) {
        one.begin = s->list[next].begin < one.begin ? s->list[next].begin : one.begin;
        one.end = s->list[next].end > one.end ? s->list[next].end : one.end;
        next++;
    }
    if (next == at && s->n == s->capacity) {
        const int32_t capacity = s->capacity ? 2 * s->capacity : 4;
        interval *list = realloc(s->list, (size_t)capacity * sizeof *list);
        if (!list)
            return lathe_error(LATHE_E_NOMEM, "no memory to plan %d blocks", capacity);
        s->list = list;
        s->capacity = capacity;
    }
    memmove(s->list + at + 1, s->list + next, (size_t)(s->n - next) * sizeof *s->list);
    s->list[at] = one;
    s->n += 1 - (next - at);
    return LATHE_OK;
}

/* Moves *offset past the interval of the list that overlaps the block; returns 1 if it moved. */
static int pass(const intervals *s, int64_t bytes, int64_t *offset)
{
    int moved = 0;
    for (int32_t i = find(s, *offset); i < s->n && s->list[i].begin < *offset + bytes; i++) {
        *offset = s->list[i].end;
        moved = 1;
    }
    return moved;
}

/* Moves *offset past all blocks that overlap a part of range i: blocks stored in it, below it, and
 * in the ranges above it. */
static int pass_range(const lathe_free_space *space, int32_t i, int64_t bytes, int64_t *offset)
{
    int moved = pass(&space->ranges[i].any, bytes, offset);
    for (int32_t above = i / 2; above > 0; above /= 2)
        moved |= pass(&space->ranges[above].whole, bytes, offset);
    return moved;
}

static lathe_status keep(lathe_free_space *space, int32_t i, interval one)
{
    LATHE_TRY(add(&space->ranges[i].whole, one));
    for (int32_t above = i; above > 0; above /= 2)
        LATHE_TRY(add(&space->ranges[above].any, one));
    return LATHE_OK;
}

enum { MAX_RANGES = 64 }; /* in a lifetime: two at each depth of the tree */

/* Finds the ranges whose union is the nodes first..last. */
static int32_t cut(const lathe_free_space *space, int32_t first, int32_t last, int32_t *out)
{
    int32_t n = 0;
    int32_t low = first + space->n_leaves, high = last + 1 + space->n_leaves;
    for (; low < high; low /= 2, high /= 2) {
        if (low & 1)
            out[n++] = low++;
        if (high & 1)
            out[n++] = --high;
    }
    return n;
}

lathe_status lathe_free_space_create(int32_t n_nodes, lathe_free_space **out)
{
    lathe_free_space *space = calloc(1, sizeof *space);
    int32_t n_leaves = 1;
    while (n_leaves < n_nodes)
        n_leaves *= 2;
    if (space)
        space->ranges = calloc(2 * (size_t)n_leaves, sizeof *space->ranges);
    if (!space || !space->ranges) {
        free(space);
        return lathe_error(LATHE_E_NOMEM, "no memory to plan a graph of %d nodes", n_nodes);
    }
    space->n_leaves = n_leaves;
    *out = space;
    return LATHE_OK;
}

void lathe_free_space_destroy(lathe_free_space *space)
{
    if (!space)
        return;
    for (int32_t i = 0; i < 2 * space->n_leaves; i++) {
        free(space->ranges[i].whole.list);
        free(space->ranges[i].any.list);
    }
    free(space->ranges);
    free(space);
}

lathe_status lathe_free_space_take(lathe_free_space *space, int32_t first, int32_t last,
                                   int64_t bytes, int64_t *out_offset)
{
    int32_t ranges[MAX_RANGES];
    *out_offset = 0;
    if (bytes == 0)
        return LATHE_OK;
    const int32_t n = cut(space, first, last, ranges);
    for (int moved = 1; moved;) {
        moved = 0;
        for (int32_t i = 0; i < n; i++)
            moved |= pass_range(space, ranges[i], bytes, out_offset);
    }
    for (int32_t i = 0; i < n; i++)
        LATHE_TRY(keep(space, ranges[i], (interval){*out_offset, *out_offset + bytes}));
    return LATHE_OK;
}
