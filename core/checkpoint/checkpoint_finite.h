/* Whether a checkpoint holds numbers that are not finite: NaN or infinity in weights, averages or optimizer state. */
#ifndef LATHE_CHECKPOINT_CHECKPOINT_FINITE_H
#define LATHE_CHECKPOINT_CHECKPOINT_FINITE_H

#include "lathe/status.h"

/** A tensor that holds numbers that are not finite. Texts live as long as the call that reports it. */
typedef struct lathe_not_finite {
    const char *file, *tensor;
    int64_t n_bad, n; /* of its elements */
    int64_t first;    /* index of the first bad element */
    double value;     /* of that element */
} lathe_not_finite;

typedef void (*lathe_not_finite_fn)(void *arg, const lathe_not_finite *found);

/** Reads every float tensor of every safetensors file below the folder `dir`.
 *
 *  report  called for each tensor that holds NaN or infinity, in the order of files and names; NULL: none
 *
 *  Gradients in the middle of a step (state/gradients*) are left out: in fp16 they may overflow, and the loss
 *  scale deals with that.
 *  Errors  LATHE_E_NUMERIC: at least one tensor was found; the message names the first. LATHE_E_CORRUPT and
 *          LATHE_E_IO: a file cannot be read.
 *  Thread  any.
 */
lathe_status lathe_checkpoint_finite(const char *dir, lathe_not_finite_fn report, void *arg);

#endif
