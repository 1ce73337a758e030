/* Memory of the CPU device, and copies. */
#ifndef LATHE_CPU_MEMORY_H
#define LATHE_CPU_MEMORY_H

#include "base/cpu.h"

/** Zeroed memory, 64-byte aligned; cpu_memory_free releases. */
lathe_status cpu_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out);
void cpu_memory_free(void *self, void *memory);
lathe_status cpu_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                             int64_t bytes, int32_t direction);

#endif
