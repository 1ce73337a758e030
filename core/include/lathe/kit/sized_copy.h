/* Copies answers to callers of another version of a struct. */
#ifndef LATHE_KIT_SIZED_COPY_H
#define LATHE_KIT_SIZED_COPY_H

#include <stdint.h>
#include <string.h>

/** *out = *from, as far as the caller's struct goes. Both begin with `uint32_t size`: out->size is
 *  the size of the caller's version of the struct, and is kept; from_size: sizeof *from. Members
 *  that *from lacks keep the caller's values. */
static inline void lathe_copy_sized(void *out, const void *from, size_t from_size)
{
    uint32_t size;
    memcpy(&size, out, sizeof size);
    memcpy(out, from, size < from_size ? size : from_size);
    memcpy(out, &size, sizeof size);
}

#endif
