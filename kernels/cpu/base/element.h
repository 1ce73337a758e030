/* Loads and stores elements of any compute dtype as floats, singly and in tiles.
 *
 * ld and st take the dtype as an argument that is a constant at every call (CPU_BY_DTYPE), so each
 * loop is compiled once per dtype and vectorised. Sums use a fixed number of lanes, so their order
 * depends only on the build.
 */
#ifndef LATHE_CPU_ELEMENT_H
#define LATHE_CPU_ELEMENT_H

#include <stdint.h>
#include <string.h>

#include "lathe/tensor.h"

#define CPU_INLINE static inline __attribute__((always_inline))

CPU_INLINE float ld(const void *p, int64_t i, int32_t dtype)
{
    return dtype == LATHE_F32    ? ((const float *)p)[i]
           : dtype == LATHE_BF16 ? lathe_bf16_to_f32(((const uint16_t *)p)[i])
                                 : lathe_f16_to_f32(((const uint16_t *)p)[i]);
}

CPU_INLINE void st(void *p, int64_t i, int32_t dtype, int accumulate, float x)
{
    if (accumulate)
        x += ld(p, i, dtype);
    if (dtype == LATHE_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(x) : lathe_f32_to_f16(x);
}

/** Address of element i. */
CPU_INLINE const void *at(const void *p, int64_t i, int32_t dtype)
{
    return (const char *)p + i * (dtype == LATHE_F32 ? 4 : 2);
}

CPU_INLINE void *at_mut(void *p, int64_t i, int32_t dtype)
{
    return (char *)p + i * (dtype == LATHE_F32 ? 4 : 2);
}

/* Calls fn(args..., dtype), with dtype a compile-time constant. */
#define CPU_BY_DTYPE(dtype, fn, ...)                                                               \
    do {                                                                                           \
        if ((dtype) == LATHE_F32)                                                                  \
            fn(__VA_ARGS__, LATHE_F32);                                                            \
        else if ((dtype) == LATHE_BF16)                                                            \
            fn(__VA_ARGS__, LATHE_BF16);                                                           \
        else                                                                                       \
            fn(__VA_ARGS__, LATHE_F16);                                                            \
    } while (0)

/** z = x + y, rounded; z may be x or y. */
CPU_INLINE void add_elements(const void *x, const void *y, void *z, int64_t n, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        st(z, i, dtype, 0, ld(x, i, dtype) + ld(y, i, dtype));
}

/** Elements of a tile. A buffer of this many floats fits in the L1 cache. */
#define CPU_TILE 1024

CPU_INLINE void widen(float *to, const uint16_t *from, int64_t n, int32_t dtype)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = ld(from, j, dtype);
}

CPU_INLINE void narrow_tile(uint16_t *to, const float *from, int64_t n, int accumulate,
                            int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; j++)
        st(to, j, dtype, accumulate, from[j]);
}

/** Elements [i, i+n) of p as floats: p itself for f32, else converted into buf[CPU_TILE]. */
CPU_INLINE const float *tile_in(float *buf, const void *p, int32_t dtype, int64_t i, int64_t n)
{
    if (dtype == LATHE_F32)
        return (const float *)p + i;
    if (dtype == LATHE_BF16)
        widen(buf, (const uint16_t *)p + i, n, LATHE_BF16);
    else
        widen(buf, (const uint16_t *)p + i, n, LATHE_F16);
    return buf;
}

/** Where the caller writes the floats of elements [i, ...) of p: p itself if no conversion or
 *  addition is needed, else buf. */
CPU_INLINE float *tile_out(float *buf, void *p, int32_t dtype, int accumulate, int64_t i)
{
    return dtype == LATHE_F32 && !accumulate ? (float *)p + i : buf;
}

/** Stores what the caller wrote into tile_out's buf. */
CPU_INLINE void tile_done(const float *buf, void *p, int32_t dtype, int accumulate, int64_t i,
                          int64_t n)
{
    if (dtype == LATHE_F32) {
        float *y = (float *)p + i;
        if (accumulate)
            for (int64_t j = 0; j < n; j++)
                y[j] += buf[j];
        return;
    }
    uint16_t *y = (uint16_t *)p + i;
    if (accumulate && dtype == LATHE_BF16)
        narrow_tile(y, buf, n, 1, LATHE_BF16);
    else if (accumulate)
        narrow_tile(y, buf, n, 1, LATHE_F16);
    else if (dtype == LATHE_BF16)
        narrow_tile(y, buf, n, 0, LATHE_BF16);
    else
        narrow_tile(y, buf, n, 0, LATHE_F16);
}

#endif
