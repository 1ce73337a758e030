/* Computes the fitness of this build for the machine, from CPUID and the registers that the OS
 * saves.
 *
 * This file is compiled for the baseline instruction set, whatever the rest of the plugin uses.
 */
#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "device/functions.h"
#include "lathe/plugin.h"

/* Bits of XCR0: 1-2 SSE and AVX registers, 5-7 mask and 512-bit registers. */
#define XCR0_AVX 0x06u
#define XCR0_AVX512 0xe6u

typedef struct features {
    int v3, v4, bf16;      /* instruction sets that the processor reports */
    int os_avx, os_avx512; /* registers that the OS saves */
} features;

static uint32_t xcr0_low(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static features detect(void)
{
    features f = {0, 0, 0, 0, 0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return f;
    const uint32_t v3_c = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C | bit_SSE4_2 |
                          bit_POPCNT | bit_CMPXCHG16B;
    const int base_ok = (c & v3_c) == v3_c;
    if (c & bit_OSXSAVE) {
        const uint32_t xcr0 = xcr0_low();
        f.os_avx = (xcr0 & XCR0_AVX) == XCR0_AVX;
        f.os_avx512 = (xcr0 & XCR0_AVX512) == XCR0_AVX512;
    }
    uint32_t a8, b8, c8, d8;
    const int lzcnt = __get_cpuid(0x80000001u, &a8, &b8, &c8, &d8) && (c8 & bit_LZCNT);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return f;
    const uint32_t v3_b = bit_AVX2 | bit_BMI | bit_BMI2;
    const uint32_t v4_b = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    f.v3 = base_ok && lzcnt && (b & v3_b) == v3_b;
    f.v4 = f.v3 && (b & v4_b) == v4_b;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        f.bf16 = f.v4 && (a & (1u << 5)) != 0;
    return f;
}

int32_t cpu_score(char *why, int64_t why_bytes)
{
    static const char *const needs[] = {"AVX2, FMA, BMI2 and F16C (x86-64-v3)",
                                        "AVX-512 F, BW, CD, DQ and VL (x86-64-v4)",
                                        "AVX-512 with BF16"};
    const features f = detect();
    const int level = LATHE_CPU_ISA;
    const int has = level == 1 ? f.v3 : level == 2 ? f.v4 : f.bf16;
    const int os = level == 1 ? f.os_avx : f.os_avx512;
    if (!has || !os) {
        (void)snprintf(why, (size_t)why_bytes, "%s %s", needs[level - 1],
                       has ? "not enabled by the operating system" : "missing in the processor");
        return LATHE_SCORE_NO;
    }
    (void)snprintf(why, (size_t)why_bytes, "has %s", needs[level - 1]);
    return LATHE_SCORE_FAMILY + 10 * (level - 1);
}

void cpu_brand(char out[64])
{
    uint32_t r[12] = {0};
    memset(out, 0, 64);
    if (__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (uint32_t i = 0; i < 3; i++)
        (void)__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    memcpy(out, r, sizeof r);
    for (size_t n = strlen(out); n > 0 && out[n - 1] == ' '; n--)
        out[n - 1] = '\0';
}
