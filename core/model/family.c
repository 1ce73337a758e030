/* The table of families, and how they add parameters. */
#include "model/family.h"

#include <stdarg.h>
#include <string.h>

#include "base/error.h"

static const lathe_family *const families[] = {&lathe__family_gpt2, &lathe__family_llama,
                                               &lathe__family_qwen2, &lathe__family_qwen3};

const lathe_family *lathe_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

const char *lathe_family_names(void)
{
    return "gpt2, llama, qwen2, qwen3";
}

lathe_status lathe__family_param(lathe_params *params, int32_t layer, int32_t role, int64_t rows,
                                 int64_t cols, int32_t init, double scale, int32_t transposed,
                                 const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const lathe_param row = {.name = name,
                             .desc = cols > 0 ? lathe_desc_2d(LATHE_F32, rows, cols)
                                              : lathe_desc_1d(LATHE_F32, rows),
                             .init = init,
                             .init_scale = scale,
                             .role = role,
                             .layer = layer,
                             .transposed = transposed};
    int32_t index;
    return lathe_params_add(params, &row, &index);
}

void lathe__family_heads(lathe_params *params, int32_t head_dim, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const int32_t index = lathe_params_find(params, name);
    if (index >= 0)
        params->rows[index]->head_rows = head_dim;
}

lathe_status lathe_model_params(const lathe_model_config *config, lathe_params *params)
{
    return config->family->params(config, params);
}
