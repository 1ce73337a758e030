/* Tables of the dynamic map (lathe_dynamic_book), also in the form that AVX-512 needs, and
 * portable loops over many elements. Optimizers include dynamic_codes.h instead. */
#ifndef LATHE_OPTIMIZERS_DYNAMIC_CODEC_H
#define LATHE_OPTIMIZERS_DYNAMIC_CODEC_H

#include "lathe/kit/dynamic_map.h"
#include "lathe/kit/tensor_chunks.h"

#define LATHE_DYNAMIC_OCTAVES 32

/* A book, and the tables of AVX-512: 256 bytes, or 32 numbers, in registers.
 *
 * The place of a number is the minimum over the lines of the decades (dynamic_map.h). For numbers a
 * with 2^(k-31) <= a < 2^(k-30), whose exponent has the low five bits k, only two lines can be the
 * minimum: the line of the decade in which this range begins, and that of the decade in which it
 * ends. The first place of the second decade begins 0.2 late. Therefore
 *
 *     place = min(low(a), high(a), 1.25*high(a) + late)
 *
 * where a is multiplied by a factor so that the code of the value 1 begins at 1 and alone uses
 * range 31.
 */
typedef struct lathe_dynamic_codec {
    lathe_dynamic_book book;
    uint8_t plane[4][256]; /* bytes of the values, lowest byte first */
    float low_slope[LATHE_DYNAMIC_OCTAVES], low_offset[LATHE_DYNAMIC_OCTAVES];
    float high_slope[LATHE_DYNAMIC_OCTAVES], high_offset[LATHE_DYNAMIC_OCTAVES];
    float late[LATHE_DYNAMIC_OCTAVES];
    float stretch;
} lathe_dynamic_codec;
LATHE_ABI_SIZE(lathe_dynamic_codec, 3788);

/* The decade whose line is the lowest at a. */
static inline int lathe__dynamic_decade(const lathe_dynamic_lines *l, double a)
{
    int lowest = 0;
    for (int e = 1; e < LATHE_DYNAMIC_DECADES; e++)
        if (a * (double)l->slope[e] + (double)l->offset[e] <
            a * (double)l->slope[lowest] + (double)l->offset[lowest])
            lowest = e;
    return lowest;
}

static inline void lathe_dynamic_codec_init(lathe_dynamic_codec *c, int is_signed)
{
    lathe_dynamic_book *const b = &c->book;
    const lathe_dynamic_lines *const l = &b->lines;
    const int top = LATHE_DYNAMIC_OCTAVES - 1, n_lowest = is_signed ? 1 : 2;
    lathe_dynamic_book_init(b, is_signed);
    for (int k = 0; k < 256; k++) {
        uint32_t bits;
        memcpy(&bits, &b->value[k], sizeof bits);
        for (int byte = 0; byte < 4; byte++)
            c->plane[byte][k] = (uint8_t)(bits >> 8 * byte);
    }
    /* Slightly more than needed to reach 1, so that no number of the code of 1 is rounded below
     * 1; range 31 then reports a doubt. */
    const double stretch = (1.0 + 4e-7) / (double)b->edge[254];
    c->stretch = (float)stretch;
    for (int k = 0; k < top; k++) {
        const int low = lathe__dynamic_decade(l, ldexp(1.0, k - top) / stretch);
        const int high = lathe__dynamic_decade(l, ldexp(2.0, k - top) / stretch);
        c->low_slope[k] = (float)((double)l->slope[low] / stretch);
        c->low_offset[k] = l->offset[low];
        c->high_slope[k] = (float)((double)l->slope[high] / stretch);
        c->high_offset[k] = l->offset[high];
        c->late[k] = -0.25f * (float)(n_lowest << high) - 0.25f;
    }
    const float last = (float)(n_lowest << LATHE_DYNAMIC_DECADES); /* place of the value 1 */
    c->low_slope[top] = c->high_slope[top] = 8.0f;
    c->low_offset[top] = c->high_offset[top] = last - 8.0f;
    c->late[top] = 0.0f;
}

/* Copies the values of the codes as bits: two loads and a store per element are faster than a
 * gather. */
__attribute__((noinline, optimize("no-tree-vectorize"))) static void
lathe__dynamic_decode_each(const float *__restrict value, const uint8_t *__restrict codes,
                           float *__restrict out, int64_t n)
{
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i++)
        memcpy(&out[i], &value[codes[i]], sizeof *out);
}

/* Codes of x*wide*factor; returns whether any of them is in doubt. */
LATHE_CLONES static int32_t lathe__dynamic_near_each(const lathe_dynamic_lines *lines,
                                                     const float *__restrict x, float wide,
                                                     float factor, uint8_t *__restrict codes,
                                                     int64_t n)
{
    const lathe_dynamic_lines l = *lines;
    int32_t any = 0, doubt;
    for (int64_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)lathe_dynamic_near(&l, x[i] * wide * factor, &doubt);
        any |= doubt;
    }
    return any;
}

static inline void lathe__dynamic_settle_each(const lathe_dynamic_book *b, const float *x,
                                              float max, uint8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)lathe_dynamic_settle(b, x[i] / max, codes[i]);
}

#endif
