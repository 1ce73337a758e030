/* Ops that move rows or look them up, and RoPE. */
#include <stddef.h>

#include "conformance/op_reference.h"

static void embed(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[0]), w = p->in[1].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        out[0][i] = in[1][(int64_t)in[0][i / w] * w + i % w];
}

static void embed_bwd(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[1]), w = p->out[0].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        out[0][(int64_t)in[1][i / w] * w + i % w] += in[0][i];
}

static void rope(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[1]), d = p->attrs.head_dim;
    const int64_t width = lathe_desc_count(&p->in[0]) / n;
    for (int64_t r = 0; r < n; r++)
        for (int64_t e = 0; e < width; e++) {
            const int64_t i = e % d % (d / 2), first = r * width + e / d * d + i;
            const double *angles = in[2] + (int64_t)in[1][r] * d;
            const double sine = p->attrs.inverse ? -angles[d / 2 + i] : angles[d / 2 + i];
            const double x1 = in[0][first], x2 = in[0][first + d / 2];
            out[0][r * width + e] =
                e % d < d / 2 ? x1 * angles[i] - x2 * sine : x2 * angles[i] + x1 * sine;
        }
}

static void slice(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int back = p->op == LATHE_OP_SLICE_BWD;
    const lathe_desc *whole = back ? &p->out[0] : &p->in[0];
    const int64_t row = lathe_desc_count(whole) / whole->dims[0], at = p->attrs.start * row;
    for (int64_t i = 0; i < p->attrs.count * row; i++)
        out[0][back ? at + i : i] = in[0][back ? i : at + i];
}

static void kv_append(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t b = p->in[0].dims[0], positions = p->in[0].dims[1], w = p->in[0].dims[2];
    const int64_t tq = lathe_desc_count(&p->in[1]) / (b * w);
    for (int64_t i = 0; i < b * positions * w; i++)
        out[0][i] = in[0][i];
    for (int64_t i = 0; i < b * tq * w; i++) {
        const int64_t row = i / (tq * w), t = i / w % tq;
        out[0][(row * positions + (int64_t)in[2][row] - tq + t) * w + i % w] = in[1][i];
    }
}

static void transpose(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t rows = p->in[0].dims[0], cols = p->in[0].dims[1];
    for (int64_t i = 0; i < rows * cols; i++)
        out[0][i % cols * rows + i / cols] = in[0][i];
}

lathe__op_function lathe__op_rows(int32_t op)
{
    switch (op) {
    case LATHE_OP_EMBED:
        return embed;
    case LATHE_OP_EMBED_BWD:
        return embed_bwd;
    case LATHE_OP_ROPE:
        return rope;
    case LATHE_OP_SLICE:
    case LATHE_OP_SLICE_BWD:
        return slice;
    case LATHE_OP_KV_APPEND:
        return kv_append;
    case LATHE_OP_TRANSPOSE:
        return transpose;
    default:
        return NULL;
    }
}
