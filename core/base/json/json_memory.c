/* Provides memory for jansson's parser. */
#include "base/json/json_memory.h"

#include <jansson.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/mman.h>

static json_malloc_t next_malloc;
static json_free_t next_free;

/* A node of the tree with its hash table takes about 500 bytes; two bytes of text ("1,") make
 * one. */
enum { BYTES_PER_BYTE = 512, LEAST = 1 << 20, ALIGN = 16 };

static _Thread_local struct {
    char *base;
    size_t bytes, used;
    int64_t live; /* bytes that the parser holds */
    int32_t active, failed;
} reserve;

static void *from_reserve(size_t bytes)
{
    reserve.failed = 1;
    if (reserve.base == NULL) {
        void *memory = mmap(NULL, reserve.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        reserve.base = memory;
    }
    if (bytes > reserve.bytes - reserve.used - ALIGN)
        return NULL;
    reserve.live += (int64_t)bytes;
    void *out = reserve.base + reserve.used;
    reserve.used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return out;
}

/* Size of a block, malloc's overhead included. */
static int64_t size_of(void *memory)
{
    return (int64_t)(malloc_usable_size(memory) + sizeof(size_t));
}

static void *take(size_t bytes)
{
    void *memory = next_malloc(bytes);
    if (reserve.active && memory != NULL)
        reserve.live += size_of(memory);
    return memory == NULL && reserve.active ? from_reserve(bytes) : memory;
}

static void give(void *memory)
{
    const char *at = memory;
    if (memory == NULL ||
        (reserve.base != NULL && at >= reserve.base && at < reserve.base + reserve.bytes))
        return;
    if (reserve.active)
        reserve.live -= size_of(memory);
    next_free(memory);
}

/* Installs these functions in jansson at load time, on top of the process's own allocator. */
__attribute__((constructor)) static void stand_in_front(void)
{
    json_get_alloc_funcs(&next_malloc, &next_free);
    json_set_alloc_funcs(take, give);
}

void lathe_json_memory_begin(int64_t text_bytes)
{
    reserve.active = 1;
    reserve.failed = 0;
    reserve.used = 0;
    reserve.live = 0;
    reserve.bytes = (size_t)text_bytes * BYTES_PER_BYTE + LEAST;
}

int32_t lathe_json_memory_failed(void)
{
    return reserve.failed;
}

int64_t lathe_json_memory_live(void)
{
    return reserve.live;
}

void lathe_json_memory_end(void)
{
    reserve.active = 0;
    if (reserve.base != NULL)
        (void)munmap(reserve.base, reserve.bytes);
    reserve.base = NULL;
}
