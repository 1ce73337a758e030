/* The memory of the far device, accessible only while queued work runs; unified memory also while
 * none is queued. */
#ifndef LATHE_TEST_FAR_MEMORY_H
#define LATHE_TEST_FAR_MEMORY_H

#include <stdint.h>

enum { FAR_MAX_BLOCKS = 4096 };

typedef struct far_block {
    char *base;
    int64_t bytes; /* whole pages */
    int32_t is_pinned;
} far_block;

typedef struct far_memory {
    far_block blocks[FAR_MAX_BLOCKS];
    int32_t n;
    int32_t open;       /* nested openings */
    int32_t is_at_rest; /* 1: accessible, though nothing runs */
    int64_t used, peak;
} far_memory;

/** NULL: no memory is left. */
void *far_memory_alloc(far_memory *m, int64_t bytes, int32_t is_pinned);
/** Returns 0 if it is not a block of the device. */
int32_t far_memory_free(far_memory *m, void *memory);
/** The block that contains p and the `bytes` from p on, or NULL. */
const far_block *far_memory_find(const far_memory *m, const void *p, int64_t bytes);

void far_memory_open(far_memory *m);
void far_memory_close(far_memory *m);
/** Sets whether the host may access the memory while nothing runs. */
void far_memory_rest(far_memory *m, int32_t is_at_rest);

#endif
