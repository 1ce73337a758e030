/* Orders buckets of gradients by the nodes that complete them. */
#include "parallel/ranks/bucket_order.h"

#include <stdlib.h>

#include "base/error.h"

lathe_status lathe_bucket_orders_init(lathe_bucket_orders *o, int32_t n)
{
    *o = (lathe_bucket_orders){.list = calloc((size_t)n + 1, sizeof *o->list), .capacity = n};
    return o->list ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for %d orders of buckets", n);
}

void lathe_bucket_orders_fini(lathe_bucket_orders *o)
{
    for (int32_t i = 0; i < o->n; i++)
        free(o->list[i].order);
    free(o->list);
    *o = (lathe_bucket_orders){.list = NULL};
}

lathe_status lathe_bucket_orders_add(lathe_bucket_orders *o, const lathe_graph *g,
                                     const int32_t *last, int32_t n_buckets)
{
    if (o->n == o->capacity)
        return lathe_error(LATHE_E_STATE, "more than %d orders of buckets", o->capacity);
    lathe_bucket_order *one = &o->list[o->n];
    one->order = calloc(2 * (size_t)n_buckets + 1, sizeof *one->order);
    if (one->order == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the order of %d buckets", n_buckets);
    one->graph = g;
    one->last = one->order + n_buckets;
    o->n++;
    for (int32_t b = 0; b < n_buckets; b++) {
        int32_t k = b;
        for (; k > 0 && last[one->order[k - 1]] > last[b]; k--)
            one->order[k] = one->order[k - 1];
        one->order[k] = b;
    }
    for (int32_t k = 0; k < n_buckets; k++)
        one->last[k] = last[one->order[k]];
    return LATHE_OK;
}

lathe_status lathe_bucket_orders_find(const lathe_bucket_orders *o, const lathe_graph *g,
                                      const lathe_bucket_order **out)
{
    for (int32_t i = 0; i < o->n; i++)
        if (o->list[i].graph == g) {
            *out = &o->list[i];
            return LATHE_OK;
        }
    return lathe_error(LATHE_E_STATE, "a backward that was not planned");
}
