/* The place of each rank of a run: islands, groups that divide, and copies (parallel.shard_ranks).
 *
 * Ranks are counted host by host, so that groups are on one host as far as the launcher allows:
 *
 *   counted        0   1   2   3   4   5   6   7     8 ranks, shard_ranks = 2, no islands
 *   shard        | 0   1 | 0   1 | 0   1 | 0   1 |   these divide: each has an extent
 *   copies         a   b   a   b   a   b   a   b     those with one letter have the same extents
 *
 * Ranks that take each step together are an island; without islands all of them do. Islands follow
 * one another in the same count. A group of one rank is NULL: it exchanges nothing.
 */
#ifndef LATHE_PARALLEL_RANK_LAYOUT_H
#define LATHE_PARALLEL_RANK_LAYOUT_H

#include "exec/store/division.h"
#include "parallel/ranks/ranks.h"

typedef struct lathe_layout_ask {
    int32_t n_islands;   /* 1 or more */
    int32_t shard_ranks; /* ranks that divide; 0: all of an island; 1: nothing is divided */
} lathe_layout_ask;

typedef struct lathe_rank_layout {
    lathe_ranks *all;    /* every rank of the run, borrowed; NULL: they are not there */
    lathe_ranks *island; /* that take each step together; `all` if there is one island */
    lathe_ranks *shard;  /* of the island, that divide */
    lathe_ranks *copies; /* of the island, with the same extents */
    lathe_ranks *others; /* of all islands, with the same place in theirs */
    int32_t n_islands, n_copies, n_shard; /* their product is the number of ranks */
    int32_t island_no, copy_no, shard_no; /* of this rank */
    int32_t *world; /* [n_islands, n_copies, n_shard] number of each rank in `all`; NULL: not there
                     */
} lathe_rank_layout;

/** Whether n_ranks can be laid out so. LATHE_E_CONFIG: the message says what would fit; *out_key is
 *  the key of [parallel] that is wrong. */
lathe_status lathe_layout_check(int32_t n_ranks, const lathe_layout_ask *ask, const char **out_key);
/** The fewest ranks that can be laid out so; all others are multiples of it. */
int32_t lathe_layout_fewest_ranks(const lathe_layout_ask *ask);
/** The largest number of ranks up to `most` that can be laid out so; 0: none. */
int32_t lathe_layout_most_ranks(int64_t max, const lathe_layout_ask *ask);
/** Puts the nearest numbers from `least` to `most` that divide n, "4 or 8", for a value that does
 *  not. Puts "" if there are none. Returns `out`. */
const char *lathe_layout_divisors(int32_t value, int32_t n, int32_t least, int32_t max, char *out,
                                  size_t bytes);

/** Sets out_counted[k] to the rank that is counted as k: by host, then by number on the host.
 *  hosts, locals: [n] of each rank (lathe_group_info). */
void lathe_layout_count(const int32_t *hosts, const int32_t *locals, int32_t n,
                        int32_t *out_counted);

/** Lays out the ranks of `all`, which all of them call, and makes the groups; or, if `all` is NULL,
 *  gives the place of rank 0 of n_ranks that are not there. The caller destroys *out before it
 *  closes `all`. Errors: those of lathe_layout_check and of split(). */
lathe_status lathe_rank_layout_create(lathe_ranks *all, int32_t n_ranks,
                                      const lathe_layout_ask *ask, lathe_rank_layout **out);
/** Closes the groups. All ranks call it, after the exchanges of the groups are destroyed. NULL is
 *  fine. */
void lathe_rank_layout_destroy(lathe_rank_layout *layout);

/** Ranks of an island. */
int32_t lathe_layout_inside(const lathe_rank_layout *layout);
/** Number in `all` of a rank: of an island, copy and place among those that divide. */
int32_t lathe_layout_rank(const lathe_rank_layout *layout, int32_t island, int32_t copy,
                          int32_t place);
/** Number in `all` of rank k of this rank's island. */
int32_t lathe_layout_member(const lathe_rank_layout *layout, int32_t k);

/** How the ranks of an island divide a training: `shard` is LATHE_SHARD_*, with NONE they only add
 *  gradients. */
lathe_division_ask lathe_layout_division(const lathe_rank_layout *layout, int32_t shard,
                                         int64_t bucket_bytes);

#endif
