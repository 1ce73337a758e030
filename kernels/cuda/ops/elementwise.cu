/* Elementwise ops as maps over elements (map.cuh), one small function per op.
 *
 *   ADD SUB      z = x + y, x - y             SCALE     y = alpha*x + beta
 *   MUL DIV      z = x * y, x / y
 *   SCALE_BY     y = x * s[start]             LINCOMB   z = alpha*x + beta*y
 *   LOGSIGMOID   y = log sigmoid(x)           SIGMOID   y = sigmoid(x)
 *   CAST         y = x as another dtype       COPY      y = x, any dtype
 *   CLAMP        y = x, within -limit[start] and limit[start], or alpha and beta; NaN stays
 * CLAMP_BWD dx = dy where x is within the bounds, else 0
 *   APPLY_UPDATE p' = p - s[start]*(alpha*u + beta*p)
 *
 * Bound by memory: each element is read and written once.
 */
#include "base/cuda_memory.h"
#include "base/map.cuh"

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

struct quotient : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] / x[1];
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

/* Bounds of CLAMP: plus and minus a limit in device memory, or two attributes. */
struct bounds {
    const float *at; /* the limit; NULL: low and high are used */
    float low, high;

    explicit bounds(const lathe_op_attrs &attrs, const void *limits)
        : at(limits == nullptr ? nullptr : (const float *)limits + attrs.start),
          low((float)attrs.alpha), high((float)attrs.beta)
    {
    }

    __device__ __forceinline__ void load()
    {
        if (at == nullptr)
            return;
        high = *at;
        low = -high;
    }
};

struct clamp : cuda_map_fn<1, 1> {
    bounds b;

    explicit clamp(const bounds &of) : b(of)
    {
    }

    __device__ void begin()
    {
        b.load();
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] > b.high ? b.high : x[0] < b.low ? b.low : x[0];
    }
};

/* dx = dy where x is within the bounds, else 0; the inputs are dy and x. */
struct clamp_bwd : cuda_map_fn<2, 1> {
    bounds b;

    explicit clamp_bwd(const bounds &of) : b(of)
    {
    }

    __device__ void begin()
    {
        b.load();
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[1] > b.high || x[1] < b.low ? 0.0f : x[0];
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

static lathe_status run_scale(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cuda_map_same(k, a, scale(k->attrs));
}

static lathe_status run_scale_by(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cuda_map_same(k, a, cuda_times_fn((const float *)a->in[1] + k->attrs.start));
}

/* The output has the dtype of one of the inputs. */
static lathe_status run_lincomb(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lincomb f(k->attrs);
    const int as_x = k->out[0].dtype == k->in[0].dtype;
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->in[1].dtype, Y, {
                      if (as_x)
                          return (cuda_map_as<X, Y, X>(k, a, f));
                      return (cuda_map_as<X, Y, Y>(k, a, f));
                  }));
}

static lathe_status run_cast(lathe_kernel *k, const lathe_kernel_args *a)
{
    CUDA_BY_DTYPE(k->in[0].dtype, X, CUDA_BY_DTYPE(k->out[0].dtype, Z, {
                      return (cuda_map_as<X, X, Z>(k, a, cuda_same_fn{}));
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
    return cuda_map_same(k, a, clamp(bounds(k->attrs, kernel_has_in(k, 1) ? a->in[1] : nullptr)));
}

static lathe_status run_clamp_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cuda_map_same(k, a,
                         clamp_bwd(bounds(k->attrs, kernel_has_in(k, 2) ? a->in[2] : nullptr)));
}

static lathe_status run_apply_update(lathe_kernel *k, const lathe_kernel_args *a)
{
    const apply_update f(k->attrs, (const float *)a->in[2]);
    CUDA_BY_DTYPE(k->in[1].dtype, U, return (cuda_map_as<float, U, float>(k, a, f)));
}

const kernel_op CUDA_OP(ADD) = {nullptr, cuda_map_plain<add>, nullptr, 1};
const kernel_op CUDA_OP(SUB) = {nullptr, cuda_map_plain<sub>, nullptr, 1};
const kernel_op CUDA_OP(MUL) = {nullptr, cuda_map_plain<mul>, nullptr, 1};
const kernel_op CUDA_OP(DIV) = {nullptr, cuda_map_plain<quotient>, nullptr, 1};
const kernel_op CUDA_OP(SCALE) = {nullptr, run_scale, nullptr, 1};
const kernel_op CUDA_OP(SCALE_BY) = {nullptr, run_scale_by, nullptr, 1};
const kernel_op CUDA_OP(LINCOMB) = {nullptr, run_lincomb, nullptr, 1};
const kernel_op CUDA_OP(CAST) = {nullptr, run_cast, nullptr, 1};
const kernel_op CUDA_OP(COPY) = {nullptr, run_copy, nullptr, 1};
const kernel_op CUDA_OP(SIGMOID) = {nullptr, cuda_map_plain<sigmoid>, nullptr, 1};
const kernel_op CUDA_OP(LOGSIGMOID) = {nullptr, cuda_map_plain<logsigmoid>, nullptr, 1};
const kernel_op CUDA_OP(CLAMP) = {nullptr, run_clamp, nullptr, 0};
const kernel_op CUDA_OP(CLAMP_BWD) = {nullptr, run_clamp_bwd, nullptr, 1};
const kernel_op CUDA_OP(APPLY_UPDATE) = {nullptr, run_apply_update, nullptr, 0};
