/* The queue of a far stream. */
#include "far_queue.h"

#include <stdlib.h>
#include <string.h>

lathe_status far_queue_push(far_queue *q, far_call call, const void *args, int64_t bytes)
{
    if (q->first + q->n == q->capacity) {
        const int64_t capacity = q->capacity ? 2 * q->capacity : 256;
        far_item *items = realloc(q->items, (size_t)capacity * sizeof *items);
        if (!items)
            return LATHE_E_NOMEM;
        q->items = items;
        q->capacity = capacity;
    }
    if (bytes > FAR_ARGS)
        return LATHE_E_ARG;
    far_item *item = &q->items[q->first + q->n++];
    item->call = call;
    memcpy(item->args, args, (size_t)bytes);
    return LATHE_OK;
}

lathe_status far_queue_drain(far_queue *q, int64_t n_done)
{
    lathe_status status = LATHE_OK;
    while (q->n_done < n_done && q->n > 0 && status == LATHE_OK) {
        const far_item next = q->items[q->first];
        q->first = --q->n > 0 ? q->first + 1 : 0;
        status = next.call(next.args);
        q->n_done++;
    }
    return status;
}

void far_queue_clear(far_queue *q)
{
    free(q->items);
    memset(q, 0, sizeof *q);
}
