/* Calibration: compares the probability of the most likely token with how often it is correct.
 *
 *   ece = sum over bins b of n_b/n * |hits_b/n_b - confidence_b/n_b|
 *
 * There are B = LATHE_CALIBRATION_BINS bins of equal width. Bin b holds probabilities in (b/B,
 * (b+1)/B]; probability 0 is in bin 0. Source: Guo et al., "On Calibration of Modern Neural
 * Networks", 2017, equation 3.
 */
#ifndef LATHE_EXEC_CALIBRATION_H
#define LATHE_EXEC_CALIBRATION_H

#include <stdint.h>

#define LATHE_CALIBRATION_BINS 15

/** A zeroed object is empty. */
typedef struct lathe_calibration {
    double n[LATHE_CALIBRATION_BINS], hits[LATHE_CALIBRATION_BINS];
    double confidence[LATHE_CALIBRATION_BINS]; /* sums of probabilities */
} lathe_calibration;

/** Adds one prediction of probability p in [0, 1]; a NaN counts as 1. */
void lathe_calibration_add(lathe_calibration *c, double p, int32_t hit);

/** The calibration error; NAN without predictions. */
double lathe_calibration_error(const lathe_calibration *c);
double lathe_calibration_accuracy(const lathe_calibration *c);

#endif
