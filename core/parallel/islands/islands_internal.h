/* Shared by the files of this room. */
#ifndef LATHE_PARALLEL_ISLANDS_INTERNAL_H
#define LATHE_PARALLEL_ISLANDS_INTERNAL_H

#include "parallel/islands/islands.h"

/* The exchanges of one piece of this rank's part: its shards go to their islands, and their means
 * come back. */
typedef struct lathe__piece {
    int64_t at, n; /* elements of the part */
    lathe_exchange *scatter, *gather;
} lathe__piece;

struct lathe_islands {
    lathe_island_settings set;
    const lathe_rank_layout *layout;
    lathe_store *store;
    int64_t *places;   /* [n_shard, n_rows + 1] first element of each row among those of a place */
    int64_t *row_at;   /* [n_rows + 1] those of this rank's place */
    lathe_extent part; /* of this rank, among those */
    float *state[LATHE_N_OUTER]; /* [part.n] each; ERROR: NULL if the dtype has none */
    char *memory;                /* of the state */
    char *buffers;
    /* | a piece, or the weights of copies | decoded shard | encoded shards | those of others | */
    int64_t piece, decoded; /* elements; multiples of 256 */
    int64_t send_bytes, receive_bytes;
    lathe__piece *pieces; /* [n_pieces] */
    int32_t n_pieces;
    int32_t n_copied;        /* exchanges of `copied` */
    lathe_exchange **copied; /* the weights of the parts of all copies, some at a time */
    int64_t copied_each;     /* elements of each copy at a time */
    int64_t sent_bytes, across_bytes;
    int64_t tokens;  /* of this island in this round */
    int64_t skipped; /* steps that it has left out in this round, since the run began or resumed */
    int64_t skipped_elsewhere; /* by other islands, in all rounds that have ended */
    int64_t max_in_row;        /* of any island, when the last round ended */
    int32_t max_rank;          /* a rank of that island */
    int32_t wants_stop, stop, has_begun;
    int32_t is_within; /* 1: the islands have taken steps since the last round ended */
};

/** Elements of a row that a place has, and of all rows. */
lathe_extent lathe__islands_row(const lathe_islands *x, int32_t row, int32_t place);
/** The part of a copy, among the elements of a place. */
lathe_extent lathe__islands_part(const lathe_islands *x, int32_t copy, int32_t place);
/** Shard k of a piece of n elements: the island k averages it. */
lathe_extent lathe__islands_shard(const lathe_islands *x, int64_t n, int32_t k);

#endif
