/* Parameter counts and FLOPs. */
#include "model/model_size.h"

#include <string.h>

#include "ir/plan.h"
#include "model/family.h"

int64_t lathe_model_n_params(const lathe_params *params)
{
    int64_t n = 0;
    for (int32_t i = 0; i < params->n; i++)
        if (params->rows[i]->role != LATHE_ROLE_ADAPTER && !params->rows[i]->reference)
            n += lathe_desc_count(&params->rows[i]->desc);
    return n;
}

int64_t lathe_model_n_active(const lathe_model_config *config, const lathe_params *params)
{
    int64_t n = lathe_model_n_params(params);
    for (int32_t i = 0; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        const int is_head = config->tied && strcmp(row->name, config->family->embedding) == 0;
        if (row->role == LATHE_ROLE_EMBEDDING && !row->reference && !is_head)
            n -= lathe_desc_count(&row->desc);
    }
    return n;
}

double lathe_model_flops_per_token(const lathe_model_config *config, const lathe_params *params,
                                   int64_t row_tokens)
{
    return 6.0 * (double)lathe_model_n_active(config, params) +
           12.0 * (double)config->n_layers * (double)config->n_heads * (double)config->head_dim *
               lathe_attention_pairs(row_tokens, config->window, 1) / (double)row_tokens;
}
