/* Merges an adapter into one weight. */
#ifndef LATHE_RUN_MERGE_SITE_H
#define LATHE_RUN_MERGE_SITE_H

#include "exec/store/store.h"
#include "lathe/adapter.h"
#include "model/family/hf_config.h"
#include "plug/plugin_instance.h"

/** Adds the contribution of the adapter's parameters in the store to w, f32 in host memory: a
 * weight [out, in] rows[index] of the model, [V, C] of its embedding, or the bias [out] of a linear
 * layer that the adapter adds to (adds_bias). LATHE_E_PLUGIN: the adapter has more parameters there
 * than merge() takes. Allocates only where the host cannot access the store. */
lathe_status lathe__merge_site(const lathe_store *store, const lathe_instance *adapter,
                               const lathe_model_config *model, int32_t index, float *w);

enum { LATHE_MAX_SITE_PARAMS = 16 };

/** Lists the parameters of the adapter at a weight: the store's own memory, or copies of it. Call
 *  lathe__site_params_free also after a failure; *out_n must be 0 before. LATHE_E_PLUGIN: there are
 *  more. */
lathe_status lathe__site_params(const lathe_store *store, int32_t index,
                                lathe_site_param list[LATHE_MAX_SITE_PARAMS], int32_t *out_n);
void lathe__site_params_free(const lathe_store *store, const lathe_site_param *list, int32_t n);

/** Calls the adapter's merge() with these parameters, at a weight of this shape. */
lathe_status lathe__merge_params(const lathe_instance *adapter, const lathe_model_config *model,
                                 const lathe_param *row, const lathe_desc *shape,
                                 const lathe_site_param *list, int32_t n, float *w);

#endif
