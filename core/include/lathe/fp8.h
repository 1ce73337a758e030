/* Products in fp8: what lathe_op_attrs.fp8 asks of LINEAR, LINEAR_DX and LINEAR_DW, and the two
 * formats.
 *
 *   c = (q(a) q(b)) / (s_a s_b), summed in f32 or wider, rounded once     q(t) = fp8(t * s_t), saturated
 *
 * a and b are the op's bf16 inputs as they come; a bias and what is added to stay as the op has
 * them. Inputs and weights become E4M3, dy becomes E5M2 (db is of dy itself). Scales are made from
 * the very tensor, one for all of it (TENSORWISE) or one for each row of op(a) and each column of
 * op(b) (ROWWISE), so that the two products of the backward scale along other dims than the forward
 * does. Every dim of the product (N, I, O) is a multiple of LATHE_FP8_DIM: others are
 * LATHE_E_SHAPE.
 *
 * A device that sets LATHE_F8_E4M3 in lathe_device_info.graph_dtypes takes the attribute, for the
 * recipes of lathe_device_info.fp8_recipes. Source: the meaning is torchao's (Float8Linear, dynamic
 * scaling), with its default scales of each recipe; E5M2 for dy in both (its rowwise recipe has
 * E4M3 there).
 */
#ifndef LATHE_FP8_H
#define LATHE_FP8_H

#include "dtype.h"

enum { LATHE_FP8_NONE = 0, LATHE_FP8_TENSORWISE = 1, LATHE_FP8_ROWWISE = 2, LATHE_N_FP8 = 3 };

#define LATHE_FP8_DIM 16

#define LATHE_E4M3_MAX 448.0f
#define LATHE_E5M2_MAX 57344.0f

/* Round to nearest even, subnormals too; beyond `largest` (a code) it saturates, NaN gives 0x7f. */
LATHE_HD static inline uint8_t lathe__f32_to_f8(float x, int32_t mantissa, int32_t bias,
                                                uint32_t largest)
{
    const int32_t shift = 23 - mantissa;
    const uint32_t unit = (uint32_t)(127 + 24 - bias - mantissa) << 23; /* its last bit is f8's */
    uint32_t bits, code;
    float value, sum;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < (uint32_t)(128 - bias)
                        << 23) { /* f8's subnormals, and what rounds up from them */
        memcpy(&value, &magnitude, sizeof value);
        memcpy(&sum, &unit, sizeof sum);
        sum += value; /* the float addition rounds */
        memcpy(&code, &sum, sizeof code);
        code -= unit;
    } else {
        const uint32_t half = (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u);
        code = ((magnitude + half) >> shift) - ((uint32_t)(127 - bias) << mantissa);
    }
    code = code > largest ? largest : code;
    return (uint8_t)((bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? 0x7fu : code));
}

/** float to E4M3 (the "fn" format: no infinity, largest 448) and E5M2 (largest 57344),
 *  saturated. */
LATHE_HD static inline uint8_t lathe_f32_to_e4m3(float x)
{
    return lathe__f32_to_f8(x, 3, 7, 0x7e);
}

LATHE_HD static inline uint8_t lathe_f32_to_e5m2(float x)
{
    return lathe__f32_to_f8(x, 2, 15, 0x7b);
}

/** Codes to float: exact. */
LATHE_HD static inline float lathe_e4m3_to_f32(uint8_t code)
{
    const uint32_t wide = (code & 0x7fu) == 0x7fu ? 0x7fc00000u
                          : (code & 0x78u)        ? (code & 0x7fu) << 20
                                                  : 0u;
    const float small = (float)(code & 0x7u) * 0x1p-9f;
    float out = small;
    if (wide != 0) {
        memcpy(&out, &wide, sizeof out);
        out *= 0x1p120f; /* the exponents' biases are 127 and 7 */
    }
    return code & 0x80u ? -out : out;
}

LATHE_HD static inline float lathe_e5m2_to_f32(uint8_t code)
{
    return lathe_f16_to_f32((uint16_t)((uint32_t)code << 8)); /* f16 with eight bits less */
}

/** The factor of a tensor or row whose largest magnitude is `amax`, before it is cast to `dtype`:
 *  largest / max(amax, 1e-12), for ROWWISE rounded down to a power of 2. NaN stays. */
LATHE_HD static inline float lathe_fp8_scale(float amax, int32_t dtype, int32_t recipe)
{
    const float largest = dtype == LATHE_F8_E4M3 ? LATHE_E4M3_MAX : LATHE_E5M2_MAX;
    float scale = largest / (amax < 1e-12f ? 1e-12f : amax);
    uint32_t bits;
    if (recipe != LATHE_FP8_ROWWISE || scale != scale)
        return scale;
    memcpy(&bits, &scale, sizeof bits);
    bits &= 0x7f800000u;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

#endif
