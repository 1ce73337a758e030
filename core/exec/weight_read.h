/* Reads a weight of the store as computation reads it. */
#ifndef LATHE_EXEC_WEIGHT_READ_H
#define LATHE_EXEC_WEIGHT_READ_H

#include "exec/store.h"

/** Copies the weight rows[param], a matrix [O, I], into host memory as f32: the values in the
 *  compute dtype, decoded if it is quantized. LATHE_E_NOMEM. */
lathe_status lathe_weight_read(const lathe_store *store, int32_t param, float *out);

#endif
