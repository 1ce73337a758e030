/* SWIGLU_CLAMPED and its derivative: a thread per pair of columns.
 *
 *   g = min(x[2j], beta), u = x[2j+1] limited to -beta .. beta, s = sigmoid(alpha g)
 *   y = g * s * (u + 1)
 *   dx[2j] = dy * (u + 1) * s * (1 + alpha g (1 - s)) where x[2j] <= beta, else 0
 *   dx[2j+1] = dy * g * s where -beta <= x[2j+1] <= beta, else 0
 *
 * Bound by memory: 3 elements moved per pair, 5 in the derivative, which is the minimum.
 */
#include "ops/gelu.cuh"

struct clamped_pair {
    float gate, up, g, u, s;
};

template <typename T>
static __device__ __forceinline__ clamped_pair pair_at(const T *x, int64_t i, float alpha,
                                                       float beta)
{
    clamped_pair p;
    p.gate = cuda_float(x[2 * i]);
    p.up = cuda_float(x[2 * i + 1]);
    p.g = p.gate > beta ? beta : p.gate;
    p.u = p.up > beta ? beta : p.up < -beta ? -beta : p.up;
    p.s = cuda_sigmoid(alpha * p.g);
    return p;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward(const T *x, T *y, int64_t n, float alpha, float beta)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const clamped_pair p = pair_at(x, i, alpha, beta);
        cuda_put(y + i, 0, p.g * p.s * (p.u + 1.0f));
    }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    backward(const T *dy, const T *x, T *dx, int64_t n, float alpha, float beta, int accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const clamped_pair p = pair_at(x, i, alpha, beta);
        const float d = cuda_float(dy[i]);
        const float dg = d * (p.u + 1.0f) * p.s * (1.0f + alpha * p.g * (1.0f - p.s));
        cuda_put(dx + 2 * i, accumulate, p.gate > beta ? 0.0f : dg);
        cuda_put(dx + 2 * i + 1, accumulate, p.up > beta || p.up < -beta ? 0.0f : d * p.g * p.s);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->out[0]);
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n), CUDA_THREADS, forward<T>,
                        (const T *)a->in[0], (T *)a->out[0], n, (float)k->attrs.alpha,
                        (float)k->attrs.beta);
    });
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n), CUDA_THREADS, backward<T>,
                        (const T *)a->in[0], (const T *)a->in[1], (T *)a->out[0], n,
                        (float)k->attrs.alpha, (float)k->attrs.beta, (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(SWIGLU_CLAMPED) = {nullptr, run, nullptr, 0};
const kernel_op CUDA_OP(SWIGLU_CLAMPED_BWD) = {nullptr, run_bwd, nullptr, 1};
