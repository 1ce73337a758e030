/* Writes a model with its linear layers quantized, in the layout that the format has in files. */
#ifndef LATHE_RUN_QUANTIZED_MODEL_H
#define LATHE_RUN_QUANTIZED_MODEL_H

#include "base/work_watch.h"
#include "checkpoint/state/made_folder.h"
#include "run/state/run_state.h"

/** Data that a format is calibrated on: a run of the same model that evaluates. */
typedef struct lathe_calibration_data {
    lathe_run *run;    /* calibration_pass.h */
    int64_t n_batches; /* micro-batches of its validation data */
} lathe_calibration_data;

/** Result of the quantization of one weight. */
typedef struct lathe_quantized_weight {
    const char *name;   /* of the parameter */
    const char *format; /* the plugin's name */
    int64_t rows, cols;
    int64_t bytes;         /* of its planes and metadata in the file */
    double relative_error; /* |W' - W| / |W|, Euclidean norms, of the decoded W' in f32 */
} lathe_quantized_weight;

typedef struct lathe_quantized_model {
    int32_t n;             /* weights that were quantized */
    int32_t n_plain;       /* linear layers that were left as they are */
    int64_t n_numbers;     /* elements of the quantized weights */
    int64_t bytes;         /* of their planes and metadata */
    int64_t bytes_before;  /* of the same weights in the source */
    int32_t n_scaled;      /* inputs of layers whose scales moved to the op before */
    double relative_error; /* over all quantized weights */
} lathe_quantized_model;

typedef void (*lathe_quantized_report_fn)(void *arg, const lathe_quantized_weight *weight);

/** Encodes every row of the run's model that has a format of [quant], one at a time, from the
 * folder of model.path, and writes a new folder: planes, the other tensors byte for byte,
 * config.json with quantization_config, and the tokenizer's files. Memory: one weight in f32, its
 * planes, and the decoded weight.
 *
 *   run        opened with model.path and quant.name; its weights need not be loaded
 *   data       for a format that is calibrated (lathe_quant_v1.encode_calibrated); else NULL
 *   parents    [n_parents] folders that the manifest names instead of model.path: a model and the
 *              adapters that were merged into it. NULL: model.path
 *   path       the new folder; it appears when it is complete
 *   watch      of the weights, or of the calibration's micro-batches; nothing is left of the new
 *              folder after its error. NULL: nobody
 *   report     called for each weight, in order. NULL: not called
 *
 *   Errors  LATHE_E_CONFIG: the path exists, the model has no folder, a weight is a Conv1D's, or
 * the format has no layout in files. LATHE_E_NUMERIC: a weight is not finite. LATHE_E_IO,
 * LATHE_E_NOMEM. */
lathe_status lathe__quantized_model_write(lathe_run *run, const lathe_calibration_data *data,
                                          const lathe_made_from *parents, int32_t n_parents,
                                          const char *path, const lathe_work_watch *watch,
                                          lathe_quantized_report_fn report, void *arg,
                                          lathe_quantized_model *out);

#endif
