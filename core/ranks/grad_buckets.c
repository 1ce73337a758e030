/* Divides the gradients into buckets and adds them over all ranks. */
#include "ranks/grad_buckets.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

typedef struct bucket {
    int64_t at, n; /* byte in the gradients; elements */
    int32_t dtype, reserved;
    lathe_exchange *exchange;
} bucket;

struct lathe_grad_buckets {
    lathe_ranks *ranks;
    bucket *list;
    int32_t n, reserved;
    int64_t sent_bytes;
    lathe_exchange_room room;
};

/* Elements of one dtype, bytes [begin, end) of the gradients. */
typedef struct range {
    int64_t begin, end;
    int32_t dtype;
} range;

/* The dtype of the gradients after the f32 ones; f32 if there are none. */
static int32_t narrow_dtype(const lathe_store *store)
{
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->rows[i].grad >= store->wide_grad_bytes)
            return lathe_params_grad_dtype(store->params, i);
    return LATHE_F32;
}

static lathe_status add(lathe_grad_buckets *b, const range *of, int64_t at, int64_t bytes,
                        int32_t n_all)
{
    char label[64];
    const int64_t size = lathe_dtype_bytes(of->dtype);
    bucket *to = &b->list[b->n];
    if (size < 1)
        return lathe_error(LATHE_E_DTYPE, "gradients of a dtype without a size");
    *to = (bucket){.at = at, .n = bytes / size, .dtype = of->dtype, .exchange = NULL};
    (void)snprintf(label, sizeof label, "gradients %d of %d", b->n + 1, n_all);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_REDUCE,
                                            .dtype = of->dtype,
                                            .reduce = LATHE_REDUCE_SUM,
                                            .n = to->n,
                                            .label = label};
    LATHE_TRY(lathe_data_prepare(b->ranks, &problem, &b->room, &to->exchange));
    b->n++;
    return LATHE_OK;
}

lathe_status lathe_grad_buckets_create(lathe_ranks *ranks, const lathe_store *store,
                                       int64_t bucket_bytes, lathe_grad_buckets **out)
{
    const int64_t size = (bucket_bytes + 63) / 64 * 64;
    const range ranges[2] = {{0, store->wide_grad_bytes, LATHE_F32},
                             {store->wide_grad_bytes, store->grad_bytes, narrow_dtype(store)}};
    int32_t n = 0;
    for (int k = 0; k < 2; k++)
        n += (int32_t)((ranges[k].end - ranges[k].begin + size - 1) / size);
    lathe_grad_buckets *b = calloc(1, sizeof *b);
    if (b)
        b->list = calloc((size_t)n + 1, sizeof *b->list);
    if (!b || !b->list) {
        free(b);
        return lathe_error(LATHE_E_NOMEM, "no memory for %d buckets of gradients", n);
    }
    b->ranks = ranks;
    lathe_status status = LATHE_OK;
    for (int k = 0; k < 2; k++)
        for (int64_t at = ranges[k].begin; at < ranges[k].end && status == LATHE_OK; at += size) {
            const int64_t left = ranges[k].end - at;
            status = add(b, &ranges[k], at, left < size ? left : size, n);
        }
    if (status != LATHE_OK) {
        lathe_grad_buckets_destroy(b);
        return status;
    }
    *out = b;
    return LATHE_OK;
}

void lathe_grad_buckets_destroy(lathe_grad_buckets *b)
{
    if (!b)
        return;
    for (int32_t i = 0; i < b->n; i++)
        lathe_data_destroy(b->ranks, b->list[i].exchange);
    free(b->list);
    free(b);
}

lathe_exchange_room *lathe_grad_buckets_room(lathe_grad_buckets *b)
{
    return b ? &b->room : NULL;
}

int64_t lathe_grad_buckets_take_sent(lathe_grad_buckets *b)
{
    const int64_t sent = b ? b->sent_bytes : 0;
    if (b)
        b->sent_bytes = 0;
    return sent;
}

int32_t lathe_grad_buckets_count(const lathe_grad_buckets *b)
{
    return b ? b->n : 0;
}

/* All at once, if they share no memory; else one after the other. */
lathe_status lathe_grad_buckets_reduce(lathe_grad_buckets *b, const lathe_store *store)
{
    const int32_t overlaps = lathe_exchange_room_overlaps(&b->room);
    int64_t before = 0, after = 0;
    LATHE_TRY(lathe_data_sent(b->ranks, &before));
    for (int32_t i = 0; i < b->n; i++) {
        char *at = store->grads + b->list[i].at;
        LATHE_TRY(lathe_data_start(b->ranks, b->list[i].exchange, &b->room, at, at));
        if (!overlaps)
            LATHE_TRY(lathe_data_wait(b->ranks, b->list[i].exchange));
    }
    for (int32_t i = 0; overlaps && i < b->n; i++)
        LATHE_TRY(lathe_data_wait(b->ranks, b->list[i].exchange));
    LATHE_TRY(lathe_data_sent(b->ranks, &after));
    b->sent_bytes += after - before;
    return LATHE_OK;
}
