/* Merges an adapter into one weight. */
#ifndef LATHE_PRIMITIVES_MERGE_SITE_H
#define LATHE_PRIMITIVES_MERGE_SITE_H

#include "model/hf_config.h"
#include "plug/instance.h"
#include "store/store.h"

/** Adds the contribution of the adapter's parameters in the store to w, f32 [out, in] in host
 *  memory: a weight rows[index] of the model, [V, C] of its embedding. LATHE_E_PLUGIN: the adapter
 * has more parameters there than merge() takes. Allocates only where the host cannot access the
 * store. */
lathe_status lathe__merge_site(const lathe_store *store, const lathe_instance *adapter,
                               const lathe_model_config *model, int32_t index, float *w);

#endif
