/* Compares the base's embedding and head in the file of an adapter with the model's. */
#include "model/family/base_tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/convert.h"
#include "model/family/grown_rows.h"
#include "model/family/model_build.h"
#include "model/family/weight_origin.h"

#define END ".base_layer.weight"

/* The module of a tensor "base_model.model.MODULE.base_layer.weight"; NULL: another tensor. */
static const char *module_of(const char *key, size_t *out_n)
{
    static const char start[] = "base_model.model.";
    const size_t n = strlen(key), from = sizeof start - 1, end = sizeof END - 1;
    if (n <= from + end || strncmp(key, start, from) != 0 || strcmp(key + n - end, END) != 0)
        return NULL;
    *out_n = n - from - end;
    return key + from;
}

/* Whether a weight "MODULE.weight" is that of the module. */
static int is_weight_of(const char *weight, const char *module, size_t n)
{
    return strncmp(weight, module, n) == 0 && strcmp(weight + n, ".weight") == 0;
}

/* Compares the tensor with the weight of a row, both as f32. */
static lathe_status compare(const lathe_params *params, const lathe_weight_origin *origin,
                            int32_t row, const lathe_st_tensor *t, int *out_same)
{
    const int64_t n = lathe_desc_count(&params->rows[row]->desc);
    const int32_t dtype = lathe_weight_origin_dtype(origin, row);
    float *a = malloc((size_t)n * sizeof *a + 1), *b = malloc((size_t)n * sizeof *b + 1);
    void *read = malloc((size_t)n * 8 + 1); /* the widest dtype of a file */
    lathe_status status = a && b && read
                              ? LATHE_OK
                              : lathe_error(LATHE_E_NOMEM, "no memory to compare '%s'", t->name);
    *out_same = dtype >= 0 && lathe_desc_count(&t->desc) == n;
    if (status != LATHE_OK)
        goto out;
    if (*out_same)
        status = lathe_weight_origin_read(origin, row, 0, read, n * lathe_dtype_bytes(dtype));
    if (status != LATHE_OK)
        goto out;
    if (*out_same && (status = lathe_convert(a, LATHE_F32, read, dtype, n)) != LATHE_OK)
        goto out;
    if (*out_same)
        status = lathe_convert(b, LATHE_F32, t->data, t->desc.dtype, n);
out:
    *out_same &= status == LATHE_OK && memcmp(a, b, (size_t)n * sizeof *a) == 0;
    free(a);
    free(b);
    free(read);
    return status;
}

lathe_status lathe_base_tensor_check(const lathe_model_config *model, const lathe_params *params,
                                     const char *model_path, const lathe_st_tensor *t,
                                     int *out_is_base)
{
    size_t n = 0;
    const char *module = module_of(t->name, &n);
    lathe_safetensors *set = NULL;
    lathe_weight_origin *origin = NULL;
    int same = 0;
    *out_is_base = module && (is_weight_of(model->embedding, module, n) ||
                              (model->n_labels == 0 && is_weight_of(model->head, module, n)));
    if (!*out_is_base || model_path == NULL)
        return LATHE_OK;
    const char *weight =
        is_weight_of(model->head, module, n) ? lathe_model_head_name(model) : model->embedding;
    const int32_t row = lathe_params_find(params, weight);
    lathe_status status = lathe_model_config_weights(model, model_path, &set);
    if (status == LATHE_OK)
        status = lathe_weight_origin_create(set, model, params, NULL, &origin);
    if (status == LATHE_OK && row >= 0)
        status = compare(params, origin, row, t, &same);
    lathe_weight_origin_destroy(origin);
    lathe_safetensors_close(set);
    if (status == LATHE_OK && !same)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: '%s' is not the '%s' of the model %s: the adapter belongs to a "
                           "base whose embeddings were changed (new tokens, or training); save "
                           "that base, and give its folder as model.path",
                           t->file, t->name, weight, model_path);
    return status;
}
