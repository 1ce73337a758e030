/* Computes what ranks send to each other in a step. */
#include "parallel/ranks/step_bytes.h"

#include "exec/store/gathered.h"
#include "lathe/kit/collective_kit.h"

/* bytes: of the largest bucket. own: of them, those whose sum this rank computes. */
typedef struct largest {
    int64_t bytes, own;
} largest;

/* Buckets of gradients that every rank holds (grad_buckets.c): each rank adds an equal part. */
static largest add_undivided(const lathe_store *store, const lathe_division_ask *ask,
                             lathe_step_bytes *out)
{
    const int64_t size = (ask->bucket_bytes + 63) / 64 * 64, wide = store->wide_grad_bytes;
    const int64_t ends[2] = {wide, store->grad_bytes};
    largest max = {0, 0};
    int64_t at = 0;
    for (int k = 0; k < 2; k++)
        for (; at < ends[k]; out->n_reduce++) {
            const int64_t bytes = ends[k] - at < size ? ends[k] - at : size;
            const int64_t width = k == 0 ? 4 : 2, n = bytes / width;
            const int64_t own =
                n / ask->n_ranks + (ask->rank < (int32_t)(n % ask->n_ranks) ? 1 : 0);
            out->reduced += (n - own + (ask->n_ranks - 1) * own) * width;
            max.own = own * width > max.own ? own * width : max.own;
            max.bytes = bytes > max.bytes ? bytes : max.bytes;
            at += bytes;
        }
    return max;
}

/* The sum over copies of an extent: about two times (C-1)/C of it, on the rank that adds most. */
static void add_across(int64_t n, int64_t width, int32_t n_copies, lathe_step_bytes *out)
{
    if (n_copies < 2 || n == 0)
        return;
    const int64_t own = (n + n_copies - 1) / n_copies;
    out->reduced += (n - own + (n_copies - 1) * own) * width;
    out->n_reduce++;
}

/* Values that are gathered travel in every forward and every backward, others after the update. */
static void add_bucket(const lathe_store *store, const lathe_division *d, int32_t b,
                       int32_t n_copies, int32_t n_micro, lathe_step_bytes *out)
{
    const int32_t row = d->rows[d->buckets[b].first];
    const int64_t grad = lathe_dtype_bytes(lathe_params_grad_dtype(store->params, row));
    const int64_t value = lathe_dtype_bytes(lathe_params_value_dtype(store->params, row));
    const int64_t all = lathe_bucket_counts(d, b, grad, NULL);
    const int32_t n = d->shard >= LATHE_SHARD_GRADIENTS ? n_micro : 1;
    out->reduced += n * (all - lathe_bucket_extent(d, b, grad, d->rank).n) * grad;
    add_across(lathe_bucket_extent(d, b, grad, d->rank).n, grad, n_copies, out);
    const int32_t times = lathe_is_divided_value(store->params, d->shard, row) ? 2 * n_micro : 1;
    out->spread += times * (d->n_ranks - 1) * lathe_bucket_extent(d, b, value, d->rank).n * value;
    out->n_reduce += n;
    out->n_spread += times;
}

lathe_status lathe_step_bytes_of(const lathe_store *store, const lathe_division_ask *ask,
                                 int32_t n_micro, lathe_step_bytes *out)
{
    lathe_division *d = NULL;
    *out = (lathe_step_bytes){0};
    if (ask->n_ranks < 2)
        return LATHE_OK;
    if (ask->shard == LATHE_SHARD_NONE) {
        (void)add_undivided(store, ask, out);
        return LATHE_OK;
    }
    LATHE_TRY(lathe_store_division(store, ask, &d));
    for (int32_t b = 0; b < d->n_buckets; b++)
        add_bucket(store, d, b, ask->n_copies, n_micro, out);
    lathe_division_destroy(d);
    return LATHE_OK;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Memory of an exchange of `bytes`, of which this rank adds `own`. */
static int64_t room_of(int64_t bytes, int64_t own, int32_t n_ranks, int32_t is_staged)
{
    return round_up(lathe_exchange_scratch(own, n_ranks)) + (is_staged ? round_up(bytes) : 0);
}

/* Memory of the sum over copies of n elements; 0 if there is none. */
static int64_t room_across(int64_t n, int64_t width, int32_t n_copies, int32_t is_staged)
{
    const int64_t own = n_copies > 1 ? (n + n_copies - 1) / n_copies : 0;
    return own > 0 ? room_of(n * width, own * width, n_copies, is_staged) : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Memory of the largest exchange of a division: of its buckets, and of what is gathered. */
static int64_t divided_room(const lathe_store *store, const lathe_division *d, int32_t n_copies,
                            int32_t is_staged)
{
    int64_t max = is_staged && store->gathers ? store->gathers->most_bytes : 0;
    for (int32_t b = 0; b < d->n_buckets; b++) {
        const int32_t row = d->rows[d->buckets[b].first];
        const int64_t width = lathe_store_bucket_width(store, b);
        const int64_t value = lathe_dtype_bytes(lathe_params_value_dtype(store->params, row));
        const int64_t own = lathe_bucket_extent(d, b, width, d->rank).n;
        max = larger(max, room_of(lathe_bucket_counts(d, b, width, NULL) * width, own * width,
                                  d->n_ranks, is_staged));
        max = larger(max, room_across(own, width, n_copies, is_staged));
        if (is_staged)
            max = larger(max, round_up(lathe_bucket_counts(d, b, value, NULL) * value));
    }
    return max;
}

int64_t lathe_step_room_of(const lathe_store *store, const lathe_division_ask *ask,
                           int32_t is_staged)
{
    lathe_step_bytes bytes = {0};
    if (store->division)
        return divided_room(store, store->division, ask->n_copies, is_staged);
    const largest max = add_undivided(store, ask, &bytes);
    return room_of(max.bytes, max.own, ask->n_ranks, is_staged);
}
