/* The memory of the far device. */
#include "far_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((int64_t)4096)

void *far_memory_alloc(far_memory *m, int64_t bytes, int32_t is_pinned)
{
    if (m->n == FAR_MAX_BLOCKS)
        return NULL;
    const int64_t whole = (bytes / PAGE + 1) * PAGE; /* and the rest of a page after the end */
    const int protection = is_pinned || m->is_at_rest ? PROT_READ | PROT_WRITE : PROT_NONE;
    char *base = mmap(NULL, (size_t)whole, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    m->blocks[m->n++] = (far_block){base, whole, is_pinned};
    m->used += is_pinned ? 0 : bytes;
    m->peak = m->used > m->peak ? m->used : m->peak;
    return base;
}

int32_t far_memory_free(far_memory *m, void *memory)
{
    for (int32_t i = 0; i < m->n; i++) {
        if (m->blocks[i].base != memory)
            continue;
        (void)munmap(memory, (size_t)m->blocks[i].bytes);
        m->blocks[i] = m->blocks[--m->n];
        return 1;
    }
    return 0;
}

const far_block *far_memory_find(const far_memory *m, const void *p, int64_t bytes)
{
    for (int32_t i = 0; i < m->n; i++) {
        const far_block *b = &m->blocks[i];
        if ((const char *)p >= b->base && (const char *)p + bytes <= b->base + b->bytes)
            return b;
    }
    return NULL;
}

static void protect(const far_memory *m, int protection)
{
    for (int32_t i = 0; i < m->n; i++)
        if (!m->blocks[i].is_pinned &&
            mprotect(m->blocks[i].base, (size_t)m->blocks[i].bytes, protection) != 0)
            abort();
}

void far_memory_open(far_memory *m)
{
    if (m->open++ == 0 && !m->is_at_rest)
        protect(m, PROT_READ | PROT_WRITE);
}

void far_memory_close(far_memory *m)
{
    if (--m->open == 0 && !m->is_at_rest)
        protect(m, PROT_NONE);
}

void far_memory_rest(far_memory *m, int32_t is_at_rest)
{
    if (m->is_at_rest != is_at_rest && m->open == 0)
        protect(m, is_at_rest ? PROT_READ | PROT_WRITE : PROT_NONE);
    m->is_at_rest = is_at_rest;
}
