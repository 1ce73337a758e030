/* Linear attention with a decaying state on GPUs: a block computes one item, all of its threads one
 * product after the other, in global memory. The sums have the order of scan_rule.h. */
#ifndef SCAN_CUDA_H
#define SCAN_CUDA_H

#include "lathe/dtype.h"
#include "lathe/kit/code_image.h"
#include "scan.h"

#define SCAN_RULE static __device__
#define SCAN_EMPTY                                                                                 \
    {                                                                                              \
    }
#define LANE threadIdx.x
#define EACH(i, n)                                                                                 \
    int64_t i = threadIdx.x;                                                                       \
    i < (n);                                                                                       \
    i += SCAN_THREADS

static __device__ void sync(void)
{
    __syncthreads();
}

static __device__ float load(const void *from, int32_t dtype, int64_t i)
{
    if (dtype == LATHE_F32)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

static __device__ void store(void *to, int32_t dtype, int64_t i, float x, int adds)
{
    const float sum = adds ? load(to, dtype, i) + x : x;
    if (dtype == LATHE_F32)
        ((float *)to)[i] = sum;
    else
        ((uint16_t *)to)[i] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(sum) : lathe_f32_to_f16(sum);
}

static __device__ void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                                int64_t a_col, const float *b, int64_t b_ld, float *c, int64_t c_ld,
                                int adds)
{
    for (EACH(item, m * n)) {
        const int64_t i = item / n, j = item % n;
        float sum = adds ? c[i * c_ld + j] : 0.0f;
        for (int64_t p = 0; p < k; p++)
            sum = fmaf(a[i * a_row + p * a_col], b[p * b_ld + j], sum);
        c[i * c_ld + j] = sum;
    }
    sync();
}

static __device__ float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

static __device__ void read_rows(const void *from, int32_t dtype, int64_t at, int64_t step,
                                 int64_t rows, int64_t columns, float factor, float *to, int64_t ld)
{
    for (int64_t t = 0; t < rows; t++)
        for (EACH(i, ld))
            to[t * ld + i] = i < columns ? factor * load(from, dtype, at + t * step + i) : 0.0f;
    sync();
}

static __device__ void write_rows(const float *from, int64_t ld, int64_t rows, int64_t columns,
                                  float factor, void *to, int32_t dtype, int64_t at, int64_t step,
                                  uint32_t adds)
{
    for (int64_t t = 0; t < rows; t++)
        for (EACH(i, columns))
            store(to, dtype, at + t * step + i, factor * from[t * ld + i], (int)adds);
    sync();
}

static __device__ void transpose(const float *from, int64_t from_ld, int64_t rows, int64_t columns,
                                 float *to, int64_t to_ld)
{
    for (int64_t r = 0; r < rows; r++)
        for (EACH(c, columns))
            to[c * to_ld + r] = from[r * from_ld + c];
    sync();
}

#include "scan_rule.h"

/* SCAN_CUDA_KERNELS(op) defines op##_forward, op##_backward and op##_sum. */
#define SCAN_CUDA_ITEMS(name, items, item)                                                         \
    LATHE_CUDA_KERNEL(name, SCAN_THREADS, scan_args)                                               \
    {                                                                                              \
        float *const scratch = a.scratch + blockIdx.x * a.scratch_each;                            \
        for (int64_t i = blockIdx.x; i < items(&a); i += gridDim.x)                                \
            item(&a, i, scratch);                                                                  \
    }
#define SCAN_CUDA_KERNELS(op)                                                                      \
    SCAN_CUDA_ITEMS(op##_forward, scan_forward_items, scan_forward_item)                           \
    SCAN_CUDA_ITEMS(op##_backward, scan_backward_items, scan_backward_item)                        \
    SCAN_CUDA_ITEMS(op##_sum, scan_sum_items, scan_sum_item)

#endif
