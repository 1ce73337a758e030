/* Divides the trainable parameters by the way in which they are updated. */
#include "optim/update_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void describe(lathe_optimizer_tensor *t, const lathe_store *store,
                     const lathe_instance *optimizer, const lathe_param_groups *groups,
                     int32_t param)
{
    const lathe_optimizer_v1 *table = optimizer->table;
    const lathe_param_info info = lathe_params_info(store->params, param);
    const int64_t whole = lathe_desc_count(&info.desc);
    t->n = store->rows[param].held[LATHE_OF_STATE].n;
    t->first = store->rows[param].held[LATHE_OF_STATE].begin;
    t->rows = info.desc.rank ? info.desc.dims[0] : 1;
    t->cols = t->rows ? whole / t->rows : 0;
    t->tensor = param;
    t->group = groups->group[param];
    t->lr_mult = groups->lr_mult[param];
    t->weight_decay_mult = groups->decay_mult[param];
    t->block = LATHE_HAS(table, block) ? table->block(optimizer->self, &info) : 1;
}

lathe_status lathe_update_tensors_init(lathe_update_tensors *t, const lathe_store *store,
                                       const lathe_instance *optimizer,
                                       const lathe_param_groups *groups)
{
    const size_t n = (size_t)store->n_rows + 1;
    *t = (lathe_update_tensors){.of_step = calloc(n, sizeof *t->of_step),
                                .matrices = calloc(n, sizeof *t->matrices)};
    if (t->of_step == NULL || t->matrices == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    for (int32_t i = 0; i < store->n_rows; i++) {
        if (!store->params->rows[i]->trainable ||
            (store->division && store->rows[i].held[LATHE_OF_STATE].n == 0))
            continue;
        if (store->rows[i].partition == LATHE_PARTITION_MATRIX)
            t->matrices[t->n_matrices++] = i;
        else
            describe(&t->of_step[t->n_of_step++], store, optimizer, groups, i);
    }
    return LATHE_OK;
}

void lathe_update_tensors_fini(lathe_update_tensors *t)
{
    free(t->of_step);
    free(t->matrices);
    memset(t, 0, sizeof *t);
}

void lathe_update_tensors_fill(lathe_update_tensors *tensors, const lathe_store *store)
{
    for (int32_t i = 0; i < tensors->n_of_step; i++) {
        lathe_optimizer_tensor *t = &tensors->of_step[i];
        const lathe_store_row *row = &store->rows[t->tensor];
        const lathe_extent *held = row->held;
        const int64_t begin = held[LATHE_OF_STATE].begin;
        const int64_t width = lathe_dtype_bytes(lathe_params_value_dtype(store->params, t->tensor));
        char *const shadow = lathe_store_shadow(store, t->tensor);
        const int is_narrow = lathe_params_grad_dtype(store->params, t->tensor) != LATHE_F32;
        t->param = lathe_store_master(store, t->tensor) + (begin - held[LATHE_OF_PARAMETER].begin);
        t->grad = is_narrow ? NULL
                            : (const float *)lathe_store_grad(store, t->tensor) +
                                  (begin - held[LATHE_OF_GRADIENT].begin);
        t->shadow =
            shadow ? (uint16_t *)(void *)(shadow + (begin - held[LATHE_OF_VALUE].begin) * width)
                   : NULL;
        t->shadow_dtype = lathe_params_value_dtype(store->params, t->tensor);
        for (int32_t k = 0; k < row->n_slots; k++) {
            t->slots[k] = lathe_store_slot(store, t->tensor, k);
            t->half_slots |= row->slots[k].desc.dtype == LATHE_BF16 ? 1u << k : 0u;
        }
    }
}
