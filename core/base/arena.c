/* A growing arena: a list of zeroed blocks, filled front to back. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ALIGN: the strictest alignment of a C type, that of long double. */
enum { ALIGN = 16, BLOCK_BYTES = 64 * 1024 };

/* The newest block is first; only it is filled further. */
typedef struct lathe_arena_block {
    struct lathe_arena_block *next;
    int64_t used, capacity;
    int64_t reserved; /* keeps data 16-byte aligned */
    char data[];
} lathe_arena_block;

_Static_assert(offsetof(lathe_arena_block, data) % ALIGN == 0, "block data is not aligned");

/* Tests compare this count before and after a step, which must not allocate. */
static atomic_int_fast64_t heap_allocations;

int64_t lathe_heap_allocations(void)
{
    return (int64_t)atomic_load_explicit(&heap_allocations, memory_order_relaxed);
}

void lathe_heap_count(void)
{
    (void)atomic_fetch_add_explicit(&heap_allocations, 1, memory_order_relaxed);
}

static lathe_arena_block *block_create(lathe_arena *arena, int64_t bytes)
{
    const int64_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    lathe_arena_block *block = calloc(1, sizeof *block + (size_t)capacity);
    if (block == NULL)
        return NULL;
    lathe_heap_count();
    block->capacity = capacity;
    arena->total_bytes += capacity;
    /* A block made for one large piece is full at once: keep filling the one before it. */
    if (bytes > BLOCK_BYTES && arena->blocks != NULL) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

/* Memory is zeroed, since blocks come from calloc and are used once. */
void *lathe_arena_alloc(lathe_arena *arena, int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX / 2) { /* a product of sizes that overflowed */
        (void)lathe_error(LATHE_E_NOMEM, "out of memory: %lld bytes were requested",
                          (long long)bytes);
        return NULL;
    }
    /* no bytes still get an address of their own, as NULL means an error */
    const int64_t rounded = bytes == 0 ? ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN;
    lathe_arena_block *block = arena->blocks;
    if (block == NULL || block->capacity - block->used < rounded)
        block = block_create(arena, rounded);
    if (block == NULL) {
        (void)lathe_error(LATHE_E_NOMEM, "out of memory: %lld bytes were requested",
                          (long long)bytes);
        return NULL;
    }
    void *out = block->data + block->used;
    block->used += rounded;
    return out;
}

char *lathe_arena_strndup(lathe_arena *arena, const char *text, int64_t n)
{
    char *out = lathe_arena_alloc(arena, n + 1);
    if (out != NULL && n > 0) /* blocks are zeroed: the NUL is there */
        memcpy(out, text, (size_t)n);
    return out;
}

char *lathe_arena_strdup(lathe_arena *arena, const char *text)
{
    return lathe_arena_strndup(arena, text, (int64_t)strlen(text));
}

char *lathe_arena_printf(lathe_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *out = n < 0 ? NULL : lathe_arena_alloc(arena, (int64_t)n + 1);
    if (out != NULL)
        (void)vsnprintf(out, (size_t)n + 1, format, again);
    va_end(again);
    return out;
}

void lathe_arena_fini(lathe_arena *arena)
{
    lathe_arena_block *block = arena->blocks;
    while (block != NULL) {
        lathe_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->blocks = NULL;
    arena->total_bytes = 0;
}
