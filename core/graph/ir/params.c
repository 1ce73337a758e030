/* The table of parameters. */
#include "graph/ir/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

void lathe_params_init(lathe_params *params, int32_t compute_dtype)
{
    memset(params, 0, sizeof *params);
    params->compute_dtype = compute_dtype;
    params->grad_dtype = LATHE_F32;
}

void lathe_params_fini(lathe_params *params)
{
    free(params->rows);
    free(params->by_name);
    lathe_arena_fini(&params->arena);
    memset(params, 0, sizeof *params);
}

/* The slot of a name, or the free slot where it would be inserted. There is always a free one. */
static int32_t *slot_of(const lathe_params *params, const char *name)
{
    const uint64_t mask = (uint64_t)params->n_slots - 1;
    for (uint64_t at = lathe_hash64(name, (int64_t)strlen(name)) & mask;; at = (at + 1) & mask) {
        int32_t *slot = &params->by_name[at];
        if (*slot == 0 || strcmp(params->rows[*slot - 1]->name, name) == 0)
            return slot;
    }
}

/* Makes room for one more name; the table stays at most half full. */
static lathe_status grow_names(lathe_params *params)
{
    if (2 * (params->n + 1) <= params->n_slots)
        return LATHE_OK;
    const int32_t n_slots = params->n_slots ? 2 * params->n_slots : 128;
    int32_t *by_name = calloc((size_t)n_slots, sizeof *by_name);
    if (!by_name)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d parameters", n_slots);
    free(params->by_name);
    params->by_name = by_name;
    params->n_slots = n_slots;
    for (int32_t i = 0; i < params->n; i++)
        *slot_of(params, params->rows[i]->name) = i + 1;
    return LATHE_OK;
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
    copy->second = row->second ? lathe_arena_strdup(&params->arena, row->second) : NULL;
    if (!copy->name || (row->second && !copy->second))
        return LATHE_E_NOMEM;
    LATHE_TRY(grow_names(params));
    *slot_of(params, copy->name) = params->n + 1;
    *out_index = params->n;
    params->rows[params->n++] = copy;
    return LATHE_OK;
}

int32_t lathe_params_find(const lathe_params *params, const char *name)
{
    return params->n_slots > 0 ? *slot_of(params, name) - 1 : -1;
}

int32_t lathe_params_value_dtype(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    if (p->desc.rank < 2 || p->stage_head)
        return LATHE_F32;
    return p->other ? p->dtype : params->compute_dtype;
}

int32_t lathe_params_grad_dtype(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    return p->desc.rank < 2 || p->layer < 0 ? LATHE_F32 : params->grad_dtype;
}

int32_t lathe_param_changes(const lathe_param *row)
{
    return row->trainable || row->is_merged || row->is_moved;
}

int32_t lathe_params_weight_of(const lathe_params *params, const char *name)
{
    char weight[512];
    for (size_t n = strlen(name); n > 0; n--) {
        if (name[n] != '.' || n + sizeof ".weight" > sizeof weight)
            continue;
        (void)snprintf(weight, sizeof weight, "%.*s.weight", (int)n, name);
        const int32_t row = lathe_params_find(params, weight);
        if (row >= 0 && row < params->n_model)
            return row;
    }
    return -1;
}

int32_t lathe_params_bias_of(const lathe_params *params, int32_t weight)
{
    static const char end[] = ".weight";
    const char *name = params->rows[weight]->name;
    const size_t n = strlen(name), n_end = sizeof end - 1;
    char bias[512];
    if (n <= n_end || n >= sizeof bias || strcmp(name + n - n_end, end) != 0)
        return -1;
    (void)snprintf(bias, sizeof bias, "%.*s.bias", (int)(n - n_end), name);
    const int32_t row = lathe_params_find(params, bias);
    return row < params->n_model ? row : -1;
}

int32_t lathe_params_has_master(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    return !p->format && !p->other &&
           (lathe_param_changes(p) || p->is_derived || p->is_fixed ||
            lathe_params_value_dtype(params, index) == LATHE_F32);
}

int32_t lathe_params_has_shadow(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    return !p->format && !p->other && lathe_params_value_dtype(params, index) != LATHE_F32;
}

/* Whether the parameter is the weight or the bias of a linear layer. */
static int32_t is_of_site(const lathe_params *params, const lathe_param *p)
{
    static const char bias[] = ".bias";
    const size_t n = strlen(p->name), end = sizeof bias - 1;
    char weight[512];
    if (p->role != LATHE_ROLE_BIAS || n <= end || strcmp(p->name + n - end, bias) != 0)
        return p->role == LATHE_ROLE_MATRIX;
    const int written = snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - end), p->name);
    const int32_t row = written < (int)sizeof weight ? lathe_params_find(params, weight) : -1;
    return row >= 0 && params->rows[row]->role == LATHE_ROLE_MATRIX;
}

lathe_param_info lathe_params_info(const lathe_params *params, int32_t index)
{
    const lathe_param *p = params->rows[index];
    const lathe_param_info info = {.size = (uint32_t)sizeof info,
                                   .role = p->role,
                                   .name = p->name,
                                   .desc = p->desc,
                                   .trainable = p->trainable,
                                   .quantized = p->format != NULL,
                                   .layer = p->layer,
                                   .group = p->group,
                                   .head_rows = p->head_rows,
                                   .n_layers = params->n_layers,
                                   .is_tied = p->is_tied,
                                   .of_site = is_of_site(params, p),
                                   .n_experts = p->n_experts};
    return info;
}
