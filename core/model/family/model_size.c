/* Counts parameters and floating-point operations of a model. */
#include "model/family/model_size.h"

#include <string.h>

#include "graph/ir/flops.h"

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
        const int is_head = config->tied && strcmp(row->name, config->embedding) == 0;
        if (row->role == LATHE_ROLE_EMBEDDING && !row->reference && !is_head)
            n -= lathe_desc_count(&row->desc);
    }
    return n;
}

static int32_t value_dim(const lathe_model_layer *layer)
{
    return layer->value_dim > 0 ? layer->value_dim : layer->head_dim;
}

int64_t lathe_model_key_width(const lathe_model_layer *layer)
{
    return (int64_t)layer->n_kv_heads * layer->head_dim;
}

int64_t lathe_model_value_width(const lathe_model_layer *layer)
{
    return (int64_t)layer->n_kv_heads * value_dim(layer);
}

/* The widest layer's. */
static int64_t widest(const lathe_model_config *config,
                      int64_t (*width)(const lathe_model_layer *layer))
{
    int64_t max = 0;
    for (int32_t i = 0; i < config->n_layers; i++) {
        const int64_t n = width(&config->layers[i]);
        max = n > max ? n : max;
    }
    return max;
}

int64_t lathe_model_most_keys(const lathe_model_config *config)
{
    return widest(config, lathe_model_key_width);
}

int64_t lathe_model_most_values(const lathe_model_config *config)
{
    return widest(config, lathe_model_value_width);
}

double lathe_model_flops_per_token(const lathe_model_config *config, const lathe_params *params,
                                   int64_t row_tokens)
{
    double attention = 0.0;
    for (int32_t i = 0; i < config->n_layers; i++) {
        const lathe_model_layer *l = &config->layers[i];
        attention += (double)l->n_heads * (double)(l->head_dim + value_dim(l)) / 2.0 *
                     lathe_attention_pairs(row_tokens, l->window, 1);
    }
    return 6.0 * (double)lathe_model_n_active(config, params) +
           12.0 * attention / (double)row_tokens;
}
