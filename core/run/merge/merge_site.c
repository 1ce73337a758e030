/* Calls an adapter's merge() with the parameters of one weight. */
#include "run/merge/merge_site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/program/token_rows.h"
#include "exec/store/store_io.h"
#include "lathe/adapter.h"

lathe_status lathe__site_params(const lathe_store *store, int32_t index,
                                lathe_site_param list[LATHE_MAX_SITE_PARAMS], int32_t *out_n)
{
    const lathe_params *params = store->params;
    for (int32_t i = params->n_model; i < params->n; i++) {
        const lathe_param *row = params->rows[i];
        if (row->reference || lathe_params_weight_of(params, row->name) != index)
            continue;
        if (*out_n == LATHE_MAX_SITE_PARAMS)
            return lathe_error(LATHE_E_PLUGIN, "the adapter has more than %d parameters at '%s'",
                               LATHE_MAX_SITE_PARAMS, params->rows[index]->name);
        const int64_t bytes = lathe_desc_bytes(&row->desc);
        void *data = NULL;
        LATHE_TRY(lathe_store_borrow(store, lathe_store_master(store, i), bytes, &data));
        list[(*out_n)++] = (lathe_site_param){row->name, data, row->desc};
    }
    return LATHE_OK;
}

void lathe__site_params_free(const lathe_store *store, const lathe_site_param *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        lathe_store_release(store, (void *)(uintptr_t)list[i].data);
}

/* Builds the site of a weight of this shape; module and head: room for names. */
static lathe_site site_of(const lathe_model_config *model, const lathe_param *row,
                          const lathe_desc *shape, char module[512], char head[512])
{
    (void)snprintf(module, 512, "%.*s", (int)(strlen(row->name) - strlen(".weight")), row->name);
    (void)snprintf(head, 512, "%.*s", (int)(strlen(model->head) - strlen(".weight")), model->head);
    const int is_embedding = strcmp(row->name, model->embedding) == 0;
    return (lathe_site){.size = (uint32_t)sizeof(lathe_site),
                        .layer = row->layer,
                        .module = module,
                        .in_features = shape->dims[!is_embedding],
                        .out_features = shape->dims[is_embedding],
                        .kind = is_embedding                   ? LATHE_SITE_EMBEDDING
                                : row->role == LATHE_ROLE_HEAD ? LATHE_SITE_HEAD
                                                               : LATHE_SITE_LINEAR,
                        .tied = is_embedding && row->is_tied ? head : NULL,
                        .weight = LATHE_NONE,
                        .bias = LATHE_NONE,
                        .transposed_on_file = row->transposed};
}

lathe_status lathe__merge_params(const lathe_instance *adapter, const lathe_model_config *model,
                                 const lathe_param *row, const lathe_desc *shape,
                                 const lathe_site_param *list, int32_t n, float *w)
{
    const lathe_adapter_v1 *table = adapter->table;
    char module[512], head[512];
    const int64_t experts = row->n_experts > 0 ? row->n_experts : 1;
    lathe_desc one = *shape;
    one.dims[0] /= experts;
    lathe_site site = site_of(model, row, &one, module, head);
    site.n_experts = row->n_experts;
    for (int64_t e = 0; e < experts; e++) {
        lathe_site_param of_expert[LATHE_MAX_SITE_PARAMS];
        for (int32_t i = 0; i < n; i++) {
            of_expert[i] = list[i];
            of_expert[i].desc.dims[0] /= experts;
            of_expert[i].data += e * lathe_desc_count(&of_expert[i].desc);
        }
        LATHE_TRY(table->merge(adapter->self, &site, of_expert, n, w + e * lathe_desc_count(&one)));
    }
    return LATHE_OK;
}

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Puts the rows of tokens that trained in their places, and takes their parameters out of the
 * list. */
static void merge_token_rows(const lathe_params *params, const lathe_site_param *list, int32_t n,
                             float *w, lathe_site_param *others, int32_t *out_n)
{
    *out_n = 0;
    for (int32_t i = 0; i < n; i++) {
        const char *name = list[i].name;
        const int64_t C = list[i].desc.dims[1];
        if (strstr(name, ".token_adapter.") == NULL)
            others[(*out_n)++] = list[i];
        const int32_t row =
            ends_in(name, LATHE_TOKEN_ROWS_END) ? lathe_params_find(params, name) : -1;
        for (int32_t k = 0; row >= 0 && k < params->rows[row]->tokens.n; k++)
            memcpy(w + params->rows[row]->tokens.ids[k] * C, list[i].data + k * C,
                   (size_t)C * sizeof *w);
    }
}

lathe_status lathe__merge_site(const lathe_store *store, const lathe_instance *adapter,
                               const lathe_model_config *model, int32_t index, float *w)
{
    const lathe_adapter_v1 *table = adapter->table;
    const int32_t weight = lathe_params_weight_of(store->params, store->params->rows[index]->name);
    const lathe_param *row = store->params->rows[weight];
    lathe_site_param list[LATHE_MAX_SITE_PARAMS], own[LATHE_MAX_SITE_PARAMS];
    char module[512], head[512];
    int32_t n = 0, n_own = 0;
    lathe_status status = lathe__site_params(store, weight, list, &n);
    if (status == LATHE_OK && weight != index) { /* a bias */
        const lathe_site site = site_of(model, row, &row->desc, module, head);
        status = table->merge_bias(adapter->self, &site, list, n, w);
    } else if (status == LATHE_OK) {
        merge_token_rows(store->params, list, n, w, own, &n_own);
        if (n_own > 0 || n == 0)
            status = lathe__merge_params(adapter, model, row, &row->desc, own, n_own, w);
    }
    lathe__site_params_free(store, list, n);
    return status;
}
