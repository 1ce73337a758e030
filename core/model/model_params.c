/* Makes a model's table of parameters from the tensors that its family declares. */
#include <string.h>

#include "base/error.h"
#include "model/model_build.h"

typedef struct adder {
    const lathe_model_config *config;
    lathe_params *params;
} adder;

static lathe_status refuse(const adder *a, const lathe_model_tensor *t, const char *why)
{
    return lathe_error(LATHE_E_PLUGIN, "%s: tensor %.200s %s",
                       a->config->family.component->plugin->name,
                       t->name != NULL ? t->name : "without a name", why);
}

/* lathe_model_v1.tensors: add */
static lathe_status add(void *ctx, const lathe_model_tensor *t)
{
    const adder *a = ctx;
    int32_t index;
    if (t->name != NULL && a->config->n_labels > 0 && !a->config->tied &&
        strcmp(t->name, a->config->head) == 0)
        return LATHE_OK; /* a sequence classifier has none */
    if (t->name == NULL || t->name[0] == '\0' || strlen(t->name) > 250)
        return refuse(a, t, "has no name, or one of more than 250 bytes");
    if (t->rows < 1 || t->cols < 0 || (t->layout != LATHE_LAYOUT_PLAIN && t->cols == 0))
        return refuse(a, t, "has no rows, or a layout that vectors do not have");
    if (t->layout != LATHE_LAYOUT_PLAIN && t->layout != LATHE_LAYOUT_TRANSPOSED)
        return refuse(a, t, "has a layout that this core does not know");
    if (t->layer < -1 || t->layer >= a->config->n_layers || t->head_rows < 0)
        return refuse(a, t, "belongs to a layer that the model does not have");
    const lathe_param row = {.name = t->name,
                             .desc = t->cols > 0 ? lathe_desc_2d(LATHE_F32, t->rows, t->cols)
                                                 : lathe_desc_1d(LATHE_F32, t->rows),
                             .init = t->init,
                             .init_scale = t->init_scale,
                             .role = t->role,
                             .layer = t->layer,
                             .is_tied = a->config->tied && a->config->n_labels == 0 &&
                                        strcmp(t->name, a->config->embedding) == 0,
                             .head_rows = t->head_rows,
                             .transposed = t->layout == LATHE_LAYOUT_TRANSPOSED};
    return lathe_params_add(a->params, &row, &index);
}

lathe_status lathe_model_params(const lathe_model_config *config, lathe_params *params)
{
    adder a = {config, params};
    const lathe_model_v1 *table = config->family.table;
    params->n_layers = config->n_layers;
    LATHE_TRY(table->tensors(config->family.self, add, &a));
    if ((config->n_labels == 0 && lathe_params_find(params, lathe_model_head_name(config)) < 0) ||
        lathe_params_find(params, config->embedding) < 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: tensors() names no %s or no %s",
                           config->family.component->plugin->name, lathe_model_head_name(config),
                           config->embedding);
    return LATHE_OK;
}
