/* The gated delta rule on GPUs: a block computes one item, all of its threads one product after the
 * other, in global memory. The sums have the order of delta_rule.h. */
#include "gated_delta.h"
#include "lathe/dtype.h"
#include "lathe/kit/code_image.h"

#define DELTA_RULE static __device__
#define DELTA_EMPTY                                                                                \
    {                                                                                              \
    }
#define LANE threadIdx.x
#define EACH(i, n)                                                                                 \
    int64_t i = threadIdx.x;                                                                       \
    i < (n);                                                                                       \
    i += DELTA_THREADS

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

#include "delta_rule.h"

LATHE_CUDA_KERNEL(gated_delta_forward, DELTA_THREADS, delta_args)
{
    float *const scratch = a.scratch + blockIdx.x * a.scratch_each;
    for (int64_t i = blockIdx.x; i < delta_forward_items(&a); i += gridDim.x)
        delta_forward_item(&a, i, scratch);
}

LATHE_CUDA_KERNEL(gated_delta_backward, DELTA_THREADS, delta_args)
{
    float *const scratch = a.scratch + blockIdx.x * a.scratch_each;
    for (int64_t i = blockIdx.x; i < delta_backward_items(&a); i += gridDim.x)
        delta_backward_item(&a, i, scratch);
}
