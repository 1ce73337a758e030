/* Divides the gradients into buckets and adds them over all ranks. */
#include "parallel/ranks/grad_buckets.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

struct lathe_grad_buckets {
    lathe_ranks *ranks;
    lathe_bucket_sums sums; /* their exchanges are owned here */
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

/* Prepares the exchange of bucket k, bytes [at, at + bytes) of the gradients. */
static lathe_status add(lathe_grad_buckets *b, const range *of, int64_t at, int64_t bytes,
                        int32_t k)
{
    char label[64];
    const int64_t size = lathe_dtype_bytes(of->dtype);
    lathe_bucket_sum made = {
        .begin = at, .end = at + bytes, .parts = {{.ranks = b->ranks, .in_at = at, .out_at = at}}};
    if (size < 1)
        return lathe_error(LATHE_E_DTYPE, "gradients of a dtype without a size");
    (void)snprintf(label, sizeof label, "gradients %d of %d", k + 1, b->sums.n);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_REDUCE,
                                            .dtype = of->dtype,
                                            .reduce = LATHE_REDUCE_SUM,
                                            .n = bytes / size,
                                            .label = label};
    LATHE_TRY(lathe_data_prepare(b->ranks, &problem, &b->room, &made.parts[0].exchange));
    lathe_bucket_sums_put(&b->sums, k, &made);
    return LATHE_OK;
}

lathe_status lathe_grad_buckets_create(lathe_ranks *ranks, lathe_machine *m,
                                       const lathe_store *store, int64_t bucket_bytes,
                                       lathe_grad_buckets **out)
{
    const int64_t size = (bucket_bytes + 63) / 64 * 64;
    const range ranges[2] = {{0, store->wide_grad_bytes, LATHE_F32},
                             {store->wide_grad_bytes, store->grad_bytes, narrow_dtype(store)}};
    int32_t n = 0, k = 0;
    for (int i = 0; i < 2; i++)
        n += (int32_t)((ranges[i].end - ranges[i].begin + size - 1) / size);
    lathe_grad_buckets *b = calloc(1, sizeof *b);
    if (b == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d buckets of gradients", n);
    b->ranks = ranks;
    lathe_status status = lathe_bucket_sums_init(&b->sums, m, store, &b->room, n);
    for (int i = 0; i < 2; i++)
        for (int64_t at = ranges[i].begin; at < ranges[i].end && status == LATHE_OK; at += size) {
            const int64_t left = ranges[i].end - at;
            status = add(b, &ranges[i], at, left < size ? left : size, k++);
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
    if (b == NULL)
        return;
    for (int32_t k = 0; b->sums.list && k < b->sums.n; k++)
        lathe_data_destroy(b->ranks, b->sums.list[k].parts[0].exchange);
    lathe_bucket_sums_fini(&b->sums);
    free(b);
}

lathe_status lathe_grad_buckets_plan(lathe_grad_buckets *b, const lathe_graph *const *graphs,
                                     int32_t n)
{
    return lathe_bucket_sums_plan(&b->sums, graphs, n);
}

double lathe_grad_buckets_take_wait(lathe_grad_buckets *b)
{
    return lathe_bucket_sums_take_wait(&b->sums);
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

/* sign -1 before exchanges and 1 after them: adds what they send. */
static lathe_status count_sent(lathe_grad_buckets *b, int64_t sign)
{
    int64_t sent = 0;
    LATHE_TRY(lathe_data_sent(b->ranks, &sent));
    b->sent_bytes += sign * sent;
    return LATHE_OK;
}

lathe_status lathe_grad_buckets_reduce(lathe_grad_buckets *b)
{
    LATHE_TRY(count_sent(b, -1));
    LATHE_TRY(lathe_bucket_sums_run(&b->sums));
    return count_sent(b, 1);
}

lathe_status lathe_grad_buckets_backward(lathe_grad_buckets *b, lathe_exec *exec, int32_t begin,
                                         int32_t accumulate)
{
    LATHE_TRY(count_sent(b, -1));
    LATHE_TRY(lathe_bucket_sums_backward(&b->sums, exec, begin, accumulate));
    return count_sent(b, 1);
}
