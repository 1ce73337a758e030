/* Precision: names, fallback, and the loss scale. */
#include "exec/program/precision.h"

#include <string.h>

#include "lathe/fp8.h"

static const struct {
    const char *name;
    int32_t dtype, otherwise; /* fallback if the device lacks it */
} table[] = {{"fp32", LATHE_F32, LATHE_F32},
             {"bf16", LATHE_BF16, LATHE_F32},
             {"fp16", LATHE_F16, LATHE_F32},
             {"fp8", LATHE_F8_E4M3, LATHE_BF16}};
enum { N_PRECISIONS = sizeof table / sizeof table[0] };

const char *lathe_precision_name(int32_t dtype)
{
    for (int i = 0; i < N_PRECISIONS; i++)
        if (table[i].dtype == dtype)
            return table[i].name;
    return lathe_dtype_name(dtype);
}

int32_t lathe_precision_dtype(const char *name)
{
    for (int i = 0; i < N_PRECISIONS; i++)
        if (name && strcmp(table[i].name, name) == 0)
            return table[i].dtype;
    return LATHE_F32;
}

int32_t lathe_precision_on(const lathe_device_info *info, int32_t asked)
{
    uint32_t runs = info->graph_dtypes ? info->graph_dtypes : info->compute_dtypes;
    if (info->fp8_recipes == 0 || !(runs & 1u << LATHE_BF16)) /* fp8 values are cast from bf16 */
        runs &= ~(1u << LATHE_F8_E4M3);
    for (int i = N_PRECISIONS - 1; i >= 0; i--) /* a fallback has the lower index */
        if (table[i].dtype == asked && !(runs & 1u << asked))
            asked = table[i].otherwise;
    return asked;
}

static const char *const recipes[LATHE_N_FP8] = {"", "tensorwise", "rowwise"};

const char *lathe_fp8_recipe_name(int32_t recipe)
{
    return recipe > 0 && recipe < LATHE_N_FP8 ? recipes[recipe] : "";
}

int32_t lathe_fp8_recipe_find(const char *name)
{
    for (int32_t i = 1; name && i < LATHE_N_FP8; i++)
        if (strcmp(recipes[i], name) == 0)
            return i;
    return LATHE_FP8_NONE;
}

int32_t lathe_fp8_recipe_on(const lathe_device_info *info, int32_t asked)
{
    if (asked == LATHE_FP8_NONE)
        asked = info->fp8_recipe;
    for (int32_t i = 1; asked == LATHE_FP8_NONE && i < LATHE_N_FP8; i++)
        if (info->fp8_recipes & 1u << i)
            asked = i;
    return asked > 0 && asked < LATHE_N_FP8 && info->fp8_recipes & 1u << asked ? asked
                                                                               : LATHE_FP8_NONE;
}

const char *lathe_precision_used(int32_t compute_dtype, int32_t recipe)
{
    return lathe_precision_name(recipe != LATHE_FP8_NONE ? LATHE_F8_E4M3 : compute_dtype);
}

void lathe_precision_json(int32_t asked, int32_t compute_dtype, int32_t recipe, lathe_buffer *out)
{
    lathe_buffer_printf(out, "{\"asked\": \"%s\", \"used\": \"%s\"", lathe_precision_name(asked),
                        lathe_precision_used(compute_dtype, recipe));
    if (recipe != LATHE_FP8_NONE)
        lathe_buffer_printf(out, ", \"fp8_recipe\": \"%s\"", lathe_fp8_recipe_name(recipe));
    lathe_buffer_puts(out, "}");
}
