/* Sums of gradients over ranks, in place, bucket by bucket: during a backward or after it.
 *
 * A bucket is a range of bytes of the gradients, which lie in one block (exec/store/store.h).
 * During the backward of a step's last micro-batch, its exchange may start when the last node that
 * uses one of its gradients has run, because the gradients are then this rank's sums over all
 * micro-batches:
 *
 *   nodes of the backward   ------------------------------->|
 *   bucket 3                     |=========|                |
 *   bucket 2                           ....|=========|      |            (1)
 *   bucket 0                                                |=========|  (2)
 *
 *   (1) waits for the scratch memory of bucket 3;  (2) exposed: no computation hides it
 *
 * In host memory exchanges share scratch memory, so one is under way at a time, and it goes on
 * between the nodes, because engines make progress only when they are called. A device with memory
 * of its own runs its nodes by itself. There, an exchange starts after a node that is the same on
 * all ranks, whatever the time, because NCCL needs one order of starts in all its communicators.
 * Exchanges that need no scratch memory do not wait for each other.
 */
#ifndef LATHE_PARALLEL_BUCKET_SUMS_H
#define LATHE_PARALLEL_BUCKET_SUMS_H

#include "exec/store/store.h"
#include "parallel/ranks/bucket_order.h"
#include "parallel/ranks/ranks.h"

/* Most exchanges of a bucket: in the group that divides, then of that result between the groups. */
enum { LATHE_BUCKET_PARTS = 2 };

/** An exchange, from and to bytes of the store's gradients. */
typedef struct lathe_bucket_part {
    const lathe_ranks *ranks;
    lathe_exchange *exchange; /* borrowed; NULL: none */
    int64_t in_at, out_at;
} lathe_bucket_part;

typedef struct lathe_bucket_sum {
    int64_t begin, end; /* bytes of the gradients that the exchanges read */
    lathe_bucket_part parts[LATHE_BUCKET_PARTS]; /* the first has an exchange */
} lathe_bucket_sum;

typedef struct lathe_bucket_sums {
    lathe_machine *m;
    const lathe_store *store;
    const lathe_exchange_room *room; /* of all exchanges; allocated before the first run */
    lathe_bucket_sum *list;          /* [n] */
    int32_t n, reserved;
    lathe_bucket_orders orders;
    /* The buckets that are complete, in the order in which they became so. */
    int32_t *queue; /* [n] */
    int32_t n_complete, n_done;
    int32_t part, is_started; /* of the bucket queue[n_done]: its exchange, and whether it runs */
    double *begun;            /* [n] when the first exchange of queue[k] was started */
    double wait_seconds;      /* after backwards, for exchanges that they did not hide */
} lathe_bucket_sums;

/** Makes n buckets without exchanges, which lathe_bucket_sums_put fills in. m, store and room must
 *  outlive *s. The caller calls lathe_bucket_sums_fini, also after an error. */
lathe_status lathe_bucket_sums_init(lathe_bucket_sums *s, lathe_machine *m,
                                    const lathe_store *store, const lathe_exchange_room *room,
                                    int32_t n);
/** Fills in bucket k. */
void lathe_bucket_sums_put(lathe_bucket_sums *s, int32_t k, const lathe_bucket_sum *bucket);
/** Frees them, but not their exchanges. *s may be all zeros. */
void lathe_bucket_sums_fini(lathe_bucket_sums *s);

/** Finds, for each of these graphs, after which node of its backward each bucket is complete. The
 *  graphs must outlive *s. */
lathe_status lathe_bucket_sums_plan(lathe_bucket_sums *s, const lathe_graph *const *graphs,
                                    int32_t n);

/** Runs the nodes of a planned program from `begin` on, and adds the gradients of all ranks
 *  meanwhile: afterwards all sums are made. All ranks call it, with the same graph. Allocates
 *  nothing.
 *
 *  accumulate  passed on to lathe_exec_run_range */
lathe_status lathe_bucket_sums_backward(lathe_bucket_sums *s, lathe_exec *exec, int32_t begin,
                                        int32_t accumulate);

/** Adds the gradients of all ranks after their backwards. All ranks call it. */
lathe_status lathe_bucket_sums_run(lathe_bucket_sums *s);

/** Seconds since the last call that lathe_bucket_sums_backward waited after its last node. */
double lathe_bucket_sums_take_wait(lathe_bucket_sums *s);

#endif
