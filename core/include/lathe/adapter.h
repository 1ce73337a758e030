/* Fine-tuning methods: which parameters train, and what is put around each linear site.
 *
 * An adapter rewrites the graph while it is built; it has no kernels of its own and so runs on
 * every device. Its parameters are ordinary parameters of the core.
 */
#ifndef LATHE_ADAPTER_H
#define LATHE_ADAPTER_H

#include "graph.h"
#include "host.h"

#define LATHE_ADAPTER_REVISION 1

/** One linear layer of the model. */
typedef struct lathe_site {
    uint32_t size;
    int32_t layer;      /* -1 outside the layers */
    const char *module; /* "model.layers.0.self_attn.q_proj" */
    int64_t in_features, out_features;
    lathe_val weight, bias; /* bias: LATHE_NONE when it has none */
    int32_t weight_quantized;
    int32_t transposed_on_file; /* 1: Conv1D, the file holds [in, out] */
} lathe_site;
LATHE_ABI_SIZE(lathe_site, 48);

/** The adapter's parameters of one site, for merging: host memory, f32. */
typedef struct lathe_site_param {
    const char *name; /* as declared */
    const float *data;
    lathe_desc desc;
} lathe_site_param;
LATHE_ABI_SIZE(lathe_site_param, 56);

typedef struct lathe_adapter_v1 {
    uint32_t size;
    uint32_t revision;
    /** [pure] Whether a parameter of the model trains, and its optimizer group (default 0). */
    lathe_status (*select)(void *self, const lathe_param_info *param, int32_t *out_trainable,
                           int32_t *out_group);
    /** [pure] Whether wrap is wanted at this site. NULL: never. */
    int32_t (*targets)(void *self, const lathe_site *site);
    /** [build] y of the site for input x. enabled = 0: the model without the adapter (a
     *  reference model that shares the frozen weights). Sees a site once per forward built; asks
     *  for the same parameter names each time and gets the same parameters. NULL: plain. */
    lathe_status (*wrap)(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y);
    /** [pure] 1: the frozen base is the reference model; 0: a reference needs its own copy.
     *  NULL: 0. */
    int32_t (*base_is_frozen)(void *self);
    /** [between] w [out,in] f32 host += what the adapter adds at this site. NULL: nothing to
     *  merge. */
    lathe_status (*merge)(void *self, const lathe_site *site, const lathe_site_param *params,
                          int32_t n_params, float *w);
    /** [pure] Key of a parameter in the adapter's own file (PEFT); returns bytes needed. NULL:
     *  none. */
    int64_t (*file_key)(void *self, const char *param_name, char *out, int64_t capacity);
    /** [pure] JSON text of adapter_config.json; base is the model's name or path. NULL: none. */
    int64_t (*config_json)(void *self, const char *base, char *out, int64_t capacity);
    /** [open] Whether every pattern of the configuration names something. modules: all linear
     *  sites ("model.layers.0.self_attn.q_proj"); params: all parameters ("model.norm.weight").
     *  LATHE_E_CONFIG: a message that begins with the key and names the pattern that matches
     *  nothing; the core adds file, line and the names. NULL: there are no patterns. */
    lathe_status (*check)(void *self, const char *const *modules, int32_t n_modules,
                          const char *const *params, int32_t n_params);
} lathe_adapter_v1;
LATHE_ABI_SIZE(lathe_adapter_v1, 72);

#endif
