/* The queue of a far stream: calls in order, with their arguments. */
#ifndef LATHE_TEST_FAR_QUEUE_H
#define LATHE_TEST_FAR_QUEUE_H

#include "far.h"

enum { FAR_ARGS = 640 }; /* maximum bytes of one item's arguments */

typedef struct far_item {
    far_call call;
    /* stored inside the item: running a kernel allocates nothing */
    _Alignas(16) unsigned char args[FAR_ARGS];
} far_item;

typedef struct far_queue {
    far_item *items; /* [first, first + n): not called yet; those of a capture stay */
    int64_t first, n, capacity;
    int64_t n_done; /* number of calls done since the queue began */
} far_queue;

lathe_status far_queue_push(far_queue *q, far_call call, const void *args, int64_t bytes);
/** Calls and removes all items up to the n_done-th since the queue began. A call may drain its own
 *  queue again; the items before it are then done. */
lathe_status far_queue_drain(far_queue *q, int64_t n_done);
void far_queue_clear(far_queue *q);

#endif
