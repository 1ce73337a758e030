/* Evaluates graphs of cuDNN operations in double. Virtual tensors are also rounded to their types,
 * as in an engine that multiplies in these types. */
#include "emulator_cudnn.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lathe/dtype.h"

namespace
{

using namespace emulated_cudnn;

/* A position in a tensor of four dims, and the same in a tensor where some dims are smaller: 1, or
 * key heads. */
struct place {
    int64_t i[4];

    place in(const int64_t (&of)[4], const int64_t (&to)[4]) const
    {
        place p;
        for (int d = 0; d < 4; d++)
            p.i[d] = i[d] * to[d] / of[d];
        return p;
    }
};

int64_t dense(const tensor &t, const place &p)
{
    return ((p.i[0] * t.dims[1] + p.i[1]) * t.dims[2] + p.i[2]) * t.dims[3] + p.i[3];
}

int64_t strided(const tensor &t, const place &p)
{
    return p.i[0] * t.strides[0] + p.i[1] * t.strides[1] + p.i[2] * t.strides[2] +
           p.i[3] * t.strides[3];
}

template <typename F> void each(const tensor &t, F f)
{
    for (int64_t a = 0; a < t.dims[0]; a++)
        for (int64_t b = 0; b < t.dims[1]; b++)
            for (int64_t c = 0; c < t.dims[2]; c++)
                for (int64_t d = 0; d < t.dims[3]; d++)
                    f(place{{a, b, c, d}});
}

double load(const void *base, int64_t i, int32_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return (double)((const float *)base)[i];
    case CUDNN_DATA_INT32:
        return (double)((const int32_t *)base)[i];
    case CUDNN_DATA_BFLOAT16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)base)[i]);
    default:
        return (double)lathe_f16_to_f32(((const uint16_t *)base)[i]);
    }
}

void store(void *base, int64_t i, int32_t type, double x)
{
    if (type == CUDNN_DATA_FLOAT)
        ((float *)base)[i] = (float)x;
    else
        ((uint16_t *)base)[i] =
            type == CUDNN_DATA_BFLOAT16 ? lathe_f32_to_bf16((float)x) : lathe_f32_to_f16((float)x);
}

double rounded(double x, int32_t type)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return (double)lathe_bf16_to_f32(lathe_f32_to_bf16((float)x));
    if (type == CUDNN_DATA_HALF)
        return (double)lathe_f16_to_f32(lathe_f32_to_f16((float)x));
    return type == CUDNN_DATA_FLOAT ? (double)(float)x : x;
}

/* All tensors of a run, dense. */
struct machine {
    const graph &g;
    const std::map<int64_t, void *> &at;
    std::map<int64_t, std::vector<double>> values;

    const tensor &of(int64_t uid) const
    {
        return g.tensors.at(uid);
    }

    const std::vector<double> &read(int64_t uid)
    {
        auto found = values.find(uid);
        if (found != values.end())
            return found->second;
        const tensor &t = of(uid);
        const void *memory = at.at(uid);
        std::vector<double> &v = values[uid];
        v.resize((size_t)t.count());
        each(t,
             [&](const place &p) { v[(size_t)dense(t, p)] = load(memory, strided(t, p), t.type); });
        return v;
    }

    void write(int64_t uid, std::vector<double> &&v)
    {
        const tensor &t = of(uid);
        for (double &x : v)
            x = rounded(x, t.type);
        if (!t.is_virtual)
            each(t, [&](const place &p) {
                store(at.at(uid), strided(t, p), t.type, v[(size_t)dense(t, p)]);
            });
        values[uid] = std::move(v);
    }
};

double combine(int32_t mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_CMP_LT:
        return x < b;
    case CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default: /* CUDNN_POINTWISE_BINARY_SELECT */
        return t != 0.0 ? x : b;
    }
}

void pointwise(machine &m, const operation &op)
{
    const tensor &y = m.of(op.y), &x = m.of(op.x), &b = m.of(op.b ? op.b : op.x),
                 &t = m.of(op.t ? op.t : op.x);
    std::vector<double> out((size_t)y.count());
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
        each(y, [&](const place &p) { out[(size_t)dense(y, p)] = (double)p.i[op.axis]; });
    } else {
        const std::vector<double> &vx = m.read(op.x), &vb = m.read(b.uid), &vt = m.read(t.uid);
        each(y, [&](const place &p) {
            out[(size_t)dense(y, p)] = combine(op.mode, vx[(size_t)dense(x, p.in(y.dims, x.dims))],
                                               vb[(size_t)dense(b, p.in(y.dims, b.dims))],
                                               vt[(size_t)dense(t, p.in(y.dims, t.dims))]);
        });
    }
    m.write(op.y, std::move(out));
}

