/* Runs calibration data through a model layer by layer, and replaces the weights of each layer
 * before the next one sees its output.
 *
 *   in   a run that evaluates, with plain weights and the calibration rows as its data
 *   out  for each linear layer the sums of its inputs' products, while they are in memory
 *
 * The forward is cut where a layer of the model ends. For every micro-batch the values that cross a
 * cut (the residual stream) are kept in host memory; one range of nodes runs over all
 * micro-batches, the products of its linear layers' inputs are summed, scales of these inputs may
 * move to the ops before, the weights are replaced, and the range runs again. So the whole data
 * pass through the model twice, and the products of one layer are in memory at a time.
 */
#ifndef LATHE_RUN_CALIBRATION_PASS_H
#define LATHE_RUN_CALIBRATION_PASS_H

#include "base/work_watch.h"
#include "lathe/quant.h"
#include "run/state/run_state.h"

/** Linear layers that read the same inputs x [n,I]. Names are those of parameters. */
typedef struct lathe_calibrated_layers {
    const char *const *weights; /* [n] */
    int32_t n;
    int64_t cols; /* I */
    const lathe_quant_inputs *inputs;
    const char *source; /* weight of the norm, or of the linear layer, that makes the inputs */
    const char *bias;   /* NULL: none */
    int32_t is_norm;
    int32_t offset_one;  /* the norm multiplies with 1 + w */
    int32_t n_places;    /* of the source */
    const int32_t *from; /* [I] place of the source that makes an input */
} lathe_calibrated_layers;

typedef struct lathe_calibration_pass {
    lathe_run *run;                /* opened for evaluation, on a device in host memory */
    int64_t n_batches;             /* micro-batches of its validation data to use, >= 1 */
    const lathe_work_watch *watch; /* of micro-batches times layers; NULL: nobody */
    /** Whether the weight of a linear layer is replaced: then replace() gets its inputs. */
    int32_t (*wants)(void *arg, const char *weight);
    /** Gives the new values of a weight, f32 [O,I], valid until the next call; NULL: as it is. */
    lathe_status (*replace)(void *arg, const char *weight, const lathe_quant_inputs *inputs,
                            const float **out_values);
    /** Called before the weights of a range are replaced, for layers whose inputs have a source
     * (channel_source.h) in the range: gives scales [n_places] by which the places are divided, and
     * with which the caller has changed the weights that replace() gets. NULL: not called. */
    lathe_status (*scale)(void *arg, const lathe_calibrated_layers *layers, float *scales);
    /** The values of a vector that scale() changed, f32 [n]. Comes with scale. */
    const float *(*vector)(void *arg, const char *name);
    void *arg;
    int32_t sums_magnitudes; /* 1: also those, without scale() */
} lathe_calibration_pass;

/** Goes through the model. The weights of the run are those that replace() gave afterwards.
 *  Errors  LATHE_E_UNSUPPORTED: a device with its own memory. LATHE_E_NOMEM, and errors of
 * replace(). */
lathe_status lathe__calibration_pass(const lathe_calibration_pass *pass);

#endif
