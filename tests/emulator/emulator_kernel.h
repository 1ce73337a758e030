/* The part of CUDA C++ that kernels use, as host code. The threads of a block are fibers that run
 * one at a time, in either order, and yield at barriers and warp exchanges.
 *
 * It detects, and then aborts: wrong arithmetic; barriers that some threads miss or reach at
 * another line; reads from lanes that give no value; and with emulator_checks.cpp, wrong addresses,
 * wrong alignment and missing barriers. It cannot detect what only the hardware does.
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

/** Waits for all threads of the block, which must be at this line, or for those of the warp that
 *  `mask` names. With orders_memory, their earlier memory accesses become visible to each other. */
void emulator_sync_block(const char *file, int line);
void emulator_sync_warp(unsigned mask, int orders_memory);
/** Cells of 16 bytes, one for each thread of this warp: the values that they give to the exchange
 *  at which they wait next, and those of the exchange that was completed last. All threads that a
 *  barrier released run before another one is released, so they read the same exchange. */
void *emulator_given(void);
const void *emulator_exchanged(void);
/** Reports a read from a lane that gives no value, and aborts. */
void emulator_no_lane(unsigned mask, int from);
}

/** Checks an atomic update. */
void emulator_atomic(const void *at, size_t bytes);

/* The cells belong to the emulator and are not checked. */
template <typename T>
__attribute__((noinline, no_sanitize("thread"))) T exchange(unsigned mask, T value, int from)
{
    static_assert(sizeof(T) <= 16, "a cell of the warp");
    const unsigned lane = emulator_thread.x % 32;
    memcpy((char *)emulator_given() + lane * 16, &value, sizeof value);
    if (mask >> lane & 1u && from >= 0 && from < 32 &&
        (!(mask >> from & 1u) || emulator_thread.x / 32 * 32 + from >= emulator_block_dim.x))
        emulator_no_lane(mask, from);
    emulator_sync_warp(mask, 0);
    T other = value;
    if (from >= 0 && from < 32)
        memcpy(&other, (const char *)emulator_exchanged() + from * 16, sizeof other);
    return other;
}

} // namespace emulator

#define threadIdx emulator::emulator_thread
#define blockIdx emulator::emulator_block
#define blockDim emulator::emulator_block_dim
#define gridDim emulator::emulator_grid_dim

static inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulator::emulator_sync_block(file, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulator::emulator_sync_warp(mask, 1);
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
        if (mask >> lane & 1u && threadIdx.x / 32 * 32 + lane < blockDim.x)
            all |= (unsigned)(emulator::exchange(mask, predicate != 0, lane) ? 1 : 0) << lane;
    return all;
}

template <typename T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    unsigned same = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1u && threadIdx.x / 32 * 32 + lane < blockDim.x)
            same |= (unsigned)(emulator::exchange(mask, value, lane) == value ? 1 : 0) << lane;
    return same;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* One fiber runs at a time, so a plain update is atomic. `now` is the new value, computed from the
 * old value `before`. */
#define EMULATOR_ATOMIC(name, now)                                                                 \
    template <typename T>                                                                          \
    __attribute__((noinline, no_sanitize("thread"))) static T name(T *at, T value)                 \
    {                                                                                              \
        emulator::emulator_atomic(at, sizeof *at);                                                 \
        const T before = *at;                                                                      \
        *at = (now);                                                                               \
        return before;                                                                             \
    }

EMULATOR_ATOMIC(atomicAdd, before + value)
EMULATOR_ATOMIC(atomicMax, value > before ? value : before)
EMULATOR_ATOMIC(atomicMin, value < before ? value : before)
EMULATOR_ATOMIC(atomicOr, before | value)
#undef EMULATOR_ATOMIC

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
