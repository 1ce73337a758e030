/* Gathers values that ranks divide. */
#include "exec/store/gathered.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "exec/store/peers.h"

static const void *tensor_at(const lathe_store *store, int32_t param, int32_t tensor)
{
    return tensor > 0 ? lathe_store_plane(store, param, tensor - 1)
                      : lathe_store_value(store, param);
}

const void *lathe_gather_own(const lathe_store *store, int32_t gather)
{
    const lathe_gather *g = &store->gathers->list[gather];
    const lathe_division *d = lathe_gather_division(store, g);
    const lathe_bucket *b = &d->buckets[g->bucket];
    const int32_t each = g->is_frozen ? LATHE_GATHER_TENSORS : 1;
    const void *own = NULL;
    for (int32_t k = b->first; k < b->first + b->n && !own; k++)
        own = tensor_at(store, d->rows[k] / each, d->rows[k] % each);
    return own;
}

int lathe_store_is_gathered(const lathe_store *store, int32_t param)
{
    return store->rows[param].gathered[0].gather >= 0;
}

lathe_status lathe_gather_run(const lathe_store *store, int32_t gather, void *to)
{
    const lathe_peers *peers = store->peers;
    if (!peers)
        return lathe_error(LATHE_E_STATE, "parameters are divided among ranks that are not there");
    LATHE_TRY(peers->gather_start(peers->arg, gather, to));
    return peers->gather_wait(peers->arg, gather);
}

lathe_status lathe_store_whole(const lathe_store *store, int32_t param, int32_t plane,
                               const void **out)
{
    const lathe_gathered *in = &store->rows[param].gathered[1 + plane];
    *out = tensor_at(store, param, 1 + plane);
    if (in->gather < 0)
        return LATHE_OK;
    *out = store->gathered + in->at;
    return lathe_gather_run(store, in->gather, store->gathered);
}

void lathe_store_note(const lathe_store *store, int32_t param, int32_t plane, const void *whole,
                      int64_t bytes)
{
    if (!store->gathers)
        return;
    uint32_t *check = &store->gathers->checks[param];
    *check = (plane > 0 ? *check * 31 : 0) + lathe_crc32c(whole, bytes);
}

/* CRC-32C of a row's values in the host's memory. */
static lathe_status check_row(const lathe_store *store, int32_t param, uint32_t *out)
{
    const void *values = lathe_store_value(store, param);
    const int64_t bytes = lathe_desc_count(&store->params->rows[param]->desc) *
                          lathe_dtype_bytes(lathe_params_value_dtype(store->params, param));
    LATHE_TRY(lathe_read_whole(store->m, values, bytes, &values));
    *out = lathe_crc32c(values, bytes);
    return LATHE_OK;
}

lathe_status lathe_store_checksum(const lathe_store *store, double *out)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const lathe_param *p = store->params->rows[i];
        uint32_t check = 0;
        if (store->gathers && store->rows[i].gathered[p->format ? 1 : 0].gather >= 0)
            check = store->gathers->checks[i];
        else if (p->trainable || p->is_moved)
            LATHE_TRY(check_row(store, i, &check));
        else
            continue;
        sum = sum * 31 + check;
    }
    *out = (double)sum;
    return LATHE_OK;
}
