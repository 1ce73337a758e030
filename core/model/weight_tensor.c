/* Finds the tensors of parameters. */
#include "model/weight_tensor.h"

#include <string.h>

int32_t lathe_weights_is_model_row(const lathe_param *row)
{
    return row->role != LATHE_ROLE_ADAPTER && !row->reference;
}

const lathe_st_tensor *lathe_weights_find(const lathe_safetensors *set,
                                          const lathe_model_config *config, const char *name)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    const size_t n = strlen(config->prefix);
    if (t == NULL && strncmp(name, config->prefix, n) == 0)
        t = lathe_safetensors_find(set, name + n);
    if (t == NULL && config->tied && strcmp(name, config->embedding) == 0)
        t = lathe_safetensors_find(set, config->head); /* one of the two names is enough */
    if (t == NULL && config->is_untied && strcmp(name, config->head) == 0)
        t = lathe_weights_find(set, config, config->embedding);
    return t;
}

lathe_desc lathe_weights_file_desc(const lathe_param *row)
{
    lathe_desc desc = row->desc;
    if (row->transposed) {
        desc.dims[0] = row->desc.dims[1];
        desc.dims[1] = row->desc.dims[0];
    }
    return desc;
}
