/* The elementwise ops: one kernel over packs of 16 bytes, one small function per op.
 *
 *   ADD SUB MUL  z = x + y, x - y, x * y      SCALE     y = alpha*x + beta
 *   SCALE_BY     y = x * s[start]             LINCOMB   z = alpha*x + beta*y
 *   LOGSIGMOID   y = log sigmoid(x)           SIGMOID   y = sigmoid(x)
 *   CAST         y = x as another dtype       COPY      y = x, any dtype
 *
 * Bound by memory: each element is read and written once.
 */
#include "launch.cuh"
#include "op_checks.h"

struct factors {
    float alpha, beta;
    const float *by; /* SCALE_BY: takes alpha's place; else NULL */
};

enum { FN_ADD, FN_SUB, FN_MUL, FN_SCALE, FN_LINCOMB, FN_SIGMOID, FN_LOGSIGMOID };

template <int FN>
static __device__ __forceinline__ float value(float x, float y, float alpha, float beta)
{
    switch (FN) {
    case FN_ADD:
        return x + y;
    case FN_SUB:
        return x - y;
    case FN_MUL:
        return x * y;
    case FN_SCALE:
        return alpha * x + beta;
    case FN_LINCOMB:
        return alpha * x + beta * y;
    case FN_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    default:
        return fminf(x, 0.0f) - log1pf(expf(-fabsf(x)));
    }
}

/* N elements at a time; z may be x or y. */
template <int FN, int N, typename X, typename Y, typename Z>
static __global__ void __launch_bounds__(CUDA_THREADS)
    map(const X *x, const Y *y, Z *z, int64_t n, factors f, int accumulate)
{
    const float alpha = f.by != nullptr ? *f.by : f.alpha;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n / N;
         i += (int64_t)gridDim.x * blockDim.x) {
        const auto a = ((const cuda_pack<X, N> *)x)[i];
        const auto b = y == nullptr ? cuda_pack<Y, N>{} : ((const cuda_pack<Y, N> *)y)[i];
        cuda_pack<Z, N> out = accumulate ? ((const cuda_pack<Z, N> *)z)[i] : cuda_pack<Z, N>{};
        for (int j = 0; j < N; j++)
            cuda_put(&out.v[j], accumulate,
                     value<FN>(cuda_float(a.v[j]), cuda_float(b.v[j]), alpha, f.beta));
        ((cuda_pack<Z, N> *)z)[i] = out;
    }
}

template <int FN, typename X, typename Y, typename Z>
static lathe_status run_as(lathe_kernel *k, const lathe_kernel_args *a, const void *y, factors f)
{
    constexpr int lanes = 4;
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int add = (a->accumulate & 1u) != 0;
    const int packs =
        n % lanes == 0 && ((uintptr_t)a->in[0] | (uintptr_t)a->out[0] | (uintptr_t)y) % 16 == 0;
    const int64_t blocks = cuda_blocks(cuda_of(k), packs ? n / lanes : n);
    if (n == 0)
        return LATHE_OK;
    if (packs)
        return cuda_run(k, a, blocks, CUDA_THREADS, map<FN, lanes, X, Y, Z>, (const X *)a->in[0],
                        (const Y *)y, (Z *)a->out[0], n, f, add);
    return cuda_run(k, a, blocks, CUDA_THREADS, map<FN, 1, X, Y, Z>, (const X *)a->in[0],
                    (const Y *)y, (Z *)a->out[0], n, f, add);
}

template <int FN>
static lathe_status run_same(lathe_kernel *k, const lathe_kernel_args *a, factors f)
{
    const void *y = FN == FN_ADD || FN == FN_SUB || FN == FN_MUL ? a->in[1] : nullptr;
    CUDA_BY_DTYPE(k->in[0].dtype, T, return (run_as<FN, T, T, T>(k, a, y, f)));
}

static lathe_status run_scale(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same<FN_SCALE>(k, a, {(float)k->attrs.alpha, (float)k->attrs.beta, nullptr});
}

static lathe_status run_scale_by(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same<FN_SCALE>(k, a, {0.0f, 0.0f, (const float *)a->in[1] + k->attrs.start});
}

template <int FN> static lathe_status run_plain(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same<FN>(k, a, {0.0f, 0.0f, nullptr});
}

/* The output has the dtype of one of the inputs. */
static lathe_status run_lincomb(lathe_kernel *k, const lathe_kernel_args *a)
{
    const factors f = {(float)k->attrs.alpha, (float)k->attrs.beta, nullptr};
    const int as_x = k->out[0].dtype == k->in[0].dtype;
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->in[1].dtype, Y, {
                      if (as_x)
                          return (run_as<FN_LINCOMB, X, Y, X>(k, a, a->in[1], f));
                      return (run_as<FN_LINCOMB, X, Y, Y>(k, a, a->in[1], f));
                  }));
}

static lathe_status run_cast(lathe_kernel *k, const lathe_kernel_args *a)
{
    const factors same = {1.0f, 0.0f, nullptr};
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->out[0].dtype, Z, {
                      return (run_as<FN_SCALE, X, X, Z>(k, a, nullptr, same));
                  }));
}

static lathe_status run_copy(lathe_kernel *k, const lathe_kernel_args *a)
{
    if (a->accumulate & 1u)
        return run_cast(k, a);
    if (a->out[0] == a->in[0])
        return LATHE_OK;
    return cuda_memory_copy(k->device, a->stream, a->out[0], a->in[0], lathe_desc_bytes(&k->in[0]),
                            LATHE_COPY_ON_DEVICE);
}

const kernel_op cuda_op_add = {kernel_check_binary, run_plain<FN_ADD>, nullptr, 1};
const kernel_op cuda_op_sub = {kernel_check_binary, run_plain<FN_SUB>, nullptr, 1};
const kernel_op cuda_op_mul = {kernel_check_binary, run_plain<FN_MUL>, nullptr, 1};
const kernel_op cuda_op_scale = {kernel_check_unary, run_scale, nullptr, 1};
const kernel_op cuda_op_scale_by = {kernel_check_scale_by, run_scale_by, nullptr, 1};
const kernel_op cuda_op_lincomb = {kernel_check_lincomb, run_lincomb, nullptr, 1};
const kernel_op cuda_op_cast = {kernel_check_cast, run_cast, nullptr, 1};
const kernel_op cuda_op_copy = {kernel_check_copy, run_copy, nullptr, 1};
const kernel_op cuda_op_sigmoid = {kernel_check_unary, run_plain<FN_SIGMOID>, nullptr, 1};
const kernel_op cuda_op_logsigmoid = {kernel_check_unary, run_plain<FN_LOGSIGMOID>, nullptr, 1};
