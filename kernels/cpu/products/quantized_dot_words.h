/* Sums with codes in words that lie input by input. A lane is an output (words down) or the word of
 * eight (words along), so nothing is turned: inputs are broadcast. The sums of a group, and those
 * of the groups before, wait in memory while a few rows of words are multiplied, so that these are
 * read in long runs. */
#ifndef LATHE_CPU_QUANTIZED_DOT_WORDS_H
#define LATHE_CPU_QUANTIZED_DOT_WORDS_H

#include "products/quantized_dot_part.h"

#if MULTIPLIES_BF16

/* Where the sums of a group are, and where those of the groups before it. */
typedef struct word_sums {
    float *group, *all; /* [rows][columns] */
    int64_t columns;
} word_sums;

/* ---- words down: a lane has the codes of one output ---- */

/* Adds n_words rows of words, of the 16 outputs from `o` on, for rows [r, r + rows) of x; `x` is at
 * their first input. */
CPU_INLINE void down_tile(const dot_part *v, const word_sums *s, int64_t r, int64_t o, int is_first,
                          int rows, int n_words, int bits)
{
    const int codes = 32 / bits, steps = bits == 8 ? 4 : codes / 2;
    const uint8_t *const words = v->codes + 4 * o;
    const char *const x = v->x + r * v->x_bytes;
    vf sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        float *const from = s->group + (r + i) * s->columns + o;
        sum[i][0] = is_first ? v_zero() : v_load(from);
        sum[i][1] = v_zero();
    }
#pragma GCC unroll 4
    for (int w = 0; w < n_words; w++) {
        const __m512i word = load_words(words + w * v->row_bytes, v->n - o);
        prefetch_codes(v, words + w * v->row_bytes);
#pragma GCC unroll 8
        for (int k = 0; k < steps; k++) {
            const __m512i code = _mm512_srli_epi32(word, (unsigned)(bits * k));
            const __m512i value = bits < 8 ? values_of(v, code)
                                           : _mm512_castps_si512(_mm512_cvtepi32_ps(
                                                 _mm512_and_si512(code, _mm512_set1_epi32(255))));
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                int32_t one;
                memcpy(&one, x + i * v->x_bytes + 4 * (w * steps + k), sizeof one);
                const __m512i y = _mm512_set1_epi32(one);
                sum[i][k % 2] = bits < 8 ? add_pairs(sum[i][k % 2], value, y)
                                         : v_fma(_mm512_castsi512_ps(value), _mm512_castsi512_ps(y),
                                                 sum[i][k % 2]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        v_store(s->group + (r + i) * s->columns + o, v_add(sum[i][0], sum[i][1]));
}

/* Adds n_words rows of words of all outputs, for all rows of x. */
#define DOWN_OF(bits, n_words)                                                                     \
    static void add_down_##bits(const dot_part *v, const word_sums *s, int64_t rows, int is_first) \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; r + 4 <= rows; r += 4)                                                              \
            for (int64_t o = 0; o < v->n; o += 16)                                                 \
                down_tile(v, s, r, o, is_first, 4, n_words, bits);                                 \
        for (; r < rows; r++)                                                                      \
            for (int64_t o = 0; o < v->n; o += 16)                                                 \
                down_tile(v, s, r, o, is_first, 1, n_words, bits);                                 \
    }
DOWN_OF(2, 2)
DOWN_OF(4, 4)
DOWN_OF(8, 4)

/* ---- words along: a lane has a word of eight outputs ---- */

enum { ALONG_PAIRS = 4 }; /* of inputs that are multiplied at a time */

/* Adds 2 * ALONG_PAIRS inputs, of the 16 words from `word` on. The sums of code k of these words
 * are vector k of eight. */
CPU_INLINE void along_tile(const dot_part *v, const word_sums *s, int64_t r, int64_t word,
                           int is_first, int rows)
{
    const int64_t left = v->n / 8 - word;
    const uint8_t *const words = v->codes + 4 * word;
    const char *const x = v->x + r * v->x_bytes;
    vf sum[2][8];
#pragma GCC unroll 16
    for (int t = 0; t < 8 * rows; t++)
        sum[t / 8][t % 8] =
            is_first ? v_zero()
                     : v_load(s->group + (r + t / 8) * s->columns + 8 * word + t % 8 * VL);
#pragma GCC unroll 4
    for (int p = 0; p < ALONG_PAIRS; p++) {
        const __m512i a = load_words(words + 2 * p * v->row_bytes, left);
        const __m512i b = load_words(words + (2 * p + 1) * v->row_bytes, left);
        prefetch_codes(v, words + 2 * p * v->row_bytes);
        prefetch_codes(v, words + (2 * p + 1) * v->row_bytes);
        /* the same half of the words of two inputs in each lane */
        const __m512i half[2] = {_mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16)),
                                 _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b)};
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            const __m512i value =
                values_of(v, _mm512_srli_epi32(half[k / 4], 4 * (unsigned)(k % 4)));
