/* Codes of E4M3, E2M1 and E8M0 to f32 and back, for the loops of the host and for GPU kernels. The
 * functions have no branches, so loops vectorise, and never use f32 subnormals for E4M3. */
#ifndef LATHE_SMALL_FLOAT_H
#define LATHE_SMALL_FLOAT_H

#include "lathe/fp8.h"

/** E4M3 (fn) to f32, exact; codes 0x7f and 0xff are NaN. */
LATHE_HD static inline float small_e4m3(uint8_t code)
{
    const uint32_t magnitude = code & 0x7fu;
    const float small = (float)(int32_t)magnitude * 0x1p-9f;   /* codes 0 to 7 are subnormal */
    const uint32_t is_small = 0u - (uint32_t)(magnitude < 8u); /* all bits or none */
    const uint32_t is_nan = 0u - (uint32_t)(magnitude == 0x7fu);
    uint32_t low, bits;
    memcpy(&low, &small, sizeof low);
    bits = (low & is_small) | (((magnitude << 20) + (120u << 23)) & ~is_small & ~is_nan);
    bits |= (0x7fc00000u & is_nan) | (uint32_t)(code & 0x80u) << 24;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/** E2M1 in the low four bits to f32: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
LATHE_HD static inline float small_e2m1(uint32_t code)
{
    const uint32_t magnitude = code & 7u;
    /* twice the value: 0 1 2 3 4 6 8 12 */
    const uint32_t twice =
        magnitude + (magnitude > 4u ? magnitude - 4u : 0u) + (magnitude == 7u ? 2u : 0u);
    const float value = (float)(int32_t)twice * 0.5f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits |= (code & 8u) << 28;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/** f32 to E2M1: nearest, ties to the even code, magnitudes above 6 to 6. A negative number that
 *  rounds to zero keeps its sign; -0 does not. */
LATHE_HD static inline uint8_t small_to_e2m1(float x)
{
    const float a = x < 0.0f ? -x : x;
    const uint32_t code = (uint32_t)(a > 0.25f) + (uint32_t)(a >= 0.75f) + (uint32_t)(a > 1.25f) +
                          (uint32_t)(a >= 1.75f) + (uint32_t)(a > 2.5f) + (uint32_t)(a >= 3.5f) +
                          (uint32_t)(a > 5.0f);
    return (uint8_t)(code | (x < 0.0f ? 8u : 0u));
}

/** E8M0: 2^(code - 127); code 255 is NaN. */
LATHE_HD static inline float small_e8m0(uint8_t code)
{
    uint32_t bits = code == 0 ? 0x00400000u : (uint32_t)code << 23;
    bits = code == 255 ? 0x7fc00000u : bits;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

#endif
