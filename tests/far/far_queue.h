/* The queue of a far stream: what was asked for, in order, with its arguments. */
#ifndef LATHE_TEST_FAR_QUEUE_H
#define LATHE_TEST_FAR_QUEUE_H

#include "far.h"

typedef struct far_item {
    far_call call;
    void *args;
} far_item;

typedef struct far_queue {
    far_item *items;
    int64_t n, capacity;
} far_queue;

lathe_status far_queue_push(far_queue *q, far_call call, const void *args, int64_t bytes);
/** Calls all in order, up to the first failure. They stay in the queue. */
lathe_status far_queue_run(const far_queue *q);
void far_queue_clear(far_queue *q);

#endif
