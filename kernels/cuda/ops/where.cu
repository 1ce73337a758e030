/* Selects elements, as maps over elements (map.cuh).
 *
 *   MIN MAX    y = the smaller, the larger of a and b; NaN if one of them is NaN
 *   LESS       y = 1 where a < b, else 0
 *   WHERE      y = a where condition > 0.5, else b
 *   WHERE_BWD  da = dy where condition > 0.5, else 0;  db = dy - da
 *
 * Bound by memory: each element is read and written once.
 */
#include "base/map.cuh"

#define PAIR(name, expression)                                                                     \
    struct name : cuda_map_fn<2, 1> {                                                              \
        __device__ __forceinline__ void operator()(const float *x, float *y) const                 \
        {                                                                                          \
            y[0] = (expression);                                                                   \
        }                                                                                          \
    };

PAIR(smaller, x[0] < x[1] || x[0] != x[0] ? x[0] : x[1])
PAIR(larger, x[1] < x[0] || x[0] != x[0] ? x[0] : x[1])
PAIR(less, x[0] < x[1] ? 1.0f : 0.0f)

struct where : cuda_map_fn<3, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        y[0] = x[0] > 0.5f ? x[1] : x[2];
    }
};

/* The inputs are dy and the condition. */
struct where_bwd : cuda_map_fn<2, 2> {
    __device__ __forceinline__ void operator()(const float *x, float *d) const
    {
        d[0] = x[1] > 0.5f ? x[0] : 0.0f;
        d[1] = x[1] > 0.5f ? 0.0f : x[0];
    }
};

const kernel_op CUDA_OP(MIN) = {nullptr, cuda_map_plain<smaller>, nullptr, 1};
const kernel_op CUDA_OP(MAX) = {nullptr, cuda_map_plain<larger>, nullptr, 1};
const kernel_op CUDA_OP(LESS) = {nullptr, cuda_map_plain<less>, nullptr, 1};
const kernel_op CUDA_OP(WHERE) = {nullptr, cuda_map_plain<where>, nullptr, 0};
const kernel_op CUDA_OP(WHERE_BWD) = {nullptr, cuda_map_plain<where_bwd>, nullptr, 3};
