/* Positions at which a tensor that an optimizer updates may be cut. */
#include "exec/store/tensor_cut.h"

#include "exec/store/cut_unit.h"
#include "lathe/kit/elementwise.h"

#define CHUNK LATHE_ELEMENTWISE_CHUNK

static int64_t whole_of(const lathe_store *store, const lathe_optimizer_tensor *t)
{
    return lathe_desc_count(&store->params->rows[t->tensor]->desc);
}

int64_t lathe__cut_unit(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t)
{
    const lathe_store_row *row = &store->rows[t->tensor];
    const lathe_param_info info = lathe_params_info(store->params, t->tensor);
    return lathe_cut_unit(optimizer, &info, row->partition, row->slots, row->n_slots);
}

int64_t lathe__cut_step(const lathe_store *store, const lathe_instance *optimizer,
                        const lathe_optimizer_tensor *t)
{
    const int64_t unit = lathe__cut_unit(store, optimizer, t);
    return unit > 0 ? unit / lathe__common_divisor(unit, CHUNK) * CHUNK : whole_of(store, t);
}

void lathe__cut_piece(const lathe_store *store, const lathe_optimizer_tensor *t, int64_t unit,
                      int64_t begin, int64_t n, lathe_optimizer_tensor *out)
{
    const lathe_store_row *row = &store->rows[t->tensor];
    *out = *t;
    if (n == t->n)
        return;
    out->param = t->param + begin;
    out->grad = t->grad ? t->grad + begin : NULL;
    out->shadow = t->shadow ? t->shadow + begin : NULL;
    out->first = t->first + begin;
    out->n = n;
    for (int32_t k = 0; k < row->n_slots; k++) {
        const lathe_desc *slot = &row->slots[k].desc;
        const int is_by_element = lathe_desc_count(slot) == whole_of(store, t);
        const int64_t at = is_by_element ? begin : unit > 0 ? begin / unit : 0;
        out->slots[k] = (char *)t->slots[k] + at * lathe_dtype_bytes(slot->dtype);
    }
}
