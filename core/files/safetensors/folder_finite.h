/* Searches the safetensors files of a folder, such as a checkpoint, for NaN and infinity. */
#ifndef LATHE_FILES_FOLDER_FINITE_H
#define LATHE_FILES_FOLDER_FINITE_H

#include "lathe/status.h"

/** A tensor that holds NaN or infinity. The strings are valid during the call that reports it. */
typedef struct lathe_not_finite {
    const char *file, *tensor;
    int64_t n_bad, n; /* of its elements */
    int64_t first;    /* index of the first bad element */
    double value;     /* of that element */
} lathe_not_finite;

typedef void (*lathe_not_finite_fn)(void *arg, const lathe_not_finite *found);

/** Reads every float tensor of every safetensors file in the folder `dir` and its subfolders.
 *
 *  report  called for each tensor that holds NaN or infinity, in the order of files and names;
 *          NULL: none
 *
 * Skips gradients that a checkpoint saved in the middle of a step (state/gradients*): in fp16 they
 * may overflow, and then the loss scale is lowered.
 *
 *  Errors  LATHE_E_NUMERIC: at least one tensor was found; the message names the first.
 *          LATHE_E_CORRUPT, LATHE_E_IO: a file cannot be read.
 *  Thread  any.
 */
lathe_status lathe_folder_finite(const char *dir, lathe_not_finite_fn report, void *arg);

#endif
