/* Converts elements from one dtype to another. */
#ifndef LATHE_CPU_CAST_H
#define LATHE_CPU_CAST_H

#include "base/cpu.h"

/** dst[i] (= or +=) src[i], converted to dst_dtype (f32, bf16 or f16), on all threads of the
 *  pool. */
void cpu_cast(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
              int32_t src_dtype, int64_t n, int accumulate);

#endif
