/* Memory of the CPU device: zeroed and aligned. Large blocks get physical pages when first touched.
 * Pinned memory is the same as other memory. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)
#define MAP_FROM ((size_t)1 << 20) /* blocks of this size get zero pages by mmap */

/* The header in the 64 bytes before every block. */
typedef struct block_header {
    size_t mapped_bytes; /* size of the mapping; 0: from aligned_alloc */
    void *base;          /* start of the mapping or allocation */
} block_header;

static block_header *header_of(void *memory)
{
    return (block_header *)(void *)((char *)memory - ALIGNMENT);
}

/* Maps memory so that the block starts on a huge page and its header ends the page before. */
static void *map_block(size_t bytes)
{
    const size_t body = (bytes + PAGE - 1) / PAGE * PAGE;
    const size_t total = body + HUGE_PAGE + PAGE;
    char *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    const uintptr_t first = (uintptr_t)base + PAGE;
    char *block = base + PAGE + (HUGE_PAGE - first % HUGE_PAGE) % HUGE_PAGE;
    char *start = block - PAGE;
    char *end = block + body;
    if (start > base)
        (void)munmap(base, (size_t)(start - base));
    if (end < base + total)
        (void)munmap(end, (size_t)(base + total - end));
    (void)madvise(block, body, MADV_HUGEPAGE);
    *header_of(block) = (block_header){(size_t)(end - start), start};
    return block;
}

lathe_status cpu_memory_alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    const cpu_device *device = self;
    if (bytes < 0 || (memory != LATHE_MEM_DEVICE && memory != LATHE_MEM_HOST_PINNED))
        return lathe_fail(device->host, LATHE_E_ARG, "alloc of %lld bytes of memory kind %d",
                          (long long)bytes, (int)memory);
    const size_t n = (size_t)bytes;
    if (n >= MAP_FROM) {
        *out = map_block(n);
    } else {
        const size_t total = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
        char *base = aligned_alloc(ALIGNMENT, total);
        *out = base == NULL ? NULL : base + ALIGNMENT;
        if (base != NULL) {
            memset(base, 0, total);
            *header_of(*out) = (block_header){0, base};
        }
    }
    if (*out == NULL)
        return lathe_fail(device->host, LATHE_E_NOMEM, "no memory for %lld bytes",
                          (long long)bytes);
    return LATHE_OK;
}

void cpu_memory_free(void *self, void *memory)
{
    (void)self;
    if (memory == NULL)
        return;
    const block_header header = *header_of(memory);
    if (header.mapped_bytes > 0)
        (void)munmap(header.base, header.mapped_bytes);
    else
        free(header.base);
}

typedef struct copy_job {
    char *dst;
    const char *src;
} copy_job;

static void copy_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const copy_job *job = arg;
    (void)worker;
    memcpy(job->dst + begin, job->src + begin, (size_t)(end - begin));
}

lathe_status cpu_memory_copy(void *self, lathe_stream *stream, void *dst, const void *src,
                             int64_t bytes, int32_t direction)
{
    const cpu_device *device = self;
    (void)stream;
    if (direction < LATHE_COPY_TO_DEVICE || direction > LATHE_COPY_ON_DEVICE || bytes < 0)
        return lathe_fail(device->host, LATHE_E_ARG, "copy of %lld bytes in direction %d",
                          (long long)bytes, (int)direction);
    copy_job job = {dst, src};
    device->host->parallel_for(bytes, (int64_t)1 << 20, copy_range, &job);
    return LATHE_OK;
}
