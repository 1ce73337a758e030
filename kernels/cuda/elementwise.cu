/* The elementwise ops: the map of map.cuh, one small function per op.
 *
 *   ADD SUB MUL  z = x + y, x - y, x * y      SCALE     y = alpha*x + beta
 *   SCALE_BY     y = x * s[start]             LINCOMB   z = alpha*x + beta*y
 *   LOGSIGMOID   y = log sigmoid(x)           SIGMOID   y = sigmoid(x)
 *   CAST         y = x as another dtype       COPY      y = x, any dtype
 *   CLAMP        y = x, within -limit[start] and limit[start]; NaN stays
 *   APPLY_UPDATE p' = p - s[start]*(alpha*u + beta*p)
 *
 * Bound by memory: each element is read and written once.
 */
#include "map.cuh"

struct add : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] + x[1];
    }
};

struct sub : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] - x[1];
    }
};

struct mul : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] * x[1];
    }
};

struct sigmoid : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = 1.0f / (1.0f + expf(-x[0]));
    }
};

struct logsigmoid : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = fminf(x[0], 0.0f) - log1pf(expf(-fabsf(x[0])));
    }
};

struct scale : cuda_map_fn<1, 1> {
    float alpha, beta;

    explicit scale(const lathe_op_attrs &attrs) : alpha((float)attrs.alpha), beta((float)attrs.beta)
    {
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = alpha * x[0] + beta;
    }
};

struct lincomb : cuda_map_fn<2, 1> {
    float alpha, beta;

    explicit lincomb(const lathe_op_attrs &attrs)
        : alpha((float)attrs.alpha), beta((float)attrs.beta)
    {
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = alpha * x[0] + beta * x[1];
    }
};

struct clamp : cuda_map_fn<1, 1> {
    const float *at;
    float limit;

    explicit clamp(const float *scalar) : at(scalar), limit(0.0f)
    {
    }

    __device__ void begin()
    {
        limit = *at;
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] > limit ? limit : x[0] < -limit ? -limit : x[0];
    }
};

struct apply_update : cuda_map_fn<2, 1> {
    const float *at;
    float alpha, beta, s;

    apply_update(const lathe_op_attrs &attrs, const float *scalars)
        : at(scalars + attrs.start), alpha((float)attrs.alpha), beta((float)attrs.beta), s(0.0f)
    {
    }

    __device__ void begin()
    {
        s = *at;
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] - s * (alpha * x[1] + beta * x[0]);
    }
};

template <typename X, typename Y, typename Z, typename F>
static lathe_status run_as(lathe_kernel *k, const lathe_kernel_args *a, F f)
{
    const void *y = F::n_in > 1 ? a->in[1] : nullptr;
    return cuda_map(
        k, a, f,
        cuda_map_io<X, Y, Z>{
            (const X *)a->in[0], (const Y *)y, nullptr, {(Z *)a->out[0], nullptr}, a->accumulate},
        lathe_desc_count(&k->in[0]));
}

template <typename F> static lathe_status run_same(lathe_kernel *k, const lathe_kernel_args *a, F f)
{
    CUDA_BY_DTYPE(k->in[0].dtype, T, return (run_as<T, T, T>(k, a, f)));
}

template <typename F> static lathe_status run_plain(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same(k, a, F{});
}

static lathe_status run_scale(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same(k, a, scale(k->attrs));
}

static lathe_status run_scale_by(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same(k, a, cuda_times_fn((const float *)a->in[1] + k->attrs.start));
}

/* The output has the dtype of one of the inputs. */
static lathe_status run_lincomb(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lincomb f(k->attrs);
    const int as_x = k->out[0].dtype == k->in[0].dtype;
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->in[1].dtype, Y, {
                      if (as_x)
                          return (run_as<X, Y, X>(k, a, f));
                      return (run_as<X, Y, Y>(k, a, f));
                  }));
}

static lathe_status run_cast(lathe_kernel *k, const lathe_kernel_args *a)
{
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->out[0].dtype, Z, {
                      return (run_as<X, X, Z>(k, a, cuda_same_fn{}));
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

static lathe_status run_clamp(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run_same(k, a, clamp((const float *)a->in[1] + k->attrs.start));
}

static lathe_status run_apply_update(lathe_kernel *k, const lathe_kernel_args *a)
{
    const apply_update f(k->attrs, (const float *)a->in[2]);
    CUDA_BY_DTYPE(k->in[1].dtype, U, return (run_as<float, U, float>(k, a, f)));
}

const kernel_op CUDA_OP(ADD) = {nullptr, run_plain<add>, nullptr, 1};
const kernel_op CUDA_OP(SUB) = {nullptr, run_plain<sub>, nullptr, 1};
const kernel_op CUDA_OP(MUL) = {nullptr, run_plain<mul>, nullptr, 1};
const kernel_op CUDA_OP(SCALE) = {nullptr, run_scale, nullptr, 1};
const kernel_op CUDA_OP(SCALE_BY) = {nullptr, run_scale_by, nullptr, 1};
const kernel_op CUDA_OP(LINCOMB) = {nullptr, run_lincomb, nullptr, 1};
const kernel_op CUDA_OP(CAST) = {nullptr, run_cast, nullptr, 1};
const kernel_op CUDA_OP(COPY) = {nullptr, run_copy, nullptr, 1};
const kernel_op CUDA_OP(SIGMOID) = {nullptr, run_plain<sigmoid>, nullptr, 1};
const kernel_op CUDA_OP(LOGSIGMOID) = {nullptr, run_plain<logsigmoid>, nullptr, 1};
const kernel_op CUDA_OP(CLAMP) = {nullptr, run_clamp, nullptr, 0};
const kernel_op CUDA_OP(APPLY_UPDATE) = {nullptr, run_apply_update, nullptr, 0};
