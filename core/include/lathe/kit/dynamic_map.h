/* The dynamic map: 256 values for 8 bits, dense near zero, as bitsandbytes makes it.
 *
 * Decade e = 10^-6 .. 10^0 holds the midpoints between points that divide 0.1 .. 1 evenly: 2^e of
 * them of either sign (signed), or 2^(e+1) (unsigned); then 0 and 1. Ascending.
 * Source: arXiv:1511.04561; bitsandbytes create_dynamic_map, to the bit.
 */
#ifndef LATHE_KIT_DYNAMIC_MAP_H
#define LATHE_KIT_DYNAMIC_MAP_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "lathe/abi.h"

#define LATHE_DYNAMIC_DECADES 7

/* Point k of `n` from 0.1 to 1, as torch.linspace rounds it: from the nearer end, in one
 * rounding. */
LATHE_HD static inline float lathe_dynamic_point(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - 1 - k), 1.0f);
}

/** Value of a code; with signs, that of 127 is 0 and that of 254 - code its negative but for the
 *  last, 1. */
LATHE_HD static inline float lathe_dynamic_value(int code, int is_signed)
{
    const float powers[LATHE_DYNAMIC_DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    const int from_zero = is_signed ? code - 127 : code + 1; /* decade e begins at its count */
    const int place = from_zero < 0 ? -from_zero : from_zero;
    if (code == 255)
        return 1.0f;
    if (code == (is_signed ? 127 : 0))
        return 0.0f;
    int e = 0, count = is_signed ? 1 : 2;
    for (; 2 * count <= place; count *= 2)
        e++;
    const int k = place - count;
    const float value =
        powers[e] *
        ((lathe_dynamic_point(k, count + 1) + lathe_dynamic_point(k + 1, count + 1)) / 2.0f);
    return from_zero < 0 ? -value : value;
}

/** Fills out[256]. */
static inline void lathe_dynamic_map(float *out, int is_signed)
{
    for (int code = 0; code < 256; code++)
        out[code] = lathe_dynamic_value(code, is_signed);
}

/* What finds the value of a map that is nearest to a number.
 *
 * Count places from zero on by magnitude: 0, 1, 2, ... (unsigned: 1, 2, ...). Decade e then has
 * `count` = 2^e (unsigned 2^(e+1)) places, from place `count` on, and within it the place is a line
 * of the magnitude: slope[e]*a + offset[e]. The lines become flatter from decade to decade, so that
 * the lowest is the one that counts. Two places begin beside their lines, for an edge is in the
 * middle of two values: the first of a decade 0.2 late (the line of decade 0 is laid so that this
 * holds for the edge of zero too), and the value 1 a quarter early. Both are stretched until they
 * begin whole.
 */
typedef struct lathe_dynamic_lines {
    float slope[LATHE_DYNAMIC_DECADES], offset[LATHE_DYNAMIC_DECADES];
    float last;   /* stretches the last place before 1: 4/3*place + last */
    float origin; /* place of the value 0 */
    int32_t zero; /* its code */
    int32_t n_up; /* codes above zero; below it one less */
} lathe_dynamic_lines;
LATHE_ABI_SIZE(lathe_dynamic_lines, 72);

typedef struct lathe_dynamic_book {
    float value[256];
    float edge[256]; /* middle of values k and k + 1; the last is never passed */
    lathe_dynamic_lines lines;
} lathe_dynamic_book;
LATHE_ABI_SIZE(lathe_dynamic_book, 2120);

static inline void lathe_dynamic_book_init(lathe_dynamic_book *b, int is_signed)
{
    lathe_dynamic_map(b->value, is_signed);
    for (int k = 0; k < 255; k++)
        b->edge[k] = (b->value[k] + b->value[k + 1]) / 2.0f;
    b->edge[255] = FLT_MAX;
    lathe_dynamic_lines *const to = &b->lines;
    to->zero = is_signed ? 127 : 0;
    to->origin = is_signed ? 0.0f : 1.0f;
    to->n_up = 255 - to->zero;
    double count = is_signed ? 1.0 : 2.0, decade = 1e-6;
    for (int e = 0; e < LATHE_DYNAMIC_DECADES; e++, count *= 2.0, decade *= 10.0) {
        to->slope[e] = (float)(count / 0.9 / decade);
        to->offset[e] = (float)(count * 8.0 / 9.0);
        to->last = (float)((1.0 - 2.0 * count) / 3.0);
    }
    /* through the edge of zero, at count + 0.2, and the end of the first place, at count + 1 */
    count = 1.0 + (double)to->origin;
    const double end = 1e-6 * (0.1 + 0.9 / count);
    const double slope = 0.8 / (end - (double)b->edge[to->zero]);
    to->slope[0] = (float)slope;
    to->offset[0] = (float)(count + 1.0 - slope * end);
}

/* How near to an edge, in places, rounding may have moved a number over it: 2^-23 of it, and 2^-24
 * each in slope, offset, their sum and the map's own values; times 256 places, stretched by 4/3. */
#define LATHE_DYNAMIC_DOUBT 2e-4f

/** The code of the value nearest to y in -1 .. 1, which may be wrong by 2^-23 of itself;
 *  *out_doubt: 1 where y is so near to an edge that it may be the code beside it. NaN gives the
 *  code of 0 in the lower 8 bits. No branches and no tables, so loops vectorise. */
LATHE_HD static inline int32_t lathe_dynamic_near(const lathe_dynamic_lines *l, float y,
                                                  int32_t *out_doubt)
{
    const float a = fabsf(y);
    float place = fmaf(a, l->slope[0], l->offset[0]), power;
    for (int e = 1; e < LATHE_DYNAMIC_DECADES; e++) {
        const float line = fmaf(a, l->slope[e], l->offset[e]);
        place = line < place ? line : place;
    }
    uint32_t bits;
    memcpy(&bits, &place, sizeof bits);
    bits &= 0xff800000u; /* a power of two: where the decade begins */
    memcpy(&power, &bits, sizeof power);
    const float past = place - power, first = fmaf(past, 1.25f, -0.25f);
    const float last = fmaf(place, 4.0f / 3.0f, l->last);
    place = power + (first < past ? first : past);
    place = last > place ? last : place;
    *out_doubt = fabsf(place - rintf(place)) < LATHE_DYNAMIC_DOUBT;
    int32_t k = (int32_t)(place - l->origin), sign;
    memcpy(&sign, &y, sizeof sign);
    sign >>= 31; /* -1 below 0 */
    k = k < l->n_up + sign ? k : l->n_up + sign;
    return l->zero + (int32_t)(((uint32_t)k ^ (uint32_t)sign) - (uint32_t)sign);
}

/** The code of the value nearest to y, of two equally near ones the lower, from one beside it. */
LATHE_HD static inline int32_t lathe_dynamic_settle(const lathe_dynamic_book *b, float y, int32_t k)
{
    k -= k > 0 && y <= b->edge[k - 1];
    return k + (y > b->edge[k]);
}

/** The code of the value nearest to y, of two equally near ones the lower. */
LATHE_HD static inline int32_t lathe_dynamic_code(const lathe_dynamic_book *b, float y)
{
    int32_t doubt;
    const int32_t k = lathe_dynamic_near(&b->lines, y, &doubt);
    return doubt ? lathe_dynamic_settle(b, y, k) : k;
}

#endif
