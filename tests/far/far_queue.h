/* The queue of a far stream: what was asked for, in order, with its arguments. */
#ifndef LATHE_TEST_FAR_QUEUE_H
#define LATHE_TEST_FAR_QUEUE_H

#include "far.h"

enum { FAR_ARGS = 640 }; /* bytes that one item's arguments may have */

typedef struct far_item {
    far_call call;
    _Alignas(16) unsigned char args[FAR_ARGS]; /* in place: running a kernel takes no memory */
} far_item;

typedef struct far_queue {
    far_item *items; /* [first, first + n): not called yet; those of a capture stay */
    int64_t first, n, capacity;
    int64_t n_done; /* called and forgotten since the queue began */
} far_queue;

lathe_status far_queue_push(far_queue *q, far_call call, const void *args, int64_t bytes);
/** Calls and forgets all up to the n_done-th since the queue began. A call may come back here for
 * its own queue: what stands before it is done by then. */
lathe_status far_queue_drain(far_queue *q, int64_t n_done);
void far_queue_clear(far_queue *q);

#endif
