/* Element types of tensors, their sizes and the exact conversions between them. */
#ifndef LATHE_DTYPE_H
#define LATHE_DTYPE_H

#include <string.h>

#include "abi.h"

/* Values are stored in files and manifests: append only. */
enum {
    LATHE_F32 = 0,
    LATHE_BF16 = 1,
    LATHE_F16 = 2,
    LATHE_F64 = 3,
    LATHE_I8 = 4,
    LATHE_U8 = 5,
    LATHE_I32 = 6,
    LATHE_I64 = 7,
    LATHE_BOOL = 8,
    LATHE_I16 = 9,
    LATHE_F8_E4M3 = 10,
    LATHE_F8_E5M2 = 11,
    LATHE_N_DTYPES = 12
};

/** Bytes of one element of `dtype`; 0 for an unknown dtype. */
static inline int64_t lathe_dtype_bytes(int32_t dtype)
{
    static const int8_t bytes[LATHE_N_DTYPES] = {4, 2, 2, 8, 1, 1, 4, 8, 1, 2, 1, 1};
    return dtype >= 0 && dtype < LATHE_N_DTYPES ? bytes[dtype] : 0;
}

/** Lower-case name ("f32", "bf16", ...); "?" for an unknown dtype. */
static inline const char *lathe_dtype_name(int32_t dtype)
{
    static const char *const names[LATHE_N_DTYPES] = {
        "f32", "bf16", "f16", "f64", "i8", "u8", "i32", "i64", "bool", "i16", "f8_e4m3", "f8_e5m2"};
    return dtype >= 0 && dtype < LATHE_N_DTYPES ? names[dtype] : "?";
}

/** bf16 bits to float: exact. */
LATHE_HD static inline float lathe_bf16_to_f32(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float out;
    memcpy(&out, &wide, sizeof out);
    return out;
}

/** float to bf16 bits, round to nearest even; NaN stays NaN (quiet), overflow gives infinity. No
 *  branches, so loops vectorise. */
LATHE_HD static inline uint16_t lathe_f32_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)((x != x ? bits | 0x00400000u : rounded) >> 16);
}

/** f16 bits to float: exact, subnormals too; NaN stays NaN. No branches, so loops vectorise. */
LATHE_HD static inline float lathe_f16_to_f32(uint16_t bits)
{
    const int32_t magnitude = (int32_t)((uint32_t)(bits & 0x7fffu) << 13);
    uint32_t wide = (uint32_t)magnitude;
    float out;
    memcpy(&out, &wide, sizeof out);
    out *= 0x1p112f; /* the exponents' biases are 127 and 15 */
    memcpy(&wide, &out, sizeof wide);
    wide |= magnitude >= 0x0f800000 ? 0x7f800000u : 0u; /* infinity, NaN */
    wide |= (uint32_t)(bits & 0x8000u) << 16;
    memcpy(&out, &wide, sizeof out);
    return out;
}

/** float to f16 bits, round to nearest even, subnormals too; NaN gives a quiet NaN, magnitudes
 *  of 65520 or more give infinity. */
LATHE_HD static inline uint16_t lathe_f32_to_f16(float x)
{
    uint32_t bits, rounded;
    memcpy(&bits, &x, sizeof bits);
    const int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
    float value, unit;
    memcpy(&value, &magnitude, sizeof value);
    value = (value * 0x1p112f) * 0x1p-110f; /* 4 |x|; infinity from 2^16 on */
    const int32_t exponent = magnitude & 0x7f800000;
    uint32_t half =
        (uint32_t)(exponent < 0x38800000 ? 0x38800000 : exponent); /* subnormals share one */
    half += 0x07800000u; /* wraps for infinity, to a number that does not matter beside it */
    memcpy(&unit, &half, sizeof unit);
    unit += value; /* the float addition rounds at f16's last bit */
    memcpy(&rounded, &unit, sizeof rounded);
    const uint32_t finite = ((rounded >> 13) & 0x7c00u) + (rounded & 0xfffu);
    return (uint16_t)(((bits >> 16) & 0x8000u) | (magnitude > 0x7f800000 ? 0x7e00u : finite));
}

#endif
