/* Serves rank 0 while it works alone: the other ranks send it what they hold of tensors for a
 * checkpoint, and take part in its gathers.
 *
 * All ranks hear all requests, and so none misses the release.
 */
#ifndef LATHE_PARALLEL_SERVING_H
#define LATHE_PARALLEL_SERVING_H

#include "base/buffer.h"
#include "exec/store/peers.h"
#include "exec/store/store.h"
#include "parallel/ranks/rank_layout.h"

/* Families of rows beside those of peers.h: those of lathe_serving.islands, counted from here. */
enum { LATHE_FAMILY_ISLANDS = 8 };

/** State of islands beside the store (core/parallel/islands). */
typedef struct lathe_served_islands {
    void *arg;
    /** Bytes of a whole f32 row that a rank of an island has in a family: of a copy and a place
     *  (rank_layout.h). */
    lathe_extent (*part)(const void *arg, int32_t family, int32_t row, int32_t copy, int32_t place);
    /** Where this rank has them, in host memory. */
    const void *(*own)(const void *arg, int32_t family, int32_t row);
    /** Appends a text that the first rank of an island tells about it. */
    lathe_status (*describe)(void *arg, lathe_buffer *out);
} lathe_served_islands;

typedef struct lathe_serving {
    const lathe_rank_layout *layout;
    const lathe_store *store;
    lathe_status (*gather)(void *arg, int32_t gather); /* takes part in one; NULL: there are none */
    void *gather_arg;
    const lathe_served_islands *islands; /* NULL: there are no islands */
} lathe_serving;

/** Passes the whole tensor that an island has to `fn`, piece by piece in its order. Rank 0 alone
 *  calls it. slot: of LATHE_FAMILY_SLOTS, else 0. An error of `fn` ends the run: the others wait in
 *  vain for the next request, and are ended. */
lathe_status lathe_serving_collect(const lathe_serving *s, int32_t island, int32_t family,
                                   int32_t row, int32_t slot, lathe_piece_fn fn, void *fn_arg);
/** Gets the text of an island. Rank 0 alone calls it. */
lathe_status lathe_serving_describe(const lathe_serving *s, int32_t island, lathe_buffer *out);
/** Lets all fill their part of the optimizer's own average; asks for a part in a gather. Rank 0
 *  alone calls them. */
lathe_status lathe_serving_fill_averages(const lathe_serving *s);
lathe_status lathe_serving_gather(const lathe_serving *s, int32_t gather);
/** Rank 0 calls it when it asks for nothing more. */
lathe_status lathe_serving_release(const lathe_serving *s);

/** Serves rank 0 until it releases the others; all other ranks call it. fill(arg) fills this rank's
 *  part of the optimizer's own average. */
lathe_status lathe_serving_serve(const lathe_serving *s, lathe_status (*fill)(void *arg),
                                 void *arg);

#endif
