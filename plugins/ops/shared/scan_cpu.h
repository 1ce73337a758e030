/* Linear attention with a decaying state for one instruction set of the CPU. Each scan_<set>.c
 * includes this file once, with SCAN_KERNELS defined as the name of its table, and is compiled for
 * its set. */
#include <math.h>

#include "lathe/kit/op_kit.h"
#include "scan.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* Vectors of VL floats; a tile of a product has ROWS rows of SCAN_TILE floats in registers. */
#if defined(__AVX512F__)
enum { VL = 16, ROWS = 8 };
#elif defined(__AVX2__)
enum { VL = 8, ROWS = 6 };
#else
enum { VL = 4, ROWS = 2 };
#endif
enum { VECTORS = SCAN_TILE / VL };

typedef float vf __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* a * b + c, rounded once if the set has FMA. */
INLINE vf fused(float a, vf b, vf c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
#else
    return (vf){a, a, a, a} * b + c;
#endif
}

#define SCAN_RULE static
#define SCAN_EMPTY                                                                                 \
    {                                                                                              \
        0                                                                                          \
    }
#define LANE 0
#define EACH(i, n)                                                                                 \
    int64_t i = 0;                                                                                 \
    i < (n);                                                                                       \
    i++

INLINE void sync(void)
{
}

/* `rows` rows of SCAN_TILE columns of a product; rows is a constant where this is inlined. */
INLINE void tile(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b,
                 int64_t b_ld, float *c, int64_t c_ld, int adds)
{
    vf sum[ROWS][VECTORS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS; j++) {
            sum[i][j] = (vf){0};
            if (adds)
                sum[i][j] = *(const vf_any *)(c + i * c_ld + j * VL);
        }
    for (int64_t p = 0; p < k; p++) {
        vf x[VECTORS];
        for (int j = 0; j < VECTORS; j++)
            x[j] = *(const vf_any *)(b + p * b_ld + j * VL);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = fused(a[i * a_row + p * a_col], x[j], sum[i][j]);
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS; j++)
            *(vf_any *)(c + i * c_ld + j * VL) = sum[i][j];
}

static void few_rows(int64_t m, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                     const float *b, int64_t b_ld, float *c, int64_t c_ld, int adds)
{
    int64_t i = 0;
    for (; m - i >= 4 && ROWS >= 4; i += 4)
        tile(ROWS < 4 ? ROWS : 4, k, a + i * a_row, a_row, a_col, b, b_ld, c + i * c_ld, c_ld,
             adds);
    for (; m - i >= 2; i += 2)
        tile(2, k, a + i * a_row, a_row, a_col, b, b_ld, c + i * c_ld, c_ld, adds);
    if (i < m)
        tile(1, k, a + i * a_row, a_row, a_col, b, b_ld, c + i * c_ld, c_ld, adds);
}

static void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                     const float *b, int64_t b_ld, float *c, int64_t c_ld, int adds)
{
    for (int64_t j = 0; j < n; j += SCAN_TILE) {
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS)
            tile(ROWS, k, a + i * a_row, a_row, a_col, b + j, b_ld, c + i * c_ld + j, c_ld, adds);
        if (i < m)
            few_rows(m - i, k, a + i * a_row, a_row, a_col, b + j, b_ld, c + i * c_ld + j, c_ld,
                     adds);
    }
}

/* n is a multiple of SCAN_TILE: sums of the elements at one place of the tiles, then in order. */
static float dot(const float *x, const float *y, int64_t n)
{
    float part[SCAN_TILE] = {0}, sum = 0.0f;
    for (int64_t i = 0; i < n; i += SCAN_TILE)
        for (int j = 0; j < SCAN_TILE; j++)
            part[j] += x[i + j] * y[i + j];
    for (int j = 0; j < SCAN_TILE; j++)
        sum += part[j];
    return sum;
}

static void read_rows(const void *from, int32_t dtype, int64_t at, int64_t step, int64_t rows,
                      int64_t columns, float factor, float *to, int64_t ld)
{
    for (int64_t t = 0; t < rows; t++) {
        float *const row = to + t * ld;
        lathe_op_read(from, dtype, at + t * step, columns, row);
        for (int64_t i = 0; i < columns; i++)
            row[i] *= factor;
        for (int64_t i = columns; i < ld; i++)
            row[i] = 0.0f;
    }
}

/* Changes `from`. */
static void write_rows(float *from, int64_t ld, int64_t rows, int64_t columns, float factor,
                       void *to, int32_t dtype, int64_t at, int64_t step, uint32_t adds)
{
    for (int64_t t = 0; t < rows; t++) {
        float *const row = from + t * ld;
        for (int64_t i = 0; i < columns; i++)
            row[i] *= factor;
        lathe_op_write(to, dtype, at + t * step, columns, row, (int32_t)adds);
    }
}

static void transpose(const float *from, int64_t from_ld, int64_t rows, int64_t columns, float *to,
                      int64_t to_ld)
{
    enum { BLOCK = 16 };
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t i = r; i < r + BLOCK && i < rows; i++)
                to[c * to_ld + i] = from[i * from_ld + c];
}

#include "scan_rule.h"

const scan_functions SCAN_KERNELS = {scan_forward_item, scan_backward_item, scan_sum_item};
