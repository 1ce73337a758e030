/* Finds the tensors of parameters. */
#include "model/family/weight_tensor.h"

#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "model/family/tower_names.h"

int32_t lathe_weights_is_model_row(const lathe_param *row)
{
    return row->role != LATHE_ROLE_ADAPTER && !row->reference;
}

/* The tensor of this name, or of the one that the files of a wrapper have. Names that are neither
 * the layout's nor transformers 5's are not looked for: a file has one layout. */
static const lathe_st_tensor *find_named(const lathe_safetensors *set,
                                         const lathe_model_config *config, const char *name)
{
    char text[LATHE_TENSOR_NAME];
    const char *in_file = lathe_text_tower_file(config, name, -1, text, (int64_t)sizeof text);
    const lathe_st_tensor *t = lathe_safetensors_find(set, in_file);
    return t != NULL || in_file == name ? t : lathe_safetensors_find(set, name);
}

const lathe_st_tensor *lathe_weights_find(const lathe_safetensors *set,
                                          const lathe_model_config *config, const char *name)
{
    const lathe_st_tensor *t = find_named(set, config, name);
    const size_t n = strlen(config->prefix);
    if (t == NULL && config->wrapper == NULL && strncmp(name, config->prefix, n) == 0)
        t = lathe_safetensors_find(set, name + n);
    if (t == NULL && config->tied && strcmp(name, config->embedding) == 0)
        t = find_named(set, config, config->head); /* one of the two names is enough */
    if (t == NULL && config->is_untied && strcmp(name, config->head) == 0)
        t = lathe_weights_find(set, config, config->embedding);
    return t;
}

lathe_desc lathe_weights_file_desc(const lathe_param *row)
{
    lathe_desc desc = row->desc;
    if (row->layout == LATHE_LAYOUT_SCALAR)
        desc.rank = 0;
    if (row->layout == LATHE_LAYOUT_STACKED)
        desc = (lathe_desc){
            desc.dtype, 3, {row->n_experts, desc.dims[0] / row->n_experts, desc.dims[1], 1}};
    if (row->layout == LATHE_LAYOUT_ROW)
        desc = lathe_desc_2d(desc.dtype, 1, desc.dims[0]);
    if (row->role == LATHE_ROLE_CONV) {
        desc.rank = 3;
        desc.dims[2] = row->desc.dims[1];
        desc.dims[1] = 1;
    }
    if (row->transposed) {
        desc.dims[0] = row->desc.dims[1];
        desc.dims[1] = row->desc.dims[0];
    }
    if (row->layout == LATHE_LAYOUT_FUSED_EXPERTS) {
        desc.rank++;
        desc.dims[0] = row->n_experts;
        desc.dims[row->desc.rank] = row->desc.dims[0] / row->n_experts;
    }
    return desc;
}

int32_t lathe_weights_is_turned(const lathe_param *row)
{
    return row->transposed || (row->layout == LATHE_LAYOUT_FUSED_EXPERTS && row->desc.rank == 2);
}

int32_t lathe_weights_is_by_expert(const lathe_param *row)
{
    return row->n_experts > 0 && row->layout != LATHE_LAYOUT_STACKED &&
           row->layout != LATHE_LAYOUT_FUSED_EXPERTS;
}

lathe_status lathe_weights_turn(const lathe_param *row, int32_t to_file, void *dst,
                                int32_t dst_dtype, const void *src, int32_t src_dtype)
{
    const int64_t n = row->layout == LATHE_LAYOUT_FUSED_EXPERTS ? row->n_experts : 1,
                  outputs = row->desc.dims[0] / n;
    const int64_t inputs = row->desc.dims[1], each = outputs * inputs;
    for (int64_t e = 0; e < n; e++)
        LATHE_TRY(lathe_convert_transposed(
            (char *)dst + e * each * lathe_dtype_bytes(dst_dtype), dst_dtype,
            (const char *)src + e * each * lathe_dtype_bytes(src_dtype), src_dtype,
            to_file ? outputs : inputs, to_file ? inputs : outputs));
    return LATHE_OK;
}