void matmul(machine &m, const operation &op)
{
    const tensor &a = m.of(op.x), &b = m.of(op.b), &c = m.of(op.y);
    const std::vector<double> &va = m.read(op.x), &vb = m.read(op.b);
    std::vector<double> out((size_t)c.count());
    each(c, [&](const place &p) {
        const place pa = p.in(c.dims, a.dims), pb = p.in(c.dims, b.dims);
        double sum = 0.0;
        for (int64_t k = 0; k < a.dims[3]; k++)
            sum += va[(size_t)dense(a, {{pa.i[0], pa.i[1], p.i[2], k}})] *
                   vb[(size_t)dense(b, {{pb.i[0], pb.i[1], k, p.i[3]}})];
        out[(size_t)dense(c, p)] = sum;
    });
    m.write(op.y, std::move(out));
}

void reduction(machine &m, const operation &op)
{
    const tensor &x = m.of(op.x), &y = m.of(op.y);
    const bool is_max = op.mode == CUDNN_REDUCE_TENSOR_MAX;
    const std::vector<double> &vx = m.read(op.x);
    std::vector<double> out((size_t)y.count(), is_max ? -INFINITY : 0.0);
    each(x, [&](const place &p) {
        double &to = out[(size_t)dense(y, p.in(x.dims, y.dims))];
        const double v = vx[(size_t)dense(x, p)];
        to = is_max ? fmax(to, v) : to + v;
    });
    m.write(op.y, std::move(out));
}

/* Only the exchange of the last two dims is supported; it is read from the dims and strides of
 * y. */
void reshape(machine &m, const operation &op)
{
    const tensor &x = m.of(op.x), &y = m.of(op.y);
    const std::vector<double> &vx = m.read(op.x);
    std::vector<double> out((size_t)y.count());
    each(y, [&](const place &p) {
        out[(size_t)dense(y, p)] = vx[(size_t)dense(x, {{p.i[0], p.i[1], p.i[3], p.i[2]}})];
    });
    m.write(op.y, std::move(out));
}

/* ---- soundness ---- */

bool divides(const tensor &small, const tensor &large)
{
    for (int d = 0; d < 4; d++)
        if (small.dims[d] < 1 || large.dims[d] % small.dims[d] != 0)
            return false;
    return true;
}

bool fits(const graph &g, const operation &op)
{
    const tensor &x = g.tensors.at(op.x), &y = g.tensors.at(op.y);
    switch (op.what) {
    case kind::matmul: {
        const tensor &b = g.tensors.at(op.b);
        for (int d = 0; d < 2; d++)
            if (y.dims[d] % x.dims[d] != 0 || y.dims[d] % b.dims[d] != 0)
                return false;
        return x.dims[3] == b.dims[2] && y.dims[2] == x.dims[2] && y.dims[3] == b.dims[3];
    }
    case kind::pointwise:
        return divides(x, y) && (op.b == 0 || divides(g.tensors.at(op.b), y)) &&
               (op.t == 0 || divides(g.tensors.at(op.t), y)) &&
               (op.mode == CUDNN_POINTWISE_BINARY_SELECT) == (op.t != 0);
    case kind::reduction:
        return divides(y, x);
    default:
        return y.dims[0] == x.dims[0] && y.dims[1] == x.dims[1] && y.dims[2] == x.dims[3] &&
               y.dims[3] == x.dims[2] && y.strides[2] == x.strides[3] &&
               y.strides[3] == x.strides[2];
    }
}

} // namespace

bool emulated_cudnn::is_sound(const graph &g)
{
    std::map<int64_t, bool> made;
    for (const operation &op : g.ops) {
        for (const int64_t in : {op.x, op.b, op.t})
            if (in != 0 && g.tensors.at(in).is_virtual && !made[in])
                return false;
        if (made[op.y] || g.tensors.at(op.y).is_number || !fits(g, op))
            return false;
        made[op.y] = true;
    }
    return true;
}

void emulated_cudnn::evaluate(const graph &g, const std::map<int64_t, void *> &at)
{
    machine m{g, at, {}};
    for (const operation &op : g.ops)
        switch (op.what) {
        case kind::pointwise:
            pointwise(m, op);
            break;
        case kind::matmul:
            matmul(m, op);
            break;
        case kind::reduction:
            reduction(m, op);
            break;
        default:
            reshape(m, op);
        }
}
