/* The parameter table. */
#include "ir/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void lathe_params_init(lathe_params *params, int32_t compute_dtype)
{
    memset(params, 0, sizeof *params);
    params->compute_dtype = compute_dtype;
    params->grad_dtype = LATHE_F32;
}

void lathe_params_fini(lathe_params *params)
{
    free(params->rows);
    lathe_arena_fini(&params->arena);
    memset(params, 0, sizeof *params);
}

lathe_status lathe_params_add(lathe_params *params, const lathe_param *row, int32_t *out_index)
{
    if (lathe_params_find(params, row->name) >= 0)
        return lathe_error(LATHE_E_ARG, "parameter '%s' is declared twice", row->name);
    if (params->n == params->capacity) {
        const int32_t capacity = params->capacity ? 2 * params->capacity : 64;
        lathe_param **rows = realloc(params->rows, (size_t)capacity * sizeof *rows);
        if (!rows)
            return lathe_error(LATHE_E_NOMEM, "no memory for %d parameters", capacity);
        params->rows = rows;
        params->capacity = capacity;
    }
    lathe_param *copy = lathe_arena_alloc(&params->arena, (int64_t)sizeof *copy);
    if (!copy)
        return LATHE_E_NOMEM;
    *copy = *row;
    copy->name = lathe_arena_strdup(&params->arena, row->name);
    if (!copy->name)
        return LATHE_E_NOMEM;
    *out_index = params->n;
    params->rows[params->n++] = copy;
    return LATHE_OK;
}

int32_t lathe_params_find(const lathe_params *params, const char *name)
{
    for (int32_t i = 0; i < params->n; i++)
        if (strcmp(params->rows[i]->name, name) == 0)
            return i;
    return -1;
}

int32_t lathe_params_value_dtype(const lathe_params *params, int32_t index)
{
    return params->rows[index]->desc.rank < 2 ? LATHE_F32 : params->compute_dtype;
}

int32_t lathe_params_grad_dtype(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    return p->desc.rank < 2 || p->layer < 0 ? LATHE_F32 : params->grad_dtype;
}

int32_t lathe_params_has_master(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    return !p->quantized && (p->trainable || lathe_params_value_dtype(params, index) == LATHE_F32);
}

int32_t lathe_params_has_shadow(const lathe_params *params, int32_t index)
{
    return !params->rows[index]->quantized && lathe_params_value_dtype(params, index) != LATHE_F32;
}

lathe_param_info lathe_params_info(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    const lathe_param_info info = {.size = (uint32_t)sizeof info,
                                   .role = p->role,
                                   .name = p->name,
                                   .desc = p->desc,
                                   .trainable = p->trainable,
                                   .quantized = p->quantized,
                                   .layer = p->layer,
                                   .group = p->group,
                                   .head_rows = p->head_rows};
    return info;
}
