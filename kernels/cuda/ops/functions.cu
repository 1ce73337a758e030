/* Functions of one element, as maps over elements (map.cuh).
 *
 *   EXP LOG ABS TANH  y = exp(x), log(x), |x|, tanh(x)
 *   ABS_BWD           dx = dy * sign(x), 0 where x is 0
 *   TANH_BWD          dx = dy * (1 - y^2), computed as (1 - y)(1 + y): precise where y is near 1
 *
 * Bound by memory: each element is read and written once.
 */
#include "base/map.cuh"

#define FUNCTION(name, ins, expression)                                                            \
    struct name : cuda_map_fn<ins, 1> {                                                            \
        __device__ __forceinline__ void operator()(const float *x, float *y) const                 \
        {                                                                                          \
            y[0] = (expression);                                                                   \
        }                                                                                          \
    };

FUNCTION(exponential, 1, expf(x[0]))
FUNCTION(logarithm, 1, logf(x[0]))
FUNCTION(absolute, 1, fabsf(x[0]))
FUNCTION(tangent, 1, tanhf(x[0]))
FUNCTION(absolute_bwd, 2, x[1] > 0.0f ? x[0] : x[1] < 0.0f ? -x[0] : 0.0f)
FUNCTION(tangent_bwd, 2, x[0] * ((1.0f - x[1]) * (1.0f + x[1])))

const kernel_op CUDA_OP(EXP) = {nullptr, cuda_map_plain<exponential>, nullptr, 1};
const kernel_op CUDA_OP(LOG) = {nullptr, cuda_map_plain<logarithm>, nullptr, 1};
const kernel_op CUDA_OP(ABS) = {nullptr, cuda_map_plain<absolute>, nullptr, 1};
const kernel_op CUDA_OP(TANH) = {nullptr, cuda_map_plain<tangent>, nullptr, 1};
const kernel_op CUDA_OP(ABS_BWD) = {nullptr, cuda_map_plain<absolute_bwd>, nullptr, 1};
const kernel_op CUDA_OP(TANH_BWD) = {nullptr, cuda_map_plain<tangent_bwd>, nullptr, 1};
