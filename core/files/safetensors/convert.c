/* Converts stored floats between dtypes, also with a transposition. */
#include "files/safetensors/convert.h"

#include "base/error.h"
#include "base/parallel.h"

#define GRAIN 65536 /* elements per task */
#define TILE 32     /* side of a transposed tile: its source lines stay in the L1 cache */

int32_t lathe_convert_takes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_BF16 || dtype == LATHE_F16 || dtype == LATHE_F64;
}

/* Converts n elements to f32; src may be unaligned. */
static void load_f32(float *restrict dst, const uint8_t *restrict src, int32_t dtype, int64_t n)
{
    switch (dtype) {
    case LATHE_F32:
        memcpy(dst, src, (size_t)n * 4);
        break;
    case LATHE_BF16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, src + 2 * i, 2);
            dst[i] = lathe_bf16_to_f32(bits);
        }
        break;
    case LATHE_F16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, src + 2 * i, 2);
            dst[i] = lathe_f16_to_f32(bits);
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            double wide;
            memcpy(&wide, src + 8 * i, 8);
            dst[i] = (float)wide;
        }
    }
}

static void store_f32(uint8_t *restrict dst, int32_t dtype, const float *restrict src, int64_t n)
{
    switch (dtype) {
    case LATHE_F32:
        memcpy(dst, src, (size_t)n * 4);
        break;
    case LATHE_BF16:
        for (int64_t i = 0; i < n; i++) {
            const uint16_t bits = lathe_f32_to_bf16(src[i]);
            memcpy(dst + 2 * i, &bits, 2);
        }
        break;
    case LATHE_F16:
        for (int64_t i = 0; i < n; i++) {
            const uint16_t bits = lathe_f32_to_f16(src[i]);
            memcpy(dst + 2 * i, &bits, 2);
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            const double wide = (double)src[i];
            memcpy(dst + 8 * i, &wide, 8);
        }
    }
}

typedef struct job {
    uint8_t *dst;
    const uint8_t *src;
    int32_t dst_dtype, src_dtype;
    int64_t dst_size, src_size; /* bytes per element */
    int64_t rows, cols;
} job;

static void convert_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = arg;
    if (j->dst_dtype == j->src_dtype) {
        memcpy(j->dst + begin * j->dst_size, j->src + begin * j->src_size,
               (size_t)((end - begin) * j->dst_size));
        return;
    }
    if (j->dst_dtype == LATHE_F32 && ((uintptr_t)j->dst & 3) == 0) {
        load_f32((float *)(void *)(j->dst + begin * 4), j->src + begin * j->src_size, j->src_dtype,
                 end - begin);
        return;
    }
    float part[1024];
    for (int64_t at = begin; at < end; at += 1024) {
        const int64_t n = end - at < 1024 ? end - at : 1024;
        load_f32(part, j->src + at * j->src_size, j->src_dtype, n);
        store_f32(j->dst + at * j->dst_size, j->dst_dtype, part, n);
    }
}

/* Transposes output rows [begin, end), tile by tile. */
static void transpose_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = arg;
    float in[TILE][TILE], out[TILE];
    for (int64_t c0 = begin; c0 < end; c0 += TILE)
        for (int64_t r0 = 0; r0 < j->rows; r0 += TILE) {
            const int64_t nc = end - c0 < TILE ? end - c0 : TILE;
            const int64_t nr = j->rows - r0 < TILE ? j->rows - r0 : TILE;
            for (int64_t r = 0; r < nr; r++)
                load_f32(in[r], j->src + ((r0 + r) * j->cols + c0) * j->src_size, j->src_dtype, nc);
            for (int64_t c = 0; c < nc; c++) {
                for (int64_t r = 0; r < nr; r++)
                    out[r] = in[r][c];
                store_f32(j->dst + ((c0 + c) * j->rows + r0) * j->dst_size, j->dst_dtype, out, nr);
            }
        }
}

static lathe_status check_dtypes(int32_t dst_dtype, int32_t src_dtype)
{
    if (lathe_convert_takes(dst_dtype) && lathe_convert_takes(src_dtype))
        return LATHE_OK;
    return lathe_error(LATHE_E_DTYPE, "no conversion from %s to %s", lathe_dtype_name(src_dtype),
                       lathe_dtype_name(dst_dtype));
}

lathe_status lathe_convert(void *dst, int32_t dst_dtype, const void *src, int32_t src_dtype,
                           int64_t n)
{
    LATHE_TRY(check_dtypes(dst_dtype, src_dtype));
    job j = {
        dst, src, dst_dtype, src_dtype, lathe_dtype_bytes(dst_dtype), lathe_dtype_bytes(src_dtype),
        1,   n};
    lathe_parallel_for(n, GRAIN, convert_range, &j);
    return LATHE_OK;
}

lathe_status lathe_convert_transposed(void *dst, int32_t dst_dtype, const void *src,
                                      int32_t src_dtype, int64_t rows, int64_t cols)
{
    LATHE_TRY(check_dtypes(dst_dtype, src_dtype));
    job j = {
        dst,  src, dst_dtype, src_dtype, lathe_dtype_bytes(dst_dtype), lathe_dtype_bytes(src_dtype),
        rows, cols};
    lathe_parallel_for(cols, TILE, transpose_range, &j);
    return LATHE_OK;
}
