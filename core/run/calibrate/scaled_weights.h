/* The weights of a folder that is being quantized, with the scales of inputs that were folded into
 * them.
 *
 * A scale s of an input multiplies a column of the layers that read it, and divides the element of
 * the norm, or the row of the layer, that makes it (channel_source.h). Factors of rows and columns
 * of quantized weights stay in f32 until they are encoded. Vectors (norms, biases) are stored in
 * the dtype of the folder, and rounding would change the model: the scale that is used is the
 * ratio of the vector before and after rounding, so that only the biases of norms are rounded.
 */
#ifndef LATHE_RUN_SCALED_WEIGHTS_H
#define LATHE_RUN_SCALED_WEIGHTS_H

#include "files/safetensors/safetensors.h"
#include "run/state/run_state.h"

typedef struct lathe_scaled_weights {
    const lathe_run *run;
    const lathe_safetensors *set;
    float **columns, **rows; /* [n_model] factors of a matrix; NULL: 1 */
    float **vectors;         /* [n_model] new values of a vector; NULL: as in the folder */
} lathe_scaled_weights;

/** The parameter whose outputs are the inputs of some layers, in rows of the run's table of
 *  parameters. */
typedef struct lathe_scaled_source {
    int32_t weight, bias; /* bias -1: none */
    int32_t is_norm;      /* 0: the rows of a matrix */
    int32_t offset_one;   /* the norm multiplies with 1 + w */
    int32_t n;            /* places */
} lathe_scaled_source;

lathe_status lathe__scaled_weights_init(lathe_scaled_weights *w, const lathe_run *run,
                                        const lathe_safetensors *set);
void lathe__scaled_weights_fini(lathe_scaled_weights *w);

/** The tensor of a row in the folder; NULL: there is none. */
const lathe_st_tensor *lathe__scaled_weights_find(const lathe_scaled_weights *w, int32_t row);

/** Writes a row's values in our layout, [O,I] or [n], with what was folded into them. */
lathe_status lathe__scaled_weights_load(const lathe_scaled_weights *w, int32_t row, float *out);

/** Divides a source by scales.
 *
 *   scales  [n] of its places, in: as they were chosen, out: as they are used
 *
 *  Errors  LATHE_E_NOMEM; LATHE_E_DTYPE: a vector of the folder is no float. */
lathe_status lathe__scaled_weights_divide(lathe_scaled_weights *w,
                                          const lathe_scaled_source *source, float *scales);

/** Multiplies the columns of a matrix. factors: [I]. */
lathe_status lathe__scaled_weights_multiply(lathe_scaled_weights *w, int32_t row,
                                            const float *factors);

#endif
