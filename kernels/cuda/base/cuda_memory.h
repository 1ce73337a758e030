/* Memory of the CUDA device and of the host, and copies. */
#ifndef LATHE_CUDA_MEMORY_H
#define LATHE_CUDA_MEMORY_H

#include "base/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

lathe_status cuda_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out);
void cuda_memory_free(void *self, void *memory);
lathe_status cuda_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                              int64_t bytes, int32_t direction);

#ifdef __cplusplus
}
#endif

#endif
