/* The part of CUDA C++ that kernels use, as host code: the threads of a block are fibers that run one at a
 * time and yield at barriers and warp exchanges. What it finds: wrong indices (with AddressSanitizer),
 * missing barriers (fibers run in either order, in turn), barriers that some threads miss (it aborts), and
 * wrong arithmetic. What it cannot find: what only the hardware does.
 */
#ifndef LATHE_EMULATOR_KERNEL_H
#define LATHE_EMULATOR_KERNEL_H

#include <cmath>
#include <cstdint>
#include <cstring>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace emulator
{

struct index3 {
    unsigned x, y, z;
};

extern "C" {
extern index3 emulator_thread, emulator_block, emulator_block_dim, emulator_grid_dim;

/** Waits for the block's threads, or for those of the warp that `mask` names. */
void emulator_sync_block(void);
void emulator_sync_warp(unsigned mask);
/** This warp's 32 cells of 16 bytes, through which its threads exchange values. */
void *emulator_warp_cells(void);
}

template <typename T> T exchange(unsigned mask, T value, int from)
{
    static_assert(sizeof(T) <= 16, "a cell of the warp");
    char *cells = (char *)emulator_warp_cells();
    memcpy(cells + emulator_thread.x % 32 * 16, &value, sizeof value);
    emulator_sync_warp(mask);
    T other = value;
    if (from >= 0 && from < 32 && (mask >> from & 1u))
        memcpy(&other, cells + from * 16, sizeof other);
    emulator_sync_warp(mask);
    return other;
}

} // namespace emulator

#define threadIdx emulator::emulator_thread
#define blockIdx emulator::emulator_block
#define blockDim emulator::emulator_block_dim
#define gridDim emulator::emulator_grid_dim

static inline void __syncthreads()
{
    emulator::emulator_sync_block();
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulator::emulator_sync_warp(mask);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes)
{
    return emulator::exchange(mask, value, (int)(threadIdx.x % 32) ^ lanes);
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from)
{
    return emulator::exchange(mask, value, from % 32);
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes)
{
    return emulator::exchange(mask, value, (int)(threadIdx.x % 32) - (int)lanes);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes)
{
    return emulator::exchange(mask, value, (int)(threadIdx.x % 32) + (int)lanes);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned all = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1u)
            all |= (unsigned)(emulator::exchange(mask, predicate != 0, lane) ? 1 : 0) << lane;
    return all;
}

template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    unsigned same = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1u)
            same |= (unsigned)(emulator::exchange(mask, value, lane) == value ? 1 : 0) << lane;
    return same;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* One fiber runs at a time, so that a plain update is atomic. */
template <typename T> static inline T atomicAdd(T *at, T value)
{
    const T before = *at;
    *at = before + value;
    return before;
}

template <typename T> static inline T atomicMax(T *at, T value)
{
    const T before = *at;
    *at = value > before ? value : before;
    return before;
}

template <typename T> static inline T atomicMin(T *at, T value)
{
    const T before = *at;
    *at = value < before ? value : before;
    return before;
}

static inline unsigned atomicOr(unsigned *at, unsigned value)
{
    const unsigned before = *at;
    *at = before | value;
    return before;
}

static inline void __threadfence()
{
}

static inline float __fdividef(float x, float y)
{
    return x / y;
}

#define __expf expf
#define __logf logf

static inline float __int_as_float(int x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline int __float_as_int(float x)
{
    int y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline float __uint_as_float(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

#endif
