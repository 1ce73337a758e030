/* Fills the store's rows from f32 values: master and compute copies directly, planes by
 * encoding. */
#ifndef LATHE_EXEC_WEIGHT_FILL_H
#define LATHE_EXEC_WEIGHT_FILL_H

#include "exec/store/loftq_rows.h"
#include "exec/store/store.h"
#include "lathe/stage.h"
#include "model/family/weights.h"
#include "plug/select.h"

typedef struct lathe_weight_fill {
    const lathe_store *store;
    const lathe_params *params;
    float *buffer; /* a row to be encoded into planes */
    int64_t bytes;
    char *planes; /* of a row, on the way to a device with its own memory */
    int32_t new_heads[LATHE_MAX_STAGE_HEADS]; /* [n_new] heads that the folder lacks */
    int32_t n_new;
    lathe_loftq *loftq; /* rows that wait for lathe_weight_fill_finish; NULL: none */
    int32_t
        factors_follow; /* 1: the parameters with LATHE_INIT_LOFTQ_* are set later from a file */
} lathe_weight_fill;

/** The sink that lathe_weights_load writes to. */
lathe_weight_sink lathe_weight_fill_sink(lathe_weight_fill *fill);
/** 1: the row is one of fill->new_heads. */
int32_t lathe_weight_fill_is_new(const lathe_weight_fill *fill, int32_t index);
/** Encodes the rows that adapters with LoftQ begin with. Call it after the last row. */
lathe_status lathe_weight_fill_finish(lathe_weight_fill *fill);
void lathe_weight_fill_fini(lathe_weight_fill *fill);

#endif
