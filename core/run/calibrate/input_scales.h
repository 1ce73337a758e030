/* Asks a format for the scales of the inputs that some layers share, and folds them into the
 * weights. */
#ifndef LATHE_RUN_INPUT_SCALES_H
#define LATHE_RUN_INPUT_SCALES_H

#include "run/calibrate/calibration_pass.h"
#include "run/calibrate/scaled_weights.h"

/** Multiplies the columns of the layers with scales that their format chooses
 * (lathe_quant_v1.scale_inputs), and divides the places that make the inputs. Layers of several
 * formats stay as they are. Memory: the weights of the layers in f32.
 *
 *   scales       [n_places] out: what the places were divided by
 *   out_changed  0: the format chose 1 for all
 *
 *  Errors  those of the format, LATHE_E_NOMEM; LATHE_E_PLUGIN: a scale is not positive and finite.
 */
lathe_status lathe__input_scales_fold(lathe_scaled_weights *w,
                                      const lathe_calibrated_layers *layers, float *scales,
                                      int32_t *out_changed);

#endif
