/* Adapts the loss scale of fp16. */
#include "optim/loss_scale.h"

#include <math.h>

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
