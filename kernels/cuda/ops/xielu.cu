/* XIELU and its derivative.
 *
 *   y = P x^2 + beta x  for x > 0, else  N (expm1(min(x, eps)) - x) + beta x
 *   P = softplus(alpha_p), N = beta + softplus(alpha_n)
 *
 * A map over elements (map.cuh), bound by memory: 2 elements moved forward, 3 backward. For the
 * gradients of alpha_p and alpha_n, each block writes its sums over 16384 elements to the scratch,
 * and one block adds these (sums.cuh): 2 elements more.
 */
#include "base/map.cuh"
#include "base/sums.cuh"

struct xielu_numbers {
    const float *alpha_p, *alpha_n, *beta, *eps; /* in device memory */
};

static __device__ __forceinline__ float softplus(float x)
{
    return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

struct xielu : cuda_map_fn<1, 1> {
    xielu_numbers at;
    float p, n, b, e;

    __device__ void begin()
    {
        b = *at.beta;
        e = *at.eps;
        p = softplus(*at.alpha_p);
        n = b + softplus(*at.alpha_n);
    }

    __device__ __forceinline__ void operator()(const float *in, float *y) const
    {
        const float x = in[0], low = x < e ? x : e;
        y[0] = (x > 0.0f ? p * x * x : n * (expm1f(low) - x)) + b * x;
    }
};

struct xielu_bwd : cuda_map_fn<2, 1> {
    xielu_numbers at;
    float p, n, b, e;

    __device__ void begin()
    {
        b = *at.beta;
        e = *at.eps;
        p = softplus(*at.alpha_p);
        n = b + softplus(*at.alpha_n);
    }

    __device__ __forceinline__ void operator()(const float *in, float *dx) const
    {
        const float x = in[1], bend = (x < e ? expf(x) : 0.0f) - 1.0f;
        dx[0] = in[0] * ((x > 0.0f ? 2.0f * p * x : n * bend) + b);
    }
};

/* of_p: the sums of alpha_p; else those of alpha_n. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_pieces(const T *dy, const T *x, const float *eps, double *partials, int64_t n, int of_p)
{
    const float e = *eps;
    const double sum = cuda_range_sum(cuda_piece_first(), cuda_piece_last(n), [&](int64_t i) {
        const float v = cuda_float(x[i]), g = cuda_float(dy[i]);
        if (v > 0.0f)
            return of_p ? (double)(g * v * v) : 0.0;
        return of_p ? 0.0 : (double)(g * (expm1f(v < e ? v : e) - v));
    });
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    add_pieces(const double *partials, int64_t pieces, const float *alpha, float *out,
               int accumulate)
{
    const double sum = cuda_range_sum(0, pieces, [&](int64_t i) { return partials[i]; });
    if (threadIdx.x == 0)
        cuda_put(out, accumulate, (float)(sum / (1.0 + exp(-(double)*alpha))));
}

/* first: number of the input alpha_p */
static xielu_numbers numbers_of(const lathe_kernel_args *a, int first)
{
    return {(const float *)a->in[first], (const float *)a->in[first + 1],
            (const float *)a->in[first + 2], (const float *)a->in[first + 3]};
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    xielu f = {};
    f.at = numbers_of(a, 1);
    return cuda_map_same(k, a, f);
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    if (kernel_has_out(k, 1) || kernel_has_out(k, 2))
        *out_scratch = cuda_sum_pieces(lathe_desc_count(&k->in[1])) * (int64_t)sizeof(double);
    return LATHE_OK;
}

static lathe_status add_gradient(lathe_kernel *k, const lathe_kernel_args *a, int out)
{
    const int64_t n = lathe_desc_count(&k->in[1]), pieces = cuda_sum_pieces(n);
    double *partials = (double *)a->scratch;
    CUDA_BY_DTYPE(k->in[1].dtype, T, {
        LATHE_TRY(cuda_run(k, a, pieces, CUDA_THREADS, sum_pieces<T>, (const T *)a->in[0],
                           (const T *)a->in[1], (const float *)a->in[5], partials, n,
                           (int)(out == 1)));
    });
    return cuda_run(k, a, 1, CUDA_THREADS, add_pieces, (const double *)partials, pieces,
                    (const float *)a->in[1 + out], (float *)a->out[out],
                    (int)(a->accumulate >> out & 1u));
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    xielu_bwd f = {};
    f.at = numbers_of(a, 2);
    for (int out = 1; out < 3; out++) /* first: dx may take the memory of dy */
        if (kernel_has_out(k, out))
            LATHE_TRY(add_gradient(k, a, out));
    return cuda_map_same(k, a, f);
}

const kernel_op CUDA_OP(XIELU) = {nullptr, run, nullptr, 0};
const kernel_op CUDA_OP(XIELU_BWD) = {prepare_bwd, run_bwd, nullptr, 7};
