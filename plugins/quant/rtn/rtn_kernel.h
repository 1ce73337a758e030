/* rtn: the value of a code, for the CPU loop and the GPU kernel; and that kernel. */
#ifndef LATHE_RTN_KERNEL_H
#define LATHE_RTN_KERNEL_H

#include "shared/packed_words.h"

enum {
    RTN_WEIGHT, /* packed: i32 [rows, words]; else i8 [rows, cols] */
    RTN_SCALE,  /* f32 [rows, groups], or [1] of the tensor */
    RTN_MORE    /* with zero points: packed i32 [words, groups], else i8 as the scales;
                   with act_order: the group of each column, i32 [cols]; the shape, i64 [2] */
};
/* Settings. SIZE: columns of a group, 0: one scale for the tensor. ZEROS, GROUPS: numbers of the
 * planes, 0: none. */
enum { RTN_BITS, RTN_SIZE, RTN_PACKED, RTN_ZEROS, RTN_GROUPS };

/** Words of a row of `n` codes. */
LATHE_HD static inline int64_t rtn_words(int64_t n, int64_t bits)
{
    return (n * bits + 31) / 32;
}

/** Parameters of a group of a row: its scale, and the zero point, which is subtracted from codes.
 */
typedef struct rtn_group {
    float scale;
    int32_t zero;
} rtn_group;

LATHE_HD static inline rtn_group rtn_group_of(const int64_t *s, const void *const *planes,
                                              int64_t row, int64_t group, int64_t n_groups)
{
    const int64_t bits = s[RTN_BITS], at = s[RTN_SIZE] > 0 ? row * n_groups + group : 0;
    rtn_group g = {((const float *)planes[RTN_SCALE])[at], 0};
    if (s[RTN_ZEROS] == 0)
        return g;
    if (!s[RTN_PACKED] || s[RTN_SIZE] == 0)
        g.zero = (int32_t)((const int8_t *)planes[s[RTN_ZEROS]])[at];
    else /* packed along the rows */
        g.zero = (int32_t)packed_bits((const uint32_t *)planes[s[RTN_ZEROS]] + group, n_groups,
                                      row * bits, bits) -
                 (1 << (bits - 1));
    return g;
}

LATHE_HD static inline int32_t rtn_code(const int64_t *s, const void *weight, int64_t row,
                                        int64_t col, int64_t cols)
{
    const int64_t bits = s[RTN_BITS];
    if (!s[RTN_PACKED])
        return ((const int8_t *)weight)[row * cols + col];
    return (int32_t)packed_bits((const uint32_t *)weight + row * rtn_words(cols, bits), 1,
                                col * bits, bits) -
           (1 << (bits - 1));
}

LATHE_HD static inline float rtn_element(const lathe_quant_args *a, int64_t row, int64_t col)
{
    const int64_t said = a->settings[RTN_SIZE];
    const int64_t size = said > 0 && said < a->cols ? said : a->cols;
    const int64_t group = a->settings[RTN_GROUPS] > 0
                              ? ((const int32_t *)a->planes[a->settings[RTN_GROUPS]])[col]
                              : col / size;
    const rtn_group g = rtn_group_of(a->settings, a->planes, row, group, a->cols / size);
    return (float)(rtn_code(a->settings, a->planes[RTN_WEIGHT], row, col, a->cols) - g.zero) *
           g.scale;
}

CODEC_CUDA_DECODER(rtn_element)

#endif
