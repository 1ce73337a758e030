/* Converts stored floats (f32, bf16, f16, f64) between dtypes, also with a transposition, in
 * parallel. */
#ifndef LATHE_FILES_CONVERT_H
#define LATHE_FILES_CONVERT_H

#include "lathe/status.h"
#include "lathe/tensor.h"

/** Whether lathe_convert supports the dtype: F32, BF16, F16, F64. */
int32_t lathe_convert_takes(int32_t dtype);

/** dst[i] = src[i], converted through f32 and rounded to nearest even (f64 to f64 is copied). src
 *  and dst may be unaligned and must not overlap. Uses all threads of the pool. LATHE_E_DTYPE: not
 *  supported. */
lathe_status lathe_convert(void *dst, int32_t dst_dtype, const void *src, int32_t src_dtype,
                           int64_t n);

/** dst [cols,rows] = transpose of src [rows,cols], converted as by lathe_convert. */
lathe_status lathe_convert_transposed(void *dst, int32_t dst_dtype, const void *src,
                                      int32_t src_dtype, int64_t rows, int64_t cols);

#endif
