/* A growing arena: all its allocations are freed together. For graphs, configurations,
 * registries. */
#ifndef LATHE_BASE_ARENA_H
#define LATHE_BASE_ARENA_H

#include "lathe/status.h"

typedef struct lathe_arena {
    struct lathe_arena_block *blocks;
    int64_t total_bytes;
} lathe_arena;

/** An empty arena is all zeros. */
#define LATHE_ARENA_INIT                                                                           \
    {                                                                                              \
        NULL, 0                                                                                    \
    }

/** `bytes` of zeroed memory, 16-byte aligned; NULL when out of memory (error recorded). */
void *lathe_arena_alloc(lathe_arena *arena, int64_t bytes);

/** A copy of the string with a NUL; strndup copies exactly n bytes, whatever they are. */
char *lathe_arena_strdup(lathe_arena *arena, const char *text);
char *lathe_arena_strndup(lathe_arena *arena, const char *text, int64_t n);
__attribute__((format(printf, 2, 3))) char *lathe_arena_printf(lathe_arena *arena,
                                                               const char *format, ...);

/** Releases everything; the arena is empty and usable again. */
void lathe_arena_fini(lathe_arena *arena);

/** Number of allocations so far in this process by arenas, buffers (each growth) and
 *  lathe_host.alloc; direct calls of malloc are not counted. A step that allocates nothing leaves
 * it unchanged. Any thread. */
int64_t lathe_heap_allocations(void);

/** Adds one to that count; for the allocators in core/base. */
void lathe_heap_count(void);

#endif
