/* Filling the store's rows from f32 values: masters and copies directly, planes by encoding. */
#ifndef LATHE_RUN_WEIGHT_FILL_H
#define LATHE_RUN_WEIGHT_FILL_H

#include "model/weights.h"
#include "run/run_state.h"

typedef struct lathe_weight_fill {
    lathe_run *run;
    float *buffer; /* a row on its way into planes */
    int64_t bytes;
} lathe_weight_fill;

/** The sink that lathe_weights_load pours into. */
lathe_weight_sink lathe__weight_sink(lathe_weight_fill *fill);
void lathe__weight_fill_fini(lathe_weight_fill *fill);

#endif
