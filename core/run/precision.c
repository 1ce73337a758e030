/* Precision: names, fallback, and the loss scale. */
#include "run/precision.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int32_t dtype, otherwise; /* what is taken where the device has none of it */
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
    const uint32_t runs = info->graph_dtypes ? info->graph_dtypes : info->compute_dtypes;
    for (int i = N_PRECISIONS - 1; i >= 0; i--) /* a fallback stands before what falls back to it */
        if (table[i].dtype == asked && !(runs & 1u << asked))
            asked = table[i].otherwise;
    return asked;
}

void lathe_scaler_update(lathe_scaler *scaler, int32_t overflow, int32_t growth_interval)
{
    if (overflow) {
        scaler->scale *= 0.5f;
        scaler->n_good = 0;
    } else if (++scaler->n_good == growth_interval) {
        const float grown = scaler->scale * 2.0f;
        if (isfinite(grown))
            scaler->scale = grown;
        scaler->n_good = 0;
    }
}
