/* Transposes a block of columns, for matrix products and TRANSPOSE. */
#ifndef LATHE_CPU_PACK_H
#define LATHE_CPU_PACK_H

#include "base/cpu.h"

/** dst[j,i] = src[i,j] for i < rows, j < cols. dst is dense [cols, rows]; the rows of src are
 *  `stride` elements apart. src is f32, bf16 or f16; dst_dtype is src_dtype or f32. */
void cpu_pack_transposed(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
                         int32_t src_dtype, int64_t rows, int64_t cols, int64_t stride);

/** dst[j * dst_stride + i] = src[i * stride + j] as f32, for i < rows, j < cols. Runs on the
 *  calling thread only. */
void cpu_transpose_f32(float *dst, int64_t dst_stride, const void *src, int32_t src_dtype,
                       int64_t rows, int64_t cols, int64_t stride);

#endif