#pragma GCC unroll 2
            for (int i = 0; i < rows; i++) {
                int32_t one;
                memcpy(&one, x + i * v->x_bytes + 4 * p, sizeof one);
                sum[i][k] = add_pairs(sum[i][k], value, _mm512_set1_epi32(one));
            }
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < 8 * rows; t++)
        v_store(s->group + (r + t / 8) * s->columns + 8 * word + t % 8 * VL, sum[t / 8][t % 8]);
}

static void add_along(const dot_part *v, const word_sums *s, int64_t rows, int is_first)
{
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2)
        for (int64_t word = 0; word < v->n / 8; word += 16)
            along_tile(v, s, r, word, is_first, 2);
    for (; r < rows; r++)
        for (int64_t word = 0; word < v->n / 8; word += 16)
            along_tile(v, s, r, word, is_first, 1);
}

/* Puts the sums of 16 words into the order of their outputs: from vectors of codes k, which are of
 * the outputs 0 2 4 6 1 3 5 7. */
CPU_INLINE void order_along(const float *from, vf out[8])
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    vf quads[2][4]; /* lane l of 128 bits: four outputs of word 4l + i */
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const vf a = v_load(from + (2 * h) * VL), b = v_load(from + (2 * h + 4) * VL);
        const vf c = v_load(from + (2 * h + 1) * VL), d = v_load(from + (2 * h + 5) * VL);
        const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        const __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        const __m512d ab2 = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        const __m512d cd2 = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        quads[h][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        quads[h][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        quads[h][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab2, cd2));
        quads[h][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab2, cd2));
    }
    __m512d words[2][4]; /* words i and 4 + i; words 8 + i and 12 + i */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512d low = _mm512_castps_pd(quads[0][i]), high = _mm512_castps_pd(quads[1][i]);
        words[0][i] = _mm512_permutex2var_pd(low, first, high);
        words[1][i] = _mm512_permutex2var_pd(low, second, high);
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) { /* words 2t and 2t + 1 */
        const __m512d a = words[t / 4][t % 2 * 2], b = words[t / 4][t % 2 * 2 + 1];
        out[t] = _mm512_castpd_ps(t / 2 % 2 == 0 ? _mm512_shuffle_f64x2(a, b, 0x44)
                                                 : _mm512_shuffle_f64x2(a, b, 0xee));
    }
}

/* ---- groups ---- */

/* Adds the scaled sums of a group, the `at`th of the scales' and the g'th of the row's. */
CPU_INLINE void add_group(const dot_part *v, const word_sums *s, int64_t rows, int64_t at,
                          int64_t g, int is_along)
{
    const float *const scales = v->scales + at * v->stride;
    const float *const offsets = v->offsets != NULL ? v->offsets + at * v->stride : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const vf x = offsets != NULL ? v_set(v->x_sums[r * v->x_stride + g]) : v_zero();
        const float *const from = s->group + r * s->columns;
        float *const to = s->all + r * s->columns;
        for (int64_t o = 0; o < v->n; o += 8 * VL) {
            vf sum[8];
            if (is_along)
                order_along(from + o, sum);
            for (int64_t k = 0; k < 8 && o + k * VL < v->n; k++) {
                const int64_t i = o + k * VL;
                const vf one = is_along ? sum[k] : v_load(from + i);
                vf all = g == 0 ? v_zero() : v_load(to + i);
                all = v_fma(one, v_load(scales + i), all);
                if (offsets != NULL)
                    all = v_fma(v_load(offsets + i), x, all);
                v_store(to + i, all);
            }
        }
    }
}

/* Adds the columns of the view's scales, which begin with group g of the row; v->codes and v->x are
 * at the first. */
CPU_INLINE void add_words(dot_part *v, const word_sums *s, int64_t rows, int64_t g, int bits,
                          int is_along)
{
    const int64_t each = is_along ? 2 * ALONG_PAIRS : bits == 8 ? 16 : 32; /* inputs at a time */
    for (int64_t at = 0; at < v->groups; at++) {
        for (int64_t i = 0; i < v->group; i += each) {
            if (is_along)
                add_along(v, s, rows, i == 0);
            else if (bits == 2)
                add_down_2(v, s, rows, i == 0);
            else if (bits == 4)
                add_down_4(v, s, rows, i == 0);
            else
                add_down_8(v, s, rows, i == 0);
            v->codes += (is_along ? each : each * bits / 32) * v->row_bytes;
            v->x += each * (bits == 8 ? 4 : 2);
        }
        add_group(v, s, rows, at, g + at, is_along);
    }
}

#endif

#endif
