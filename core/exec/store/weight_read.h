/* Reads a weight of the store as computation reads it. */
#ifndef LATHE_EXEC_WEIGHT_READ_H
#define LATHE_EXEC_WEIGHT_READ_H

#include "exec/store/store.h"

/** Copies the weight rows[param], a matrix [O, I], into host memory as f32: the values in the
 *  compute dtype, decoded if it is quantized. LATHE_E_NOMEM. */
lathe_status lathe_weight_read(const lathe_store *store, int32_t param, float *out);

/** Like lathe_weight_read, of rows[n] of the matrix alone: out [n, I]. Of divided weights all ranks
 *  call it. */
lathe_status lathe_weight_read_rows(const lathe_store *store, int32_t param, const int32_t *rows,
                                    int64_t n, float *out);

/** Like lathe_weight_read, for a quantized weight, decoded to f32 whatever the compute dtype is. */
lathe_status lathe_weight_decode(const lathe_store *store, int32_t param, float *out);

/** Decodes planes of a quantized row; planes and out [O, I] of dtype in host memory. LATHE_E_NOMEM.
 */
lathe_status lathe_planes_decode(const lathe_param *row, void *const *planes, void *out,
                                 int32_t dtype);

#endif
