/* Matrix products in fp8: the meaning of lathe_op_attrs.fp8 for LINEAR, LINEAR_DX and LINEAR_DW,
 * and the two fp8 formats.
 *
 *   c = (q(a) q(b)) / (s_a s_b), summed in f32 or wider, rounded once
 *   q(t) = fp8(t * s_t), saturated
 *
 * a and b are the op's bf16 inputs; the bias and the accumulation are as without fp8. Inputs and
 * weights are converted to E4M3, dy to E5M2 (db is computed from dy itself). The scales s are
 * computed from the tensor at each use: one per tensor (TENSORWISE), or one for each row of op(a)
 * and each column of op(b) (ROWWISE). With ROWWISE the two products of the backward therefore scale
 * along other dims than the forward. Every dim of the product (N, I, O) must be a multiple of
 * LATHE_FP8_DIM, else LATHE_E_SHAPE.
 *
 * A device that sets LATHE_F8_E4M3 in lathe_device_info.graph_dtypes supports the attribute for the
 * recipes in lathe_device_info.fp8_recipes. Source: torchao (Float8Linear, dynamic scaling) with
 * the default scales of each recipe, except that dy is E5M2 in both (torchao's rowwise recipe:
 * E4M3).
 */
#ifndef LATHE_FP8_H
#define LATHE_FP8_H

#include "dtype.h"

enum { LATHE_FP8_NONE = 0, LATHE_FP8_TENSORWISE = 1, LATHE_FP8_ROWWISE = 2, LATHE_N_FP8 = 3 };

#define LATHE_FP8_DIM 16

#define LATHE_E4M3_MAX 448.0f
#define LATHE_E5M2_MAX 57344.0f

/* Rounds to nearest even, also to subnormals; saturates at the code `largest`; NaN gives 0x7f. */
LATHE_HD static inline uint8_t lathe__f32_to_f8(float x, int32_t mantissa, int32_t bias,
                                                uint32_t largest)
{
    const int32_t shift = 23 - mantissa;
    const uint32_t unit = (uint32_t)(127 + 24 - bias - mantissa) << 23; /* its last bit is f8's */
    uint32_t bits, code;
    float value, sum;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < (uint32_t)(128 - bias) << 23) { /* subnormal in f8, or rounds up from one */
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

/** Scale factor for casting to `dtype` a tensor or row whose largest magnitude is `amax`:
 *  largest value of dtype / max(amax, 1e-12); for ROWWISE rounded down to a power of 2. NaN
 *  stays. */
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
