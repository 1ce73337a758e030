/* Makes a model's table of parameters from the tensors that its family declares. */
#include <string.h>

#include "base/error.h"
#include "model/family/model_build.h"
#include "model/family/tower_names.h"

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

/* Whether the tensor belongs to a head of its own over the vocabulary. */
static int is_head(const lathe_model_config *config, const char *name)
{
    return (!config->tied && strcmp(name, config->head) == 0) ||
           (config->head_bias != NULL && strcmp(name, config->head_bias) == 0);
}

/* Whether files hold all experts in one tensor. */
static int is_one_of_experts(int32_t layout)
{
    return layout == LATHE_LAYOUT_STACKED || layout == LATHE_LAYOUT_FUSED_EXPERTS;
}

static int fits_layout(const lathe_model_tensor *t)
{
    switch (t->layout) {
    case LATHE_LAYOUT_TRANSPOSED:
        return t->cols > 0;
    case LATHE_LAYOUT_SCALAR:
        return t->cols == 0 && t->rows == 1;
    case LATHE_LAYOUT_ROW:
        return t->cols == 0;
    case LATHE_LAYOUT_STACKED:
        return t->cols > 0 && t->n_experts > 0;
    case LATHE_LAYOUT_FUSED_EXPERTS:
        return t->n_experts > 0;
    default:
        return 1;
    }
}

/* lathe_model_v1.tensors: add */
static lathe_status add(void *ctx, const lathe_model_tensor *t)
{
    const adder *a = ctx;
    int32_t index;
    char text[LATHE_TENSOR_NAME];
    const char *name = t->name != NULL
                           ? lathe_text_tower_param(a->config, t->name, text, (int64_t)sizeof text)
                           : NULL;
    if (name != NULL && is_head(a->config, name) && a->config->n_labels > 0)
        return LATHE_OK; /* a sequence classifier has none */
    if (name == NULL || name[0] == '\0' || strlen(name) > 250)
        return refuse(a, t, "has no name, or one of more than 250 bytes");
    if (t->layout < LATHE_LAYOUT_PLAIN || t->layout > LATHE_LAYOUT_STACKED)
        return refuse(a, t, "has a layout that this core does not know");
    if (t->rows < 1 || t->cols < 0 || !fits_layout(t))
        return refuse(a, t, "has no rows, or a layout that does not fit its shape");
    if (t->role == LATHE_ROLE_BUFFER && t->cols != 0)
        return refuse(a, t, "is a buffer with columns; expected a vector");
    if (t->role == LATHE_ROLE_CONV && (t->cols == 0 || t->layout != LATHE_LAYOUT_PLAIN))
        return refuse(a, t, "has the role of a convolution; expected a matrix of plain layout");
    const int is_one = is_one_of_experts(t->layout);
    if (t->n_experts < 0 ||
        (t->n_experts > 0 &&
         (t->rows % t->n_experts != 0 || (!is_one && t->layout != LATHE_LAYOUT_PLAIN) ||
          (!is_one && strstr(t->name, t->cols > 0 ? ".experts." : "_layernorm.norms.") == NULL))))
        return refuse(a, t, "has a number of experts that does not fit its shape, layout or name");
    if (t->layer < -1 || t->layer >= a->config->n_layers || t->head_rows < 0)
        return refuse(a, t, "belongs to a layer that the model does not have");
    const lathe_param row = {.name = name,
                             .desc = t->cols > 0 ? lathe_desc_2d(LATHE_F32, t->rows, t->cols)
                                                 : lathe_desc_1d(LATHE_F32, t->rows),
                             .init = t->init,
                             .init_scale = t->init_scale,
                             .role = t->role,
                             .layer = t->layer,
                             .is_tied = a->config->tied && a->config->n_labels == 0 &&
                                        strcmp(name, a->config->embedding) == 0,
                             .head_rows = t->head_rows,
                             .n_experts = t->n_experts,
                             .transposed = t->layout == LATHE_LAYOUT_TRANSPOSED,
                             .layout = t->layout};
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
