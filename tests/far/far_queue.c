/* The queue of a far stream. */
#include "far_queue.h"

#include <stdlib.h>
#include <string.h>

lathe_status far_queue_push(far_queue *q, far_call call, const void *args, int64_t bytes)
{
    if (q->n == q->capacity) {
        const int64_t capacity = q->capacity ? 2 * q->capacity : 256;
        far_item *items = realloc(q->items, (size_t)capacity * sizeof *items);
        if (!items)
            return LATHE_E_NOMEM;
        q->items = items;
        q->capacity = capacity;
    }
    void *copy = malloc((size_t)bytes);
    if (!copy)
        return LATHE_E_NOMEM;
    q->items[q->n++] = (far_item){call, memcpy(copy, args, (size_t)bytes)};
    return LATHE_OK;
}

lathe_status far_queue_run(const far_queue *q)
{
    for (int64_t i = 0; i < q->n; i++)
        LATHE_TRY(q->items[i].call(q->items[i].args));
    return LATHE_OK;
}

void far_queue_clear(far_queue *q)
{
    for (int64_t i = 0; i < q->n; i++)
        free(q->items[i].args);
    free(q->items);
    memset(q, 0, sizeof *q);
}
