/* The dynamic map of bitsandbytes: a table of 256 values for 8-bit codes, dense near zero.
 *
 * Decade e = 0 .. 6 is scaled by 10^(e-6). It has the midpoints between evenly spaced points from
 * 0.1 to 1: 2^e values of each sign (signed map), or 2^(e+1) values (unsigned map). The values 0
 * and 1 are added. The table is ascending. Source: arXiv:1511.04561; bitsandbytes
 * create_dynamic_map, to the bit.
 */
#ifndef LATHE_KIT_DYNAMIC_MAP_H
#define LATHE_KIT_DYNAMIC_MAP_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "lathe/abi.h"

#define LATHE_DYNAMIC_DECADES 7

/* Point k of `n` from 0.1 to 1. As in torch.linspace, it is computed from the nearer end with
 * one rounding. */
LATHE_HD static inline float lathe_dynamic_point(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - 1 - k), 1.0f);
}

/** Value of a code. In the signed map code 127 is 0, code 255 is 1, and code 254 - c is the
 *  negative of code c. */
LATHE_HD static inline float lathe_dynamic_value(int code, int is_signed)
{
    const int from_zero = is_signed ? code - 127 : code + 1; /* decade e begins at `count` */
    const int place = from_zero < 0 ? -from_zero : from_zero;
    if (code == 255)
        return 1.0f;
    if (code == (is_signed ? 127 : 0))
        return 0.0f;
    int e = 0, count = is_signed ? 1 : 2;
    for (; 2 * count <= place; count *= 2)
        e++;
    const int k = place - count;
    /* no table, which a GPU would keep in memory */
    const float power = e == 0   ? 1e-6f
                        : e == 1 ? 1e-5f
                        : e == 2 ? 1e-4f
                        : e == 3 ? 1e-3f
                        : e == 4 ? 1e-2f
                        : e == 5 ? 1e-1f
                                 : 1.0f;
    const float value =
        power *
        ((lathe_dynamic_point(k, count + 1) + lathe_dynamic_point(k + 1, count + 1)) / 2.0f);
    return from_zero < 0 ? -value : value;
}

/** Fills out[256]. */
static inline void lathe_dynamic_map(float *out, int is_signed)
{
    for (int code = 0; code < 256; code++)
        out[code] = lathe_dynamic_value(code, is_signed);
}

/* Constants for finding the value of a map that is nearest to a number, without a search.
 *
 * Number the values by magnitude: places 0, 1, 2, ... (unsigned: 1, 2, ...). Decade e has `count` =
 * 2^e (unsigned: 2^(e+1)) places, which begin at place `count`. Within a decade the place is a
 * linear function of the magnitude a: slope[e]*a + offset[e]. The slopes decrease from decade to
 * decade, so the minimum over all lines is the right line.
 *
 * The edge between two values is their midpoint, so at two kinds of places the line does not reach
 * a whole number at the edge: the first place of a decade begins 0.2 late (the line of decade 0 is
 * chosen so that this is also true for the edge of zero), and the value 1 begins 0.25 early. The
 * code stretches both places so that they begin at whole numbers.
 */
typedef struct lathe_dynamic_lines {
    float slope[LATHE_DYNAMIC_DECADES], offset[LATHE_DYNAMIC_DECADES];
    float last;   /* stretches the last place before 1: 4/3*place + last */
    float origin; /* place of the value 0 */
    int32_t zero; /* its code */
    int32_t n_up; /* number of codes above zero; below zero there is one less */
} lathe_dynamic_lines;
LATHE_ABI_SIZE(lathe_dynamic_lines, 72);

typedef struct lathe_dynamic_book {
    float value[256];
    float edge[256]; /* midpoint of values k and k + 1; the last is FLT_MAX */
    lathe_dynamic_lines lines;
} lathe_dynamic_book;
LATHE_ABI_SIZE(lathe_dynamic_book, 2120);

/** Makes the constants of a map; zero_edge: the midpoint of the value 0 and the next one. */
LATHE_HD static inline void lathe_dynamic_lines_init(lathe_dynamic_lines *to, int is_signed,
                                                     float zero_edge)
{
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
    const double slope = 0.8 / (end - (double)zero_edge);
    to->slope[0] = (float)slope;
    to->offset[0] = (float)(count + 1.0 - slope * end);
}

static inline void lathe_dynamic_book_init(lathe_dynamic_book *b, int is_signed)
{
    lathe_dynamic_map(b->value, is_signed);
    for (int k = 0; k < 255; k++)
        b->edge[k] = (b->value[k] + b->value[k + 1]) / 2.0f;
    b->edge[255] = FLT_MAX;
    lathe_dynamic_lines_init(&b->lines, is_signed, b->edge[is_signed ? 127 : 0]);
}

/* Distance from an edge, in places, within which rounding errors may give the wrong code. The
 * relative errors are 2^-23 of the number and 2^-24 each of slope, offset, their sum and the
 * map's values; times 256 places, times the stretch of 4/3. */
#define LATHE_DYNAMIC_DOUBT 2e-4f

/** The code of the value nearest to y in -1 .. 1; y may have a relative error of 2^-23.
 *  *out_doubt is 1 if y is so near to an edge that the neighbouring code may be the right one.
 *  NaN gives the code of 0 in the lower 8 bits. No branches and no tables, so loops vectorise. */
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

/** Corrects code k, which may be wrong by one, to the value nearest to y; ties give the lower
 *  code. */
LATHE_HD static inline int32_t lathe_dynamic_settle(const lathe_dynamic_book *b, float y, int32_t k)
{
    k -= k > 0 && y <= b->edge[k - 1];
    return k + (y > b->edge[k]);
}

/** The code of the value nearest to y; ties give the lower code. */
LATHE_HD static inline int32_t lathe_dynamic_code(const lathe_dynamic_book *b, float y)
{
    int32_t doubt;
    const int32_t k = lathe_dynamic_near(&b->lines, y, &doubt);
    return doubt ? lathe_dynamic_settle(b, y, k) : k;
}

#endif
