/* Transposes a block of columns in registers.
 *
 * A tile puts two groups of rows into the two halves of 256-bit registers. One round interleaves
 * register i with register i + half, which moves the top bit of the row number to the bottom of the
 * element's index. As many rounds as a half has index bits turn rows into columns.
 */
#include "products/pack.h"

#include <immintrin.h>

#include "base/element.h"

#define STRIP 64 /* rows per chunk, so that whole cache lines of dst are written */

typedef struct pack_job {
    const void *src;
    void *dst;
    int64_t rows, cols, stride;
    int64_t dst_stride; /* elements from one row of dst to the next */
    int32_t src_dtype, dst_dtype;
} pack_job;

static __m256i two_halves(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

/* Transposes 16 rows x 8 columns of 16-bit elements: r[j] = column j. */
CPU_INLINE void turn_16(const uint16_t *src, int64_t stride, __m256i r[8])
{
    __m256i t[8];
    for (int i = 0; i < 8; i++)
        r[i] = two_halves(src + i * stride, src + (i + 8) * stride);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            t[2 * i] = _mm256_unpacklo_epi16(r[i], r[i + 4]);
            t[2 * i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 4]);
        }
        for (int i = 0; i < 8; i++)
            r[i] = t[i];
    }
}

static void tile_16(const uint16_t *src, int64_t stride, uint16_t *dst, int64_t dst_stride)
{
    __m256i r[8];
    turn_16(src, stride, r);
    for (int j = 0; j < 8; j++)
        _mm256_storeu_si256((__m256i *)(void *)(dst + j * dst_stride), r[j]);
}

/* Transposes 8 rows x 4 columns of 32-bit elements. */
static void tile_32(const uint32_t *src, int64_t stride, uint32_t *dst, int64_t dst_stride)
{
    __m256i r[4], t[4];
    for (int i = 0; i < 4; i++)
        r[i] = two_halves(src + i * stride, src + (i + 4) * stride);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            t[2 * i] = _mm256_unpacklo_epi32(r[i], r[i + 2]);
            t[2 * i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 2]);
        }
        for (int i = 0; i < 4; i++)
            r[i] = t[i];
    }
    for (int j = 0; j < 4; j++)
        _mm256_storeu_si256((__m256i *)(void *)(dst + j * dst_stride), r[j]);
}

CPU_INLINE __m256 widen_8(__m128i x, int32_t dtype)
{
    if (dtype == LATHE_F16)
        return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Transposes 16 rows x 8 columns of 16-bit elements of `dtype`, and widens them to f32. */
CPU_INLINE void tile_widened(const uint16_t *src, int64_t stride, float *dst, int64_t dst_stride,
                             int32_t dtype)
{
    __m256i r[8];
    turn_16(src, stride, r);
    for (int j = 0; j < 8; j++) {
        float *const to = dst + j * dst_stride;
        _mm256_storeu_ps(to, widen_8(_mm256_castsi256_si128(r[j]), dtype));
        _mm256_storeu_ps(to + 8, widen_8(_mm256_extracti128_si256(r[j], 1), dtype));
    }
}

/* Transposes rows [i0, i1) of columns [j0, j1) element by element, converting to f32 if asked. */
static void plain(const pack_job *job, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    for (int64_t j = j0; j < j1; j++)
        for (int64_t i = i0; i < i1; i++) {
            const int64_t from = i * job->stride + j, to = j * job->dst_stride + i;
            if (job->dst_dtype == LATHE_F32)
                ((float *)job->dst)[to] = ld(job->src, from, job->src_dtype);
            else
                ((uint16_t *)job->dst)[to] = ((const uint16_t *)job->src)[from];
        }
}

static void tile(const pack_job *job, int64_t from, int64_t to)
{
    const uint16_t *src = (const uint16_t *)job->src + from;
    if (job->src_dtype == LATHE_F32)
        tile_32((const uint32_t *)job->src + from, job->stride, (uint32_t *)job->dst + to,
                job->dst_stride);
    else if (job->dst_dtype != LATHE_F32)
        tile_16(src, job->stride, (uint16_t *)job->dst + to, job->dst_stride);
    else if (job->src_dtype == LATHE_BF16)
        tile_widened(src, job->stride, (float *)job->dst + to, job->dst_stride, LATHE_BF16);
    else
        tile_widened(src, job->stride, (float *)job->dst + to, job->dst_stride, LATHE_F16);
}

static void strip_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const pack_job *job = arg;
    const int wide = job->src_dtype == LATHE_F32;
    const int64_t tile_rows = wide ? 8 : 16, tile_cols = wide ? 4 : 8;
    const int64_t rows_end = begin + (end - begin) / tile_rows * tile_rows;
    const int64_t cols_end = job->cols / tile_cols * tile_cols;
    (void)worker;
    for (int64_t j = 0; j < cols_end; j += tile_cols)
        for (int64_t i = begin; i < rows_end; i += tile_rows)
            tile(job, i * job->stride + j, j * job->dst_stride + i);
    plain(job, begin, rows_end, cols_end, job->cols);
    plain(job, rows_end, end, 0, job->cols);
}

void cpu_pack_transposed(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
                         int32_t src_dtype, int64_t rows, int64_t cols, int64_t stride)
{
    pack_job job = {src, dst, rows, cols, stride, rows, src_dtype, dst_dtype};
    host->parallel_for(rows, STRIP, strip_range, &job);
}

/* Prefetches the rows that the next call usually transposes. */
CPU_INLINE void transpose_16(float *dst, int64_t dst_stride, const uint16_t *src, int64_t rows,
                             int64_t cols, int64_t stride, int32_t dtype)
{
    for (int64_t j = 0; j < cols; j += 8)
        for (int64_t i = 0; i < rows; i += 16) {
            if (j % 32 == 0)
                for (int64_t r = i; r < i + 16; r++)
                    __builtin_prefetch(src + (rows + r) * stride + j);
            tile_widened(src + i * stride + j, stride, dst + j * dst_stride + i, dst_stride, dtype);
        }
}

void cpu_transpose_f32(float *dst, int64_t dst_stride, const void *src, int32_t src_dtype,
                       int64_t rows, int64_t cols, int64_t stride)
{
    const int wide = src_dtype == LATHE_F32;
    const int64_t rows_end = wide ? 0 : rows / 16 * 16, cols_end = wide ? 0 : cols / 8 * 8;
    pack_job job = {src, dst, rows, cols, stride, dst_stride, src_dtype, LATHE_F32};
    if (src_dtype == LATHE_BF16)
        transpose_16(dst, dst_stride, src, rows_end, cols_end, stride, LATHE_BF16);
    else if (src_dtype == LATHE_F16)
        transpose_16(dst, dst_stride, src, rows_end, cols_end, stride, LATHE_F16);
    else
        strip_range(&job, 0, rows, 0);
    if (!wide) {
        plain(&job, 0, rows_end, cols_end, cols);
        plain(&job, rows_end, rows, 0, cols);
    }
}
