/* Shared by the files of this room that exchange what ranks divide. */
#ifndef LATHE_PARALLEL_EXTENTS_INTERNAL_H
#define LATHE_PARALLEL_EXTENTS_INTERNAL_H

#include "exec/store/gathered.h"
#include "parallel/ranks/bucket_sums.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/serving.h"

/* The exchanges of one bucket. own: first element of this rank's extent in the bucket. */
typedef struct lathe__bucket {
    lathe_exchange *reduce, *spread;
    lathe_exchange
        *across;       /* sums of the copies of this rank's extent; NULL: no copies, or empty */
    lathe_kernel *add; /* sums + fresh -> sums on a device with memory of its own; NULL: none */
    int32_t grad_width, value_width;
    int64_t own_grad, own_value;
} lathe__bucket;

struct lathe_extents {
    const lathe_rank_layout *layout;
    lathe_ranks *ranks; /* layout->shard */
    lathe_machine *m;
    lathe_store *store;
    lathe_peers peers;
    lathe_serving serving;
    lathe__bucket *list; /* [division->n_buckets] */
    int64_t *counts;
    lathe_bucket_orders orders; /* of programs that write fresh gradients */
    lathe_bucket_sums sums;     /* of gradients that are whole on each rank; n 0: none are */
    lathe_exchange_room room;
    int64_t sent_bytes;
    int32_t counting; /* depth of lathe__extents_count_sent */
    int32_t reserved2;
    lathe_exchange **gathers; /* [store->gathers->n] */
    void **waiting;           /* [store->gathers->n] memory of gathers that wait() runs; NULL */
    int32_t under_way;        /* the gather started last that is not waited for; -1: none */
    int32_t overlaps;         /* 1: gathers need no room, so that several may be under way */
    int32_t is_alone;         /* 1: this rank is 0 and asks the others for each gather */
    int32_t reserved3;
};

/** Adds this rank's extent of the fresh gradients of bucket k to its sums, or copies it if it is
 * the first of the step (fresh_sums.c); prepares that on devices with memory of their own. */
lathe_status lathe__fresh_sums_prepare(lathe_extents *x, int32_t k);
lathe_status lathe__fresh_sums_add(const lathe_extents *x, int32_t k, int32_t is_first);

/** Prepares the gathers of the store; frees them. */
lathe_status lathe__gathers_prepare(lathe_extents *x);
void lathe__gathers_destroy(lathe_extents *x);
/** Functions of lathe_peers. */
lathe_status lathe__gather_start(void *arg, int32_t gather, void *to);
lathe_status lathe__gather_poll(void *arg);
lathe_status lathe__gather_wait(void *arg, int32_t gather);
/** Function of lathe_serving: takes part in a gather that rank 0 asked for. */
lathe_status lathe__gather_serve(void *arg, int32_t gather);
/** sign -1 before exchanges and 1 after them: adds what they send to x->sent_bytes, once if calls
 *  are nested. */
lathe_status lathe__extents_count_sent(lathe_extents *x, int64_t sign);

#endif
